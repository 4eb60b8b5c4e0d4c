"""The folder of a run, recipe.toml, model.safetensors, history.jsonl, checkpoint/: reading it, and writing it."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from whatwhere import files
from whatwhere.data.models import names, resolve
from whatwhere.errors import RunError, command, did_you_mean, printable
from whatwhere.learning.checkpoint import (
    Checkpoint,
    RunFacts,
    difference,
    has_checkpoint,
    position,
    settings,
    training_changes,
)
from whatwhere.learning.reports import EpochReport, TrainingState
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet, save
from whatwhere.model import load as load_file
from whatwhere.spec import Recipe
from whatwhere.spec.toml import INCLUDED, override, read_recipe, read_toml, to_toml

LONGEST_HISTORY = 2**25  # bytes
SECTIONS = ("model", "learning", "inference", "descriptor", "batch_size", "seed")  # in every recipe of a run


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its recipe and the history of its training.

    name     for titles and legends: the name of the folder or file
    recipe   every setting
    model    the trained model
    history  one `EpochReport` an epoch; empty for a model file
    folder   of the run; None for a model file, and where everything stayed in memory

    >>> ww.read_run("mnist")
    TrainedRun('mnist', Recipe(layers of 16 and 48 maps, 50 and 50 epochs, batch_size=1000, seed=0), 0 epochs)
    """

    name: str
    recipe: Recipe
    model: DeconvNet
    history: tuple[EpochReport, ...] = ()
    folder: Path | None = None

    def __repr__(self) -> str:
        last = f", cost {self.history[-1].cost:.4g} per image" if self.history else ""
        return f"TrainedRun({self.name!r}, {self.recipe!r}, {len(self.history)} epochs{last})"


def load(path: str | os.PathLike[str]) -> DeconvNet:
    """Read a model: by its name, or from its file, or from the folder of a run.

    A file of another format, a damaged one, or one whose tensors are not those of its spec raises a RunError.

    path     one of `ww.models.names()`, a model file, or a run folder; a file or a run of that name comes first
    returns  the model, on the CPU

    >>> model = ww.load("mnist")
    >>> model.spec.depth
    2
    """
    file = resolve(path)
    if file.name == os.fspath(path) != "" and not (files.is_regular(file) or files.is_folder(file)):
        raise RunError(
            f"{os.fspath(path)!r} was given as a model; there is no such file or folder, and no model of that name "
            f"(known by name: {', '.join(names())})"
        )
    return load_file(path if file == Path(path) else file)


def read_run(path: str | os.PathLike[str]) -> TrainedRun:
    """Read a run folder, or a model file, which has no history, and the included recipe of its name or the paper's.

    path  of the folder that training wrote, or of a .safetensors file; or the name of a model (`ww.models.names()`)

    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 2, "inference": {"steps": 2}}}}
    >>> _ = ww.train(ww.data.load("digits")[:10], ww.override(ww.Recipe.paper(), small), out="runs/small")
    >>> run = ww.read_run("runs/small")
    >>> run.name, [epoch.epoch for epoch in run.history]
    ('small', [1, 2])
    """
    path = resolve(path)
    if files.is_regular(path):
        model = load_file(path)
        included = read_recipe(path.stem) if path.stem in INCLUDED else None
        recipe = included if included and included.model == model.spec else Recipe.paper(model.spec)
        return TrainedRun(path.stem, recipe, model)
    missing = [name for name in ("recipe.toml", "model.safetensors") if not files.is_regular(path / name)]
    if missing:
        absent = " and no ".join(missing)
        problem = f"there is no {absent} in it" if files.is_folder(path) else "there is no such folder, or file"
        create = command("whatwhere", "train", "--out", path)
        raise RunError(
            f"{printable(path)} was given as a run folder or a model file; {problem} ({create} creates a run)"
            f"{'' if files.is_folder(path) else did_you_mean(path.name, names())}"
        )
    model, recipe = load_file(path / "model.safetensors"), read_run_recipe(path)
    if recipe.model != model.spec:
        what = difference(settings(asdict(model.spec), "model"), settings(asdict(recipe.model), "model"))
        raise RunError(f"{printable(path)}: recipe.toml does not match model.safetensors: {what}; restore one of them")
    return TrainedRun(path.resolve().name, recipe, model, read_history(path / "history.jsonl"), path)


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe that a run wrote. It states every setting, so a missing one means damage, not the paper's value."""
    content = read_toml(folder / "recipe.toml")
    missing = [name for name in SECTIONS if name not in content]
    if missing:
        raise RunError(
            f"{printable(folder / 'recipe.toml')} lacks {', '.join(missing)}; expected every setting, as training "
            "wrote it (restore the file)"
        )
    return override(Recipe.paper(), content)


def read_history(path: Path) -> tuple[EpochReport, ...]:
    """The epochs of a run, one JSON object per line; empty if there is no such file."""
    if not os.path.lexists(path):
        return ()
    epochs, number = [], 0
    try:
        for line in files.read_regular(path, LONGEST_HISTORY).splitlines():
            number += 1
            if line.strip():
                epochs.append(EpochReport.of(files.parse_json(line)))
    except OSError as error:
        raise RunError(f"{printable(path)} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(
            f"{printable(path)} is damaged: line {number}: {error}; expected one JSON object per line, an epoch each "
            f"({resume_command(path.parent)} writes it again)"
        ) from None
    return tuple(epochs)


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
            files.write_atomic(self.path / "recipe.toml", to_toml(self.facts.recipe).encode())
            files.write_atomic(self._history, "".join(map(_history_line, state.history)).encode())

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
    with files.disk_errors(f"{doing} in {printable(path)}", remedy):
        yield


@contextmanager
def open_folder(path: Path) -> Iterator[None]:
    """Create the folder of a run and hold its lock.

    If training ends without a checkpoint, since its input was rejected or it was interrupted, everything that was
    created is removed again.
    """
    checkpoint, latents = path / "checkpoint", path / "checkpoint" / "latents"
    new_files = [path / name for name in ("recipe.toml", "history.jsonl") if not os.path.lexists(path / name)]
    with ExitStack() as opened:
        with writing(path, "creating the run folder"):
            opened.enter_context(files.new_folder(checkpoint))
            files.sync_folder(path)
            if not os.access(checkpoint, os.W_OK):  # reported before everything is read
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(checkpoint))
        busy = f"{printable(path)}: another process is training in this folder; wait for it, or end it"
        opened.enter_context(files.locked(checkpoint, busy))
        for folder in (path, checkpoint, latents):
            with writing(path, "removing temporary files"), suppress(FileNotFoundError):
                files.remove_leftovers(folder)
        try:
            yield
        except BaseException:
            if not has_checkpoint(checkpoint):
                for file in new_files:
                    file.unlink(missing_ok=True)
                shutil.rmtree(latents, ignore_errors=True)
            raise


class CheckpointSchedule:
    """A checkpoint is due every n epochs, or as often as a tenth of the time allows."""

    SHARE = 0.1

    def __init__(self, every: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.every, self.clock = every, clock
        self.cost, self.last = 0.0, clock()

    def due(self, epoch: int) -> bool:
        """Asked at the end of an epoch."""
        if self.every is not None:
            return self.every > 0 and epoch % self.every == 0
        return self.cost <= self.SHARE * (self.clock() - self.last)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around the writing of a checkpoint, to learn what one costs."""
        start = self.clock()
        yield
        self.last = self.clock()
        self.cost = self.last - start
