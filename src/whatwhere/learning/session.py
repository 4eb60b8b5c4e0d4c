"""What surrounds an algorithm of training: position, reports, guards, stop requests, checkpoints, other processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from whatwhere.learning import distributed
from whatwhere.learning.callbacks import TrainingCallbacks
from whatwhere.learning.guards import check_batch, check_filters, check_sums, stopped
from whatwhere.learning.reports import Activity, BatchReport, EpochReport, PhaseReport
from whatwhere.learning.run_folder import Checkpointer, CheckpointSchedule
from whatwhere.learning.state import TrainingState
from whatwhere.learning.stats import AsyncHostCopy, BatchStats, EpochStats, measure_batch
from whatwhere.learning.training_data import StreamData, TrainingData
from whatwhere.model import DeconvNet
from whatwhere.model.problem import lam_of
from whatwhere.model.solution import Solution
from whatwhere.spec import LearningSpec, Recipe


@dataclass
class TrainingSession:
    """The `Hooks` of an algorithm (see `learning.algorithm`), from one state of a run to its end.

    Batches are inferred in rounds: in each, every process infers one of its batches. At the end of a round the
    processes add up a few numbers: what the batches cost, and whether anyone wants to stop. So all of them stop at the
    same batch, and one that was killed is missed within a batch.

    engines       the name of each layer's engine, for reports
    checkpointer  None if the run has no folder
    """

    recipe: Recipe
    data: TrainingData | StreamData
    state: TrainingState
    engines: Sequence[str]
    callbacks: TrainingCallbacks = field(default_factory=TrainingCallbacks)
    checkpointer: Checkpointer | None = None
    schedule: CheckpointSchedule = field(default_factory=CheckpointSchedule)
    checkpoint_due: bool = False

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
        self.checkpoint_due = (
            self.checkpointer is not None
            and not last
            and anyone(distributed.rank() == 0 and self.schedule.due(len(state.history) + 1, expected))
        )
        maps = state.model.spec.layers[state.layer - 1].pooled_maps
        self._stats = state.stats or EpochStats.zero(maps, state.model.device)
        self._began = time.perf_counter()
        self._report_phase("inferring", state.batch)

    def end_epoch(self, model: DeconvNet) -> None:
        state = self.state
        check_filters(model, self._where())
        report = self._epoch_report()
        layer, epoch = state.after(self.recipe)
        memory = state.memory if layer == state.layer else {}
        self.state = TrainingState(model, layer, epoch, memory=memory, history=(*state.history, report))
        if self.checkpointer is not None:
            self.checkpointer.append(report)
        self.callbacks.on_epoch(report)
        finished = layer > self.recipe.model.depth
        stopping = anyone(self.callbacks.stop()) and not finished
        if self.checkpointer is not None and finished:
            self.checkpointer.finish(self.state)
        elif self.checkpoint_due or stopping:
            self._checkpoint(state.layer, state.epoch)
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
        together, batches = self.data.batches_per_round, self.data.batch_count(self.state.epoch)
        # A GPU works on one batch while the numbers of the one before come to the host, so that neither waits.
        ahead = 1 if self.state.model.device.type == "cuda" else 0
        self._pending: deque[tuple[int, AsyncHostCopy]] = deque()
        self._done, stopping = self.state.batch, False
        for first in range(self._done - self._done % together, batches, together):
            batch = first + distributed.rank() % together
            self._measured = AsyncHostCopy(torch.zeros(len(BatchStats._fields)))  # of a process without a batch
            if self._done <= batch < batches:
                yield batch
            self._pending.append((first, self._measured))
            self._done = min(first + together, batches)
            if len(self._pending) > ahead and (stopping := self._end_round(*self._pending.popleft())):
                break
        stopping |= self._end_rounds()
        if stopping:
            self.save_within_epoch()
            self._raise_stopped()
        self._report_phase("updating filters", self._done)

    def _end_rounds(self) -> bool:
        """End the rounds that are still pending; True if anyone wants to stop."""
        stopping = False
        while self._pending:
            stopping |= self._end_round(*self._pending.popleft())
        self._stats.active = distributed.all_reduce_sum(self._stats.active.long().cpu()) > 0
        self._inferred = time.perf_counter()
        return stopping

    def end_batch(self, model: DeconvNet, images: Tensor, solution: Solution) -> None:
        if model is not self.state.model:
            self.state = replace(self.state, model=model)
        zero_cost = lam_of(self._learning.inference) / 2 * images.square().sum()
        self._stats.add_active(solution.features)
        self._measured = AsyncHostCopy(measure_batch(solution, zero_cost))

    def all_reduce_sum(self, total: Tensor) -> Tensor:
        return check_sums(distributed.all_reduce_sum(total), self._where())

    def _end_round(self, first: int, measured: AsyncHostCopy) -> bool:
        """Add up one round over all processes, check its costs, report it; True if anyone wants to stop."""
        together, batches = self.data.batches_per_round, self.data.batch_count(self.state.epoch)
        table = torch.zeros(distributed.world_size(), len(BatchStats._fields), dtype=torch.float64)
        table[distributed.rank()] = measured.value()
        table[distributed.rank(), BatchStats._fields.index("stop")] = self.callbacks.stop()
        table = distributed.all_reduce_sum(table)
        for process, row in enumerate(table.tolist()):
            where = f"{self._where()}, batch {first + process % together + 1} of {batches}"
            check_batch(BatchStats(*row), where, self.state.model, self._learning.inference)
        sums = BatchStats(*table.sum(0).tolist())
        self._stats.add(sums)
        self._report_batch(sums, min(first + together, batches))
        return sums.stop > 0

    def _report_batch(self, sums: BatchStats, batch: int) -> None:
        images = max(1.0, sums.images)
        self.callbacks.on_batch(
            BatchReport(
                layer=self.state.layer,
                epoch=self.state.epoch,
                epochs=self._learning.epochs,
                batch=batch,
                batches=self.data.batch_count(self.state.epoch),
                images=int(sums.images),
                steps=self._learning.inference.steps,
                reconstruction=sums.reconstruction / images,
                penalty=sums.penalty / images,
                nonzeros=sums.nonzeros / images,
            )
        )

    # Stops and checkpoints ----------------------------------------------------------------------------------

    def save_within_epoch(self) -> None:
        """A checkpoint of the batches that are done."""
        if self._pending:
            self._end_rounds()
        self._stats.active = self._stats.active.to(self.state.model.device)
        self._stats.seconds += time.perf_counter() - self._began
        self.state = replace(self.state, batch=self._done, stats=self._stats)
        self._checkpoint(self.state.layer, self.state.epoch)

    def _checkpoint(self, layer: int, epoch: int) -> None:
        if self.checkpointer is not None:
            self.callbacks.on_phase(PhaseReport(layer, epoch, self.state.batch, "writing a checkpoint"))
            with self.schedule.measured():
                self.checkpointer.checkpoint(self.state)

    def _raise_stopped(self) -> None:
        where = f"{self._where()}, {self.state.batch} of {self.data.batch_count(self.state.epoch)} batches done"
        raise stopped(where, None if self.checkpointer is None else self.checkpointer.folder.path)

    # Position -----------------------------------------------------------------------------------------------

    @property
    def _learning(self) -> LearningSpec:
        return self.recipe.learning[self.state.layer - 1]

    def _where(self) -> str:
        return f"layer {self.state.layer}, epoch {self.state.epoch}"

    def _report_phase(self, doing: Activity, batch: int) -> None:
        self.callbacks.on_phase(PhaseReport(self.state.layer, self.state.epoch, batch, doing))


def anyone(holds: bool) -> bool:
    """Does it hold for any of the processes? All of them get the same answer."""
    return bool(distributed.all_reduce_sum(torch.tensor([float(holds)])) > 0)
