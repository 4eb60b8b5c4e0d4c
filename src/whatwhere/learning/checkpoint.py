"""A checkpoint, `state.safetensors`: all parts become valid together, in one rename; it refers to
latents in files."""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whatwhere.errors import NoSuchRun, RunError, plural
from whatwhere.files import readable, untrusted
from whatwhere.learning.reports import EpochReport, EpochStats, TrainingState, first_epoch
from whatwhere.model import DeconvNet
from whatwhere.model.files import model_tensors, read_checked, write_checked
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, Count
from whatwhere.spec.toml import override, parse_toml, to_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "whatwhere checkpoint 3"
STATE = "state.safetensors"
# what may change when a run is resumed: settings of test time, and epochs still to come
_MAY_CHANGE = r"inference\..*|plan.*|descriptor\..*|learning\.\d+\.epochs"


class FixedEpochs(RunError):
    """Epochs of a layer that a run can no longer have.

    Attributes
    ----------
    layer
        the layer
    given
        the number of epochs
    done
        the number that it has trained
    """

    def __init__(self, layer: int, given: int, done: int, message: str) -> None:
        self.layer = layer
        self.given = given
        self.done = done
        super().__init__(message)


@dataclass(frozen=True)
class RunFacts:
    """What stays the same through a run; a resumed run is compared with it.

    Parameters
    ----------
    images
        their fingerprint
    notes
        plain values of the caller, such as where the images came from
    """

    recipe: Recipe
    images: str
    notes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint(Checked):
    """All that training needs to continue, except the latents themselves.

    Parameters
    ----------
    layer, epoch, batch
        what comes next: batches before `batch` of that epoch are inferred already
    recipe
        the recipe as TOML
    images
        the fingerprint of the images
    notes
        notes of the program that began the run, for the one that continues it
    history
        one table an epoch
    tensors
        filters and connectivity, the table of the latents, sums of an epoch in progress
    """

    layer: Count
    epoch: int
    batch: int
    recipe: str
    images: str
    notes: dict[str, object]
    history: list[dict[str, object]]
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, state: TrainingState, latents: Tensor, facts: RunFacts) -> "Checkpoint":
        """Return the checkpoint of a state, with the table of its latents (`LatentStore`)."""
        tensors = {"latents.table": latents}
        if state.stats is not None:
            tensors |= state.stats.tensors()
        tensors |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
        tensors |= model_tensors(state.model)
        return cls(
            layer=state.layer,
            epoch=state.epoch,
            batch=state.batch,
            recipe=to_toml(facts.recipe),
            images=facts.images,
            notes=dict(facts.notes),
            history=[report.table() for report in state.history],
            tensors=tensors,
        )

    def state(self, recipe: Recipe, device: torch.device) -> TrainingState:
        """Return the state of training, with a recipe whose settings of training equal the
        run."""
        layers = range(1, recipe.model.depth + 1)
        filters = [self.tensors[f"layer{k}.filters"] for k in layers]
        connectivity = [self.tensors[f"layer{k}.connectivity"] for k in layers]
        memory = {}
        for name, tensor in self.tensors.items():
            if name.startswith("memory."):
                memory[name.removeprefix("memory.")] = tensor.to(device)
        return TrainingState(
            model=DeconvNet.from_parts(recipe.model, filters, connectivity).to(device),
            layer=self.layer,
            epoch=self.epoch,
            batch=self.batch,
            stats=EpochStats.from_tensors(self.tensors, device),
            memory=memory,
            history=tuple(map(EpochReport.of, self.history)),
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint. It replaces the last one in a single rename."""
        tensors = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()
        }
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tensors"}
        write_checked(folder / STATE, FORMAT, content, tensors, key="content", overwrite=True)

    @classmethod
    def load(cls, folder: Path) -> "Checkpoint":
        """Read the checkpoint in a folder; a missing, damaged or foreign one raises an error."""
        path = folder / STATE
        if not os.path.isfile(path):
            remedy = "Train again in another folder."
            raise NoSuchRun("the checkpoint to continue from,", path, remedy=remedy)
        with usable_checkpoint(path):
            content, tensors = read_checked(path, FORMAT, key="content")
            with untrusted():  # names of other fields
                return cls(**content, tensors=tensors)


def usable_checkpoint(path: Path) -> AbstractContextManager[None]:
    """Turn errors that make a checkpoint unusable into one that says so."""
    remedy = "restore it, or train again in another folder; the model still works"
    return readable(path, "checkpoint", remedy)


def has_checkpoint(folder: Path) -> bool:
    """Tell whether training can be resumed from a folder.

    Parameters
    ----------
    folder
        folder of checkpoints, RUN/checkpoint

    Examples
    --------
    >>> from pathlib import Path
    >>> has_checkpoint(Path("runs/none/checkpoint"))
    False
    """
    return os.path.isfile(folder / STATE)


def training_changes(old: str, new: Recipe) -> str:
    """Return the settings of training, except epochs, in which a recipe differs from an earlier
    one, in words."""
    # settings added since: defaults
    earlier = override(Recipe.paper(), parse_toml(old, "the checkpoint's recipe"))
    return difference(earlier, new, but=_MAY_CHANGE)


def position(state: TrainingState, recipe: Recipe) -> tuple[int, int]:
    """Return layer and epoch that come next by this recipe, whose numbers of epochs may have
    changed.

    The epochs of a finished layer cannot change, except the top one's, because the layers
    above were trained on it.
    """
    depth = recipe.model.depth
    done = dict.fromkeys(range(1, depth + 1), 0)
    for report in state.history:
        done[report.layer] = max(done[report.layer], report.epoch)
    current = min(state.layer, depth)
    for k in range(1, current):
        if recipe.learning[k - 1].epochs != done[k]:
            given = recipe.learning[k - 1].epochs
            raise FixedEpochs(
                k,
                given,
                done[k],
                f"Cannot change learning.{k}.epochs to {given}: layer {k} is complete after"
                f" {plural(done[k], 'epoch')}, and the layers above build on it. Set it to"
                f" {done[k]}. Only learning.{current}.epochs can change.",
            )
    begun = done[current] + (state.batch > 0)
    if recipe.learning[current - 1].epochs < begun:
        given = recipe.learning[current - 1].epochs
        raise FixedEpochs(
            current,
            given,
            begun,
            f"learning.{current}.epochs = {given} is too small: training has begun"
            f" {plural(begun, 'epoch')}. Give at least {begun}.",
        )
    return first_epoch(recipe, current, done[current] + 1)


def difference(
    before: "DataclassInstance", after: "DataclassInstance", name: str = "", but: str = ""
) -> str:
    """Return the settings in which two specs differ, in words; empty if they are the same.

    Parameters
    ----------
    name
        name of both in a recipe
    but
        a pattern of settings that do not count
    """
    old = settings(asdict(before), name)
    new = settings(asdict(after), name)
    changes = []
    for setting in sorted(old | new):
        was = old.get(setting, "not set")
        now = new.get(setting, "not set")
        if was != now and not re.fullmatch(but, setting):
            changes.append(f"{setting} was {was} and is now {now}")
    return ", ".join(changes)


def settings(value: object, name: str = "") -> dict[str, object]:
    """Return every setting of a spec as a dict, by its full name; layers by their number."""
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        value = {str(number): item for number, item in enumerate(value, start=1)}
    if not isinstance(value, dict):
        return {name: value}
    named: dict[str, object] = {}
    for key, item in value.items():
        named |= settings(item, f"{name}.{key}" if name else key)
    return named
