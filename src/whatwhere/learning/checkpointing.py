"""When checkpoints are written, and what a run writes to its folder when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from whatwhere.learning import distributed
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.run_folder import RunFacts, RunFolder
from whatwhere.learning.state import TrainingState
from whatwhere.learning.training_data import TrainingData

NO_LATENTS = torch.zeros(0, 3, dtype=torch.int64)


class CheckpointSchedule:
    """A checkpoint is due every n epochs, or as often as a tenth of the time allows."""

    SHARE = 0.1

    def __init__(self, every: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
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
class Checkpointer:
    """Writes a run to its folder: latents by every process, the rest by the first."""

    folder: RunFolder
    facts: RunFacts
    data: TrainingData | None
    """None if no latents are stored"""

    def begin(self, state: TrainingState) -> TrainingState:
        """A new run: its first checkpoint holds only the start, so that there always is one."""
        self.folder.check_unused()
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.begin(self.facts.recipe)
        self.checkpoint(state)
        return state

    def resume(self, device: torch.device) -> TrainingState:
        """The state of the last checkpoint; files that a kill left inconsistent with it are rewritten."""
        state, places = self.folder.load(self.facts, device)
        if self.data is not None:
            self.folder.restore(self.data.store, places, self.data.local_batches())
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.write_recipe(self.facts.recipe)
            self.folder.write_history(state.history)
            self.folder.write_model(state.model)
            if state.layer > self.facts.recipe.model.depth:
                self.folder.drop_latents()
        return state

    def append(self, report: EpochReport) -> None:
        if distributed.rank() == 0:
            self.folder.append_history(report)

    def checkpoint(self, state: TrainingState) -> None:
        """Latents to the disk, then the state that points at them; only then may the last ones be overwritten."""
        if self.data is None:
            self._save(state, NO_LATENTS)
            return
        with self.folder.writing("writing latents"):
            written = self.data.store.flush()
        is_local = torch.zeros(len(self.data.batches), 1, dtype=torch.int64)
        is_local[list(self.data.local_batches())] = 1
        places = distributed.all_reduce_sum(written * is_local)
        self._save(state, places)
        self.data.store.retain(places)

    def finish(self, state: TrainingState) -> None:
        """The last checkpoint needs no latents, and they are by far the largest part of a run."""
        none = NO_LATENTS if self.data is None else torch.zeros(len(self.data.batches), 3, dtype=torch.int64)
        self._save(state, none)
        if distributed.rank() == 0:
            self.folder.drop_latents()

    def _save(self, state: TrainingState, places: torch.Tensor) -> None:
        if distributed.rank() == 0:
            self.folder.save(self.facts, state, places)
        distributed.barrier()
