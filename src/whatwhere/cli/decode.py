"""`whatwhere decode`: codes back into images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Device, Quiet, RunOrModel

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from whatwhere.data.codes import Codes
    from whatwhere.model import DeconvNet

CodesFile = Annotated[Path, typer.Argument(metavar="CODES", help="A file that `whatwhere encode --where` wrote.")]
Out = Annotated[
    Path,
    typer.Option(metavar="FILE", help="An .npz file for all images, or a folder for a PNG picture of each."),
]


def decode(run: RunOrModel, codes: CodesFile, out: Out, device: Device = "auto", quiet: Quiet = False) -> None:
    """Reconstruct images from their codes, in the units that came in.

    An .npz file holds `images` [N, C, H, W] and `labels` where there are any; it needs images of one size. Any other
    name is a folder, in which every image becomes a PNG picture of its own name or number.
    """
    from whatwhere.cli.inputs import open_run
    from whatwhere.cli.stages import Stages
    from whatwhere.data.codes import load_codes
    from whatwhere.errors import printable

    _, model = open_run(run, device)
    loaded = load_codes(codes)
    with Stages(quiet=quiet).stage(f"decoding {printable(codes)}", len(loaded)) as advance:

        def images() -> Iterator[Tensor]:
            for i in range(len(loaded)):
                yield loaded.decode(model, i)
                advance(1)

        write_array(out, loaded, images()) if out.suffix == ".npz" else write_pictures(out, loaded, images(), model)
    typer.echo(printable(out))


def write_array(out: Path, codes: Codes, images: Iterator[Tensor]) -> None:
    from whatwhere.data.npz_writer import write_npz

    codes.require_one_size("an .npz file of images")
    batches: Iterator[dict[str, np.ndarray[Any, Any]]] = ({"images": image[None].cpu().numpy()} for image in images)
    write_npz(out, len(codes), batches, {} if codes.labels is None else {"labels": codes.labels})


def write_pictures(out: Path, codes: Codes, images: Iterator[Tensor], model: DeconvNet) -> None:
    """A PNG of 8 bits of each image; a name with its label's folder becomes one with an underscore."""
    from whatwhere.errors import ImageError
    from whatwhere.files import disk_errors, new_folder, write_atomic
    from whatwhere.model.picture import png

    names = codes.names or [f"{i:0{len(str(len(codes)))}}" for i in range(len(codes))]
    with disk_errors(f"writing {out}", "make room, or choose another folder"), new_folder(out):
        for name, image in zip(names, images, strict=True):
            if len(image) not in (1, 3):
                raise ImageError(f"images of {len(image)} channels are not pictures; write an .npz file")
            shades = (255 / model.spec.input.white * image.cpu()).clamp(0, 255).round().byte()
            pixels = shades[0] if len(shades) == 1 else shades.permute(1, 2, 0)
            write_atomic(out / f"{name.replace('/', '_').rsplit('.', 1)[0]}.png", png(pixels))
