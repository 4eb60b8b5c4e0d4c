"""`whatwhere encode`: the codes of images, what and where, as one .npz file."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from whatwhere.cli.command import command
from whatwhere.cli.inputs import DISTORTIONS, EXECUTION, ImageInput, open_run, read_images, with_preset
from whatwhere.cli.settings import Settings
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, CountOrZero
from whatwhere.spec.training import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Checked):
    """What `encode` writes, and how it cuts large pictures.

    where    also write the pooling variables, which decoding needs
    descriptors  write rows for a classifier instead, in a metric in which small distortions count little
    tile     side of the overlapping tiles that pictures are inferred in, in pixels; 0: never. Default: 256, for
             pictures of more than 1,048,576 pixels
    overlap  pixels that tiles next to each other share
    """

    where: bool = False
    descriptors: bool = False
    tile: CountOrZero | None = None
    overlap: CountOrZero = 64


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
    out: Path,
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
    size; the metric is learned from the images, without labels, and saved with the run.

    out     the .npz file to write
    preset  as for `classify`; default: coding, and recipe with --descriptors
    """
    from whatwhere.cli.encoding import Encoder
    from whatwhere.cli.outputs import claim
    from whatwhere.cli.stages import Stages
    from whatwhere.errors import printable
    from whatwhere.inference import resolve_lam

    execution, options = settings.of(TrainingOptions), settings.of(EncodeOptions)
    chosen = preset or ("recipe" if options.descriptors else "coding")
    recipe, model = with_preset(*open_run(run, execution.device), chosen, settings)
    given = settings.override(ImageInput(source=images))
    claim([out], run, images, given.mask, overwrite=overwrite)
    if options.descriptors:
        from whatwhere.cli.labelling import write_descriptors
        from whatwhere.learning import TrainedRun

        trained = TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
        with Stages(quiet).named() as progress:
            shape = write_descriptors(out, trained, read_images(run, images), settings, progress)
        found = {"file": str(out), "arrays": {"descriptors": shape}}
        typer.echo(json.dumps(found) if json_ else f"{printable(out)}: descriptors {shape}")
        return
    groups = given.by_size(run)
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
