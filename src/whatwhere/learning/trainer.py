"""Algorithm 1 of the paper, its outer loops: layer by layer, epoch by epoch, with all that outlives a process."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whatwhere import distributed
from whatwhere.errors import ImageError, SpecError
from whatwhere.inference.engines import resolve
from whatwhere.learning.epoch import ImageSource, Session, State, first_epoch, train_epoch, training_phase
from whatwhere.learning.guards import stopped
from whatwhere.learning.reports import BatchReport, EpochReport
from whatwhere.learning.run_folder import RunFolder, fingerprint
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe
from whatwhere.storage import LatentFiles, LatentStore, choose_tier, kept_dtype


@dataclass(frozen=True)
class TrainedModel:
    """The outcome of training: the model, one report an epoch, and the folder that holds them, if any."""

    model: DeconvNet
    history: tuple[EpochReport, ...]
    folder: Path | None = None


def nothing(*_: Any) -> None:
    """Takes whatever it is told, and keeps silent."""


def train(
    recipe: Recipe,
    images: ImageSource,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    start: DeconvNet | None = None,
    engine: str = "auto",
    device: torch.device | str = "auto",
    store: str = "auto",
    latent_dtype: str | torch.dtype | None = None,
    checkpoint_every: int | None = None,
    notes: Mapping[str, Any] | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_start: Callable[[str], None] = nothing,
    on_batch: Callable[[BatchReport], None] = nothing,
    on_epoch: Callable[[EpochReport], None] = nothing,
) -> TrainedModel:
    """Train a model by a recipe: each layer in turn, its latents living on from epoch to epoch.

    images            a tensor [N, C, H, W], or a data set that gives such tensors for slices
    out               folder of the run; None keeps everything in memory
    resume            go on with the run in `out` from its last checkpoint
    start             the model to begin with; None draws one from the recipe's seed
    device            'auto' takes a GPU where there is one
    store             where latents wait for the next epoch: 'device', 'ram', 'file', or 'auto', the fastest that fits
    latent_dtype      the type latents are kept in: float32 by default, float16 and bfloat16 take half the room
    checkpoint_every  epochs from one checkpoint to the next; 0 writes one only when stopped; None writes one every
                      epoch, or as seldom as keeps them to a tenth of the time
    notes             plain values for the checkpoint, such as where the images came from
    stop              asked after every batch: True ends training with a checkpoint and `TrainingStopped`
    on_start          told what was chosen; on_batch and on_epoch are told how it goes
    """
    if checkpoint_every is not None and checkpoint_every < 0:
        raise SpecError(f"checkpoint_every = {checkpoint_every} was given; expected a number of epochs, or 0 for none")
    if resume and out is None:
        raise SpecError("resume was asked for without a folder; expected out='the folder of the run'")
    if start is not None and start.spec != recipe.model:
        raise SpecError("a model to start from was given that is not the recipe's; expected one of the same ModelSpec")
    if len(images) == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    home = distributed.choose_device(device)
    folder = None if out is None else RunFolder(Path(out))
    with torch.no_grad(), distributed.process_group(home), ExitStack() as closing:
        if folder is not None and distributed.rank() == 0:
            closing.enter_context(folder.locked())
        model = (start or DeconvNet(recipe.model, seed=recipe.seed)).to(home)
        kept = kept_dtype(latent_dtype, model.dtype)
        batches = [slice(i, min(i + recipe.batch_size, len(images))) for i in range(0, len(images), recipe.batch_size)]
        check_images(model, images, batches)
        check_engine(engine, model, images[slice(0, 1)].to(home, model.dtype), recipe)
        keeper = None if folder is None else Keeper(folder, recipe, fingerprint(images, batches), notes or {})
        latents = closing.enter_context(open_store(store, model, images, batches, kept, folder, on_start))
        session = Session(recipe, on_device(images, batches, latents), batches, latents, engine, stop, on_batch)
        layer, epoch = first_epoch(recipe)
        state = State(model, layer, epoch)
        if keeper is not None:
            state = keeper.resume(session, home) if resume else keeper.begin(session, state)
        state = run_epochs(session, state, keeper, Pace(checkpoint_every), on_epoch)
    return TrainedModel(state.model, state.history, None if folder is None else folder.path)


def check_engine(name: str, model: DeconvNet, image: torch.Tensor, recipe: Recipe) -> None:
    """Refuse an engine that cannot serve every layer's training before anything is written."""
    for layer, learning in enumerate(recipe.learning, start=1):
        resolve(name, model, image, training_phase(layer, learning), learning.inference)


def run_epochs(
    session: Session, state: State, keeper: Keeper | None, pace: Pace, on_epoch: Callable[[EpochReport], None]
) -> State:
    """Epoch after epoch until the recipe is done or someone asks to stop."""
    depth = session.recipe.model.depth
    while state.layer <= depth:
        done, last = len(state.history), state.after(session.recipe)[0] > depth
        expected = state.history[-1].seconds if state.history else 0.0
        due = keeper is not None and not last and anyone(distributed.rank() == 0 and pace.due(done + 1, expected))
        with keeper.folder.writing("training") if keeper is not None else nullcontext():
            state = train_epoch(session, state, save=due)
        for report in state.history[done:]:
            if keeper is not None:
                keeper.append(report)
            on_epoch(report)
        stopping = anyone(state.batch > 0 or session.stop()) and state.layer <= depth
        if keeper is not None and state.layer > depth:
            keeper.finish(session, state)
        elif keeper is not None and (due or stopping):
            with pace.measured():
                keeper.checkpoint(session, state)
        if stopping:
            where = f"layer {state.layer}, epoch {state.epoch}, {state.batch} of {len(session.batches)} batches done"
            raise stopped(where, None if keeper is None else str(keeper.folder.path))
    return state


def anyone(holds: bool) -> bool:
    """Does it hold for any of the processes? All of them get the same answer."""
    return bool(distributed.all_reduce_sum(torch.tensor([float(holds)])) > 0)


class Pace:
    """When a checkpoint is due: every n epochs, or as often as a tenth of the time allows."""

    SHARE = 0.1

    def __init__(self, every: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.every, self.clock = every, clock
        self.cost, self.last = 0.0, clock()

    def due(self, epoch: int, seconds: float) -> bool:
        """Asked as an epoch begins that is expected to take this long: is a checkpoint due when it ends?"""
        if self.every is not None:
            return self.every > 0 and epoch % self.every == 0
        return self.cost <= self.SHARE * (self.clock() + seconds - self.last)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around the writing of a checkpoint, to learn what one costs."""
        start = self.clock()
        yield
        self.last = self.clock()
        self.cost = self.last - start


@dataclass(frozen=True)
class Keeper:
    """What a run leaves in its folder, and when. Latents are written by every process, the rest by the first."""

    folder: RunFolder
    recipe: Recipe
    images: str
    """fingerprint of the images"""
    notes: Mapping[str, Any]

    def begin(self, session: Session, state: State) -> State:
        """A new run: its first checkpoint holds nothing but the start, so that there always is one."""
        self.folder.refuse_existing()
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.begin(self.recipe)
            self.folder.write_history(())
        self.checkpoint(session, state)
        return state

    def resume(self, session: Session, device: torch.device) -> State:
        """Take up the last checkpoint, and set right what is written beside it: a kill may have come in between."""
        store = session.store
        state, places = self.folder.load(self.recipe, self.images, store.kept_dtype, device)
        self.folder.restore(store, places, session.mine())
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.write_history(state.history)
            self.folder.write_model(state.model)
            if state.layer > self.recipe.model.depth:
                self.folder.drop_latents()
        return state

    def append(self, report: EpochReport) -> None:
        if distributed.rank() == 0:
            self.folder.append_history(report)

    def checkpoint(self, session: Session, state: State) -> None:
        """Latents to the disk, then the state that points at them; only then may the last ones be overwritten."""
        with self.folder.writing("writing latents"):
            written = session.store.flush()
        mine = torch.zeros(len(session.batches), 1, dtype=torch.int64)
        mine[list(session.mine())] = 1
        places = distributed.all_reduce_sum(written * mine)
        self._save(session, state, places)
        session.store.keep(places)

    def finish(self, session: Session, state: State) -> None:
        """The last checkpoint needs no latents, and they are by far the largest part of a run."""
        self._save(session, state, torch.zeros(len(session.batches), 3, dtype=torch.int64))
        if distributed.rank() == 0:
            self.folder.drop_latents()

    def _save(self, session: Session, state: State, places: torch.Tensor) -> None:
        if distributed.rank() == 0:
            self.folder.save(self.recipe, self.images, session.store.kept_dtype, self.notes, state, places)
        distributed.barrier()


@contextmanager
def open_store(
    asked: str,
    model: DeconvNet,
    images: ImageSource,
    batches: list[slice],
    kept: torch.dtype,
    folder: RunFolder | None,
    on_start: Callable[[str], None],
) -> Iterator[LatentStore]:
    """The store of latents in the tier asked for; without a folder its files are temporary."""
    height, width = images[slice(0, 1)].shape[2:]
    needed = len(images) * latent_size(model, height, width) * kept.itemsize // distributed.world_size()
    with ExitStack() as closing:
        home = Path(tempfile.gettempdir()) if folder is None else folder.path
        tier, reason = choose_tier(asked, needed, model.device, home)
        on_start(f"latents in the tier {tier!r}: {reason}")
        if folder is not None:
            files = LatentFiles(folder.latents, batches, kept)
        elif tier == "file":
            files = LatentFiles(Path(closing.enter_context(tempfile.TemporaryDirectory())), batches, kept)
        else:
            files = None
        store = LatentStore(tier, len(batches), device=model.device, dtype=model.dtype, kept_dtype=kept, files=files)
        closing.callback(store.close)
        yield store


def latent_size(model: DeconvNet, height: int, width: int) -> int:
    """Numbers that the latents of one image come to, in training's largest layer."""
    grids = [(math.prod(r.grid), len(r.axes)) for r in model.regions(height, width)]
    pooling = [2 * axes * regions for regions, axes in grids]
    return max(grids[k][0] + sum(pooling[: k + 1]) for k in range(len(grids)))


def check_images(model: DeconvNet, images: ImageSource, batches: list[slice]) -> None:
    """Refuse images that the model cannot explain, before anything is done with them."""
    for batch in batches[distributed.rank() :: distributed.world_size()]:
        model.check_images(images[batch])


def on_device(images: ImageSource, batches: list[slice], store: LatentStore) -> ImageSource:
    """Images that are kept where the latents are: on the device, if that is their tier."""
    if store.tier != "device" or store.device.type == "cpu":
        return images
    return torch.cat([images[batch].to(store.device, store.dtype) for batch in batches])
