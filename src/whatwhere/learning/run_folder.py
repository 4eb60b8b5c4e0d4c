"""The folder of a run: recipe.toml, model.safetensors, history.jsonl, checkpoint/."""

from __future__ import annotations

import fcntl
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
from whatwhere.learning.checkpoint import Checkpoint, RunFacts, has_checkpoint, position, training_changes
from whatwhere.learning.reports import EpochReport, TrainingState
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, save
from whatwhere.spec.toml import to_toml


@dataclass(frozen=True)
class RunFolder:
    """Writes a run to its folder while it is trained.

    data  None if no latents are stored
    """

    path: Path
    facts: RunFacts
    data: TrainingData | None

    def begin(self, state: TrainingState) -> TrainingState:
        """A new run: its first checkpoint holds only the start, so that there always is one."""
        if has_checkpoint(self.path / "checkpoint") or os.path.lexists(self.path / "model.safetensors"):
            raise RunError(
                f"{printable(self.path)} holds a run already; continue it ({resume_command(self.path)}), "
                "or choose another folder"
            )
        self._write_texts(state)
        self.save(state)
        return state

    def resume(self, device: torch.device) -> TrainingState:
        """The state of the last checkpoint; files that a kill left inconsistent with it are rewritten."""
        state = self._load(device)
        self._write_texts(state)
        self._write_model(state.model)
        if state.layer > self.facts.recipe.model.depth:
            self._drop_latents()
        return state

    def append_history(self, report: EpochReport) -> None:
        with writing(self.path, "writing the history"):
            end = self._history.stat().st_size if self._history.exists() else 0
            try:
                with open(self._history, "a", encoding="utf-8") as file:
                    file.write(_history_line(report))
            except OSError:  # the disk is full: no part of a line stays
                os.truncate(self._history, end)
                raise

    def save(self, state: TrainingState) -> None:
        """Latents to the disk, then the state that points at them; only then may the last ones be overwritten."""
        if self.data is None:
            self._save(state, 0)
            return
        with writing(self.path, "writing latents"):
            table = self.data.store.flush()
        self._save(state, table)
        self.data.store.retain(table)

    def finish(self, state: TrainingState) -> None:
        """The last checkpoint needs no latents, and they are by far the largest part of a run."""
        self._save(state, 0 if self.data is None else len(self.data.batches))
        self._drop_latents()

    @property
    def _history(self) -> Path:
        return self.path / "history.jsonl"

    def _load(self, device: torch.device) -> TrainingState:
        checkpoint = read_checkpoint(self.path)
        self._require_same("recipe", training_changes(checkpoint.recipe, self.facts.recipe))
        same_images = checkpoint.images == self.facts.images
        self._require_same("images", "" if same_images else "they are not those that the run began with")
        with _remedy(self.path):
            try:
                state = checkpoint.state(self.facts.recipe, device)
                if self.data is not None:
                    self.data.store.restore(checkpoint.tensors["latents.table"])
            except (KeyError, TypeError, ValueError) as error:
                raise RunError(f"{self.path / 'checkpoint'} is damaged: {error}") from error
        layer, epoch = position(state, self.facts.recipe)
        return replace(state, layer=layer, epoch=epoch)

    def _save(self, state: TrainingState, latents: Tensor | int) -> None:
        """A checkpoint with this table of latents, or with none of so many batches; the model next to it."""
        table = latents if isinstance(latents, Tensor) else torch.zeros(latents, 2, dtype=torch.int64)
        with writing(self.path, "writing the checkpoint"):
            Checkpoint.of(state, self.facts, table).save(self.path / "checkpoint")
        self._write_model(state.model)

    def _write_texts(self, state: TrainingState) -> None:
        """Recipe and history as in this state: on resuming, this drops the epochs after the checkpoint."""
        with writing(self.path, "writing recipe and history"):
            write_atomic(self.path / "recipe.toml", to_toml(self.facts.recipe).encode())
            write_atomic(self._history, "".join(map(_history_line, state.history)).encode())

    def _write_model(self, model: DeconvNet) -> None:
        with writing(self.path, "writing the model"):
            save(model, self.path / "model.safetensors")

    def _drop_latents(self) -> None:
        shutil.rmtree(self.path / "checkpoint" / "latents", ignore_errors=True)

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunError(
                f"{printable(self.path)} cannot continue with other {what}: {difference}; give what the run began "
                "with, or train again in another folder"
            )


def _history_line(report: EpochReport) -> str:
    return json.dumps(report.table()) + "\n"


def resume_command(path: Path) -> str:
    return command("whatwhere", "train", "--resume", path)


def read_checkpoint(path: Path) -> Checkpoint:
    """The last checkpoint of a run."""
    with _remedy(path):
        return Checkpoint.load(path / "checkpoint")


@contextmanager
def _remedy(path: Path) -> Iterator[None]:
    try:
        yield
    except RunError as error:
        model = path / "model.safetensors"
        usable = f"the model of the last checkpoint is in {printable(model)}; " if model.is_file() else ""
        remedy = f"{usable}put the files of the checkpoint back, or train again in another folder"
        raise RunError(f"{error}; {remedy}") from error


@contextmanager
def writing(path: Path, doing: str) -> Iterator[None]:
    """Turn an error of the disk into one that says what happened to the run, and what to do."""
    remedy = "make room or take another folder"
    if has_checkpoint(path / "checkpoint"):
        remedy = f"the last checkpoint is intact: fix this, then {resume_command(path)}"
    with disk_errors(f"{doing} in {printable(path)}", remedy):
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Create the folder of a run and hold it for this process; the lock goes with the process, however that ends.

    If training ends without a checkpoint, since its input was rejected or it was interrupted, everything that was
    created is removed again.
    """
    checkpoint, latents = path / "checkpoint", path / "checkpoint" / "latents"
    new_folders = [folder for folder in (checkpoint, path, *path.parents) if not os.path.lexists(folder)]
    try:
        with writing(path, "creating the run folder"):
            checkpoint.mkdir(parents=True, exist_ok=True)
            sync_folder(path)
        with _lock_file(checkpoint / "lock"):
            new_files = [path / name for name in ("recipe.toml", "history.jsonl") if not os.path.lexists(path / name)]
            for folder in (path, checkpoint, latents):
                with writing(path, "removing temporary files"), suppress(FileNotFoundError):
                    remove_leftovers(folder)
            try:
                yield
            finally:
                if not has_checkpoint(checkpoint):
                    for file in new_files:
                        file.unlink(missing_ok=True)
                    if checkpoint in new_folders:
                        shutil.rmtree(latents, ignore_errors=True)
    finally:
        if not has_checkpoint(checkpoint):
            for folder in new_folders:
                with suppress(OSError):  # a folder that holds other files stays
                    folder.rmdir()


@contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Hold a lock file, which is removed at the end; it is never opened through a symbolic link."""
    with writing(path.parents[1], "locking the run"):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        if not _take_lock(handle, path):
            message = "another process is training in this folder; wait for it, or end it"
            raise RunError(f"{printable(path.parents[1])}: {message}")
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(handle)


def _take_lock(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(handle), os.lstat(path))  # its last holder may just have removed it
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without such locks
        return True


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
