"""`whatwhere encode` and `decode`: the codes of images, what and where, as one .npz file, and back
into images."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS
from whatwhere.codes.settings import EncodeOptions
from whatwhere.commands.builder import Settings, UsageError, command
from whatwhere.commands.inputs import (
    EXECUTION,
    SHARD,
    ImageInput,
    open_run,
    open_shard,
    read_images,
    read_recording,
    recorded_by,
    with_preset,
)
from whatwhere.commands.outputs import Report, Stages, claim, write
from whatwhere.errors import ImageError, RunError, SpecError, listed, plural, printable
from whatwhere.spec import AutoLam, Recipe
from whatwhere.spec.execution import Execution, Shard

if TYPE_CHECKING:
    from whatwhere.app.encoding import Encoder
    from whatwhere.data.mixed import Group

GAPS_SHOWN = 5  # gaps of a recording that are named
LEARNED_HINT = (
    " Without --preset, this command takes the learned steps that `whatwhere distill` saved. If the"
    " codes are older than these steps, give --preset coding."
)


@command(
    EncodeOptions,
    DISTORTIONS,
    (ImageInput, "mask rate"),
    EXECUTION,
    SHARD,
    (Recipe, "inference descriptor"),
    flags="where descriptors mask rate device shard",
)
def encode(
    run: Path,
    images: str,
    *,
    out: Path | None = None,
    events: Path | None = None,
    preset: str | None = None,
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Compute the features of images with a trained model, and write them to a file.

    Pictures may have different sizes. An interrupted command continues when you run it again. With
    --shard, --out is a folder with a part for each shard; `whatwhere decode` and `load_codes` read
    the folder as one.

    The file has all features that are not 0, rounded to a few bits (exact with --set exact=true),
    and the `labels` and `names` of the images if they have any. With --where it also has the
    pooling variables. `whatwhere decode` turns the file into images, and `whatwhere.load_codes`
    reads it in Python.

    With --descriptors, the file has an array `descriptors` with a row for each image. Pictures of
    several sizes are scaled and cut to squares of one size, as for `classify`. The command learns
    the metric of the rows from the images, without labels, and saves it with the run.

    With --events, the command writes the events of a recording as a table: which waveform, when,
    and how strongly.

    out     the .npz file to write; with --shard, the folder for the parts
    events  the .csv file of events to write, for a model of recordings
    preset  how to infer features: recipe, coding or learned, as for `classify`. Default: recipe
            with --descriptors; otherwise learned if the model has learned steps, and coding if not

    $ whatwhere encode mnist mnist:test --out codes.npz
    $ whatwhere encode runs/mine pictures/ --out rows.npz --descriptors
    $ whatwhere encode runs/signals recording.wav --events events.csv
    """
    from whatwhere.app.encoding import Encoder, record_of_descriptors, write_descriptors
    from whatwhere.data.parts import check_next_part

    execution = settings.of(Execution)
    options = settings.of(EncodeOptions)
    shard = open_shard(settings, out, quiet=quiet)
    opened = open_run(run, execution.device, execution.engine)
    hint = "" if preset else LEARNED_HINT
    preset = preset or default_preset(opened[1], settings)
    hint = hint if preset == "learned" else ""
    recipe, model = with_preset(*opened, preset, settings)
    given = settings.override(ImageInput(source=images))
    if out is None and events is None:
        raise UsageError(
            "Give --out FILE for codes, or --events FILE for a table of the events in a recording."
        )
    file = None if out is None else shard.part_of(out, ".npz")
    # The model and the settings that a file records show whether it may be complete already.
    may_be_complete = not overwrite and may_have_written(file, recipe, model, options, hint)
    outputs = [events, None if may_be_complete else file]
    claim(
        [path for path in outputs if path is not None],
        run,
        images,
        given.mask,
        overwrite=overwrite,
    )
    trained = ww.TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
    if events is not None:
        recording = read_recording(run, images, given.rate)
        report = encode_events(events, trained, recording, settings, Stages(quiet))
        typer.echo(report.text(json_))
    if file is None:
        return
    if options.descriptors:
        pictures = pictures_to_describe(run, images, shard)
        record = None
        if not shard.is_all:
            record = record_of_descriptors(trained, pictures.all_pictures, settings)
            if not overwrite:
                check_next_part(file.parent, shard, record)
        shape = write_descriptors(file, trained, pictures, settings, Stages(quiet).stage, record)
        facts = {"file": str(file), "arrays": {"descriptors": shape}}
        typer.echo(Report(facts, f"{printable(file)}: descriptors {shape}").text(json_))
        return
    groups, recipe = open_groups(run, given, recipe, model, shard)
    encoder = Encoder(recipe, model, groups, options, execution.engine, shard)
    if not overwrite:
        check_next_part(file.parent, shard, encoder.record, hint)
    if may_be_complete:
        if not encoder.has_written(file):
            raise exists_already(file, "other pictures, or pictures that changed since")
        typer.echo(report_codes(file, encoder, shard, complete_before=True).text(json_))
        return
    title = groups[0][0].name if len(groups) == 1 else f"{images} ({len(groups)} sizes or kinds)"
    write_codes(file, encoder, f"encoding {title} with {preset_words(preset, recipe)}", quiet)
    typer.echo(report_codes(file, encoder, shard).text(json_))


def may_have_written(
    file: Path | None, recipe: Recipe, model: "ww.DeconvNet", options: EncodeOptions, hint: str
) -> bool:
    """Whether a file of codes exists that this command may have written. Codes of another model or
    of other settings raise a RunError; a λ that is still to be chosen from the images is not
    compared.

    hint  a sentence about other settings
    """
    from whatwhere.app.encoding import record_of
    from whatwhere.codes.files import made_of
    from whatwhere.data.parts import read_record

    if file is None or not os.path.isfile(file) or not made_of(file):
        return False
    record = record_of(recipe, model, options)
    if isinstance(recipe.inference.lam, AutoLam):
        record = replace(record, settings="")
    if words := record.other_source(read_record(file)):
        raise exists_already(file, words, hint)
    return True


def exists_already(file: Path, words: str, hint: str = "") -> RunError:
    """The error for codes that exist already, but are not those of this command.

    words  what they were made with instead
    hint   a sentence about other settings
    """
    return RunError(
        f"{printable(file)} exists already, and was made with {words}. Choose another path, or"
        f" replace it with --overwrite.{hint}"
    )


def open_groups(
    run: Path, given: ImageInput, recipe: Recipe, model: "ww.DeconvNet", shard: Shard
) -> "tuple[list[Group], Recipe]":
    """The images of a shard and their masks, and the recipe with λ as a number."""
    from whatwhere.inference import resolve_lam

    read = partial(
        ww.data.load_groups,
        given.source,
        given.mask,
        recorded_by(run),
        signals=model.spec.for_signals,
    )
    groups = read(shard=shard)
    # If λ is chosen from the images, it is chosen from the images of all shards.
    by_images = isinstance(recipe.inference.lam, AutoLam) and not shard.is_all
    seen = read() if by_images else groups
    most, masks = max(seen, key=lambda group: len(group[0]))
    inference = resolve_lam(model, most, recipe.inference, recipe.plan, mask=masks)
    return groups, replace(recipe, inference=inference)


def write_codes(file: Path, encoder: "Encoder", title: str, quiet: bool) -> None:
    """Write the codes; report what an earlier command left, and how far this one came if it is
    stopped."""
    stages = Stages(quiet)
    done = encoder.done(file)
    if done.images:
        stages.note(f"continuing: {done.images:,} of {encoder.images:,} images are done")
    try:
        with stages.stage(title, encoder.pieces, done.pieces) as advance:
            encoder.write(file, advance)
    except (KeyboardInterrupt, SystemExit):
        left = encoder.done(file).images
        stages.note(
            f"stopped: {left:,} of {encoder.images:,} images are done. Run the same command again"
            " to continue."
        )
        raise


def pictures_to_describe(run: Path, source: str, shard: Shard) -> "ww.data.Images":
    """The pictures to describe. Those of a shard get the size and the channels of the pictures that
    the metric of the run learned from."""
    from whatwhere.classification.picture_classifier import metric_shape

    if shard.is_all:
        return read_images(run, source)
    metric = run / "metric.safetensors"
    if not metric.is_file():
        raise SpecError(
            f"Shards need one metric for all descriptors, and {printable(run)} has none yet. Learn"
            " it first: encode some of the images with --descriptors and --shard 1/1."
        )
    shape = metric_shape(metric)
    if shape is None:  # not recorded by an earlier version: the sizes of all pictures show it
        pictures = read_images(run, source)
        return pictures.subset(list(shard.rows_of_pictures(len(pictures))))
    channels, height, width = shape
    side = height if height == width else None
    pictures = ww.data.load(source, size=side, recorded=recorded_by(run), shard=shard)
    pictures = pictures.with_channels(channels)
    if pictures.shape != shape:
        raise ImageError(
            f"{pictures.name} has pictures of {'×'.join(map(str, pictures.shape))}, but the metric"
            f" of {printable(run)} is for {'×'.join(map(str, shape))}. Give pictures of this size,"
            " or learn the metric again with --shard 1/1."
        )
    return pictures


def encode_events(
    file: Path,
    run: "ww.TrainedRun",
    signals: "ww.data.Signals",
    settings: Settings,
    stages: Stages,
) -> Report:
    """Write the table of the events of signals."""
    from whatwhere.app.encoding import write_events
    from whatwhere.signals.find import tile_count
    from whatwhere.signals.recording import unknown_gaps

    options = settings.of(EncodeOptions)
    engine = settings.of(Execution).engine
    with stages.stage(
        f"finding events in {signals.name}", tile_count(run.model, signals)
    ) as advance:
        count = write_events(file, run.recipe, run.model, signals, options, engine, advance)
    length = run.model.spec.layers[0].filter_shape[1]
    gaps = unknown_gaps(signals, length)
    words = f"{printable(file)}: {plural(count, 'event')}"
    if gaps:
        words += (
            f"; events are unknown in {plural(len(gaps), 'gap')} longer than a waveform ({length}"
            f" samples): {in_words(gaps, signals)}"
        )
    if count == 0:
        words += (
            ". Check that the recording has the rate and the unit of the one that the model"
            " learned from"
        )
    if signals.rate is None:
        words += "; no times in seconds, because the rate is not known (give --rate)"
    facts = {
        "file": str(file),
        "events": count,
        "gaps": [[gap.start, gap.stop] for gap in gaps],  # samples
    }
    return Report(facts, words)


def in_words(gaps: list[slice], signals: "ww.data.Signals") -> str:
    """The first gaps, in seconds if the rate is known."""
    shown = [in_time(gap, signals) for gap in gaps[:GAPS_SHOWN]]
    more = len(gaps) - len(shown)
    if more:
        shown.append(f"{more:,} more")
    return listed(shown)


def in_time(gap: slice, signals: "ww.data.Signals") -> str:
    """A gap, from its first sample to the first one after it."""
    if signals.rate is None:
        return f"{gap.start:,} to {gap.stop:,}"
    digits = max(0, math.ceil(math.log10(signals.rate)))  # enough to tell samples apart
    first = signals.start + gap.start / signals.rate
    last = signals.start + gap.stop / signals.rate
    return f"{first:.{digits}f} to {last:.{digits}f} s"


def report_codes(
    file: Path, encoder: "Encoder", shard: Shard, *, complete_before: bool = False
) -> Report:
    """Report what the file of codes holds, and which engine inferred them.

    complete_before  the file was complete before this command
    """
    size = file.stat().st_size
    facts = {
        "file": str(file),
        "engine": encoder.engine_used,
        "images": encoder.images,
        "bytes": size,
        "shard": str(shard),
    }
    words = f"{printable(file)}: codes of {plural(encoder.images, 'image')}, {size / 1e6:,.2f} MB"
    if encoder.engine_used:
        words += f" ({encoder.engine_used} engine)"
    if complete_before:
        part = "the file" if shard.is_all else f"part {shard.index} of {shard.count}"
        words += f"; {part} was complete already, so nothing was left to do"
    return Report(facts, words)


def default_preset(model: "ww.DeconvNet", settings: Settings) -> str:
    """The preset without --preset: learned steps if the model has them, since they take a tenth of
    the time; otherwise converged codes."""
    from whatwhere.inference.learned_steps import saved_steps

    if settings.of(EncodeOptions).descriptors:
        return "recipe"
    if settings.given("inference") or model.source is None or not saved_steps(model.source):
        return "coding"
    return "learned"


def preset_words(preset: str, recipe: Recipe) -> str:
    """How images are inferred, for the title of the progress display."""
    if preset.startswith("learned"):
        return f"{recipe.inference.steps} learned steps"
    return f"--preset {preset}"


@command()
def decode(
    run: Path, codes: Path, *, out: Path, overwrite: bool = False, quiet: bool = False
) -> None:
    """Reconstruct images from the codes that `encode` wrote.

    If --out is an .npz file, it has `images` [N, C, H, W], all of one size, and `labels` if there
    are any. Any other name is a folder with a PNG picture for each image, named after the image or
    its number. Values have the units of the encoded images.

    codes  a file that `whatwhere encode --where` wrote, or the folder with the parts of all shards
    out    an .npz file for all images, or a folder for PNG pictures

    $ whatwhere encode mnist mnist:test --out codes.npz --where
    $ whatwhere decode mnist codes.npz --out reconstructed.npz
    """
    import torch

    from whatwhere.data.arrays import write_npz

    _, model = open_run(run, "auto")
    loaded = ww.load_codes(codes)
    as_array = out.suffix == ".npz"
    numbers = [f"{i:0{len(str(len(loaded)))}}" for i in range(len(loaded))]
    files = [out] if as_array else [out / name for name in picture_names(loaded.names or numbers)]
    if as_array:
        loaded.require_one_size("an .npz file of images")
    elif not set(loaded.image_shapes[:, 0]) <= {1, 3}:
        raise ImageError(
            f"Cannot write {printable(codes)} as pictures: its images are neither grey nor colour."
            " Write an .npz file instead."
        )
    loaded.decode(model, 0)  # codes of another model are an error before anything is written
    claim(files, run, codes, folder=None if as_array else out, overwrite=overwrite)
    with Stages(quiet).stage(f"decoding {printable(codes)}", len(loaded)) as advance:

        def images() -> Iterator[Any]:
            for i in range(len(loaded)):
                yield loaded.decode(model, i).cpu()
                advance(1)

        if as_array:
            labels = {} if loaded.labels is None else {"labels": loaded.labels}
            write_npz(out, {"images": torch.stack(list(images())).numpy(), **labels})
        else:
            write_pictures(files, images(), model)
    typer.echo(printable(out))


def write_pictures(files: list[Path], images: Iterator[Any], model: "ww.DeconvNet") -> None:
    """An 8-bit PNG of each image."""
    from whatwhere.html import png

    for file, image in zip(files, images, strict=True):
        shades = (255 / model.spec.input.white * image).clamp(0, 255).round().byte()
        write(file, png(shades[0] if len(shades) == 1 else shades.permute(1, 2, 0)))


def picture_names(names: list[str]) -> list[str]:
    """A file for each image: cats/a.jpg becomes cats_a.png. If two of them would be one file, all
    are numbered."""
    stems = [re.sub(r"[^\w. -]", "_", name).rsplit(".", 1)[0][:200] for name in names]
    # some systems do not distinguish a.png and A.png
    if len({stem.casefold() for stem in stems}) < len(stems):
        stems = [f"{i:0{len(str(len(names)))}}_{stem}" for i, stem in enumerate(stems)]
    return [f"{stem}.png" for stem in stems]
