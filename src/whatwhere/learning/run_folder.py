"""The folder of a run: recipe.toml, model.safetensors, history.jsonl, checkpoint/."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import RunError
from whatwhere.learning.epoch import ImageSource, State
from whatwhere.learning.reports import EpochReport, Tally
from whatwhere.model import DeconvNet, save
from whatwhere.spec import Recipe
from whatwhere.spec_toml import to_toml
from whatwhere.storage import (
    Checkpoint,
    LatentStore,
    disk_errors,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_atomic,
)


class RunFolder:
    """Where one run keeps what must outlive its process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.latents = self.checkpoint / "latents"
        self.history = path / "history.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it for this process; the lock goes with the process, however that ends."""
        with self.writing("making the folder of the run"):
            self.checkpoint.mkdir(parents=True, exist_ok=True)
            lock = open(self.checkpoint / "lock", "w")  # noqa: SIM115  (held open below)
        with lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = "another process is training in this folder; wait for it, or end it"
                raise RunError(f"{self.path}: {message}") from None
            except (ImportError, OSError):  # a system, or a file system, without such locks
                pass
            yield

    def refuse_existing(self) -> None:
        """A new run does not overwrite an old one."""
        if has_checkpoint(self.checkpoint) or (self.path / "model.safetensors").exists():
            raise RunError(
                f"{self.path} holds a run already; go on with it (whatwhere train --resume {self.path}), "
                "or choose another folder"
            )

    def begin(self, recipe: Recipe) -> None:
        with self.writing("beginning the run"):
            write_atomic(self.path / "recipe.toml", to_toml(recipe).encode())

    def write_history(self, history: tuple[EpochReport, ...]) -> None:
        """All of the history: of a run that goes on, this drops the epochs after its checkpoint."""
        with self.writing("writing the history"):
            write_atomic(self.history, "".join(map(line, history)).encode())

    def append_history(self, report: EpochReport) -> None:
        with self.writing("writing the history"), open(self.history, "a", encoding="utf-8") as file:
            file.write(line(report))

    def save(
        self, recipe: Recipe, images: str, kept: torch.dtype, notes: Mapping[str, Any], state: State, places: Tensor
    ) -> None:
        """Write a checkpoint of this state, and the model beside it for everyone to use."""
        tensors = {"latents.places": places}
        for k, (f, connected) in enumerate(zip(state.model.filters, state.model.connectivity, strict=True), start=1):
            tensors[f"layer{k}.filters"], tensors[f"layer{k}.connectivity"] = f, connected
        if state.tally is not None:
            tensors["tally.sums"], tensors["tally.active"] = state.tally.sums, state.tally.active
        history = tuple(report.table() for report in state.history)
        position = (state.layer, state.epoch, state.batch)
        with self.writing("writing the checkpoint"):
            save_checkpoint(
                Checkpoint(*position, to_toml(recipe), images, dtype_name(kept), dict(notes), history, tensors),
                self.checkpoint,
            )
        self.write_model(state.model)

    def write_model(self, model: DeconvNet) -> None:
        with self.writing("writing the model"):
            save(model, self.path / "model.safetensors")

    def load(self, recipe: Recipe, images: str, kept: torch.dtype, device: torch.device) -> tuple[State, Tensor]:
        """The state of the checkpoint and the places of its latents; those of another run are refused."""
        found = self.read()
        self._require_same("recipe", changes(found.recipe, to_toml(recipe)))
        self._require_same("images", "" if found.images == images else "they are not those that the run began with")
        asked = dtype_name(kept)
        same = found.latent_dtype == asked
        self._require_same("latent_dtype", "" if same else f"it was {found.latent_dtype} and is now {asked}")
        layers = range(1, recipe.model.depth + 1)
        filters = [found.tensors[f"layer{k}.filters"] for k in layers]
        connectivity = [found.tensors[f"layer{k}.connectivity"] for k in layers]
        model = DeconvNet.from_parts(recipe.model, filters, connectivity).to(device)
        tally = None
        if "tally.sums" in found.tensors:
            tally = Tally(len(found.tensors["tally.active"]), device)
            tally.sums, tally.active = found.tensors["tally.sums"], found.tensors["tally.active"].to(device)
        history = tuple(EpochReport.of(table) for table in found.history)
        return State(model, found.layer, found.epoch, found.batch, tally, history), found.tensors["latents.places"]

    def read(self) -> Checkpoint:
        try:
            return load_checkpoint(self.checkpoint)
        except RunError as error:
            raise RunError(f"{error}; {self._remedy()}") from error

    def restore(self, store: LatentStore, places: Tensor, mine: Sequence[int]) -> None:
        """Take up the latents of the checkpoint, this process's batches of them."""
        try:
            store.restore(places, mine)
        except RunError as error:
            raise RunError(f"{error}; {self._remedy()}") from error

    def drop_latents(self) -> None:
        """A finished run needs its latents no more; they are by far the largest part of it."""
        shutil.rmtree(self.latents, ignore_errors=True)

    @contextmanager
    def writing(self, doing: str) -> Iterator[None]:
        remedy = "make room or take another folder"
        if has_checkpoint(self.checkpoint):
            remedy = f"the last checkpoint stands: mend this, then whatwhere train --resume {self.path}"
        with disk_errors(f"{doing} in {self.path}", remedy):
            yield

    def _remedy(self) -> str:
        model = self.path / "model.safetensors"
        usable = f"the model of the last checkpoint is in {model}; " if model.is_file() else ""
        return f"{usable}put the files of the checkpoint back, or train anew in another folder"

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunError(
                f"{self.path} cannot go on with another {what}: {difference}; give what the run began with, or train "
                "anew in another folder"
            )


def changes(old: str, new: str) -> str:
    """The lines in which two recipes differ, in words; empty where they are the same."""
    before, after = (dict(settings(tomllib.loads(text))) for text in (old, new))
    differing = sorted(key for key in before | after if before.get(key) != after.get(key))
    return ", ".join(
        f"{key} was {before.get(key, 'not set')} and is now {after.get(key, 'not set')}" for key in differing
    )


def settings(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a parsed recipe, by its full name; layers by their number."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = {str(number): item for number, item in enumerate(value, start=1)}
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from settings(item, f"{name}.{key}" if name else key)


def line(report: EpochReport) -> str:
    return json.dumps(report.table()) + "\n"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fingerprint(images: ImageSource, batches: list[slice]) -> str:
    """What tells these images from others: their own fingerprint where they have one, else of all values."""
    own: Any = getattr(images, "fingerprint", None)
    if isinstance(own, str):
        return own
    digest = hashlib.sha256()
    for batch in batches:
        values = images[batch].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()
