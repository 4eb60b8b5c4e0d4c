"""What commands read: a run folder or a model file, images by name or path."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings
from whatwhere.errors import (
    InvalidSetting,
    OtherRateWarning,
    RunError,
    plural,
    printable,
    warn,
)
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, Count, Positive
from whatwhere.spec.execution import Execution, Shard, Sharding, choose_shard
from whatwhere.spec.inference import CODING

if TYPE_CHECKING:
    from whatwhere.data.mixed import Recorded
    from whatwhere.learning.run_folder import Notes

EXECUTION = (Execution, "engine device")  # the settings that every command with inference has
_SAME_RATE = 0.01  # by which rates may differ, relative: clocks of devices are not exact
SHARD = (Sharding, "shard")  # for every command that processes pictures one by one


@dataclass(frozen=True, kw_only=True)
class ImageInput(Checked):
    """Images of a command; a run records those that it learns from, and --resume reads the same.

    Parameters
    ----------
    source
        a name or a path
    mask
        unknown pixels: a picture, a folder or an array file that is white where pixels are known
        and black elsewhere, one for all images or one for each. `alpha`: transparent pixels are
        unknown. `nan`: NaN is unknown, in a file of floats
    crop
        train on square crops of this many pixels, at random places. Pictures of several sizes are
        always cropped (to 64 pixels, or to the smallest side). Recordings are cut into windows of
        this many samples
    size
        scale pictures so that the shorter side has this many pixels, and cut them to squares at the
        centre. By default, only pictures of several sizes are scaled: as for the run, or to 64
        pixels (to the smallest side if that is less)
    limit
        use only the first N images
    image_count
        number of images that each layer learns from in a stream (learning.each.update=batch); the
        stream starts again after its last image. Default: whole epochs
    rate
        samples per second of a recording, if its file does not give them (.npy, or .csv without a
        column of times). A .npy file with a rate is a recording
    waveforms
        number of waveforms of a recording. Default: as many as the recording shows
    length
        length of the waveforms of a recording: samples, such as 64, or a time, such as 12ms.
        Default: the length of its events
    rise
        find where a recording rises within this time, such as 150ms: events that begin suddenly and
        decay slowly, such as calcium
    louder
        find where a recording becomes louder within this time, such as 2s: bursts of any waveform,
        such as earthquakes
    probe
        a file with the places of the channels of a recording with many: a .json file of
        probeinterface, or a .csv file with the columns channel, x and y, in µm. Each waveform is
        then on the channels near its largest peak
    start
        where to begin in a recording, such as 90, 1:30, 0:01:30.250 or 2min, in the times that a
        table of events has. Default: its beginning
    end
        where to end, in the same way
    """

    source: str = "digits"
    mask: str | None = None
    crop: Count | None = None
    size: Count | None = None
    limit: Count | None = None
    image_count: Count | None = None
    rate: Positive | None = None
    waveforms: Count | None = None
    length: str | None = None
    rise: str | None = None
    louder: str | None = None
    probe: str | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        from whatwhere.spec.duration import read_length, seconds_of

        for name in ("length", "rise", "louder"):
            if getattr(self, name) is not None:
                read_length(getattr(self, name), name)  # before the recording is read
        for name in ("start", "end"):
            if getattr(self, name) is not None:
                seconds_of(getattr(self, name), name)

    @property
    def for_recordings(self) -> bool:
        """Whether an option was given that only recordings have."""
        given = (
            self.rate,
            self.waveforms,
            self.length,
            self.rise,
            self.louder,
            self.probe,
            self.start,
            self.end,
        )
        return any(one is not None for one in given)

    def absolute(self) -> "ImageInput":
        """Return the same with paths in full; names, `alpha` and `nan` stay as they are."""
        from whatwhere.data.catalogue import absolute_source

        mask = self.mask if self.mask in (None, "alpha", "nan") else absolute_source(self.mask)
        return replace(self, source=absolute_source(self.source), mask=mask)

    def part_of(self, signals: "ww.data.Signals") -> "ww.data.Signals":
        """Return the part of a recording from `start` to `end`."""
        from whatwhere.spec.duration import seconds_of

        start = None if self.start is None else seconds_of(self.start, "start")
        end = None if self.end is None else seconds_of(self.end, "end")
        return signals.between(start, end)

    def for_training(
        self, *, signals: bool = False
    ) -> "tuple[ww.data.Images, ww.data.Images | None]":
        """Return images of one size, or their crops, and their masks; only the first `limit` of
        both."""
        import numpy as np

        images, masks = ww.data.load_for_training(
            self.source, self.mask, crop=self.crop, signals=signals or self.for_recordings
        )
        if isinstance(images, ww.data.Signals):
            images = self.part_of(images.with_rate(self.rate))
            if self.limit is not None:
                images = images.windows()
        if self.limit is None or self.limit >= len(images):
            return images, masks
        rows = np.arange(self.limit)
        return images.subset(rows), None if masks is None else masks.subset(rows)


PART = (ImageInput, "start end")  # what every command on a recording takes


def open_shard(settings: Settings, out: Path | None, *, quiet: bool = False) -> Shard:
    """Return the part of the pictures that this command processes; the first line of its output
    says so.

    Parameters
    ----------
    out
        the folder of the parts; parts of another number of shards in it raise an error
    """
    from whatwhere.data.parts import check_part_of

    shard = choose_shard(settings.of(Sharding).shard)
    if out is not None:
        check_part_of(out, shard)
    # A task that was submitted again by itself is an array of one: report that it processes
    # everything.
    chosen_by_variables = shard.origin not in ("", "--shard")
    if (chosen_by_variables or not shard.is_all) and not quiet:
        typer.echo(f"part {shard} of the pictures ({shard.origin})", err=True)
    return shard


def read_images(
    run: Path, source: str, labels: Path | None = None, size: int | None = None
) -> "ww.data.Images":
    """Return the images of a name or a path, with their labels, if there are any.

    The value of white, and the side of squares from images of several sizes, come from the run.

    Parameters
    ----------
    size
        side of the squares, for pictures alone
    """
    images = ww.data.load(source, labels, size=size, recorded=recorded_by(run))
    if size is not None and images.shape[1:] != (size, size):
        given = f"--size for {images.name}, which has arrays"
        raise InvalidSetting(given, "pictures, or no --size")
    return images


def read_recording(run: Path, source: str, options: ImageInput) -> "ww.data.Signals":
    """Return a recording, or the part of it that was asked for, with its rate: the given one, the
    file's, or the run's."""
    signals = cast("ww.data.Signals", ww.data.load(source, signals=True, rate=options.rate))
    learned = notes_of(run).get("rate")
    if signals.rate is None:
        signals = signals.with_rate(learned)
    elif learned and not math.isclose(signals.rate, learned, rel_tol=_SAME_RATE):
        warn(OtherRateWarning(signals.name, signals.rate, learned))
    return options.part_of(signals)


def read_examples(run: Path, source: str) -> "ww.data.Images":
    """Return the test images of a data set known by name, all images of another source."""
    from whatwhere.data.catalogue import CATALOGUE

    return read_images(run, f"{source}:test" if source in CATALOGUE else source)


def recorded_by(run: Path) -> "Recorded":
    """Return what a run recorded about the images that it was trained on."""
    from whatwhere.learning import run_folder

    return run_folder.recorded_by(run)


def open_run(run: Path, device: str, engine: str = "auto") -> "tuple[Recipe, ww.DeconvNet]":
    """Return the recipe and the model of a run folder, a model file or a name, on the device for an
    engine. A line says if the run is not finished."""
    from whatwhere.engines.devices import choose_device
    from whatwhere.learning.run_folder import resume_command

    home = choose_device(device, engine)
    trained = ww.read_run(run)
    if not trained.is_finished:
        typer.echo(
            f"{printable(run)} is not finished: it has {plural(len(trained.history), 'epoch')} of"
            f" {sum(layer.epochs for layer in trained.recipe.learning)}. Continue it with"
            f" `{resume_command(run)}`.",
            err=True,
        )
    return trained.recipe, trained.model.to(home)


class ImagesUnknown(RunError):
    """A command got no images, and the model does not lead to the ones that it learned from.

    Attributes
    ----------
    run
        the run, model file or name
    recorded
        the path that the run recorded, at which nothing is now; None if it recorded none
    """

    def __init__(self, run: Path, recorded: str | None = None) -> None:
        self.run = run
        self.recorded = recorded
        problem = f"{run} does not record which images it learned from"
        if recorded is not None:
            problem = f"{run} learned from {recorded}, which is not there any more"
        super().__init__(f"{problem}. Give this command the images.")


def source_of(run: Path) -> str:
    """Return the images that a run recorded, or the example images of a model that is known by
    name; raise `ImagesUnknown` for other models."""
    from whatwhere.data.catalogue import CATALOGUE
    from whatwhere.data.models import example_images

    recorded = notes_of(run).get("source")
    source = recorded or example_images(run)
    if source is None:
        ww.read_run(run)  # raises an error for what is no model at all, such as pictures
        raise ImagesUnknown(run)
    if recorded and recorded.partition(":")[0] not in CATALOGUE and not os.path.exists(recorded):
        raise ImagesUnknown(run, recorded)
    return str(source)


def notes_of(run: Path) -> "Notes":
    """Return the inputs of the command that began a run; empty for a model file or a name."""
    from whatwhere.learning import run_folder

    return run_folder.notes_of(run)


def usual_preset(model: "ww.DeconvNet", settings: Settings) -> str:
    """Choose the preset without --preset: learned steps if the model has them, since they take a
    tenth of the time; otherwise converged codes."""
    from whatwhere.inference.learned_steps import saved_steps

    if settings.given("inference") or model.source is None or not saved_steps(model.source):
        return "coding"
    return "learned"


def with_preset(
    recipe: Recipe, model: "ww.DeconvNet", preset: str, settings: Settings
) -> "tuple[Recipe, ww.DeconvNet]":
    """Return the recipe with the inference settings of --preset and --set, and the model to use
    with them."""
    from whatwhere.inference.learned_steps import resolve_steps

    if preset == "coding":
        recipe = replace(recipe, inference=replace(recipe.inference, **CODING))
    elif preset.startswith("learned"):
        if settings.given("inference"):
            given = f"--set inference.… with --preset {preset}"
            raise InvalidSetting(given, "one of them: the preset has its own settings")
        model, inference = resolve_steps(model, preset)
        recipe = replace(recipe, inference=inference, plan=())
    elif preset != "recipe":
        known = "coding, recipe, learned, or learned-5 for 5 steps"
        raise InvalidSetting({"--preset": preset}, known)
    return settings.override(recipe), model
