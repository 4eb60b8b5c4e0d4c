"""What stops training: a person who asks for it, or numbers that have gone wrong."""

from __future__ import annotations

import math

from whatwhere.errors import RunError
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec

RUNAWAY = 10.0  # times the cost of explaining nothing at all: far from anything that inference would choose


class TrainingStopped(RunError):
    """Training was asked to stop, and did so with a checkpoint where it has a folder."""


class TrainingDiverged(RunError):
    """Costs or filters are no longer sensible numbers; the last checkpoint stands."""


def check_cost(cost: float, nothing: float, where: str, model: DeconvNet, spec: InferenceSpec, kept: str) -> None:
    """Refuse a batch whose cost is NaN, Inf, or runs away from `nothing`, what it costs with all features at 0."""
    if math.isfinite(cost) and cost <= RUNAWAY * nothing:
        return
    found = f"{cost:.4g}, {cost / nothing:.3g} times that of explaining nothing" if math.isfinite(cost) else f"{cost}"
    cause = likely_cause(model, spec, kept)
    raise TrainingDiverged(f"{where}: the cost is {found}. Likely cause: {cause}. The last checkpoint stands.")


def check_filters(model: DeconvNet, where: str) -> None:
    """Refuse filters that are not finite."""
    for k, f in enumerate(model.filters, start=1):
        if not f.isfinite().all():
            raise TrainingDiverged(
                f"{where}: the filters of layer {k} are no longer finite after their update. Likely cause: features "
                "that are very large. Try fewer cg_steps, or a smaller lam. The last checkpoint stands."
            )


def likely_cause(model: DeconvNet, spec: InferenceSpec, kept: str) -> str:
    """The setting that most often is behind it, and what to try instead."""
    if not all(bool(f.isfinite().all()) for f in model.filters):
        return "filters that are not finite"
    if kept == "float16":
        return "features beyond what float16 holds (65,504): keep latents as bfloat16 or float32"
    if spec.step_size == "batch":
        return (
            "one step size for the whole batch overshoots on some of its images: "
            f"try step_size = 'image', or a smaller lam than {spec.lam:g}"
        )
    if spec.pooling_step > 1:
        return f"pooling_step = {spec.pooling_step:g} moves the pooling variables too far: try 1 or less"
    return f"images of very high contrast, or lam = {spec.lam:g} too large: scale images to [0, 1], or lower lam"


def stopped(where: str, folder: str | None) -> TrainingStopped:
    """The message for who asked to stop."""
    if folder is None:
        return TrainingStopped(f"stopped at {where}; without a folder nothing was kept")
    return TrainingStopped(f"stopped at {where}; go on with: whatwhere train --resume {folder}")
