"""Reading and writing the folder of a run: recipe.toml, model.safetensors, history.jsonl,
checkpoint/."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, cast

import torch
from torch import Tensor

from whatwhere import files
from whatwhere.data.formats import recordings
from whatwhere.data.mixed import Recorded
from whatwhere.data.models import names, resolve
from whatwhere.data.pictures import SUFFIXES as PICTURE_SUFFIXES
from whatwhere.errors import NoSuchRun, RunError, command, did_you_mean, printable
from whatwhere.learning.checkpoint import (
    STATE,
    Checkpoint,
    RunFacts,
    difference,
    has_checkpoint,
    position,
    training_changes,
    usable_checkpoint,
)
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.processes import ProcessGroup, ProcessLost, torchrun_words
from whatwhere.learning.reports import EpochReport, TrainingState
from whatwhere.model import DeconvNet, save
from whatwhere.model import load as load_file
from whatwhere.spec import DescriptorSpec, Recipe
from whatwhere.spec.toml import INCLUDED, read_recipe, to_toml

ARRAYS = (".npy", ".npz")
_HISTORY_FORMAT = "whatwhere history 1"


class RunExists(RunError):
    """A folder that has a run already.

    Attributes
    ----------
    path
        the folder
    finished
        is the run finished?
    remedy
        what to do, in sentences
    """

    def __init__(self, path: str | os.PathLike[str], finished: bool, remedy: str) -> None:
        self.path = os.fspath(path)
        self.finished = finished
        self.remedy = remedy
        what = "a finished run" if finished else "a run"
        super().__init__(f"{printable(self.path)} already has {what}. {remedy}")


class RunDiffers(RunError):
    """A run whose parts do not belong together, or that is continued with something else.

    Attributes
    ----------
    what
        what differs, such as "the recipe"
    difference
        how, as a clause
    """

    def __init__(self, what: str, difference: str, message: str) -> None:
        self.what = what
        self.difference = difference
        super().__init__(message)


class NotARun(RunError):
    """Images or a recording in place of a run.

    Attributes
    ----------
    path
        the file
    kind
        what it is, such as "a picture"
    """

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self.path = os.fspath(path)
        self.kind = kind
        super().__init__(
            f"{printable(self.path)} is {kind}, not a run or a model. Give the pictures first, then"
            " the model."
        )


@dataclass(frozen=True)
class RunLayout:
    """Where the parts of a run are in its folder."""

    path: Path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The folder of the state, which has the latents in it."""
        return self.path / "checkpoint"

    @property
    def latents(self) -> Path:
        return self.checkpoint / "latents"


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its recipe and the history of its training.

    Parameters
    ----------
    name
        name of the folder or file, for titles and legends
    recipe
        every setting
    model
        the trained model
    history
        one `EpochReport` an epoch; empty for a model file
    folder
        folder of the run; None for a model file, or if everything stayed in memory

    Examples
    --------
    >>> ww.read_run("mnist")
    TrainedRun('mnist', Recipe(layers of 16 and 48 maps, 50 and 50 epochs, batch_size=1000, seed=0),
    0 epochs)
    """

    name: str
    recipe: Recipe
    model: DeconvNet
    history: tuple[EpochReport, ...] = ()
    folder: Path | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the last epoch of the last layer is in the history; a model file has none."""
        if self.folder is None or not self.recipe.learning[-1].epochs:
            return True
        last = (self.recipe.model.depth, self.recipe.learning[-1].epochs)
        return any((epoch.layer, epoch.epoch) >= last for epoch in self.history)

    def __repr__(self) -> str:
        last = f", cost {self.history[-1].cost:.4g} per image" if self.history else ""
        return f"TrainedRun({self.name!r}, {self.recipe!r}, {len(self.history)} epochs{last})"


def load(path: str | os.PathLike[str]) -> DeconvNet:
    """Read a model by its name, from its file, or from the folder of a run.

    Raises a RunError if the file is damaged, has another format, or has tensors that do not match
    its spec.

    Parameters
    ----------
    path
        one of `ww.models.names()`, a model file, or a run folder; a file or a run of that name
        comes first. Or a file of the Hugging Face Hub, hf://owner/repository[/file][@revision]
        [#sha256=checksum], if huggingface_hub is installed

    Returns
    -------
    DeconvNet
        the model, on the CPU

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> model.spec.depth
    2
    """
    file = resolve(path)
    _check_not_data(file)
    if not os.path.exists(file):
        raise NoSuchRun(
            "the model",
            path,
            "there is no such file or folder, and no model of that name",
            f"Known names: {', '.join(names())}.",
        )
    return load_file(file)


def read_run(path: str | os.PathLike[str]) -> TrainedRun:
    """Read a run folder or a model file. A model file has no history; its recipe is the included
    recipe of its name, or the paper's with `descriptor.where = "auto"`.

    Parameters
    ----------
    path
        path of the folder that training wrote, or of a .safetensors file; or the name of a model
        (`ww.models.names()`)

    Examples
    --------
    >>> short = {"each": {"epochs": 2, "inference": {"steps": 2}}}
    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": short}
    >>> recipe = ww.override(ww.Recipe.paper(), small)
    >>> _ = ww.train(ww.data.load("digits")[:10], recipe, out="runs/small")
    >>> run = ww.read_run("runs/small")
    >>> run.name, [epoch.epoch for epoch in run.history]
    ('small', [1, 2])
    """
    path = resolve(path)
    _check_not_data(path)
    if os.path.isfile(path):
        model = load_file(path)
        included = read_recipe(path.stem) if path.stem in INCLUDED else None
        if included and included.model == model.spec:
            return TrainedRun(path.stem, included, model)
        # the file does not say what the model is used for, so the images decide what rows describe
        recipe = replace(Recipe.paper(model.spec), descriptor=DescriptorSpec())
        return TrainedRun(path.stem, recipe, model)
    layout = RunLayout(path)
    missing = [file.name for file in (layout.recipe, layout.model) if not os.path.isfile(file)]
    if missing:
        raise NoRun(path, missing if os.path.isdir(path) else ())
    model = load_file(layout.model)
    recipe = read_recipe(layout.recipe)
    if recipe.model != model.spec:
        what = difference(model.spec, recipe.model, "model")
        raise RunDiffers(
            "recipe",
            what,
            f"{printable(path)}: recipe.toml does not match model.safetensors: {what}. Restore one"
            " of them.",
        )
    return TrainedRun(path.resolve().name, recipe, model, read_history(layout.history), path)


def _check_not_data(path: Path) -> None:
    """Raise a RunError for images or a recording in place of a run, as when the run is left out."""
    ending = path.suffix.lower()
    kinds = {
        "a recording": recordings().SUFFIXES,
        "a picture": PICTURE_SUFFIXES,
        "an array": ARRAYS,
    }
    for kind, endings in kinds.items():
        if ending in endings and os.path.isfile(path):
            raise NotARun(path, kind)


class NoRun(RunError):
    """A path that is neither a run nor a model.

    Attributes
    ----------
    path
        the path
    missing
        the files that a run has, and that are not in this folder; empty without a folder
    """

    def __init__(self, path: Path, missing: Sequence[str]) -> None:
        self.path = path
        self.missing = tuple(missing)
        name = printable(path)
        words = "there is no such folder or file"
        remedy = f"`whatwhere info` lists the models.{did_you_mean(path.name, names())}"
        if missing:
            words = f"there is no {' and no '.join(missing)} in it"
            remedy = "Give the folder that `whatwhere train` wrote with --out."
            if any(file.suffix.lower() in PICTURE_SUFFIXES for file in path.iterdir()):
                words = "it is a folder of pictures"
                remedy = (
                    "Give a run or a model after the pictures."
                    f" `{command('whatwhere', 'train', path, '--out', 'RUN')}` makes one."
                )
        super().__init__(f"Cannot find a run or a model at {name}: {words}. {remedy}")


def read_history(path: Path, longest: int = 2**25) -> tuple[EpochReport, ...]:
    """Read the epochs of a run, one JSON object per line; empty if there is no such file.

    Parameters
    ----------
    longest
        bytes that the file may have, so that a device or a stream is not read for ever
    """
    if not os.path.lexists(path):
        return ()
    remedy = f"run `{resume_command(path.parent)}` to write it again"
    with files.readable(path, "history", remedy):
        lines = files.read_regular(path, longest).splitlines()
        with files.untrusted():
            epochs = [json.loads(line) for line in lines if line.strip()]
        return tuple(map(_epoch_of, epochs))


def _epoch_of(line: object) -> EpochReport:
    """Read a line of the history."""
    epoch = files.checked(line, dict, "a line")
    files.check_format(epoch.get("format"), _HISTORY_FORMAT)
    return EpochReport.of(epoch)


@dataclass(frozen=True)
class RunFolder:
    """Writes a run to its folder while it is trained.

    Process 0 writes everything but the latents; each process writes the latents of its own batches.

    Parameters
    ----------
    store
        None if no latents are stored
    """

    path: Path
    facts: RunFacts
    store: LatentStore | None = None
    processes: ProcessGroup = field(default_factory=ProcessGroup)

    @property
    def layout(self) -> RunLayout:
        return RunLayout(self.path)

    def begin(self, state: TrainingState) -> TrainingState:
        """Begin a new run. Its first checkpoint holds only the start, so that there always is
        one."""
        self.processes.main_first(lambda: self._begin(state))
        self.save(state)
        return state

    def _begin(self, state: TrainingState) -> None:
        check_new_run(self.path)
        self._write_texts(state)

    def resume(self, device: torch.device) -> TrainingState:
        """Return the state of the last checkpoint; files that a kill left inconsistent with it are
        rewritten."""
        self.processes.main_first(self._check)
        state = self._load(device)
        self.processes.main_first(lambda: self._rewrite(state))
        return state

    def write_history(self, history: Iterable[EpochReport]) -> None:
        if self.processes.is_main:
            tables = [{"format": _HISTORY_FORMAT, **report.table()} for report in history]
            lines = "".join(json.dumps(table) + "\n" for table in tables)
            files.write_atomic(self.layout.history, lines.encode())

    def save(self, state: TrainingState) -> None:
        """Write the latents to the disk, then the state that refers to them; only then may the
        previous latents be overwritten."""
        if self.store is None:
            self._save(state, torch.zeros(0, 2, dtype=torch.int64))
            return
        # The sum also waits until the latents of all processes are on the disk.
        table = self.processes.all_reduce_sum(self.store.flush())
        self._save(state, table)
        self.store.retain(table)

    def finish(self, state: TrainingState) -> None:
        """Write the last checkpoint, which needs no latents, and remove them: they are by far the
        largest part of a run."""
        batches = 0 if self.store is None else len(self.store.table)
        self._save(state, torch.zeros(batches, 2, dtype=torch.int64))
        self.processes.main_first(self._drop_latents)

    def _check(self) -> None:
        """Raise an error for a checkpoint of another run, before anything else is read."""
        checkpoint = Checkpoint.load(self.layout.checkpoint)
        self._require_same("recipe", training_changes(checkpoint.recipe, self.facts.recipe))
        same_images = checkpoint.images == self.facts.images
        self._require_same("images", "" if same_images else "their fingerprint differs")

    def _load(self, device: torch.device) -> TrainingState:
        """Return the state in the checkpoint, and the latents of this process's batches in the
        store."""
        checkpoint = Checkpoint.load(self.layout.checkpoint)
        with usable_checkpoint(self.layout.checkpoint / STATE), files.untrusted():
            state = checkpoint.state(self.facts.recipe, device)
            if self.store is not None:
                self.store.restore(checkpoint.tensors["latents.table"])
        layer, epoch = position(state, self.facts.recipe)
        return replace(state, layer=layer, epoch=epoch)

    def _rewrite(self, state: TrainingState) -> None:
        self._write_texts(state)
        save(state.model, self.layout.model, overwrite=True)
        if state.layer > self.facts.recipe.model.depth:
            self._drop_latents()

    def _save(self, state: TrainingState, latents: Tensor) -> None:
        """Write a checkpoint with this table of latents, and the model next to it, once all
        processes are here; they wait until it is complete."""

        def write() -> None:
            Checkpoint.of(state, latents, self.facts).save(self.layout.checkpoint)
            save(state.model, self.layout.model, overwrite=True)

        self.processes.main_first(write)

    def _write_texts(self, state: TrainingState) -> None:
        """Write the recipe and the history of this state; on resuming, this drops the epochs after
        the checkpoint."""
        files.write_atomic(self.layout.recipe, to_toml(self.facts.recipe).encode())
        self.write_history(state.history)

    def _drop_latents(self) -> None:
        shutil.rmtree(self.layout.latents, ignore_errors=True)

    def _require_same(self, what: str, difference: str) -> None:
        if difference:
            raise RunDiffers(
                what,
                difference,
                f"Cannot continue {printable(self.path)}: the {what} changed ({difference}). Use"
                " what the run began with, or train again in another folder.",
            )


class Notes(TypedDict, total=False):
    """What the program notes of a run, as far as another command reads it again.

    Parameters
    ----------
    source
        where the images came from
    image_shape
        [C, H, W]
    deep_white
        white of 16-bit pixels
    rate
        samples per second of a recording
    limit
        number of images that it learned from; None for all
    """

    source: str
    image_shape: list[int]
    deep_white: int | None
    rate: float | None
    limit: int | None


def notes_of(path: Path) -> Notes:
    """Return the inputs of the command that began a run; empty for a model file or a name."""
    if not has_checkpoint(path / "checkpoint"):
        return Notes()
    return cast(Notes, Checkpoint.load(path / "checkpoint").notes)


def recorded_by(path: Path) -> Recorded:
    """Return the shorter side and the white of the images that a run was trained on, where it
    recorded them."""
    notes = notes_of(path)
    shape = notes.get("image_shape")
    return Recorded(min(shape[1:]) if shape else None, notes.get("deep_white"))


def check_new_run(path: Path) -> None:
    """Raise a RunError if the folder of a new run has one already."""
    layout = RunLayout(path)
    if not (has_checkpoint(layout.checkpoint) or os.path.lexists(layout.model)):
        return
    try:
        finished = read_run(path).is_finished
    except RunError:  # a damaged one
        finished = False
    if finished:
        raise RunExists(path, True, "Choose another folder.")
    remedy = f"Continue it ({resume_command(path)}), or choose another folder."
    raise RunExists(path, False, remedy)


def resume_command(path: Path) -> str:
    """Return the command that continues a run, with as many processes as now."""
    return command(*torchrun_words(), "train", "--resume", path)


@contextmanager
def open_folder(path: Path, processes: ProcessGroup | None = None) -> Iterator[None]:
    """Create the folder of a run and hold its lock. An error of the disk says how to continue the
    run.

    If training ends without a checkpoint, since its input was rejected or it was interrupted,
    everything that was created is removed again. With several processes, the first one does this.
    """
    processes = processes or ProcessGroup()
    with ExitStack() as opened:
        processes.main_first(lambda: opened.enter_context(_held_folder(path)))
        with _disk_errors_of(path), _lost_processes_of(path):
            yield


@contextmanager
def _lost_processes_of(path: Path) -> Iterator[None]:
    """Say how to continue the run if a process of its training is lost."""
    try:
        yield
    except ProcessLost as lost:
        raise ProcessLost(
            f"{lost} The last checkpoint is intact. Continue with: {resume_command(path)}"
        ) from None


@contextmanager
def _held_folder(path: Path) -> Iterator[None]:
    layout = RunLayout(path)
    new_files = [file for file in (layout.recipe, layout.history) if not os.path.lexists(file)]
    busy = (
        f"Another process is training in {printable(path)}. Wait for it, or stop it. (To train in"
        " several processes, start them with torchrun.)"
    )
    with (
        _disk_errors_of(path),
        files.new_folder(layout.checkpoint),
        files.locked(layout.checkpoint, busy),
    ):
        files.sync_folder(path)
        for folder in (path, layout.checkpoint, layout.latents):
            if folder.exists():
                files.remove_leftovers(folder)
        try:
            yield
        except BaseException:
            if not has_checkpoint(layout.checkpoint):
                for file in new_files:
                    file.unlink(missing_ok=True)
                shutil.rmtree(layout.latents, ignore_errors=True)
            raise


@contextmanager
def _disk_errors_of(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that says how to continue the run in this folder."""
    try:
        yield
    except OSError:
        remedy = "free some disk space, or choose another folder"
        if has_checkpoint(path / "checkpoint"):
            remedy = f"the last checkpoint is intact: fix this, then {resume_command(path)}"
        with files.disk_errors(f"training in {printable(path)}", remedy):
            raise
