"""`whatwhere denoise` and `whatwhere inpaint`: one picture, or all pictures of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Device, Engine, Quiet

if TYPE_CHECKING:
    from whatwhere.restoration.pictures import Job

In = Annotated[Path, typer.Argument(metavar="IN", help="A picture, or a folder of pictures.")]
Out = Annotated[
    Path,
    typer.Argument(
        metavar="OUT", help="The picture to write, or the folder for those of a folder; its ending is the format."
    ),
]
MaskPicture = Annotated[
    str,
    typer.Argument(
        metavar="MASK",
        help="A picture, black where pixels are to be filled in; for a folder one for all, or a folder of masks with "
        "the names of the pictures. alpha: transparent pixels are filled in.",
    ),
]
Model = Annotated[
    str, typer.Option(metavar="MODEL", help="A model known by name (whatwhere models), a run folder or a model file.")
]
Noise = Annotated[
    float | None,
    typer.Option(metavar="SIGMA", help="Standard deviation of the noise, white being 1. Default: estimated."),
]
KnownNoise = Annotated[
    float,
    typer.Option(
        "--noise", metavar="SIGMA", help="Noise of the known pixels, white being 1; with 0 they stay as they are."
    ),
]
Learn = Annotated[bool, typer.Option("--learn", help="Adapt the model to each picture before restoring it.")]
Views = Annotated[
    int | None, typer.Option(metavar="N", help="Restorations to average; more are better and take longer.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Restore again what OUT holds already.")]


def denoise(
    pictures: In,
    out: Out,
    model: Model = "photographs",
    noise: Noise = None,
    learn: Learn = False,
    views: Views = None,
    overwrite: Overwrite = False,
    engine: Engine = "auto",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Remove noise from a picture, or from all pictures of a folder.

    8-bit pictures stay 8 bit, 16-bit grey ones 16 bit. A folder that was interrupted continues where it stopped.
    """
    from whatwhere.restoration.pictures import Task

    task = Task("denoise", noise=noise, learn=learn, views=views, model=model)
    _restore(task, pictures, None, out, overwrite, engine, device, quiet)


def inpaint(
    pictures: In,
    mask: MaskPicture,
    out: Out,
    model: Model = "photographs",
    noise: KnownNoise = 0.0,
    learn: Learn = False,
    views: Views = None,
    overwrite: Overwrite = False,
    engine: Engine = "auto",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Fill in missing pixels of a picture, or of all pictures of a folder; known pixels stay as they are."""
    from whatwhere.restoration.pictures import Task

    task = Task("inpaint", noise=noise, learn=learn, views=views, model=model)
    _restore(task, pictures, mask, out, overwrite, engine, device, quiet)


def _restore(
    task: Any, pictures: Path, mask: str | None, out: Path, overwrite: bool, engine: str, device: str, quiet: bool
) -> None:
    """Check everything, then restore picture after picture."""
    from whatwhere.cli.inputs import open_model
    from whatwhere.cli.stages import Stages
    from whatwhere.errors import printable
    from whatwhere.restoration.pictures import plan_jobs, restore_picture

    net = open_model(task.model, device)
    jobs: list[Job] = plan_jobs(task, net, pictures, mask, out, overwrite)
    stages = Stages(quiet=quiet)
    for job in jobs:
        with stages.stage(f"{task.name} {job.source.name}", job.tiles) as advance:
            restore_picture(task, net, job, engine, advance)
    typer.echo(f"{printable(out)}: {len(jobs):,} restored" + ("" if jobs else " (all were there already)"))
