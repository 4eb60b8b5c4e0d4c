"""Learned steps as files: their schedule and filters, the settings they were learned with, the
model they belong to.

runs/digits/model.safetensors   its steps are in   runs/digits/inference-5.safetensors
models/digits.safetensors                          models/digits.inference-5.safetensors
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from whatwhere.errors import InvalidSetting, RunError, SpecError, command, plural, printable
from whatwhere.files import readable
from whatwhere.model import DeconvNet
from whatwhere.model.files import FILE_NAME, model_file, read_checked, write_checked
from whatwhere.spec import InferenceSpec
from whatwhere.spec.toml import build

FORMAT = "whatwhere learned steps 3"


class NoLearnedSteps(RunError):
    """Learned steps that were never saved next to a model.

    Attributes
    ----------
    known
        the numbers of steps that were saved
    remedy
        what to do, in sentences
    """

    def __init__(self, problem: str, known: tuple[int, ...], remedy: str) -> None:
        self.known = known
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}")


class StepsOfAnotherModel(RunError):
    """Learned steps of a model with other filters or settings.

    Attributes
    ----------
    name
        the file of the steps, or "the learned steps"
    remedy
        what to do, in sentences
    """

    def __init__(self, name: str, remedy: str) -> None:
        self.name = name
        self.remedy = remedy
        problem = f"{name} belong to another model, with other filters or settings."
        super().__init__(f"{problem} {remedy}")


@dataclass(frozen=True)
class LearnedSteps:
    """A few steps of inference whose sizes were learned for one model, as
    `UnrolledInference.learned` returns them.

    Parameters
    ----------
    spec
        settings of inference with the schedule of the steps
    model_checksum
        checksum of the model that the steps were learned for
    upward
        filters of their pass up, [C, B, K, K] for each layer; empty for the model's
    source
        the file that they were loaded from

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
    >>> learned = ww.UnrolledInference(model, steps=3).learned
    >>> ww.save(model, "model.safetensors")
    >>> learned.save("model.safetensors").name
    'inference-3.safetensors'
    >>> ww.LearnedSteps.load("model.safetensors").spec == learned.spec
    True
    """

    spec: InferenceSpec
    model_checksum: str
    upward: tuple[Tensor, ...] = ()
    source: Path | None = None

    def __post_init__(self) -> None:
        if self.spec.schedule is None:
            raise InvalidSetting({"step": self.spec.step}, "a schedule of at least 1 step")

    def __len__(self) -> int:
        """Return the number of steps."""
        return self.spec.steps

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the steps next to their model; return the file.

        Parameters
        ----------
        path
            path of the model's file or of its run folder
        """
        model = model_file(path)
        file = model.with_name(f"{_prefix(model)}inference-{len(self)}.safetensors")
        tensors = {f"upward.{k}": f.detach().cpu() for k, f in enumerate(self.upward, start=1)}
        write_checked(
            file, FORMAT, {"spec": asdict(self.spec), "model": self.model_checksum}, tensors
        )
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str], steps: int | None = None) -> LearnedSteps:
        """Read the steps that were saved next to a model.

        Parameters
        ----------
        path
            path of the model's file or of its run folder
        steps
            the number of steps, if files with several numbers exist; None takes the largest
        """
        saved = saved_steps(path)
        if not saved or steps not in (None, *saved):
            there = " and ".join(file.name for file in saved.values()) or "none"
            wanted = (
                "learned steps"
                if steps is None
                else f"inference of {plural(steps, 'learned step')}"
            )
            learn = command("whatwhere", "distill", path, "--steps", str(steps or 5))
            raise NoLearnedSteps(
                f"{printable(path)} has no {wanted}; its files of learned steps: {there}.",
                tuple(saved),
                f"Run `{learn}` to learn them.",
            )
        return read_steps(saved[max(saved) if steps is None else steps])

    def model_for(self, model: DeconvNet) -> DeconvNet:
        """Return the model with the filters of the steps on the pass up, for use with `spec`.

        Raises a RunError if the steps were learned for another model.
        """
        if self.model_checksum != model.checksum:
            name = "the learned steps" if self.source is None else printable(self.source)
            run = Path("RUN") if self.source is None else self.source.parent
            again = command("whatwhere", "distill", run, "--steps", str(len(self)))
            raise StepsOfAnotherModel(name, f"Run `{again}` to learn new ones.")
        return (
            model.with_upward([f.to(model.filters[0]) for f in self.upward])
            if self.upward
            else model
        )


Steps = str | LearnedSteps
"""Learned steps as `infer` takes them: 'learned', 'learned-K' for K steps, or the steps
themselves."""


def resolve_steps(model: DeconvNet, steps: Steps) -> tuple[DeconvNet, InferenceSpec]:
    """Return the model, with the filters of the steps on the pass up, and the settings for them."""
    if not isinstance(steps, LearnedSteps):
        name = re.fullmatch(r"learned(?:-([1-9]\d{0,5}))?", str(steps))
        if name is None:
            raise InvalidSetting({"steps": steps}, "'learned', or 'learned-5' for 5 steps")
        if model.source is None:
            raise NoLearnedSteps(
                f"steps = {steps!r} needs a model from a file.",
                (),
                "Load the model with whatwhere.load, or give steps ="
                " whatwhere.LearnedSteps.load(RUN).",
            )
        steps = LearnedSteps.load(model.source, int(name[1]) if name[1] else None)
    return steps.model_for(model), steps.spec


def saved_steps(path: str | os.PathLike[str]) -> dict[int, Path]:
    """Return the files of learned steps next to a model, by their number of steps."""
    file = model_file(path)
    pattern = re.compile(re.escape(_prefix(file)) + r"inference-([1-9]\d{0,5})\.safetensors")
    names = (pattern.fullmatch(other.name) for other in file.parent.iterdir())
    return dict(sorted((int(name[1]), file.with_name(name[0])) for name in names if name))


def _prefix(file: Path) -> str:
    """Return the part of a file name that tells apart the steps of several models in a folder; a
    run's folder has one model."""
    return "" if file.name == FILE_NAME else f"{file.stem}."


def read_steps(file: Path) -> LearnedSteps:
    """Read one file of learned steps."""
    with readable(
        file, "file of learned steps", "copy it again, or learn new ones with whatwhere distill"
    ):
        settings, tensors = read_checked(file, FORMAT)
        names = [f"upward.{k}" for k in range(1, len(tensors) + 1)]
        if unknown := set(tensors) - set(names):
            raise SpecError(f"no step has the tensor {min(unknown)!r}")
        spec = build(InferenceSpec, settings["spec"])
        model = settings["model"]
        return LearnedSteps(spec, model, tuple(tensors[name] for name in names), source=file)
