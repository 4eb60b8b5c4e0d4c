"""`whatwhere encode` and `decode`: the codes of images, what and where, as one .npz file, and back
into images."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import whatwhere as ww
from whatwhere.codes.settings import EncodeOptions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    SHARD,
    ImageInput,
    open_run,
    open_shard,
    recorded_by,
    usual_preset,
    with_preset,
)
from whatwhere.commands.old_forms import Moved, model_first
from whatwhere.commands.outputs import Report, Stages, claim, write
from whatwhere.errors import ImageError, plural, printable
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution, Shard

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.codes.encoder import Encoder
    from whatwhere.codes.writer import CodesFile

_LEARNED_HINT = (
    " Without --preset, this command takes the learned steps that `whatwhere distill` saved. If the"
    " codes are older than these steps, give --preset coding."
)


@command(
    EncodeOptions,
    (ImageInput, "mask"),
    EXECUTION,
    SHARD,
    (Recipe, "inference"),
    flags="where mask device shard",
    old=(Moved("--events", "events", "--out"), Moved("--descriptors", "describe"), model_first()),
)
def encode(
    images: str,
    run: Path,
    *,
    out: Path,
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
    reads it in Python. `whatwhere describe` writes rows for a classifier, and `whatwhere events` a
    table of the events in a recording.

    Parameters
    ----------
    out
        the .npz file to write; with --shard, the folder for the parts
    preset
        how to infer features: recipe, coding or learned, as for `classify`. Default: learned if the
        model has learned steps, and coding if not

    Examples
    --------
    $ whatwhere encode mnist:test mnist --out codes.npz
    $ whatwhere encode pictures/ runs/mine --out codes.npz --where
    """
    from whatwhere.codes.writer import open_codes_file

    execution = settings.of(Execution)
    shard = open_shard(settings, out, quiet=quiet)
    opened = open_run(run, execution.device, execution.engine)
    hint = "" if preset else _LEARNED_HINT
    preset = preset or usual_preset(opened[1], settings)
    recipe, model = with_preset(*opened, preset, settings)
    given = settings.override(ImageInput(source=images))
    codes = open_codes_file(
        out,
        recipe,
        model,
        (given.source, given.mask),
        options=settings.of(EncodeOptions),
        recorded=recorded_by(run),
        inputs=[run],
        engine=execution.engine,
        shard=shard,
        overwrite=overwrite,
        hint=hint if preset == "learned" else "",
    )
    if not codes.is_complete:
        _write(codes, f"encoding {codes.title} with {_preset_words(preset, recipe)}", quiet)
    report = _report(codes.file, codes.encoder, shard, complete_before=codes.is_complete)
    typer.echo(report.text(json_))


def _write(codes: "CodesFile", title: str, quiet: bool) -> None:
    """Write the codes; report what an earlier command left, and how far this one came if it is
    stopped."""
    stages = Stages(quiet)
    encoder = codes.encoder
    done = encoder.done(codes.file)
    if done.images:
        stages.note(f"continuing: {done.images:,} of {encoder.images:,} images are done")
    try:
        with stages.stage(title, encoder.pieces, done.pieces) as advance:
            encoder.write(codes.file, advance)
    except (KeyboardInterrupt, SystemExit):
        left = encoder.done(codes.file).images
        stages.note(
            f"stopped: {left:,} of {encoder.images:,} images are done. Run the same command again"
            " to continue."
        )
        raise


def _report(
    file: Path, encoder: "Encoder", shard: Shard, *, complete_before: bool = False
) -> Report:
    """Report what the file of codes holds, and which engine inferred them.

    Parameters
    ----------
    complete_before
        the file was complete before this command
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


def _preset_words(preset: str, recipe: Recipe) -> str:
    """Return how images are inferred, for the title of the progress display."""
    if preset.startswith("learned"):
        return f"{recipe.inference.steps} learned steps"
    return f"--preset {preset}"


@command(old=(model_first("codes"),))
def decode(
    codes: Path, run: Path, *, out: Path, overwrite: bool = False, quiet: bool = False
) -> None:
    """Reconstruct images from the codes that `encode` wrote.

    If --out is an .npz file, it has `images` [N, C, H, W], all of one size, and `labels` if there
    are any. Any other name is a folder with a PNG picture for each image, named after the image or
    its number. Values have the units of the encoded images.

    Parameters
    ----------
    codes
        a file that `whatwhere encode --where` wrote, or the folder with the parts of all shards
    out
        an .npz file for all images, or a folder for PNG pictures

    Examples
    --------
    $ whatwhere encode mnist:test mnist --out codes.npz --where
    $ whatwhere decode codes.npz mnist --out reconstructed.npz
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

        def images() -> "Iterator[Tensor]":
            for i in range(len(loaded)):
                yield loaded.decode(model, i).cpu()
                advance(1)

        if as_array:
            labels = {} if loaded.labels is None else {"labels": loaded.labels}
            write_npz(out, {"images": torch.stack(list(images())).numpy(), **labels})
        else:
            _write_pictures(out, files, images(), model)
    typer.echo(printable(out))


def _write_pictures(
    folder: Path, files: list[Path], images: "Iterator[Tensor]", model: "ww.DeconvNet"
) -> None:
    """Write an 8-bit PNG of each image."""
    from whatwhere.html import png

    for file, image in zip(files, images, strict=True):
        shades = (255 / model.spec.input.white * image).clamp(0, 255).round().byte()
        write(file, png(shades[0] if len(shades) == 1 else shades.permute(1, 2, 0)), folder)


def picture_names(names: list[str]) -> list[str]:
    """Return a file for each image: cats/a.jpg becomes cats_a.png. If two of them would be one
    file, all are numbered."""
    stems = [re.sub(r"[^\w. -]", "_", name).rsplit(".", 1)[0][:200] for name in names]
    # some systems do not distinguish a.png and A.png
    if len({stem.casefold() for stem in stems}) < len(stems):
        stems = [f"{i:0{len(str(len(names)))}}_{stem}" for i, stem in enumerate(stems)]
    return [f"{stem}.png" for stem in stems]
