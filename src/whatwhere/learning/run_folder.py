"""The folder of a run: recipe.toml, model.safetensors, history.jsonl, checkpoint/."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import RunError
from whatwhere.learning.reports import EpochReport
from whatwhere.learning.state import TrainingState
from whatwhere.learning.stats import EpochStats
from whatwhere.learning.training_data import ImageSource
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

    def check_unused(self) -> None:
        """Raise if the folder holds a run: a new one does not overwrite it."""
        if has_checkpoint(self.checkpoint) or (self.path / "model.safetensors").exists():
            raise RunError(
                f"{self.path} holds a run already; continue it (whatwhere train --resume {self.path}), "
                "or choose another folder"
            )

    def begin(self, recipe: Recipe) -> None:
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
        self._require_same("recipe", changes(checkpoint.recipe, to_toml(facts.recipe)))
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
            history=tuple(EpochReport.of(table) for table in checkpoint.history),
        )
        return state, checkpoint.tensors["latents.places"]

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
            remedy = f"the last checkpoint is intact: fix this, then whatwhere train --resume {self.path}"
        with disk_errors(f"{doing} in {self.path}", remedy):
            yield

    def _remedy(self) -> str:
        model = self.path / "model.safetensors"
        usable = f"the model of the last checkpoint is in {model}; " if model.is_file() else ""
        return f"{usable}put the files of the checkpoint back, or train again in another folder"

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunError(
                f"{self.path} cannot continue with other {what}: {difference}; give what the run began with, or train "
                "again in another folder"
            )


def changes(old: str, new: str) -> str:
    """The lines in which two recipes differ, in words; empty if they are the same."""
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


def history_line(report: EpochReport) -> str:
    return json.dumps(report.table()) + "\n"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fingerprint(images: ImageSource, batches: list[slice]) -> str:
    """What distinguishes these images from others: their own fingerprint if they have one, or a hash of all values."""
    own: Any = getattr(images, "fingerprint", None)
    if isinstance(own, str):
        return own
    digest = hashlib.sha256()
    for batch in batches:
        values = images[batch].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()
