"""One epoch of Algorithm 1: infer every batch, then update the filters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from whatwhere import distributed
from whatwhere.inference.engines import resolve
from whatwhere.inference.infer import run_phase
from whatwhere.latents import Latents
from whatwhere.learning.filter_problem import update_filters
from whatwhere.learning.guards import check_batch, check_filters, check_sums
from whatwhere.learning.reports import BatchReport, EpochReport, Measured, Tally
from whatwhere.model import DeconvNet
from whatwhere.spec import LearningSpec, Phase, Recipe
from whatwhere.storage import LatentStore


class ImageSource(Protocol):
    """Anything that gives images [n, C, H, W] for a slice: a tensor, or a data set that reads lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice, /) -> Tensor: ...


@dataclass(frozen=True)
class Session:
    """What stays the same through a run. Batch i belongs to process i modulo their number, from start to end."""

    recipe: Recipe
    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore
    engine: str
    stop: Callable[[], bool]
    on_batch: Callable[[BatchReport], None]

    def mine(self) -> range:
        """The batches of this process."""
        return range(distributed.rank(), len(self.batches), distributed.world_size())

    def read_images(self, batch: int) -> Tensor:
        return self.images[self.batches[batch]].to(self.store.device, self.store.dtype)


@dataclass(frozen=True)
class State:
    """How far training has come: the model, and what comes next.

    batch    the first batch of the epoch that is not inferred yet; above 0 only where training was stopped
    tally    of the epoch in progress, where there is one
    """

    model: DeconvNet
    layer: int
    epoch: int
    batch: int = 0
    tally: Tally | None = None
    history: tuple[EpochReport, ...] = ()

    def after(self, recipe: Recipe) -> tuple[int, int]:
        """Layer and epoch that follow this epoch."""
        return first_epoch(recipe, self.layer, self.epoch + 1)


def first_epoch(recipe: Recipe, layer: int = 1, epoch: int = 1) -> tuple[int, int]:
    """This layer and epoch, or the first after them that the recipe has; past the top layer training is finished."""
    while layer <= recipe.model.depth and epoch > recipe.learning[layer - 1].epochs:
        layer, epoch = layer + 1, 1
    return layer, epoch


def training_phase(layer: int, learning: LearningSpec) -> Phase:
    """What inference moves while `layer` is trained."""
    return Phase(layer=layer, update_pooling=tuple(range(1 if learning.update_lower_pooling else layer, layer + 1)))


def moving_filters(layer: int, learning: LearningSpec) -> tuple[int, ...]:
    """The layers whose filters are updated while `layer` is trained, the top one first."""
    return tuple(range(layer, 0, -1)) if learning.update_lower_filters else (layer,)


def train_epoch(session: Session, state: State, *, save: bool) -> State:
    """Infer what is left of the epoch and update the filters; where asked to stop, the state amid the epoch.

    save   put latents into files as they are made, for the checkpoint that follows
    """
    start = time.perf_counter()
    learning = session.recipe.learning[state.layer - 1]
    maps = state.model.spec.layers[state.layer - 1].pooled_maps
    inference = EpochInference(session, state, state.tally or Tally(maps, state.model.device), save)
    done, stopped = inference.run()
    tally = inference.tally
    active = distributed.all_reduce_sum(tally.active.long().cpu()) > 0
    if stopped:
        tally.active = active.to(state.model.device)
        tally.sums[4] += time.perf_counter() - start
        return replace(state, batch=done, tally=tally)

    def stored() -> Iterator[tuple[Tensor, Latents]]:
        for batch in session.mine():
            yield session.read_images(batch), session.store.read(batch)

    where = f"layer {state.layer}, epoch {state.epoch}"

    def summed(total: Tensor) -> Tensor:
        return check_sums(distributed.all_reduce_sum(total), where)

    model, inferred = state.model, time.perf_counter()
    for k in moving_filters(state.layer, learning):
        model = update_filters(model, k, stored, learning.cg_steps, summed, inference.engine)
    check_filters(model, where)
    end = time.perf_counter()
    tally.sums[4] += end - start
    report = tally.report(
        state.layer, state.epoch, learning.inference.steps, active, inference.engine.name, filter_seconds=end - inferred
    )
    layer, epoch = state.after(session.recipe)
    return State(model, layer, epoch, history=(*state.history, report))


class EpochInference:
    """The inference of one epoch, in rounds: in each, every process infers one of its batches.

    At the end of a round the processes add up a few numbers: what the batches cost, and whether anyone wants to
    stop. So all of them stop at the same batch, and one that was killed is missed within a batch.
    """

    def __init__(self, session: Session, state: State, tally: Tally, save: bool) -> None:
        self.session, self.state, self.tally, self.save = session, state, tally, save
        self.learning = session.recipe.learning[state.layer - 1]
        self.phase = training_phase(state.layer, self.learning)
        self.reset = state.epoch - 1 in self.learning.reset_at
        v = session.images[slice(0, 1)].to(session.store.device, session.store.dtype)
        # chosen here too: after a stop at the end of an epoch's inference there may be no batch left to tell it by
        self.engine = resolve(session.engine, state.model, v, self.phase, self.learning.inference)

    def run(self) -> tuple[int, bool]:
        """Infer the batches that are left: how many of the epoch are done, and whether someone asked to stop."""
        processes, batches = distributed.world_size(), len(self.session.batches)
        # A GPU works on one batch while the numbers of the one before come to the host, so that neither waits.
        ahead = 1 if self.state.model.device.type == "cuda" else 0
        measured: deque[tuple[int, ToHost]] = deque()
        done, stopped = self.state.batch, False
        for first in range(done - done % processes, batches, processes):
            batch = first + distributed.rank()
            measured.append(
                (first, self.infer(batch) if done <= batch < batches else ToHost(torch.zeros(len(Measured._fields))))
            )
            done = min(first + processes, batches)
            if len(measured) > ahead and (stopped := self.settle(*measured.popleft())):
                break
        for entry in measured:
            stopped |= self.settle(*entry)
        return done, stopped

    def infer(self, batch: int) -> ToHost:
        """Infer one batch from the latents that the epoch before left, and put the new ones into the store."""
        state, store = self.state, self.session.store
        latents = store.read(batch)
        if self.reset and latents.p is not None:
            latents = replace(latents, p=torch.zeros_like(latents.p))
        v = self.session.read_images(batch)
        latents = self.infer_layers_below(v, latents)
        solution = run_phase(state.model, v, latents, self.phase, self.learning.inference, self.engine)
        store.write(batch, solution.latents, save=self.save)
        nothing = self.learning.inference.lam / 2 * v.square().sum()
        return ToHost(self.tally.measure(solution, nothing, store.kept_dtype))

    def infer_layers_below(self, v: Tensor, latents: Latents) -> Latents:
        """Layers below that were trained elsewhere are inferred as in their training: their pooling is then known."""
        for k in range(len(latents.pooling_params) + 1, self.state.layer):
            learning = self.session.recipe.learning[k - 1]
            phase = training_phase(k, learning)
            latents = run_phase(self.state.model, v, latents, phase, learning.inference, self.engine).latents
        return latents

    def settle(self, first: int, measured: ToHost) -> bool:
        """Add up one round over all processes, check its costs, report it; True where anyone wants to stop."""
        state, session, spec = self.state, self.session, self.learning.inference
        table = torch.zeros(distributed.world_size(), len(Measured._fields), dtype=torch.float64)
        table[distributed.rank()] = measured.value()
        table[distributed.rank(), -1] = session.stop()
        table = distributed.all_reduce_sum(table)
        for batch, row in enumerate(table.tolist(), start=first + 1):
            where = f"layer {state.layer}, epoch {state.epoch}, batch {batch} of {len(session.batches)}"
            check_batch(Measured(*row), where, state.model, spec)
        sums = Measured(*table.sum(0).tolist())
        self.tally.sums[:4] += table.sum(0)[:4]
        images = max(1.0, sums.images)
        session.on_batch(
            BatchReport(
                layer=state.layer,
                epoch=state.epoch,
                epochs=self.learning.epochs,
                batch=min(first + distributed.world_size(), len(session.batches)),
                batches=len(session.batches),
                images=int(sums.images),
                steps=spec.steps,
                reconstruction=sums.reconstruction / images,
                penalty=sums.penalty / images,
                nonzeros=sums.nonzeros / images,
            )
        )
        return sums.stop > 0


class ToHost:
    """A small tensor on its way to the host; only `value` waits for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        else:
            self._host = tensor

    def value(self) -> Tensor:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host
