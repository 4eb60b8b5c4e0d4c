"""`whatwhere denoise` and `whatwhere inpaint`: one picture, all pictures of a folder, or a recording."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from whatwhere.cli.command import Settings, command
from whatwhere.errors import SpecError, printable
from whatwhere.spec.tasks import RestorationSpec, TrainingOptions

SHIPPED = {"denoise": ("denoiser", "dictionary"), "inpaint": ("denoiser",)}  # models of pictures
RECORDINGS = (".csv", ".wav", ".npy")


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
    """Remove noise from a picture, from all pictures of a folder, or from a recording.

    8-bit pictures stay 8 bit, 16-bit grey ones 16 bit. A folder that was interrupted continues where it stopped.

    out        the picture to write, or the folder for those of a folder; its ending is the format. Of a recording
               (.npy, .csv or .wav) a file with the same ending
    model      denoiser, whose steps are learned from photographs; or dictionary, of atoms of photographs; of a
               recording the run, or the file, of a model of its waveforms
    noise      standard deviation of the noise, white being 1; default: estimated. poisson: pixels count photons.
               GAIN,SIGMA: Poisson noise of counts of GAIN each, and white noise
    learn      adapt the dictionary to each picture before denoising with it
    overwrite  restore again what OUT holds already
    """
    from whatwhere.restoration.pictures import Task

    model = "dictionary" if learn else model
    task = Task("denoise", model, settings.of(RestorationSpec), parse_noise(noise), learn)
    restore(task, pictures, None, out, overwrite, settings.of(TrainingOptions), quiet)


@command(RestorationSpec, (TrainingOptions, "device"), flags="device")
def inpaint(
    pictures: Path,
    mask: str,
    out: Path,
    *,
    model: str = "denoiser",
    noise: float = 0.0,
    overwrite: bool = False,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Fill in what is missing of a picture, of all pictures of a folder, or of a recording; the rest stays as it is.

    mask       a picture, black where pixels are to be filled in; for a folder one for all, or a folder of masks with
               the names of the pictures. alpha: transparent pixels are filled in. For a recording one of its length, 0
               where samples are missing; nan: those that are NaN, in a .csv empty
    out        the picture to write, or the folder for those of a folder; its ending is the format. Of a recording
               (.npy, .csv or .wav) a file with the same ending
    noise      noise of the known pixels, white being 1; with 0 they stay as they are
    overwrite  restore again what OUT holds already
    """
    from whatwhere.restoration.pictures import Task

    task = Task("inpaint", model, settings.of(RestorationSpec), noise)
    restore(task, pictures, mask, out, overwrite, settings.of(TrainingOptions), quiet)


def parse_noise(text: str | None) -> Any:
    """What --noise means: a number, poisson, or two numbers."""
    from whatwhere.restoration.checks import read_noise

    noise: Any = text
    if text not in (None, "poisson"):
        with suppress(ValueError):
            noise = tuple(float(part) for part in text.split(","))
            noise = noise[0] if len(noise) == 1 else noise
    read_noise(noise)
    return noise


def restore(
    task: Any, pictures: Path, mask: str | None, out: Path, overwrite: bool, execution: TrainingOptions, quiet: bool
) -> None:
    """Check everything, then restore picture after picture, or the recording."""
    from whatwhere.cli.outputs import Stages
    from whatwhere.inference.environment import choose_device
    from whatwhere.restoration import load_denoiser, load_dictionary
    from whatwhere.restoration.pictures import plan_jobs, restore_picture

    if out.suffix.lower() in RECORDINGS or pictures.suffix.lower() in RECORDINGS[:2]:  # an array may be a picture
        return restore_recording(task, pictures, mask, out, overwrite, execution)
    if task.model not in SHIPPED[task.name]:
        raise SpecError(f"model = {task.model} was given for pictures; expected {' or '.join(SHIPPED[task.name])}")
    load: Any = load_denoiser if task.model == "denoiser" else load_dictionary
    model = load().to(choose_device(execution.device, execution.engine))
    jobs, stages = plan_jobs(task, model, pictures, mask, out, overwrite), Stages(quiet)
    for job in jobs:
        with stages.stage(f"{task.name} {job.source.name}", job.pixels) as advance:
            levels = restore_picture(task, model, job, advance)
        if task.noise is None and not quiet:
            typer.echo(f"{job.source.name}: noise {', '.join(f'{level:.3g}' for level in levels)}, estimated")
    typer.echo(f"{printable(out)}: {len(jobs):,} restored" + ("" if jobs else " (all were there already)"))


def restore_recording(
    task: Any, recording: Path, mask: str | None, out: Path, overwrite: bool, execution: TrainingOptions
) -> None:
    """Restore a recording as a whole; the file that is written is like the one that is read."""
    from whatwhere import restoration
    from whatwhere.cli.inputs import open_run
    from whatwhere.cli.outputs import claim, write
    from whatwhere.data import load
    from whatwhere.data.signals import encode_signals

    if recording.suffix.lower() != out.suffix.lower():
        raise SpecError(f"{printable(out)} was given for {printable(recording)}; expected a name with its ending")
    if task.model in SHIPPED["denoise"]:
        raise SpecError(
            f"{task.model} is a model of pictures; a recording needs one of its waveforms: --model RUN, after "
            f"`whatwhere train {printable(recording)} --recipe signals --out RUN`"
        )
    model = open_run(Path(task.model), execution.device, execution.engine)[1]
    claim([out], task.model, recording, mask, overwrite=overwrite)
    values = load(recording, signals=True, allow_nan=mask == "nan")[:]
    if mask is None:
        restored = restoration.denoise(model, values, task.noise)
    else:
        known = values.isfinite() if mask == "nan" else load(mask, signals=True)[:]
        restored = restoration.inpaint(model, values, known, task.noise)
    write(out, encode_signals(restored.cpu().numpy(), recording))
    typer.echo(f"{printable(out)}: restored")
