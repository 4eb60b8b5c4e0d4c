"""Values that inference rejects before any of them reaches compiled code of an engine."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from whatwhere.errors import (
    BeyondRange,
    DamagedFilters,
    InvalidImages,
    InvalidSetting,
    warn,
)
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.deconvnet import ValueRange, all_finite
from whatwhere.spec import InferenceSpec, ModelSpec, Phase

# where a model notes the versions of its filters that were found finite; torch counts up the
# version with every change in place
_FINITE = "_finite_versions"


class ProbablyBytes(UserWarning):
    """Images far brighter than the model's white, probably bytes that were not scaled.

    Attributes
    ----------
    largest
        their largest value
    white
        the model's white
    """

    def __init__(self, largest: float, white: float) -> None:
        self.largest = largest
        self.white = white
        super().__init__(
            f"Images have values up to {largest:.4g}, but the model's white is {white:g}."
            f" whatwhere takes floats as they are. Scale the images to [0, {white:g}], or train"
            f" with model.input.white = {largest:.4g}."
        )


def warn_of_bytes(spec: ModelSpec, image: Tensor, values: ValueRange | None = None) -> None:
    """Warn about non-negative floats far beyond the model's white, which are probably bytes that
    were not scaled.

    Parameters
    ----------
    values
        the range of all images, if it is known: usually it settles the question
    """
    white = spec.input.white
    usual = 2.0 * white  # floats may be a little brighter than white
    if values is not None and values.highest <= usual:
        return
    largest = float(image.nan_to_num(0).max())
    if largest > usual and float(image.nan_to_num(0).min()) >= 0:
        warn(ProbablyBytes(largest, white))


def check_settings(spec: object, plan: Iterable[object]) -> None:
    """Raise a SpecError for settings or phases of another type, such as a number of steps."""
    if spec is not None and not isinstance(spec, InferenceSpec):
        raise InvalidSetting(
            {"spec": spec},
            "an InferenceSpec, such as InferenceSpec(steps=10)",
            "A number of steps alone is the argument `steps`.",
        )
    if not isinstance(plan, Sequence) or not all(isinstance(phase, Phase) for phase in plan):
        raise InvalidSetting({"plan": plan}, "phases, such as [Phase(layer=1)]")


def convert_latents(model: DeconvNet, latents: Latents) -> Latents:
    """Return latents on the model's device and in its dtype."""
    tensor: Any  # a user may have put anything there
    for tensor in latents.tensors():
        if (
            not isinstance(tensor, Tensor)
            or not tensor.is_floating_point()
            or not tensor.isfinite().all()
        ):
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            expected = "finite float tensors, as `infer` returns them"
            raise InvalidImages(f"latents of {kind}", expected)
    return latents.to(model.device, model.dtype)


def check_filters(model: DeconvNet) -> None:
    """Raise a SpecError for filters with NaN or Inf; filters that have not changed since the last
    check are not checked again."""
    versions = [f._version for f in model.filters]
    if model.__dict__.get(_FINITE) == versions:
        return
    for k, f in enumerate(model.filters, start=1):
        if not all_finite(f):
            raise DamagedFilters(k)
    model.__dict__[_FINITE] = versions


def check_start(problem: Problem, cost: Tensor) -> None:
    """Raise an error if the objective at the start of inference is beyond the range of the
    dtype."""
    if all_finite(cost):
        return
    images = problem.images
    latents = problem.latents
    feature = 0.0 if latents.p is None else float(latents.p.abs().max())
    raise BeyondRange(
        f"The objective exceeds the range of {images.dtype}",
        {
            "images up to": float(images.abs().max()),
            "features up to": feature,
            "lam =": problem.lam,
        },
        "Scale the images, or choose a smaller lam.",
    )
