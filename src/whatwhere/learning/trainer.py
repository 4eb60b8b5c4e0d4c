"""`train`, the front door of training: check what is given, open folder and data, learn by epochs
or from a stream."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from whatwhere.data import Images, load_for_training
from whatwhere.engines import Engine, resolve
from whatwhere.engines.devices import choose_device
from whatwhere.errors import InvalidSetting, warn
from whatwhere.inference.auto_lam import resolve_recipe
from whatwhere.inference.target import ImageSource, Pictures, make_target
from whatwhere.learning.algorithm import learn, learn_from_stream, training_phase
from whatwhere.learning.checkpoint import RunFacts
from whatwhere.learning.defaults import (
    Defaults,
    OwnSettings,
    RecordingOptions,
    choose_defaults,
    start_from_pieces,
)
from whatwhere.learning.latent_store import LatentStore, latents_fit, latents_per_image
from whatwhere.learning.processes import ProcessGroup, is_main_process, open_processes
from whatwhere.learning.reports import (
    TrainingCallbacks,
    TrainingProgress,
    TrainingState,
    first_epoch,
)
from whatwhere.learning.run_folder import (
    RunFolder,
    RunLayout,
    TrainedRun,
    check_new_run,
    open_folder,
)
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.training_data import (
    ImageStream,
    IterableStream,
    SizedStream,
    StreamData,
    StreamError,
    TrainingData,
    open_images,
    open_stream,
    quick_fingerprint,
    stream_recipe,
)
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import Recipe
from whatwhere.spec.checks import require
from whatwhere.spec.execution import TrainingOptions

_TrainingImages = Pictures | Iterable[object]


def train(
    images: _TrainingImages,
    recipe: Recipe | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    mask: ImageSource | None = None,
    image_count: int | None = None,
    resume: bool = False,
    start: DeconvNet | None = None,
    waveforms: int | None = None,
    length: int | str | None = None,
    rise: int | str | None = None,
    louder: int | str | None = None,
    probe: str | Path | None = None,
    progress: bool = False,
    options: TrainingOptions | None = None,
    callbacks: TrainingCallbacks | None = None,
) -> TrainedRun:
    """Train a model on images: each layer in turn.

    Parameters
    ----------
    images
        `Images`, a tensor [N, C, H, W], an array, or the name or path of images as `data.load`
        takes them; with update = 'batch' also an iterable of tensors (a DataLoader, a generator),
        which is read once
    recipe
        what to compute: the model and how each layer is trained. None chooses settings from the
        images and reports them in a warning
    out
        folder of the run; None keeps everything in memory
    mask
        a weight ≥ 0 for every pixel, [N, 1 or C, H, W]; 0 marks unknown pixels, as NaN in the
        images does
    image_count
        with update = 'batch': the number of images that each layer learns from. Layers take their
        images one after the other. A data set starts again after its last image; an iterable that
        ends too early raises StreamError. Default: all images, in every epoch or, from a
        DataLoader, once
    resume
        continue the run in `out` from its last checkpoint
    start
        the model to begin with; None draws one from the recipe's seed
    waveforms
        the number of waveforms, for a recording without a recipe. None chooses it
    length
        the length of the waveforms, in samples or as a time such as '12ms'. None chooses it
    rise
        find where the recording rises within this time, in samples or such as '150ms': for events
        that begin suddenly and decay slowly, such as calcium
    louder
        find where the recording becomes louder within this time: for bursts of any waveform, such
        as earthquakes
    probe
        a file with the places of the channels of a probe: a .json file of probeinterface, or a .csv
        file with the columns channel, x and y, in µm. Waveforms are then local
    progress
        show progress on standard error
    options
        settings that do not change the outcome: engine, device, memory, checkpoints
    callbacks
        functions to call during training, and when to stop

    Examples
    --------
    >>> short = {"each": {"epochs": 2, "inference": {"steps": 3}}}
    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": short}
    >>> run = ww.train(ww.data.load("digits")[:20], ww.override(ww.Recipe.paper(), small))
    >>> run.model
    DeconvNet(1 → 4 maps 5×5, gaussian 2×2; float32, cpu)
    >>> run.history[-1].cost < run.history[0].cost
    True
    """
    options = options or TrainingOptions()
    callbacks = callbacks or TrainingCallbacks()
    if resume and out is None:
        raise InvalidSetting({"resume": True, "out": None}, "the folder of the run, out='FOLDER'")
    if out is not None and not resume:
        check_new_run(Path(out))  # before the images are read
    require(
        recipe is None or isinstance(recipe, Recipe),
        f"a recipe of type {type(recipe).__name__}",
        "train(images, recipe) with a Recipe, or without a recipe",
    )
    asked = RecordingOptions(waveforms, length, rise, louder, probe)
    if recipe is None:
        given = choose_settings(images, start, image_count, asked)
    else:
        require(
            asked == RecordingOptions(),
            "waveforms, length, rise, louder or probe with a recipe, which sets them",
            "train(signals, waveforms=…, length=…) without a recipe, or a recipe with"
            " ModelSpec.signals(…)",
        )
        source = open_images(images, recipe.model)
        if image_count is None:
            image_count = _stream_length(source)
        given = _TrainingInput(source, recipe, start, image_count)
    recipe = _complete_recipe(given, mask)
    job = TrainingJob(
        recipe, given.images, mask, given.image_count, given.start, options, callbacks
    )
    folder = None if out is None else Path(out)
    if not (progress and is_main_process()):
        return _run_training(job, folder, resume)
    shown = TrainingProgress(recipe, callbacks)
    with shown.display:
        return _run_training(replace(job, callbacks=shown.callbacks()), folder, resume)


class ChosenSettings(UserWarning):
    """Training without a recipe chose its settings from the images.

    Attributes
    ----------
    chosen
        the settings, and the reasons
    """

    def __init__(self, chosen: Defaults) -> None:
        self.chosen = chosen
        super().__init__(chosen.line)


@dataclass(frozen=True)
class _TrainingInput:
    """The images and the settings of a training, before the recipe's numbers are filled in.

    Parameters
    ----------
    images
        what `train` was given, as a stream
    recipe
        the recipe as given, or as chosen from the images
    start
        the model to begin with; None draws one from the recipe's seed
    image_count
        how many images each layer learns from; None: all
    """

    images: ImageStream
    recipe: Recipe
    start: DeconvNet | None
    image_count: int | None


def _stream_length(source: ImageStream) -> int | None:
    """Return how many images an iterable gives, where it says so; None for data sets."""
    return source.length if isinstance(source, IterableStream) else None


def choose_settings(
    images: _TrainingImages,
    start: DeconvNet | None,
    image_count: int | None,
    asked: RecordingOptions,
) -> _TrainingInput:
    """Return settings for images without a recipe, chosen from them; a warning reports the
    choice."""
    if isinstance(images, str | Path):
        images = load_for_training(images)[0]
    if isinstance(images, OwnSettings):
        chosen = images.choose_defaults(asked)
        start = start or chosen.start
        source = open_images(images, chosen.recipe.model)
    else:
        require(
            asked == RecordingOptions(),
            "waveforms, length, rise, louder or probe for images",
            "a recording: ww.data.load(…, signals=True)",
        )
        source = open_images(images, None)
        chosen = choose_defaults(source.known_images())
    if is_main_process():
        warn(ChosenSettings(chosen))
    image_count = image_count or _stream_length(source) or chosen.image_count
    return _TrainingInput(source, chosen.recipe, start, image_count)


def _complete_recipe(given: _TrainingInput, mask: ImageSource | None) -> Recipe:
    """Return the recipe with the images' channels, and with every λ as a number."""
    recipe = stream_recipe(given.recipe, given.images, given.image_count, mask)
    if given.start is None:  # the images say the channels
        channels = given.images.first_images().shape[1]
        recipe = replace(recipe, model=replace(recipe.model, channels=channels))
    elif given.start.spec != recipe.model:
        raise InvalidSetting("a start model of another ModelSpec", "the recipe's model")
    return resolve_recipe(recipe, given.images.known_images(), mask=mask, start=given.start)


@dataclass(frozen=True)
class TrainingJob:
    """The inputs of `train`, checked: the recipe with all its numbers, the images as a stream."""

    recipe: Recipe
    images: ImageStream
    mask: ImageSource | None = None
    image_count: int | None = None
    start: DeconvNet | None = None
    options: TrainingOptions = field(default_factory=TrainingOptions)
    callbacks: TrainingCallbacks = field(default_factory=TrainingCallbacks)


def _run_training(job: TrainingJob, folder: Path | None, resume: bool = False) -> TrainedRun:
    """Open what a training needs, run it, close it again."""
    recipe = job.recipe
    device = choose_device(job.options.device, job.options.engine)
    first = job.images.first_images()[:1]
    with torch.no_grad(), ExitStack() as closing:
        processes = closing.enter_context(open_processes(device, job.options.timeout))
        _require_same_job(job, processes)
        model = (job.start or _first_model(recipe, job.images)).to(device)
        data = closing.enter_context(open_data(job, model, folder, processes))
        engines = resolve_engines(job.options.engine, model, make_target(model, first).v, recipe)
        state = TrainingState(model, *first_epoch(recipe))
        writer = None
        if folder is not None:
            closing.enter_context(open_folder(folder, processes))
            store = data.store if isinstance(data, TrainingData) else None
            writer = RunFolder(folder, _run_facts(job, first, processes), store, processes)
            state = writer.resume(device) if resume else writer.begin(state)
        session = TrainingSession(
            recipe,
            data,
            state,
            [engine.name for engine in engines],
            job.callbacks,
            writer,
            job.options.checkpoint_every,
            processes,
        )
        try:
            if isinstance(data, StreamData):
                learn_from_stream(state.model, recipe, data, engines, session)
            else:
                learn(state.model, recipe, data, engines, session)
        except StreamError as error:  # what was learned until then is saved, and is in the error
            session.save_within_epoch()
            error.model = session.state.model
            raise
    name = "" if folder is None else folder.resolve().name
    return TrainedRun(name, recipe, session.state.model, session.state.history, folder)


def _require_same_job(job: TrainingJob, processes: ProcessGroup) -> None:
    """Raise an error in all processes if they were not given the same settings and images."""
    processes.require_same("settings", repr(job.recipe))
    if isinstance(job.images, SizedStream) and processes.world_size > 1:
        processes.require_same("images", quick_fingerprint(job.images.images))


def _run_facts(job: TrainingJob, first: torch.Tensor, processes: ProcessGroup) -> RunFacts:
    """Return what a checkpoint records about its run. Process 0 writes it, so the others do not
    read all images for their fingerprint."""
    notes = {**job.options.notes, "image_shape": list(first.shape[1:])}
    images = getattr(job.images, "images", None)
    if isinstance(images, Images):
        if images.deep_white:
            notes["deep_white"] = images.deep_white
        if images.source is not None:
            notes.setdefault("source", images.source)
    if not processes.is_main:
        return RunFacts(job.recipe, "", notes)
    fingerprint = job.images.fingerprint()
    if job.mask is not None:
        fingerprint += f" {SizedStream(job.mask).fingerprint()}"
    return RunFacts(job.recipe, fingerprint, notes)


def _first_model(recipe: Recipe, images: ImageStream) -> DeconvNet:
    """Draw random filters; for signals, pieces of them."""
    model = DeconvNet(recipe.model, seed=recipe.seed)
    pieces = recipe.model.for_signals and recipe.model.signed_filters
    return start_from_pieces(model, images.known_images(), recipe.seed) if pieces else model


def resolve_engines(
    name: str, model: DeconvNet, image: torch.Tensor, recipe: Recipe
) -> tuple[Engine, ...]:
    """Return the engine of each layer's training; an unsupported one raises an error before
    anything is written."""
    return tuple(
        resolve(name, Problem(model, image, training_phase(layer, learning), learning.inference))
        for layer, learning in enumerate(recipe.learning, start=1)
    )


@contextmanager
def open_data(
    job: TrainingJob, model: DeconvNet, folder: Path | None, processes: ProcessGroup | None = None
) -> Iterator[TrainingData | StreamData]:
    """Open a stream; or checked images, and a store for their latents, whose files are temporary
    without a folder."""
    processes = processes or ProcessGroup()
    if job.recipe.learning[0].streams:
        yield open_stream(job.recipe, job.images, job.image_count, model, job.mask, processes)
        return
    assert isinstance(job.images, SizedStream), "stream_recipe raises"
    images = job.images.images
    size = job.recipe.batch_size
    batches = [
        slice(start, min(start + size, len(images))) for start in range(0, len(images), size)
    ]
    local = processes.share(len(batches))
    in_memory = job.options.store == "memory"
    if job.options.store == "auto":
        local_images = sum(batches[batch].stop - batches[batch].start for batch in local)
        needed = local_images * _latent_bytes(model, images, processes)
        place_for_files = Path(tempfile.gettempdir()) if folder is None else folder
        in_memory = latents_fit(needed, model.device, place_for_files)
    with ExitStack() as closing:
        place = None if folder is None else RunLayout(folder).latents
        if place is None and not in_memory:
            place = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        store = LatentStore(len(batches), model.device, place, in_memory=in_memory, local=local)
        data = TrainingData(model, images, batches, store, job.mask, processes=processes)
        yield data.checked(keep=in_memory)


def _latent_bytes(model: DeconvNet, images: ImageSource, processes: ProcessGroup) -> int:
    """Return the bytes that the latents of an image take, for all processes that share this one's
    memory."""
    # The processes of a machine share its memory; a GPU has one process.
    sharing = processes.local_size if model.device.type == "cpu" else 1
    numbers = latents_per_image(model.spec, *images[slice(0, 1)].shape[2:])
    return sharing * numbers * model.dtype.itemsize
