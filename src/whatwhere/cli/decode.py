"""`whatwhere decode`: codes back into images."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import whatwhere as ww
from whatwhere.cli.command import command
from whatwhere.cli.inputs import open_run
from whatwhere.cli.outputs import Stages, claim, write
from whatwhere.errors import ImageError, printable


@command()
def decode(run: Path, codes: Path, *, out: Path, overwrite: bool = False, quiet: bool = False) -> None:
    """Reconstruct images from their codes, in the units that came in.

    An .npz file holds `images` [N, C, H, W] and `labels` where there are any; it needs images of one size. Any other
    name is a folder, in which every image becomes a PNG picture of its own name or number.

    codes  a file that `whatwhere encode --where` wrote
    out    an .npz file for all images, or a folder for a PNG picture of each
    """
    import torch

    from whatwhere.data.arrays import write_npz

    _, model = open_run(run, "auto")
    loaded, as_array = ww.load_codes(codes), out.suffix == ".npz"
    numbers = [f"{i:0{len(str(len(loaded)))}}" for i in range(len(loaded))]
    files = [out] if as_array else [out / name for name in picture_names(loaded.names or numbers)]
    if as_array:
        loaded.require_one_size("an .npz file of images")
    elif not set(loaded.arrays["image_shape"][:, 0]) <= {1, 3}:
        raise ImageError(f"{printable(codes)} has images that are neither grey nor colour; write an .npz file")
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
    from whatwhere.explorer.pages import png

    for file, image in zip(files, images, strict=True):
        shades = (255 / model.spec.input.white * image).clamp(0, 255).round().byte()
        write(file, png(shades[0] if len(shades) == 1 else shades.permute(1, 2, 0)))


def picture_names(names: list[str]) -> list[str]:
    """A file for each image: cats/a.jpg becomes cats_a.png. If two of them would be one file, all are numbered."""
    stems = [re.sub(r"[^\w. -]", "_", name).rsplit(".", 1)[0][:200] for name in names]
    if len({stem.casefold() for stem in stems}) < len(stems):  # some systems do not distinguish a.png and A.png
        stems = [f"{i:0{len(str(len(names)))}}_{stem}" for i, stem in enumerate(stems)]
    return [f"{stem}.png" for stem in stems]
