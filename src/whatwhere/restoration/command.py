"""`whatwhere denoise` and `whatwhere inpaint`: one picture, all pictures of a folder, or a
recording."""

import io
import math
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import PART, SHARD, open_shard
from whatwhere.commands.old_forms import Reordered
from whatwhere.errors import SpecError, plural, printable
from whatwhere.restoration.settings import RestorationSpec
from whatwhere.spec.execution import Execution, Shard

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.restoration.denoiser import Denoiser
    from whatwhere.restoration.noise import Noise, NoiseEstimate
    from whatwhere.restoration.pictures import Task

RECORDINGS = (".csv", ".wav", ".npy")
SHOWN = 20  # pictures of a command that are reported one by one


class Paths(NamedTuple):
    """Where a command reads and writes.

    Parameters
    ----------
    source
        a picture, a folder of pictures, or a recording
    mask
        the mask as given to `inpaint`; None for `denoise`
    out
        the file or folder of the results
    """

    source: Path
    mask: str | None
    out: Path

    @property
    def is_recording(self) -> bool:
        """Whether this is a recording. An array to read may be a picture, but an array to write is
        a recording."""
        read = self.source.suffix.lower() in (".csv", ".wav")
        return read or self.out.suffix.lower() in RECORDINGS


class NoiseFiles(NamedTuple):
    """Where the estimated noise is written: as numbers, and as a figure."""

    numbers: Path | None
    figure: Path | None

    def write(self, noise: "NoiseEstimate | None" = None) -> None:
        """Write noise, if there is any."""
        from whatwhere.commands.outputs import write

        if noise is not None and self.numbers is not None:
            write(self.numbers, noise.to_json().encode())
        if noise is not None and self.figure is not None:
            from whatwhere import figures
            from whatwhere.restoration.figures import draw_noise

            content = io.BytesIO()
            figures.save(draw_noise(noise), content, self.figure.suffix[1:])
            write(self.figure, content.getvalue())


@command(
    RestorationSpec,
    (Execution, "device"),
    PART,
    SHARD,
    flags="device learn baseline frames start end shard",
    old=(Reordered("pictures out", "pictures model --out", was_option="--model"),),
)
def denoise(
    pictures: Path,
    model: Path | None = None,
    *,
    out: Path,
    noise: str | None = None,
    alike: bool = False,
    keep_noise: Path | None = None,
    draw_noise: Path | None = None,
    settings: Settings,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Remove noise from a picture, from all pictures of a folder, or from a recording.

    8-bit pictures stay 8-bit, and 16-bit grey pictures stay 16-bit. An interrupted command
    continues when you run it again. With --shard, each part writes to a sub-folder of --out.

    Parameters
    ----------
    out
        the picture to write, or a folder for the pictures of a folder. The ending sets the format.
        A recording (.npy, .csv or .wav) keeps its ending
    model
        for a recording: the run or the file of a model of its waveforms. For pictures, only
        `dictionary`, which uses a dictionary of photographs instead of the trained denoiser
    noise
        standard deviation of the noise, where white is 1; default: estimated from each picture,
        also noise that grows with the brightness or is correlated. `poisson`: pixels count photons.
        GAIN,SIGMA or GAIN,SIGMA,OFFSET: a photon adds GAIN to a pixel, there is white noise of
        standard deviation SIGMA as well, and a pixel without light has the value OFFSET. Or a file
        that --keep-noise wrote
    alike
        all pictures of the folder, or all pages of the file, were taken alike: their noise is
        estimated once, from 16 of them
    keep_noise
        with --alike, or for one picture: the file to write the estimated noise to, for --noise
    draw_noise
        the same as a figure (.png, .pdf, .svg): the variance of a pixel against its brightness
    overwrite
        also restore pictures whose results are in --out already

    Examples
    --------
    $ whatwhere denoise noisy.png --out clean.png
    $ whatwhere denoise pictures/ --out clean/ --noise 0.1
    $ whatwhere denoise scans/ --out clean/ --alike --keep-noise noise.json
    $ whatwhere denoise film.tif --out clean.tif --frames 5
    $ whatwhere denoise recording.wav runs/signals --out clean.wav
    $ whatwhere denoise recording.wav runs/signals --out flat.wav --no-baseline
    """
    from whatwhere.restoration.noise import read_noise_text
    from whatwhere.restoration.pictures import Task

    paths = Paths(pictures, None, out)
    wanted = {"--alike": alike, "--keep-noise": keep_noise, "--draw-noise": draw_noise}
    asked = [option for option, value in wanted.items() if value]
    if asked and (noise is not None or paths.is_recording):
        raise SpecError(
            f"{' and '.join(asked)} need noise that is estimated from pictures. Leave out --noise,"
            " and give pictures."
        )
    files = NoiseFiles(keep_noise, draw_noise)
    if any(files):
        if pictures.is_dir() and not alike:
            raise SpecError(
                "--keep-noise and --draw-noise need one noise, and each picture of a folder has its"
                " own. If the pictures were taken alike, add --alike."
            )
        from whatwhere.commands.outputs import claim

        results = [] if pictures.is_dir() else [out]
        claim([*filter(None, files), *results], pictures, overwrite=overwrite)
    given: Noise = read_noise_text(noise)
    if alike:
        from whatwhere.restoration.pictures import noise_of_all

        given = found = noise_of_all(pictures, out)
        typer.echo(f"noise of {found.source}: {found.summary()}")
        files.write(found)
    task = Task("denoise", settings.of(RestorationSpec), given)
    estimates = restore(task, model, paths, overwrite, settings, quiet)
    if not alike:
        files.write(*estimates[:1])


@command(
    (RestorationSpec, "quality tile rounds baseline"),
    (Execution, "device"),
    PART,
    SHARD,
    flags="device baseline start end shard",
    old=(Reordered("pictures mask out", "pictures model --mask --out", was_option="--model"),),
)
def inpaint(
    pictures: Path,
    model: Path | None = None,
    *,
    mask: str,
    out: Path,
    noise: float = 0.0,
    settings: Settings,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    """Fill in missing pixels of a picture or of all pictures of a folder, or missing samples of a
    recording.

    Known pixels and samples stay as they are, unless you give --noise. The masks in a folder have
    the names of their pictures. The mask of a recording is a file of the same length, 0 where
    samples are missing; in a .csv file, `nan` also takes empty cells.

    Parameters
    ----------
    mask
        unknown pixels: a picture, a folder or an array file that is white where pixels are known
        and black elsewhere, one for all images or one for each. `alpha`: transparent pixels are
        unknown. `nan`: NaN is unknown, in a file of floats
    out
        the picture to write, or a folder for the pictures of a folder. The ending sets the format.
        A recording (.npy, .csv or .wav) keeps its ending
    model
        for a recording: the run or the file of a model of its waveforms
    noise
        standard deviation of the noise of known pixels, where white is 1; 0 leaves them as they are
    overwrite
        also restore pictures whose results are in --out already

    Examples
    --------
    $ whatwhere inpaint damaged.png --mask mask.png --out filled.png
    $ whatwhere inpaint pictures/ --mask alpha --out filled/
    $ whatwhere inpaint recording.csv runs/signals --mask nan --out filled.csv
    """
    from whatwhere.restoration.pictures import Task

    task = Task("inpaint", settings.of(RestorationSpec), noise)
    restore(task, model, Paths(pictures, mask, out), overwrite, settings, quiet)


def restore(
    task: "Task",
    model: Path | None,
    paths: Paths,
    overwrite: bool,
    settings: Settings,
    quiet: bool,
) -> "list[NoiseEstimate]":
    """Check everything, then restore picture after picture, or the recording; return the noise of
    the last picture's pages if it was estimated."""
    shard = open_shard(settings, paths.out, quiet=quiet)
    if not shard.is_all and not paths.source.is_dir():
        raise SpecError(
            f"Cannot restore part {shard} ({shard.origin}) of {printable(paths.source)}: it is not"
            " a folder. Give a folder of pictures, or --shard 1/1."
        )
    if paths.is_recording:
        restore_recording(task, model, paths, overwrite, settings, quiet)
        return []
    from whatwhere.data.pictures import kept_open

    with kept_open():
        restorer = _open_restorer(task, model, settings.of(Execution))
        return restore_pictures(task, restorer, paths, overwrite, shard, quiet)


def _open_restorer(task: "Task", model: Path | None, execution: Execution) -> "Denoiser | Tensor":
    """Return the denoiser, or the dictionary if it is asked for."""
    from whatwhere.engines.devices import choose_device
    from whatwhere.restoration import load_denoiser, load_dictionary

    if model is not None and (str(model) != "dictionary" or task.name == "inpaint"):
        known = "Leave it out" if task.name == "inpaint" else "Give dictionary, or leave it out"
        raise SpecError(f"The model {printable(model)} does not work for pictures. {known}.")
    device = choose_device(execution.device, execution.engine)
    return load_dictionary() if model else load_denoiser().to(device)


def restore_pictures(
    task: "Task",
    restorer: "Denoiser | Tensor",
    paths: Paths,
    overwrite: bool,
    shard: Shard,
    quiet: bool,
) -> "list[NoiseEstimate]":
    """Restore a picture, or the pictures of a folder that have no result yet; return the noise of
    the last one's pages if it was estimated."""
    from whatwhere.commands.outputs import Stages
    from whatwhere.data.parts import end_part
    from whatwhere.restoration.pictures import plan_jobs, restore_picture

    folder = shard.part_of(paths.out)
    stages = Stages(quiet)
    jobs = plan_jobs(task, restorer, *paths, overwrite, shard)
    one_by_one = len(jobs) <= SHOWN
    unchanged = 0
    estimates: list[NoiseEstimate] = []
    with ExitStack() as opened:
        if not one_by_one:
            title = f"{task.name} {plural(len(jobs), 'picture')}"
            advance = opened.enter_context(stages.stage(title, sum(job.pixels for job in jobs)))
        for job in jobs:
            with ExitStack() as own:
                if one_by_one:
                    title = f"{task.name} {job.source.name}"
                    advance = own.enter_context(stages.stage(title, job.pixels))
                estimates = restore_picture(task, restorer, job, advance)
            unchanged += bool(estimates) and all(noise.is_zero for noise in estimates)
            if estimates and one_by_one and not quiet:
                typer.echo(f"{job.source.name}: {noise_words(estimates)}")
    end_part(folder, shard)
    several = len(jobs) > 1 and task.noise is None
    remedy = "try --noise, or --alike if they were taken alike" if several else "try --noise"
    typer.echo(f"{printable(folder)}: {restored_words(len(jobs), unchanged, remedy)}")
    return estimates


def noise_words(estimates: "list[NoiseEstimate]") -> str:
    """The estimated noise of the pages of a picture."""
    words = list(dict.fromkeys(noise.summary() for noise in estimates))
    if all(noise.is_zero for noise in estimates):
        return f"{words[0]}; try --noise"
    return f"estimated noise {'; '.join(words)}"


def restored_words(count: int, unchanged: int, remedy: str) -> str:
    """How many pictures were restored, and how many of them stay as they are, because no noise was
    found in them, with what to try."""
    if not count:
        return "restored 0 pictures (all results exist already)"
    if not unchanged:
        return f"restored {plural(count, 'picture')}"
    stay = "stays as it is" if unchanged == 1 else "stay as they are"
    same = f"no white noise found in {plural(unchanged, 'picture')}, which {stay}; {remedy}"
    if unchanged == count:
        return same
    return f"restored {plural(count - unchanged, 'picture')}; {same}"


def restore_recording(
    task: "Task",
    model: Path | None,
    paths: Paths,
    overwrite: bool,
    settings: Settings,
    quiet: bool,
) -> None:
    """Restore a recording as a whole, or a part of it; the result has the format of its file."""
    from whatwhere import restoration
    from whatwhere.commands.inputs import ImageInput, open_run, read_recording
    from whatwhere.commands.outputs import Stages, claim, write
    from whatwhere.data import load
    from whatwhere.data.formats import recordings
    from whatwhere.restoration.restore import LongGapsWarning

    recording, mask, out = paths
    if recording.suffix.lower() != out.suffix.lower():
        raise SpecError(
            f"Cannot write {printable(out)}: the result has the format of {printable(recording)}."
            f" Give a name that ends in {printable(recording.suffix)}."
        )
    if model is None:
        # an array file does not say that it is a recording
        rate = " --rate RATE" if recording.suffix.lower() == ".npy" else ""
        raise SpecError(
            "A recording needs a model of its waveforms. Train one with `whatwhere train"
            f" {printable(recording)}{rate} --out RUN`, then give RUN after the recording."
        )
    execution = settings.of(Execution)
    opened = open_run(model, execution.device, execution.engine)[1]
    claim([out], model, recording, mask, overwrite=overwrite)
    signals = read_recording(model, str(recording), ImageInput())
    part = settings.of(ImageInput).part_of(signals)
    columns = slice(part.first, part.first + part.shape[2])
    values = part[:]
    left = ""
    with Stages(quiet).stage(f"{task.name} {printable(recording)}", 1) as advance:
        if mask is None:
            restored = restoration.denoise(values, opened, task.noise, spec=task.spec)
            if unknown_samples := int(restored.isnan().sum()):
                left = f"; {plural(unknown_samples, 'unknown sample')} stay unknown"
        else:
            assert isinstance(task.noise, float), "inpaint has no other noise"
            known = values.isfinite()
            if mask != "nan":
                known = load(mask, signals=True)[:][..., columns]
            with warnings.catch_warnings():
                # the line below says how many gaps are left
                warnings.simplefilter("ignore", LongGapsWarning)
                restored = restoration.inpaint(values, known, opened, task.noise, spec=task.spec)
            unknown = float("nan") if recordings().holds_unknown(recording) else 0.0
            longest = opened.spec.layers[0].filter_shape[1]
            gaps = leave_long_gaps(restored, known, longest, unknown)
            left = long_gaps_line(gaps, unknown)
        advance(1)
    whole = signals[:]
    whole[..., columns] = restored.cpu()
    write(out, recordings().encode(whole.numpy(), recording))
    typer.echo(f"{printable(out)}: restored{left}")


def long_gaps_line(gaps: int, unknown: float) -> str:
    """A remark on the gaps that were not filled in; empty without any."""
    if not gaps:
        return ""
    stay = "stays" if gaps == 1 else "stay"
    marked = "unknown (NaN)" if math.isnan(unknown) else "at 0, because whole numbers have no NaN"
    return f"; {plural(gaps, 'gap')} longer than a waveform {stay} {marked}"


def leave_long_gaps(restored: "Tensor", known: "Tensor", longest: int, unknown: float) -> int:
    """Set gaps of signals [N, C, T] that are longer than a waveform to the value `unknown`, in
    place. Return their number, in which a gap in several channels counts once. No waveform spans
    such a gap, so its filled-in samples are a guess."""
    from whatwhere.data.gaps import long_gaps

    count = 0
    seen = known.expand_as(restored) > 0
    for signal, channels in zip(restored, seen, strict=True):
        gaps: set[tuple[int, int]] = set()
        for values, channel in zip(signal, channels, strict=True):
            for gap in long_gaps(channel.cpu().numpy(), longest):
                values[gap] = unknown
                gaps.add((gap.start, gap.stop))
        count += len(gaps)
    return count
