"""The folder of a run: recipe.toml, model.safetensors, history.jsonl, checkpoint/."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import RunError, command, printable
from whatwhere.files import remove_leftovers, sync_folder
from whatwhere.learning.recipe_changes import position, training_changes
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.state import TrainingState
from whatwhere.learning.stats import EpochStats
from whatwhere.learning.storage import (
    Checkpoint,
    LatentStore,
    disk_errors,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_atomic,
)
from whatwhere.model import DeconvNet, save
from whatwhere.spec import Recipe
from whatwhere.spec.toml import to_toml


@dataclass(frozen=True)
class RunFacts:
    """What a run begins with and is resumed with.

    images  their fingerprint
    notes   plain values of the caller, such as where the images came from
    """

    recipe: Recipe
    images: str
    latent_dtype: torch.dtype
    notes: Mapping[str, Any]


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
            with hold_lock(self.checkpoint / "lock", self.path, self.writing):
                for folder in (self.path, self.checkpoint):
                    with self.writing("removing temporary files"):
                        remove_leftovers(folder)
                yield
        finally:
            if not has_checkpoint(self.checkpoint):
                self._undo(created)

    def _undo(self, created: list[Path]) -> None:
        if self.checkpoint in created and os.path.isdir(self.latents):
            shutil.rmtree(self.latents, ignore_errors=True)
        for path in self._written:
            with suppress(OSError):
                path.unlink()
        for path in created:
            with suppress(OSError):  # a folder that holds other files stays
                path.rmdir()

    def check_unused(self) -> None:
        """Raise if the folder holds a run: a new one does not overwrite it."""
        if has_checkpoint(self.checkpoint) or os.path.lexists(self.path / "model.safetensors"):
            raise RunError(
                f"{printable(self.path)} holds a run already; continue it ({self.resume_command}), "
                "or choose another folder"
            )

    def begin(self, recipe: Recipe) -> None:
        self._written = [path for path in (self.path / "recipe.toml", self.history) if not os.path.lexists(path)]
        self.write_recipe(recipe)
        self.write_history(())

    def write_recipe(self, recipe: Recipe) -> None:
        with self.writing("writing the recipe"):
            write_atomic(self.path / "recipe.toml", to_toml(recipe).encode())

    def write_history(self, history: tuple[EpochReport, ...]) -> None:
        """The entire history: on resuming, this drops the epochs after the checkpoint."""
        with self.writing("writing the history"):
            write_atomic(self.history, "".join(map(history_line, history)).encode())

    def append_history(self, report: EpochReport) -> None:
        with self.writing("writing the history"), open(self.history, "a", encoding="utf-8") as file:
            file.write(history_line(report))

    def save(self, facts: RunFacts, state: TrainingState, places: Tensor) -> None:
        """Write a checkpoint of this state, and the model next to it for everyone to use."""
        tensors = {"latents.places": places, **(state.stats.tensors() if state.stats is not None else {})}
        tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
        for k, (f, connected) in enumerate(zip(state.model.filters, state.model.connectivity, strict=True), start=1):
            tensors[f"layer{k}.filters"], tensors[f"layer{k}.connectivity"] = f, connected
        checkpoint = Checkpoint(
            layer=state.layer,
            epoch=state.epoch,
            batch=state.batch,
            recipe=to_toml(facts.recipe),
            images=facts.images,
            latent_dtype=dtype_name(facts.latent_dtype),
            notes=dict(facts.notes),
            history=tuple(report.table() for report in state.history),
            tensors=tensors,
        )
        with self.writing("writing the checkpoint"):
            save_checkpoint(checkpoint, self.checkpoint)
        self.write_model(state.model)

    def write_model(self, model: DeconvNet) -> None:
        with self.writing("writing the model"):
            save(model, self.path / "model.safetensors")

    def load(self, facts: RunFacts, device: torch.device) -> tuple[TrainingState, Tensor]:
        """The state of the checkpoint and the places of its latents; those of another run raise an error."""
        checkpoint = self.read()
        self._require_same("recipe", training_changes(checkpoint.recipe, facts.recipe))
        same_images = checkpoint.images == facts.images
        self._require_same("images", "" if same_images else "they are not those that the run began with")
        before, now = checkpoint.latent_dtype, dtype_name(facts.latent_dtype)
        self._require_same("latent_dtype", "" if before == now else f"it was {before} and is now {now}")
        layers = range(1, facts.recipe.model.depth + 1)
        filters = [checkpoint.tensors[f"layer{k}.filters"] for k in layers]
        connectivity = [checkpoint.tensors[f"layer{k}.connectivity"] for k in layers]
        state = TrainingState(
            model=DeconvNet.from_parts(facts.recipe.model, filters, connectivity).to(device),
            layer=checkpoint.layer,
            epoch=checkpoint.epoch,
            batch=checkpoint.batch,
            stats=EpochStats.from_tensors(checkpoint.tensors, device),
            memory={
                name.removeprefix("memory."): tensor.to(device)
                for name, tensor in checkpoint.tensors.items()
                if name.startswith("memory.")
            },
            history=tuple(EpochReport.of(table) for table in checkpoint.history),
        )
        layer, epoch = position(state, facts.recipe)
        return replace(state, layer=layer, epoch=epoch), checkpoint.tensors["latents.places"]

    def read(self) -> Checkpoint:
        try:
            return load_checkpoint(self.checkpoint)
        except RunError as error:
            raise RunError(f"{error}; {self._remedy()}") from error

    def restore(self, store: LatentStore, places: Tensor, batches: Sequence[int]) -> None:
        """Load the latents of the checkpoint, those of these batches."""
        try:
            store.restore(places, batches)
        except RunError as error:
            raise RunError(f"{error}; {self._remedy()}") from error

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

    def _remedy(self) -> str:
        model = self.path / "model.safetensors"
        usable = f"the model of the last checkpoint is in {printable(model)}; " if model.is_file() else ""
        return f"{usable}put the files of the checkpoint back, or train again in another folder"

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunError(
                f"{printable(self.path)} cannot continue with other {what}: {difference}; give what the run began "
                "with, or train again in another folder"
            )


@contextmanager
def hold_lock(path: Path, folder: Path, writing: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
    """Hold a lock file, which is removed at the end; it is never opened through a symbolic link."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    with writing("locking the run"):
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
            raise RunError(f"{printable(folder)}: {message}")
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(handle)


def history_line(report: EpochReport) -> str:
    return json.dumps(report.table()) + "\n"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
