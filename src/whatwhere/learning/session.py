"""What surrounds an algorithm of training: position, reports, guards, stop requests,
checkpoints."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from whatwhere.errors import RunError
from whatwhere.learning import reports
from whatwhere.learning.processes import ProcessGroup
from whatwhere.learning.run_folder import RunFolder, resume_command
from whatwhere.learning.training_data import StreamData, TrainingData
from whatwhere.model import DeconvNet
from whatwhere.model.problem import lam_of
from whatwhere.model.solution import Solution
from whatwhere.spec import LearningSpec, Recipe


@dataclass(frozen=True)
class SessionRules:
    """When a session writes checkpoints, stops, and adds up what its processes measured.

    Parameters
    ----------
    checkpoint_share
        of the time, for writing checkpoints
    runaway
        the cost at which training stops, in costs of an empty reconstruction: far from anything
        that inference would choose
    seconds_apart
        how long processes work before they add up what they measured
    most_rounds
        rounds that they add up at a time, at most
    """

    checkpoint_share: float = 0.1
    runaway: float = 10.0
    seconds_apart: float = 2.0
    most_rounds: int = 32


_USUAL = SessionRules()


class TrainingStopped(RunError):
    """Training stopped on request. A run with a folder has a checkpoint.

    Attributes
    ----------
    layer, epoch
        where it stopped
    batches
        the number of batches of this epoch that are done
    saved
        whether there is a folder with a checkpoint
    """

    def __init__(self, state: reports.TrainingState, saved: bool, message: str) -> None:
        self.layer = state.layer
        self.epoch = state.epoch
        self.batches = state.batch
        self.saved = saved
        super().__init__(message)


class TrainingDiverged(RunError):
    """Costs or filters are no longer usable numbers; the last checkpoint is intact.

    Attributes
    ----------
    layer, epoch
        where
    problem
        what is wrong, as a clause
    """

    def __init__(self, state: reports.TrainingState, problem: str, cause: str) -> None:
        self.layer = state.layer
        self.epoch = state.epoch
        self.problem = problem
        super().__init__(
            f"Training diverged in layer {state.layer}, epoch {state.epoch}: {problem}. {cause}"
            " The last checkpoint is intact."
        )


@dataclass(frozen=True)
class _Round:
    """Batches that are inferred at the same time, with this process's numbers of one of them.

    Parameters
    ----------
    first
        the number of the first of these batches
    measured
        what `reports.measure_batch` gave, on its way to the host
    """

    first: int
    measured: reports.AsyncHostCopy


@dataclass
class TrainingSession:
    """The context of a training algorithm: the remaining work, and the callbacks to report to.

    Several processes infer batches in rounds. Every few rounds, after about `rules.seconds_apart`,
    they add up some numbers: the costs of the batches, and whether anyone wants to stop. So all of
    them stop at the same batch, notice a killed process within seconds, and do not wait for one
    that is slower for a moment.

    Parameters
    ----------
    engines
        the name of each layer's engine, for reports
    folder
        folder of the run; None without one
    checkpoint_every
        as in `TrainingOptions`
    """

    recipe: Recipe
    data: TrainingData | StreamData
    state: reports.TrainingState
    engines: Sequence[str]
    callbacks: reports.TrainingCallbacks = field(default_factory=reports.TrainingCallbacks)
    folder: RunFolder | None = None
    checkpoint_every: int | None = None
    processes: ProcessGroup = field(default_factory=ProcessGroup)
    rules: SessionRules = _USUAL
    # rounds that are not added up yet
    _pending: deque[_Round] = field(default_factory=deque, init=False)
    _rounds: int = field(default=1, init=False)  # rounds that are added up at a time
    _added_up: float = field(default_factory=time.monotonic, init=False)  # time of the last sum
    # when the last checkpoint was complete
    _saved: float = field(default_factory=time.monotonic, init=False)
    _saving: float = field(default=0.0, init=False)  # the seconds that it took

    # Epochs ---------------------------------------------------------------------------------------

    def epochs(self, layer: int) -> Iterator[int]:
        """Yield the epochs of a layer that are left, from 1."""
        while self.state.layer == layer:
            self._began = time.perf_counter()
            model = self.state.model
            maps = model.spec.layers[layer - 1].pooled_maps
            none_active = torch.zeros(maps, dtype=torch.bool, device=model.device)
            self._stats = self.state.stats or reports.EpochStats(none_active)
            yield self.state.epoch

    def end_epoch(self, model: DeconvNet) -> None:
        """Finish an epoch, after all batches are inferred and the filters are updated."""
        state = self.state
        if not all(bool(f.isfinite().all()) for f in model.filters):
            raise self._diverged("the updated filters have NaN or infinite values")
        report = self._epoch_report()
        layer, epoch = reports.first_epoch(self.recipe, state.layer, state.epoch + 1)
        memory = state.memory if layer == state.layer else {}
        self.state = reports.TrainingState(
            model, layer, epoch, memory=memory, history=(*state.history, report)
        )
        if self.folder is not None:
            self.folder.write_history(self.state.history)
        self.callbacks.on_epoch(report)
        self._save_after_epoch(finished=layer > self.recipe.model.depth)

    def _save_after_epoch(self, *, finished: bool) -> None:
        """Write a checkpoint if it is due after an epoch, and stop if somebody asked for it."""
        stopping = self.processes.any(self.callbacks.stop()) and not finished
        if self.folder is not None and finished:
            self.folder.finish(self.state)
        elif stopping or self._checkpoint_due():
            self._checkpoint()
        if stopping:
            self._raise_stopped()

    def _epoch_report(self) -> reports.EpochReport:
        end = time.perf_counter()
        stats = self._stats
        stats.seconds += end - self._began
        return reports.EpochReport(
            layer=self.state.layer,
            epoch=self.state.epoch,
            **reports.per_image(stats.sums),
            dead_maps=int((~stats.active).sum()),
            seconds=stats.seconds,
            engine=self.engines[self.state.layer - 1],
            steps=self._learning.inference.steps,
            filter_seconds=end - self._inferred,
        )

    # The batches of an epoch ----------------------------------------------------------------------

    def batches(self) -> Iterator[int]:
        """Yield this process's batches of the epoch that are left; raises `TrainingStopped` if
        someone asks to stop."""
        # A GPU works on one batch while the numbers of the one before come to the host, so that
        # neither waits.
        ahead = 1 if self.state.model.device.type == "cuda" else 0
        together = self.data.batches_per_round
        self._done = self.state.batch
        self._rounds = 1
        self._added_up = time.monotonic()
        stopping = False
        for first in range(self._done - self._done % together, self._batch_count, together):
            batch = first + self.processes.rank % together
            self._measured = reports.no_batch()
            # The last round may have fewer batches than processes; of the first, some may be done.
            if self._done <= batch < self._batch_count:
                yield batch
            self._pending.append(_Round(first, self._measured))
            self._done = min(first + together, self._batch_count)
            if len(self._pending) >= ahead + self._rounds:
                stopping = self._end_rounds(self._rounds)
            if stopping:
                break
        stopping |= self._end_batches()
        self._inferred = time.perf_counter()
        if stopping:
            self.save_within_epoch()
            self._raise_stopped()

    def end_batch(self, model: DeconvNet, images: Tensor, solution: Solution) -> None:
        """Record a batch that is inferred; `model` is the model after that batch."""
        if model is not self.state.model:
            self.state = replace(self.state, model=model)
        zero_cost = lam_of(self._learning.inference) / 2 * images.square().sum()
        self._stats.active |= (solution.features != 0).any(0).flatten(1).any(1)
        self._measured = reports.AsyncHostCopy(reports.measure_batch(solution, zero_cost))

    def sum_over_processes(self, total: Tensor) -> Tensor:
        """Return the sums of all processes for a filter update; raises `TrainingDiverged` if they
        are not finite."""
        total = self.processes.all_reduce_sum(total)
        if not total.isfinite().all():
            raise self._diverged("the sums for the filter update have NaN or infinite values")
        return total

    def same_filters(self, model: DeconvNet, k: int) -> DeconvNet:
        """Return the model with process 0's filters of layer k: processors of another kind may
        round differently."""
        if self.processes.world_size == 1:
            return model
        return model.with_filters(k, self.processes.broadcast(model.filters[k - 1]))

    def _end_batches(self) -> bool:
        """Add up all that is pending; True if someone asks to stop."""
        stopping = bool(self._pending) and self._end_rounds(len(self._pending))
        active = self.processes.all_reduce_sum(self._stats.active.long().cpu()) > 0
        self._stats.active = active.to(self.state.model.device)
        return stopping

    def _end_rounds(self, count: int) -> bool:
        """Add up the first pending rounds over all processes, check and report them; True if
        someone asks to stop."""
        done = [self._pending.popleft() for _ in range(count)]
        processes = self.processes
        # a table for each round, with a row for each process: the numbers of its batch
        tables = reports.no_sums(count, processes.world_size)
        for number, one in enumerate(done):
            tables[number, processes.rank] = one.measured.value()
        tables = processes.all_reduce_sum(tables)
        together = self.data.batches_per_round
        for one, table in zip(done, tables, strict=True):
            for rank, row in enumerate(table):
                self._check_cost(row, one.first + rank % together + 1)
            sums = table.sum(0)
            self._stats.sums += sums[:4]
            self._report_batch(sums, min(one.first + together, self._batch_count))
        return self._agree(count)

    def _agree(self, count: int) -> bool:
        """Tell whether anyone asks to stop, after `count` rounds. All processes also choose the
        same number of rounds until the next time, by the pace of the slowest."""
        processes = self.processes
        now = time.monotonic()
        answers = torch.zeros(1 + processes.world_size, dtype=torch.float64)
        answers[0] = float(self.callbacks.stop())
        answers[1 + processes.rank] = (now - self._added_up) / count
        answers = processes.all_reduce_sum(answers)
        slowest = max(float(answers[1:].max()), 1e-9)
        if processes.world_size > 1:
            rounds = max(1, int(self.rules.seconds_apart / slowest))
            self._rounds = min(rounds, self.rules.most_rounds)
        self._added_up = now
        return bool(answers[0] > 0)

    def _check_cost(self, sums: Tensor, batch: int) -> None:
        cost = float(sums[0] + sums[1])
        zero_cost = float(sums[4])
        if not cost <= self.rules.runaway * zero_cost:  # also if it is NaN
            raise self._diverged(
                f"the cost of batch {batch} of {self._batch_count} is {cost:.3g}, but an empty"
                f" reconstruction costs only {zero_cost:.3g}"
            )

    def _report_batch(self, sums: Tensor, batch: int) -> None:
        report = reports.BatchReport(
            layer=self.state.layer,
            epoch=self.state.epoch,
            epochs=self._learning.epochs,
            batch=batch,
            batches=self._batch_count,
            steps=self._learning.inference.steps,
            **reports.per_image(sums),
        )
        self.callbacks.on_batch(report)

    # Stops and checkpoints ------------------------------------------------------------------------

    def save_within_epoch(self) -> None:
        """Write a checkpoint of the batches that are done."""
        if self._pending:
            self._end_rounds(len(self._pending))
        self._stats.seconds += time.perf_counter() - self._began
        self.state = replace(self.state, batch=self._done, stats=self._stats)
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self.folder is not None:
            start = time.monotonic()
            self.folder.save(self.state)
            self._saved = time.monotonic()
            self._saving = self._saved - start

    def _checkpoint_due(self) -> bool:
        """Return every n epochs, or as often as a tenth of the time allows."""
        if self.folder is None:
            return False
        if self.checkpoint_every is not None:
            epochs = len(self.state.history)
            return self.checkpoint_every > 0 and epochs % self.checkpoint_every == 0
        due = self._saving <= self.rules.checkpoint_share * (time.monotonic() - self._saved)
        return self.processes.any(self.processes.is_main and due)

    def _raise_stopped(self) -> None:
        then = "Nothing was saved, because the run has no folder."
        if self.folder is not None:
            then = f"Continue with: {resume_command(self.folder.path)}"
        done = f"after {self.state.batch} of {self._batch_count} batches"
        where = f"layer {self.state.layer}, epoch {self.state.epoch}"
        saved = self.folder is not None
        raise TrainingStopped(self.state, saved, f"Stopped in {where}, {done}. {then}")

    # Position -------------------------------------------------------------------------------------

    @property
    def _learning(self) -> LearningSpec:
        return self.recipe.learning[self.state.layer - 1]

    @property
    def _batch_count(self) -> int:
        return self.data.batch_count(self.state.epoch)

    def _where(self) -> str:
        return f"layer {self.state.layer}, epoch {self.state.epoch}"

    def _diverged(self, problem: str) -> TrainingDiverged:
        """Return the error, with the most frequent cause of such numbers and its remedy."""
        spec = self._learning.inference
        cause = (
            f"The contrast of the images or lam = {spec.lam:g} may be too large. Scale the images"
            " to [0, 1], or lower lam."
        )
        if spec.per_batch:
            cause = (
                "One step size for the whole batch may be too large for some of its images. Try"
                f" step.per = 'image', or a smaller lam than {spec.lam:g}."
            )
        return TrainingDiverged(self.state, problem, cause)
