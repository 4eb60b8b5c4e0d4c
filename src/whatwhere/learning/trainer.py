"""`train`, the front door of training: check what is given, open folder and data, learn by epochs or from a stream."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.errors import ImageError, SpecError, listed
from whatwhere.inference.auto_lam import resolve_recipe
from whatwhere.inference.checks import in_model_units
from whatwhere.inference.engines import Engine, resolve
from whatwhere.learning import distributed
from whatwhere.learning.algorithm import learn, training_phase
from whatwhere.learning.callbacks import TrainingCallbacks
from whatwhere.learning.checkpointing import Checkpointer, CheckpointSchedule
from whatwhere.learning.image_stream import (
    IterableStream,
    StreamData,
    StreamError,
    as_stream_or_source,
    fingerprint,
    first_images,
    images_per_epoch,
    open_stream,
    stream_recipe,
)
from whatwhere.learning.memory import check_memory, latents_per_image, memory_errors
from whatwhere.learning.progress import TrainingProgress
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.run_folder import RunFacts, RunFolder
from whatwhere.learning.session import TrainingSession
from whatwhere.learning.state import TrainingState, first_epoch
from whatwhere.learning.storage import LatentFiles, LatentStore, choose_tier, latent_dtype
from whatwhere.learning.streaming import learn_from_stream
from whatwhere.learning.training_data import ImageSource, TrainingData, as_signals, split_batches
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import Recipe
from whatwhere.spec.training import TrainingOptions


@dataclass(frozen=True)
class TrainedModel:
    """The outcome of training.

    model    the trained model
    history  one `EpochReport` an epoch
    folder   of the run; None where everything stayed in memory

    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 1, "inference": {"steps": 2}}}}
    >>> ww.train(ww.override(ww.Recipe.paper(), small), ww.data.load("digits")[:10])
    TrainedModel(layers of 4 maps, 1 epochs, cost ... per image)
    """

    model: DeconvNet
    history: tuple[EpochReport, ...] = field(default=())
    folder: Path | None = None

    def __repr__(self) -> str:
        maps = listed(layer.maps for layer in self.model.spec.layers)
        last = f", cost {self.history[-1].cost:.4g} per image" if self.history else ""
        where = "" if self.folder is None else f", in {str(self.folder)!r}"
        return f"TrainedModel(layers of {maps} maps, {len(self.history)} epochs{last}{where})"


def train(
    recipe: Recipe,
    images: ImageSource | Iterable[Any] | np.ndarray | str | Path,
    out: str | os.PathLike[str] | None = None,
    *,
    mask: ImageSource | None = None,
    image_count: int | None = None,
    resume: bool = False,
    start: DeconvNet | None = None,
    progress: bool = False,
    options: TrainingOptions | None = None,
    callbacks: TrainingCallbacks | None = None,
) -> TrainedModel:
    """Train a model by a recipe: each layer in turn.

    recipe     what is computed: the model and how each layer is trained
    images     `Images`, a tensor [N, C, H, W], an array, or the name or path of images as `data.load` takes them; with
               update = 'batch' also an iterable of tensors (a DataLoader, a generator), which is read once
    out        folder of the run; None keeps everything in memory
    mask       a weight ≥ 0 for every pixel, [N, 1 or C, H, W]: 0 where it is unknown, as NaN is in the images
    image_count  with update = 'batch': how many images each layer learns from, one layer's after the other's; a data
               set starts again after its last image, an iterable that ends too early raises StreamError
    resume     continue the run in `out` from its last checkpoint
    start      the model to begin with; None draws one from the recipe's seed
    progress   show how far training is, on standard error
    options    engine, device, memory, checkpoints: what does not change the outcome
    callbacks  functions to call on the way, and when to stop

    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 2, "inference": {"steps": 3}}}}
    >>> run = ww.train(ww.override(ww.Recipe.paper(), small), ww.data.load("digits")[:20])
    >>> run.model
    DeconvNet(1 → 4 maps 5×5, gaussian 2×2; float32, cpu)
    >>> run.history[-1].cost < run.history[0].cost
    True
    """
    options, callbacks = options or TrainingOptions(), callbacks or TrainingCallbacks()
    source = in_model_units(recipe.model, as_stream_or_source(images))
    if resume and out is None:
        raise SpecError("resume=True was given without a folder; expected out='the folder of the run'")
    if not isinstance(source, IterableStream) and len(source) == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    recipe = stream_recipe(recipe, source, image_count, mask)
    if start is None:  # channels are those of the images
        recipe = replace(recipe, model=replace(recipe.model, channels=first_images(source).shape[1]))
    if out is not None and "\0" in os.fspath(out):
        raise SpecError(f"out = {os.fspath(out)!r} was given; expected a name without zero bytes")
    if start is not None and start.spec != recipe.model:
        raise SpecError("a start model was given that is not the recipe's; expected one of the same ModelSpec")
    seen = first_images(source) if isinstance(source, IterableStream) else source
    recipe = resolve_recipe(recipe, seen, mask=mask, start=start)
    if progress:
        size = images_per_epoch(recipe, source, image_count)
        with TrainingProgress(recipe, size, quiet=not distributed.is_main_process()) as display:
            return run_training(
                recipe, source, mask, image_count, out, resume, start, options, display.attach(callbacks)
            )
    return run_training(recipe, source, mask, image_count, out, resume, start, options, callbacks)


def run_training(
    recipe: Recipe,
    images: ImageSource | IterableStream,
    mask: ImageSource | None,
    image_count: int | None,
    out: str | os.PathLike[str] | None,
    resume: bool,
    start: DeconvNet | None,
    options: TrainingOptions,
    callbacks: TrainingCallbacks,
) -> TrainedModel:
    """Open what a training needs, run it, close it again."""
    device = distributed.choose_device(options.device)
    folder = None if out is None else RunFolder(Path(out))
    height, width = first_images(images).shape[-2:]
    batch = recipe.batch_size if isinstance(images, IterableStream) else min(recipe.batch_size, len(images))
    check_memory(recipe.model, (height, width), batch, device)
    group = distributed.process_group(device, options.timeout)
    with torch.no_grad(), memory_errors(), group, ExitStack() as closing:
        model = (start or DeconvNet(recipe.model, seed=recipe.seed)).to(device)
        dtype = latent_dtype(options.latent_dtype, model.dtype)
        data: TrainingData | StreamData
        if recipe.learning[0].streams:
            data = open_stream(recipe, images, image_count, model)
        else:
            assert not isinstance(images, IterableStream), "stream_recipe raises"
            data = closing.enter_context(open_data(recipe, images, mask, model, dtype, folder, options, callbacks))
        engines = resolve_engines(options.engine, model, data.first_image(), recipe)
        if folder is not None and distributed.rank() == 0:
            closing.enter_context(folder.locked())
        state, checkpointer = TrainingState(model, *first_epoch(recipe)), None
        if folder is not None:
            prints = [fingerprint(source, recipe.batch_size) for source in (images, mask) if source is not None]
            facts = RunFacts(recipe, " ".join(prints), dtype, options.notes)
            checkpointer = Checkpointer(folder, facts, data if isinstance(data, TrainingData) else None)
            state = checkpointer.resume(device) if resume else checkpointer.begin(state)
        schedule = CheckpointSchedule(options.checkpoint_every)
        session = TrainingSession(
            recipe, data, state, [engine.name for engine in engines], callbacks, checkpointer, schedule
        )
        with nullcontext() if folder is None else folder.writing("training"):
            if isinstance(data, StreamData):
                run_stream(data, engines, session)
            else:
                learn(state.model, recipe, data, engines, session)
    return TrainedModel(session.state.model, session.state.history, None if folder is None else folder.path)


def run_stream(data: StreamData, engines: Sequence[Engine], session: TrainingSession) -> None:
    """Learn from a stream; if it fails, what was learned until then is saved, and is in the error."""
    try:
        learn_from_stream(session.state.model, session.recipe, data, engines, session)
    except StreamError as error:
        session.save_within_epoch()
        error.model = session.state.model
        raise


def resolve_engines(name: str, model: DeconvNet, image: torch.Tensor, recipe: Recipe) -> tuple[Engine, ...]:
    """The engine of each layer's training; an unsupported one raises an error before anything is written."""
    return tuple(
        resolve(name, Problem(model, image, training_phase(layer, learning), learning.inference))
        for layer, learning in enumerate(recipe.learning, start=1)
    )


@contextmanager
def open_data(
    recipe: Recipe,
    images: ImageSource,
    mask: ImageSource | None,
    model: DeconvNet,
    dtype: torch.dtype,
    folder: RunFolder | None,
    options: TrainingOptions,
    callbacks: TrainingCallbacks,
) -> Iterator[TrainingData]:
    """Checked images, and a store for their latents in the tier asked for; without a folder its files are temporary."""
    batches = split_batches(len(images), recipe.batch_size)
    signals, masks = as_signals(model, images, mask, batches)
    height, width = images[slice(0, 1)].shape[2:]
    needed = len(images) * latents_per_image(model.spec, height, width) * dtype.itemsize // distributed.world_size()
    with ExitStack() as closing:
        home = Path(tempfile.gettempdir()) if folder is None else folder.path
        tier, reason = choose_tier(options.store, needed, model.device, home)
        callbacks.on_start(f"latents in the tier {tier!r}: {reason}")
        if folder is not None:
            files = LatentFiles(folder.latents, batches, dtype)
        elif tier == "file":
            files = LatentFiles(Path(closing.enter_context(tempfile.TemporaryDirectory())), batches, dtype)
        else:
            files = None
        store = LatentStore(tier, len(batches), device=model.device, dtype=model.dtype, stored_dtype=dtype, files=files)
        closing.callback(store.close)
        yield TrainingData(
            on_device(signals, batches, store), batches, store, masks and on_device(masks, batches, store)
        )


def on_device(images: ImageSource, batches: list[slice], store: LatentStore) -> ImageSource:
    """Images are kept where the latents are: on the device, if that is their tier."""
    if store.tier != "device" or store.device.type == "cpu":
        return images
    return torch.cat([images[batch].to(store.device, store.dtype) for batch in batches])
