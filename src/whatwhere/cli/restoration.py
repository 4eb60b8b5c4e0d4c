"""`whatwhere denoise` and `whatwhere inpaint`: one picture, or all pictures of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whatwhere.cli.command import Settings, command
from whatwhere.spec.tasks import RestorationSpec, TrainingOptions

if TYPE_CHECKING:
    from whatwhere.restoration.checks import Model
    from whatwhere.restoration.denoise import Noise
    from whatwhere.restoration.pictures import Task


@command(RestorationSpec, (TrainingOptions, "device"), flags="device")
def denoise(
    pictures: Path,
    out: Path,
    *,
    model: str = "denoiser",
    noise: str | None = None,
    learn: bool = False,
    overwrite: bool = False,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Remove noise from a picture, or from all pictures of a folder.

    8-bit pictures stay 8 bit, 16-bit grey ones 16 bit. A folder that was interrupted continues where it stopped.

    out        the picture to write, or the folder for those of a folder; its ending is the format
    model      denoiser, whose steps are learned from photographs; or dictionary, of atoms of photographs
    noise      standard deviation of the noise, white being 1; default: estimated. poisson: pixels count photons.
               GAIN,SIGMA: Poisson noise of counts of GAIN each, and white noise
    learn      adapt the dictionary to each picture before denoising with it
    overwrite  restore again what OUT holds already
    """
    from whatwhere.restoration.pictures import Task

    if model not in ("denoiser", "dictionary"):
        raise typer.BadParameter(f"model = {model} was given; expected denoiser or dictionary")
    model = "dictionary" if learn else model
    task = Task("denoise", model, settings.of(RestorationSpec), parse_noise(noise), learn)
    restore(task, pictures, None, out, overwrite, settings.of(TrainingOptions), quiet)


@command(RestorationSpec, (TrainingOptions, "device"), flags="device")
def inpaint(
    pictures: Path,
    mask: str,
    out: Path,
    *,
    noise: float = 0.0,
    overwrite: bool = False,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Fill in missing pixels of a picture, or of all pictures of a folder; known pixels stay as they are.

    mask       a picture, black where pixels are to be filled in; for a folder one for all, or a folder of masks with
               the names of the pictures. alpha: transparent pixels are filled in
    out        the picture to write, or the folder for those of a folder; its ending is the format
    noise      noise of the known pixels, white being 1; with 0 they stay as they are
    overwrite  restore again what OUT holds already
    """
    from whatwhere.restoration.pictures import Task

    task = Task("inpaint", "denoiser", settings.of(RestorationSpec), noise)
    restore(task, pictures, mask, out, overwrite, settings.of(TrainingOptions), quiet)


def parse_noise(text: str | None) -> Noise:
    """What --noise means: a number, poisson, or two numbers."""
    from whatwhere.restoration.checks import read_noise

    try:
        numbers = tuple(float(part) for part in (text or "").split(",")) if text not in (None, "poisson") else ()
    except ValueError:
        numbers = ()
    noise: Noise = numbers[0] if len(numbers) == 1 else numbers or text  # type: ignore[assignment]
    read_noise(noise)
    return noise


def restore(
    task: Task, pictures: Path, mask: str | None, out: Path, overwrite: bool, execution: TrainingOptions, quiet: bool
) -> None:
    """Check everything, then restore picture after picture."""
    from whatwhere.cli.outputs import Stages
    from whatwhere.errors import printable
    from whatwhere.inference.environment import choose_device
    from whatwhere.restoration import load_denoiser, load_dictionary
    from whatwhere.restoration.pictures import plan_jobs, restore_picture

    shipped = load_denoiser() if task.model == "denoiser" else load_dictionary()
    model: Model = shipped.to(choose_device(execution.device, execution.engine))
    jobs, stages = plan_jobs(task, model, pictures, mask, out, overwrite), Stages(quiet)
    for job in jobs:
        with stages.stage(f"{task.name} {job.source.name}", job.pixels) as advance:
            levels = restore_picture(task, model, job, advance)
        if task.noise is None and not quiet:
            typer.echo(f"{job.source.name}: noise {', '.join(f'{level:.3g}' for level in levels)}, estimated")
    typer.echo(f"{printable(out)}: {len(jobs):,} restored" + ("" if jobs else " (all were there already)"))
