"""`whatwhere encode`: the codes of images, what and where, as one .npz file."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import typer

import whatwhere as ww
from whatwhere.cli.command import Settings, command
from whatwhere.cli.inputs import DISTORTIONS, EXECUTION, ImageInput, open_run, read_images, with_preset
from whatwhere.cli.outputs import Stages, claim
from whatwhere.errors import printable
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, CountOrZero, NonNegative
from whatwhere.spec.tasks import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Checked):
    """What `encode` writes, and how it cuts large pictures.

    where    also write the pooling variables, which decoding needs
    descriptors  write rows for a classifier instead, in a metric in which small distortions count little
    tile     side of the overlapping tiles that pictures are inferred in, in pixels; 0: never. Default: 256, for
             pictures of more than 1,048,576 pixels
    overlap  pixels that tiles next to each other share
    threshold  the least amplitude of an event, in units of the signals
    """

    where: bool = False
    descriptors: bool = False
    tile: CountOrZero | None = None
    overlap: CountOrZero = 64
    threshold: NonNegative = 0.0


@command(
    EncodeOptions,
    DISTORTIONS,
    (ImageInput, "mask"),
    EXECUTION,
    (Recipe, "inference descriptor"),
    flags="where descriptors mask device",
)
def encode(
    run: Path,
    images: str,
    *,
    out: Path | None = None,
    events: Path | None = None,
    overwrite: bool = False,
    preset: str | None = None,
    settings: Settings,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Infer the top layer's features of images with the model of a run. Pictures may be of several sizes.

    The file holds the features that are not 0, and `labels` and `names` where there are any; with --where also the
    pooling variables of the regions in use. `whatwhere decode` makes images of it, and Python reads it with
    `whatwhere.load_codes`. With --descriptors it holds the array `descriptors`, a row for each image, which are of one
    size; the metric is learned from the images, without labels, and saved with the run. With --events the events of
    signals of any length are written as a table: which waveform, when, how strongly.

    out     the .npz file to write
    events  the .csv file of events to write, for a model of signals
    preset  as for `classify`; default: coding, and recipe with --descriptors
    """
    from whatwhere.cli.encoding import Encoder, write_descriptors, write_events
    from whatwhere.inference import resolve_lam

    execution, options = settings.of(TrainingOptions), settings.of(EncodeOptions)
    chosen = preset or ("recipe" if options.descriptors else "coding")
    recipe, model = with_preset(*open_run(run, execution.device, execution.engine), chosen, settings)
    given = settings.override(ImageInput(source=images))
    if out is None and events is None:
        raise typer.BadParameter("give --out FILE for codes, or --events FILE for a table of events of signals")
    claim([path for path in (out, events) if path is not None], run, images, given.mask, overwrite=overwrite)
    if events is not None:
        signals = ww.data.load(images, signals=True, allow_nan=True)
        count = write_events(events, recipe, model, signals, options, execution.engine)
        written = {"file": str(events), "events": count}
        typer.echo(json.dumps(written) if json_ else f"{printable(events)}: {count:,} events")
    if out is None:
        return
    if options.descriptors:
        trained = ww.TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
        shape = write_descriptors(out, trained, read_images(run, images), settings, Stages(quiet).stage)
        found = {"file": str(out), "arrays": {"descriptors": shape}}
        typer.echo(json.dumps(found) if json_ else f"{printable(out)}: descriptors {shape}")
        return
    groups = given.by_size(run, signals=model.spec.for_signals)
    most, masks = max(groups, key=lambda group: len(group[0]))
    recipe = replace(recipe, inference=resolve_lam(model, most, recipe.inference, recipe.plan, mask=masks))
    encoder = Encoder(recipe, model, groups, options, execution.engine)
    title = groups[0][0].name if len(groups) == 1 else f"{images} ({len(groups)} sizes or kinds)"
    with Stages(quiet).stage(f"encoding {title}", encoder.pieces) as advance:
        shapes = encoder.write(out, advance)
    if json_:
        typer.echo(json.dumps({"file": str(out), "engine": encoder.engine_used, "arrays": shapes}))
    else:
        arrays = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        typer.echo(f"{printable(out)}: {arrays} ({encoder.engine_used} engine)")
