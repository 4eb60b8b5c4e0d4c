"""The settings of inference. Import them from `whatwhere.spec`, like all others.

A choice (`step`, `lam`, `penalty`) is a value with its own fields; `kind` is its name in a recipe
file.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from whatwhere.spec.checks import (
    Checked,
    Count,
    CountOrZero,
    NonNegative,
    NotEmpty,
    Positive,
    Within,
    require,
)
from whatwhere.spec.penalty import Penalty, Power
from whatwhere.spec.pooling import MomentFit


@dataclass(frozen=True, kw_only=True)
class AutoLam(Checked):
    """λ chosen from the images (`inference.auto_lam`): by their strength, as a share, or by their
    noise.

    Parameters
    ----------
    relative
        λ for images with the contrast of white strokes on black. Images with less contrast get a
        larger λ, so that they have the same code
    share
        if given, 1/λ as a share of the smallest 1/λ that leaves no feature
    deviations
        if given, 1/λ in standard deviations of the estimated noise, for signals

    Examples
    --------
    >>> ww.InferenceSpec(lam=ww.AutoLam(relative=2.0)).lam
    AutoLam(relative=2.0, share=None, deviations=None)
    """

    kind: Literal["auto"] = field(default="auto", init=False, repr=False)
    relative: Positive = 5.0
    share: Annotated[float, Within(0, 1, above=True, below=True)] | None = None
    deviations: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class LineSearch(Checked):
    """β by the exact line search of the smooth term, in every step.

    Parameters
    ----------
    per
        'image': β for each image; 'batch': one β, chosen from a tenth of the batch (the paper)
    momentum
        accelerate the features' steps (FISTA with restart)

    Examples
    --------
    >>> ww.LineSearch(per="batch").momentum
    False
    """

    kind: Literal["line_search"] = field(default="line_search", init=False, repr=False)
    per: Literal["image", "batch"] = "image"
    momentum: bool = False


@dataclass(frozen=True, kw_only=True)
class Fixed(Checked):
    """The same safe β in every step, from a bound on the filters' gain.

    Parameters
    ----------
    momentum
        accelerate the features' steps (FISTA with restart)

    Examples
    --------
    >>> ww.InferenceSpec(step=ww.Fixed(momentum=True)).momentum
    True
    """

    kind: Literal["fixed"] = field(default="fixed", init=False, repr=False)
    momentum: bool = False


def of_layer(values: tuple[float, ...], k: int) -> float:
    """Return the value of layer k; the last one applies to every layer above."""
    return values[min(k, len(values)) - 1]


@dataclass(frozen=True, kw_only=True)
class StepSpec(Checked):
    """The sizes of one step of a `Schedule`.

    Parameters
    ----------
    size
        β, the size of the features' step
    threshold
        the threshold of the shrinkage; ISTA takes β
    extrapolation
        how far the next step starts ahead of the features, as a share of their last change
    pooling_step
        β_U of every layer; the last one serves all layers above

    Examples
    --------
    >>> ww.StepSpec(size=0.01, threshold=0.02).extrapolation
    0.0
    """

    size: NonNegative
    threshold: NonNegative
    extrapolation: NonNegative = 0.0
    pooling_step: Annotated[tuple[NonNegative, ...], NotEmpty()] = (3.0,)

    def pooling_step_of(self, k: int) -> float:
        """Return β_U of layer k."""
        return of_layer(self.pooling_step, k)


@dataclass(frozen=True, kw_only=True)
class Schedule(Checked):
    """The sizes of every step, given in advance. `inference.unrolled` learns them.

    Parameters
    ----------
    steps
        a `StepSpec` for each step
    contrast
        the largest |v| of the images that its β_U are meant for. β_U is multiplied by (contrast /
        max |v|)² for every image, so that brighter images take the same steps; None multiplies by 1
    mu_scale, gamma_scale
        factors for the fitted start of μ and γ, one for each layer; the last one serves all layers
        above

    Examples
    --------
    >>> ww.InferenceSpec(step=ww.Schedule(steps=[ww.StepSpec(size=0.01, threshold=0.01)] * 5)).steps
    5
    """

    kind: Literal["schedule"] = field(default="schedule", init=False, repr=False)
    steps: Annotated[tuple[StepSpec, ...], NotEmpty()]
    contrast: Positive | None = None
    mu_scale: Annotated[tuple[Positive, ...], NotEmpty()] = (1.0,)
    gamma_scale: Annotated[tuple[Positive, ...], NotEmpty()] = (1.0,)


CODING: Final[dict[str, Any]] = {
    "step": LineSearch(momentum=True),
    "steps": 1000,
    "tolerance": 3e-4,
}
"""The settings that `InferenceSpec.coding` changes."""

_TO_A_GAP: Final[dict[str, object]] = {"steps": 20_000, "tolerance": 0.0}
"""The settings that `InferenceSpec.coding` changes as well, if it has a gap."""


@dataclass(frozen=True, kw_only=True)
class InferenceSpec(Checked):
    """How features and pooling variables are inferred.

    Parameters
    ----------
    lam
        λ, the weight of the reconstruction against the sparsity penalty; `AutoLam` chooses it from
        the images
    penalty
        what features cost: `Power`, Σ|p|^α; with alpha = 1 it is the ℓ1 norm
    steps
        number of ISTA steps, T; with a tolerance or a `Schedule`, the largest number
    tolerance
        stop an image once the relative change of its cost per step is below this
        (`engines.convergence`); with 0 or a `Schedule`, inference takes all steps
    gap
        stop an image once its duality gap is at most this share of its cost, which is then that
        near to the minimum for its pooling variables; needs a convex penalty. 0 computes no gap
    step
        β, the size of the features' steps: a `LineSearch`, `Fixed`, or a `Schedule`
    pooling_step
        β_U, the step of the pooling variables
    moments
        how the pooling variables start, and the bounds of γ: a `MomentFit`

    Examples
    --------
    >>> ww.InferenceSpec(lam=0.5, steps=200, step=ww.Fixed(momentum=True)).moments.gamma_max
    100.0
    >>> ww.InferenceSpec(lam=-1)
    Traceback (most recent call last):
    whatwhere.errors.InvalidSetting: Got lam = -1.0; expected a number above 0.
    """

    lam: Positive | AutoLam = 5.0
    penalty: Penalty = Power()
    steps: CountOrZero = 50
    tolerance: NonNegative = 0.0
    gap: NonNegative = 0.0
    step: LineSearch | Fixed | Schedule = LineSearch()
    pooling_step: NonNegative = 3.0
    moments: MomentFit = MomentFit()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.lam, AutoLam):
            given: dict[str, object] = {"lam": self.lam, "penalty": self.penalty}
            known = self.lam.share is None or self.penalty.is_convex
            require(known, given, "penalty.alpha = 1, or AutoLam without share")
        if self.gap > 0:
            given = {"gap": self.gap, "penalty": self.penalty}
            require(self.penalty.is_convex, given, "penalty.alpha = 1")
        if isinstance(self.step, Schedule):
            object.__setattr__(self, "steps", min(self.steps, len(self.step.steps)))

    @classmethod
    def coding(cls, **overrides: object) -> "InferenceSpec":
        """Return settings for codes that are sparse and converged: momentum, and steps until the
        cost no longer changes.

        For coding, decoding and restoration. For classification the paper's few steps are better
        and faster. With `gap`, it alone decides when the steps end, which may be many.

        >>> ww.InferenceSpec.coding(gap=1e-3).steps
        20000
        """
        settings = {**CODING, **(_TO_A_GAP if "gap" in overrides else {}), **overrides}
        return cls(**settings)

    @property
    def schedule(self) -> Schedule | None:
        """The schedule of the steps, if there is one."""
        return self.step if isinstance(self.step, Schedule) else None

    @property
    def momentum(self) -> bool:
        """Are the features' steps accelerated?"""
        return not isinstance(self.step, Schedule) and self.step.momentum

    @property
    def per_batch(self) -> bool:
        """Is β one for the whole batch, so that an image's code depends on the others?"""
        return isinstance(self.step, LineSearch) and self.step.per == "batch"

    def start_scales(self, k: int) -> tuple[float, float]:
        """Return the factors of the fitted μ and γ of layer k."""
        schedule = self.schedule
        if schedule is None:
            return 1.0, 1.0
        return of_layer(schedule.mu_scale, k), of_layer(schedule.gamma_scale, k)


@dataclass(frozen=True, kw_only=True)
class DistillSpec(Checked):
    """How steps of inference are learned: settings of `distill`.

    Parameters
    ----------
    batches
        number of random batches to learn from
    batch_size
        number of images in a batch
    learning_rate
        initial learning rate of Adam for the step sizes
    filter_rate
        the learning rate of untied filters, as a multiple of `learning_rate`
    imitation
        weight of the distance from the features of many plain steps; 0 minimises the cost alone
    seed
        seed of the random choice of images

    Examples
    --------
    >>> ww.DistillSpec(batches=50).batch_size
    20
    """

    batches: Count = 200
    batch_size: Count = 20
    learning_rate: NonNegative = 0.1
    filter_rate: NonNegative = 0.03
    imitation: NonNegative = 10.0
    seed: int = 0
