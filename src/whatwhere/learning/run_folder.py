"""The folder of a run: recipe.toml, model.safetensors, history.jsonl, checkpoint/."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from whatwhere.errors import RunError, command, printable
from whatwhere.files import disk_errors, remove_leftovers, sync_folder, write_atomic
from whatwhere.learning import distributed
from whatwhere.learning.checkpoint import Checkpoint, RunFacts, has_checkpoint
from whatwhere.learning.recipe_changes import position, training_changes
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.state import TrainingState
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, save
from whatwhere.spec.toml import to_toml


class RunFolder:
    """What outlives the process of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.latents = self.checkpoint / "latents"
        self.history = path / "history.jsonl"
        self.resume_command = command("whatwhere", "train", "--resume", path)
        self._written: list[Path] = []  # before the first checkpoint

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and hold it for this process; the lock goes with the process, however that ends.

        If training ends without a checkpoint, since its input was rejected or it was interrupted, everything that was
        created is removed again.
        """
        created = [path for path in (self.checkpoint, self.path, *self.path.parents) if not os.path.lexists(path)]
        try:
            with self.writing("creating the run folder"):
                self.checkpoint.mkdir(parents=True, exist_ok=True)
                sync_folder(self.path)
            with self._hold_lock(self.checkpoint / "lock"):
                for folder in (self.path, self.checkpoint, self.latents):
                    with self.writing("removing temporary files"), suppress(FileNotFoundError):
                        remove_leftovers(folder)
                yield
        finally:
            if not has_checkpoint(self.checkpoint):
                self._undo(created)

    def check_unused(self) -> None:
        """Raise if the folder holds a run: a new one does not overwrite it."""
        if has_checkpoint(self.checkpoint) or os.path.lexists(self.path / "model.safetensors"):
            raise RunError(
                f"{printable(self.path)} holds a run already; continue it ({self.resume_command}), "
                "or choose another folder"
            )

    def begin(self) -> None:
        """Note what is written before the first checkpoint, to be removed if there is none."""
        self._written = [path for path in (self.path / "recipe.toml", self.history) if not os.path.lexists(path)]

    def write(self, facts: RunFacts, state: TrainingState) -> None:
        """Recipe, history and model as in this state: on resuming, this drops the epochs after the checkpoint."""
        with self.writing("writing the recipe"):
            write_atomic(self.path / "recipe.toml", to_toml(facts.recipe).encode())
        with self.writing("writing the history"):
            write_atomic(self.history, "".join(map(history_line, state.history)).encode())

    def append_history(self, report: EpochReport) -> None:
        with self.writing("writing the history"), open(self.history, "a", encoding="utf-8") as file:
            file.write(history_line(report))

    def save(self, facts: RunFacts, state: TrainingState, latents: Tensor) -> None:
        """Write a checkpoint of this state, and the model next to it for everyone to use."""
        with self.writing("writing the checkpoint"):
            Checkpoint.of(state, facts, latents).save(self.checkpoint)
        self.write_model(state.model)

    def write_model(self, model: DeconvNet) -> None:
        with self.writing("writing the model"):
            save(model, self.path / "model.safetensors")

    def read(self) -> Checkpoint:
        with self._with_remedy():
            return Checkpoint.load(self.checkpoint)

    def load(self, facts: RunFacts, device: torch.device, data: TrainingData | None) -> TrainingState:
        """The state of the checkpoint, with the latents of this process; that of another run raises an error."""
        checkpoint = self.read()
        self._require_same("recipe", training_changes(checkpoint.recipe, facts.recipe))
        same_images = checkpoint.images == facts.images
        self._require_same("images", "" if same_images else "they are not those that the run began with")
        with self._with_remedy():
            try:
                state = checkpoint.state(facts.recipe, device)
                if data is not None:
                    data.store.restore(checkpoint.tensors["latents.table"], data.local_batches())
            except (KeyError, ValueError) as error:
                raise RunError(f"{self.checkpoint} is damaged: {error}") from error
        layer, epoch = position(state, facts.recipe)
        return replace(state, layer=layer, epoch=epoch)

    def drop_latents(self) -> None:
        """A finished run no longer needs its latents; they are by far the largest part of it."""
        shutil.rmtree(self.latents, ignore_errors=True)

    @contextmanager
    def writing(self, doing: str) -> Iterator[None]:
        remedy = "make room or take another folder"
        if has_checkpoint(self.checkpoint):
            remedy = f"the last checkpoint is intact: fix this, then {self.resume_command}"
        with disk_errors(f"{doing} in {printable(self.path)}", remedy):
            yield

    @contextmanager
    def _with_remedy(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            model = self.path / "model.safetensors"
            usable = f"the model of the last checkpoint is in {printable(model)}; " if model.is_file() else ""
            remedy = f"{usable}put the files of the checkpoint back, or train again in another folder"
            raise RunError(f"{error}; {remedy}") from error

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunError(
                f"{printable(self.path)} cannot continue with other {what}: {difference}; give what the run began "
                "with, or train again in another folder"
            )

    def _undo(self, created: list[Path]) -> None:
        if self.checkpoint in created and os.path.isdir(self.latents):
            shutil.rmtree(self.latents, ignore_errors=True)
        for path in self._written:
            with suppress(OSError):
                path.unlink()
        for path in created:
            with suppress(OSError):  # a folder that holds other files stays
                path.rmdir()

    @contextmanager
    def _hold_lock(self, path: Path) -> Iterator[None]:
        """Hold a lock file, which is removed at the end; it is never opened through a symbolic link."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        with self.writing("locking the run"):
            handle = os.open(path, flags, 0o666)
        try:
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lost = not os.path.samestat(os.fstat(handle), os.lstat(path))  # removed by the process that held it
            except (BlockingIOError, FileNotFoundError):
                lost = True
            except (ImportError, OSError):  # a system, or a file system, without such locks
                lost = False
            if lost:
                message = "another process is training in this folder; wait for it, or end it"
                raise RunError(f"{printable(self.path)}: {message}")
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(handle)


def history_line(report: EpochReport) -> str:
    return json.dumps(report.table()) + "\n"


@dataclass(frozen=True)
class Checkpointer:
    """Writes a run to its folder while it is trained: latents by every process, the rest by the first.

    data  None if no latents are stored
    """

    folder: RunFolder
    facts: RunFacts
    data: TrainingData | None

    def begin(self, state: TrainingState) -> TrainingState:
        """A new run: its first checkpoint holds only the start, so that there always is one."""
        self.folder.check_unused()
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.begin()
            self.folder.write(self.facts, state)
        self.checkpoint(state)
        return state

    def resume(self, device: torch.device) -> TrainingState:
        """The state of the last checkpoint; files that a kill left inconsistent with it are rewritten."""
        state = self.folder.load(self.facts, device, self.data)
        distributed.barrier()
        if distributed.rank() == 0:
            self.folder.write(self.facts, state)
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
            self._save(state, torch.zeros(0, 2, dtype=torch.int64))
            return
        with self.folder.writing("writing latents"):
            written = self.data.store.flush()
        is_local = torch.zeros(len(written), 1, dtype=torch.int64)
        is_local[list(self.data.local_batches())] = 1
        table = distributed.all_reduce_sum(written * is_local)
        self._save(state, table)
        self.data.store.retain(table)

    def finish(self, state: TrainingState) -> None:
        """The last checkpoint needs no latents, and they are by far the largest part of a run."""
        self._save(state, torch.zeros(0 if self.data is None else len(self.data.batches), 2, dtype=torch.int64))
        if distributed.rank() == 0:
            self.folder.drop_latents()

    def _save(self, state: TrainingState, latents: Tensor) -> None:
        if distributed.rank() == 0:
            self.folder.save(self.facts, state, latents)
        distributed.barrier()


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
