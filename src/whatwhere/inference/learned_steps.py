"""Learned steps as files: their schedule and filters, the settings they were learned with, the model they belong to.

runs/digits/model.safetensors   its steps are in   runs/digits/inference-5.safetensors
models/digits.safetensors                          models/digits.inference-5.safetensors
"""

import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from whatwhere.errors import RunError, SpecError, command, printable
from whatwhere.files import readable
from whatwhere.model import DeconvNet
from whatwhere.model.files import FILE_NAME, model_checksum, model_file, read_checked, write_checked
from whatwhere.spec import InferenceSpec
from whatwhere.spec.toml import build

FORMAT = "whatwhere learned steps 3"


@dataclass(frozen=True, eq=False)
class LearnedSteps:
    """A few steps of inference whose sizes were learned for one model, as `UnrolledInference.learned` gives them.

    spec            settings of inference with the schedule of the steps
    model_checksum  of the model that they were learned for
    upward          filters of their pass up, [C, B, K, K] for each layer; empty: those of the model
    source          the file that they were loaded from

    >>> model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
    >>> learned = ww.UnrolledInference(model, steps=3).learned
    >>> ww.save(model, "model.safetensors")
    >>> learned.save("model.safetensors").name
    'inference-3.safetensors'
    >>> ww.LearnedSteps.load("model.safetensors") == learned
    True
    """

    spec: InferenceSpec
    model_checksum: str
    upward: tuple[Tensor, ...] = ()
    source: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.spec.schedule is None:
            raise SpecError("settings without a schedule were given as learned steps; expected one of at least 1 step")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LearnedSteps):
            return NotImplemented
        same = (self.spec, self.model_checksum) == (other.spec, other.model_checksum)
        return same and len(self.upward) == len(other.upward) and all(map(torch.equal, self.upward, other.upward))

    def __hash__(self) -> int:
        return hash((self.spec, self.model_checksum))

    def __len__(self) -> int:
        """The number of steps."""
        return self.spec.steps

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the steps next to their model; return the file.

        path  of the model's file or of its run folder
        """
        file = steps_file(path, len(self))
        tensors = {f"upward.{k}": f.detach().cpu() for k, f in enumerate(self.upward, start=1)}
        write_checked(file, FORMAT, {"spec": asdict(self.spec), "model": self.model_checksum}, tensors)
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str], steps: int | None = None) -> "LearnedSteps":
        """Read the steps that were saved next to a model.

        path   of the model's file or of its run folder
        steps  how many, where several were saved; None takes the most
        """
        saved = saved_steps(path)
        if not saved or steps not in (None, *saved):
            there = " and ".join(file.name for file in saved.values()) or "none"
            wanted = "learned steps were" if steps is None else f"{steps} learned steps were"
            learn = command("whatwhere", "distill", path, "--steps", str(steps or 5))
            raise RunError(f"{wanted} requested of {printable(path)}; saved next to it: {there} ({learn} learns them)")
        return read_steps(saved[max(saved) if steps is None else steps])

    def model_for(self, model: DeconvNet) -> DeconvNet:
        """The model with the filters that the steps have on the pass up: what `spec` is used with."""
        self.check(model)
        like = model.filters[0]
        return model.with_upward([f.to(like) for f in self.upward]) if self.upward else model

    def check(self, model: DeconvNet) -> None:
        """Raise a RunError if the steps were learned for another model."""
        if self.model_checksum == model_checksum(model):
            return
        name = "the learned steps" if self.source is None else printable(self.source)
        run = Path("RUN") if self.source is None else self.source.parent
        again = command("whatwhere", "distill", run, "--steps", str(len(self)))
        raise RunError(f"{name} belong to another model, whose filters or settings differ ({again} learns new ones)")


Steps = str | LearnedSteps
"""Learned steps as `infer` takes them: 'learned', 'learned-K' for those of K steps, or the steps themselves."""


def resolve_steps(model: DeconvNet, steps: Steps) -> tuple[DeconvNet, InferenceSpec]:
    """The model and the settings for learned steps, once they belong to it.

    The model is the same but for the filters of the pass up.
    """
    if not isinstance(steps, LearnedSteps):
        count = parse_steps(steps)
        if model.source is None:
            raise RunError(
                f"steps = {steps!r} was given with a model that was not loaded from a file; "
                "give steps = whatwhere.LearnedSteps.load(RUN), or load the model with whatwhere.load"
            )
        steps = LearnedSteps.load(model.source, count)
    return steps.model_for(model), steps.spec


def parse_steps(name: object) -> int | None:
    """The number of steps in 'learned-K'; None for 'learned'."""
    match = re.fullmatch(r"learned(?:-([1-9]\d{0,5}))?", name) if isinstance(name, str) else None
    if match is None:
        raise SpecError(f"steps = {name!r} was given; expected 'learned', or 'learned-5' for 5 steps")
    return None if match[1] is None else int(match[1])


def steps_file(path: str | os.PathLike[str], steps: int) -> Path:
    """The file of so many learned steps of a model."""
    file = model_file(path)
    return file.with_name(f"{_prefix(file)}inference-{steps}.safetensors")


def saved_steps(path: str | os.PathLike[str]) -> dict[int, Path]:
    """The files of learned steps next to a model, by their number of steps."""
    file = model_file(path)
    pattern = re.compile(re.escape(_prefix(file)) + r"inference-([1-9]\d{0,5})\.safetensors")
    names = (pattern.fullmatch(other.name) for other in file.parent.iterdir())
    return dict(sorted((int(name[1]), file.with_name(name[0])) for name in names if name))


def _prefix(file: Path) -> str:
    """What distinguishes the steps of a model from those of others in its folder; a run's folder has one model."""
    return "" if file.name == FILE_NAME else f"{file.stem}."


def read_steps(file: Path) -> LearnedSteps:
    """Read one file of learned steps."""
    with readable(file, "file of learned steps", "copy it again, or learn new ones with whatwhere distill"):
        settings, tensors = read_checked(file, FORMAT)
        names = [f"upward.{k}" for k in range(1, len(tensors) + 1)]
        if unknown := set(tensors) - set(names):
            raise SpecError(f"the tensor {min(unknown)!r} belongs to no step")
        spec, model = build(InferenceSpec, settings["spec"]), settings["model"]
        return LearnedSteps(spec, model, tuple(tensors[name] for name in names), source=file)
