"""What stops training: a person who asks for it, or numbers that are no longer usable."""

from __future__ import annotations

import math
from pathlib import Path

from torch import Tensor

from whatwhere.errors import RunError, command
from whatwhere.learning.state import BatchStats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec

RUNAWAY = 10.0  # times the cost of an empty reconstruction: far from anything that inference would choose


class TrainingStopped(RunError):
    """Training was asked to stop, and did so; a run with a folder has a checkpoint."""


class TrainingDiverged(RunError):
    """Costs or filters are no longer usable numbers; the last checkpoint is intact."""


def check_batch(stats: BatchStats, where: str, model: DeconvNet, spec: InferenceSpec) -> None:
    """Raise if the cost of a batch is NaN or Inf or runs away."""
    cost = stats.reconstruction + stats.penalty
    if not math.isfinite(cost):
        raise diverged(where, f"the cost is {cost}", likely_cause(model, spec))
    if cost > RUNAWAY * stats.zero_cost:
        problem = f"the cost is {cost / stats.zero_cost:.3g} times that of an empty reconstruction"
        raise diverged(where, problem, likely_cause(model, spec))


def check_sums(total: Tensor, where: str) -> Tensor:
    """Raise if sums for the filter update are not finite; else return them."""
    if not total.isfinite().all():
        raise diverged(where, "the sums for the filter update are not finite", "features or images that are very large")
    return total


def check_filters(model: DeconvNet, where: str) -> None:
    """Raise if filters are not finite."""
    for k, f in enumerate(model.filters, start=1):
        if not f.isfinite().all():
            problem = f"the filters of layer {k} are no longer finite after their update"
            raise diverged(where, problem, "features that are very large: try fewer cg_steps, or a smaller lam")


def likely_cause(model: DeconvNet, spec: InferenceSpec) -> str:
    """The setting that most often causes such a cost, and what to try instead."""
    if not all(bool(f.isfinite().all()) for f in model.filters):
        return "filters that are not finite"
    if spec.per_batch:
        return (
            "one step size for the whole batch overshoots on some of its images: "
            f"try step.per = 'image', or a smaller lam than {spec.lam:g}"
        )
    if spec.pooling_step > (usual := InferenceSpec().pooling_step):
        return f"pooling_step = {spec.pooling_step:g} moves the pooling variables too far: try {usual:g} or less"
    return f"images of very high contrast, or lam = {spec.lam:g} too large: scale images to [0, 1], or lower lam"


def diverged(where: str, problem: str, cause: str) -> TrainingDiverged:
    return TrainingDiverged(f"{where}: {problem}. Likely cause: {cause}. The last checkpoint is intact.")


def stopped(where: str, folder: Path | None) -> TrainingStopped:
    """The message for the person who asked to stop."""
    if folder is None:
        return TrainingStopped(f"stopped at {where}; without a folder nothing was saved")
    return TrainingStopped(f"stopped at {where}; continue with: {command('whatwhere', 'train', '--resume', folder)}")
