"""What surrounds an algorithm of training: position, reports, guards, stop requests, checkpoints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from whatwhere.learning.guards import check_batch, check_filters, check_sums, stopped
from whatwhere.learning.reports import BatchReport, EpochReport, TrainingCallbacks
from whatwhere.learning.run_folder import CheckpointSchedule, RunFolder
from whatwhere.learning.state import AsyncHostCopy, BatchStats, EpochStats, TrainingState, measure_batch
from whatwhere.learning.training_data import StreamData, TrainingData
from whatwhere.model import DeconvNet
from whatwhere.model.problem import lam_of
from whatwhere.model.solution import Solution
from whatwhere.spec import LearningSpec, Recipe


@dataclass
class TrainingSession:
    """The `Hooks` of an algorithm (see `learning.algorithm`), from one state of a run to its end.

    engines   the name of each layer's engine, for reports
    folder    None if the run has none
    """

    recipe: Recipe
    data: TrainingData | StreamData
    state: TrainingState
    engines: Sequence[str]
    callbacks: TrainingCallbacks = field(default_factory=TrainingCallbacks)
    folder: RunFolder | None = None
    schedule: CheckpointSchedule = field(default_factory=CheckpointSchedule)
    checkpoint_due: bool = False
    # of batches whose numbers are still on their way to the host
    _pending: deque[tuple[int, AsyncHostCopy]] = field(default_factory=deque, init=False)

    @property
    def memory(self) -> dict[str, Tensor]:
        return self.state.memory

    # The epochs ---------------------------------------------------------------------------------------------

    def epochs(self, layer: int) -> Iterator[int]:
        while self.state.layer == layer:
            self._begin_epoch()
            yield self.state.epoch

    def _begin_epoch(self) -> None:
        state = self.state
        last = state.after(self.recipe)[0] > self.recipe.model.depth
        expected = state.history[-1].seconds if state.history else 0.0
        self.checkpoint_due = not last and self.schedule.due(len(state.history) + 1, expected)
        maps = state.model.spec.layers[state.layer - 1].pooled_maps
        self._stats = state.stats or EpochStats(torch.zeros(maps, dtype=torch.bool, device=state.model.device))
        self._began = time.perf_counter()

    def end_epoch(self, model: DeconvNet) -> None:
        state = self.state
        check_filters(model, self._where())
        report = self._epoch_report()
        layer, epoch = state.after(self.recipe)
        memory = state.memory if layer == state.layer else {}
        self.state = TrainingState(model, layer, epoch, memory=memory, history=(*state.history, report))
        if self.folder is not None:
            self.folder.append_history(report)
        self.callbacks.on_epoch(report)
        finished = layer > self.recipe.model.depth
        stopping = self.callbacks.stop() and not finished
        if self.folder is not None and finished:
            self.folder.finish(self.state)
        elif self.checkpoint_due or stopping:
            self._checkpoint()
        if stopping:
            self._raise_stopped()

    def _epoch_report(self) -> EpochReport:
        stats, end = self._stats, time.perf_counter()
        stats.seconds += end - self._began
        return EpochReport(
            layer=self.state.layer,
            epoch=self.state.epoch,
            reconstruction=stats.reconstruction / stats.images,
            penalty=stats.penalty / stats.images,
            nonzeros=stats.nonzeros / stats.images,
            dead_maps=int((~stats.active).sum()),
            seconds=stats.seconds,
            engine=self.engines[self.state.layer - 1],
            images=int(stats.images),
            steps=self._learning.inference.steps,
            filter_seconds=end - self._inferred,
        )

    # The batches of an epoch --------------------------------------------------------------------------------

    def batches(self) -> Iterator[int]:
        # A GPU works on one batch while the numbers of the one before come to the host, so that neither waits.
        ahead = 1 if self.state.model.device.type == "cuda" else 0
        self._done, stopping = self.state.batch, False
        for batch in range(self._done, self._batch_count):
            yield batch
            self._done = batch + 1
            if len(self._pending) > ahead and (stopping := self._report_batch()):
                break
        while self._pending:
            stopping |= self._report_batch()
        self._inferred = time.perf_counter()
        if stopping:
            self.save_within_epoch()
            self._raise_stopped()

    def end_batch(self, model: DeconvNet, images: Tensor, solution: Solution) -> None:
        if model is not self.state.model:
            self.state = replace(self.state, model=model)
        zero_cost = lam_of(self._learning.inference) / 2 * images.square().sum()
        self._stats.add_active(solution.features)
        self._pending.append((self._done + 1, AsyncHostCopy(measure_batch(solution, zero_cost))))

    def check_sums(self, total: Tensor) -> Tensor:
        return check_sums(total, self._where())

    def _report_batch(self) -> bool:
        """Check and report the first of the pending batches; True if someone asks to stop."""
        batch, measured = self._pending.popleft()
        sums, learning = BatchStats(*measured.value().tolist()), self._learning
        where = f"{self._where()}, batch {batch} of {self._batch_count}"
        check_batch(sums, where, self.state.model, learning.inference)
        self._stats.add(sums)
        report = BatchReport(
            layer=self.state.layer,
            epoch=self.state.epoch,
            epochs=learning.epochs,
            batch=batch,
            batches=self._batch_count,
            images=int(sums.images),
            steps=learning.inference.steps,
            reconstruction=sums.reconstruction / sums.images,
            penalty=sums.penalty / sums.images,
            nonzeros=sums.nonzeros / sums.images,
        )
        self.callbacks.on_batch(report)
        return self.callbacks.stop()

    # Stops and checkpoints ----------------------------------------------------------------------------------

    def save_within_epoch(self) -> None:
        """A checkpoint of the batches that are done."""
        while self._pending:
            self._report_batch()
        self._stats.seconds += time.perf_counter() - self._began
        self.state = replace(self.state, batch=self._done, stats=self._stats)
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self.folder is not None:
            with self.schedule.measured():
                self.folder.save(self.state)

    def _raise_stopped(self) -> None:
        where = f"{self._where()}, {self.state.batch} of {self._batch_count} batches done"
        raise stopped(where, None if self.folder is None else self.folder.path)

    # Position -----------------------------------------------------------------------------------------------

    @property
    def _learning(self) -> LearningSpec:
        return self.recipe.learning[self.state.layer - 1]

    @property
    def _batch_count(self) -> int:
        return self.data.batch_count(self.state.epoch)

    def _where(self) -> str:
        return f"layer {self.state.layer}, epoch {self.state.epoch}"
