"""The settings of inference. Import them from `whatwhere.spec`, with all others.

A choice between ways is a value with fields of its own (`step`, `lam`); `kind` is its name in a recipe file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from whatwhere.spec.checks import check_fields, require, require_count


@dataclass(frozen=True)
class MomentFit:
    """How a region's Gaussian is fitted: μ and 1/γ are the mean and variance of the position, weighted by |s|^power.

    gamma_min, gamma_max  bounds of the precision γ, in 1 / element²
    power                 of the signal s: 1 or 2

    >>> MomentFit(gamma_max=20.0).power
    2
    """

    gamma_min: float = 0.01
    gamma_max: float = 100.0
    power: int = 2

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            0 <= self.gamma_min <= self.gamma_max,
            f"gamma_min = {self.gamma_min}, gamma_max = {self.gamma_max}",
            "0 ≤ gamma_min ≤ gamma_max",
        )
        require(self.power in (1, 2), f"power = {self.power}", "1 or 2")


@dataclass(frozen=True, kw_only=True)
class AutoLam:
    """λ chosen from the images (`inference.auto_lam`): by the level of their noise, as a share, or by their strength.

    noise     the standard deviation of the noise, in units of the images; None estimates it
    share     instead of a noise level: 1/λ as a share of the smallest that leaves no feature
    relative  instead: λ for images as strong as white strokes on black; weaker ones get a larger one, by which they
              have the same code

    >>> ww.InferenceSpec(lam=ww.AutoLam(noise=0.1)).lam
    AutoLam(noise=0.1, share=None, relative=None)
    """

    kind: Literal["auto"] = field(default="auto", init=False, repr=False)
    noise: float | None = None
    share: float | None = None
    relative: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        given = {name: value for name, value in vars(self).items() if value is not None and name != "kind"}
        for name, value in given.items():
            require(value > 0, f"{name} = {value}", "a number above 0")
        require(self.share is None or self.share < 1, f"share = {self.share}", "a number between 0 and 1")
        require(len(given) < 2, " and ".join(f"{name} = {value}" for name, value in given.items()), "one of them")


@dataclass(frozen=True, kw_only=True)
class LineSearch:
    """β by the exact line search of the smooth term, in every step.

    per       β for each 'image', or one for the 'batch' from a tenth of it (the paper)
    momentum  accelerate the features' steps (FISTA with restart)

    >>> ww.LineSearch(per="batch").momentum
    False
    """

    kind: Literal["line_search"] = field(default="line_search", init=False, repr=False)
    per: Literal["image", "batch"] = "image"
    momentum: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The same safe β in every step, from a bound on the filters' gain.

    momentum  accelerate the features' steps (FISTA with restart)

    >>> ww.InferenceSpec(step=ww.Fixed(momentum=True)).momentum
    True
    """

    kind: Literal["fixed"] = field(default="fixed", init=False, repr=False)
    momentum: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """The sizes of one step of a `Schedule`.

    size           β, the size of the features' step
    threshold      what the shrinkage takes off; ISTA takes β
    extrapolation  how far the next step starts ahead of the features, as a share of their last change
    pooling_step   β_U of every layer; the last one serves every layer above

    >>> ww.StepSpec(size=0.01, threshold=0.02).extrapolation
    0.0
    """

    size: float
    threshold: float
    extrapolation: float = 0.0
    pooling_step: tuple[float, ...] = (3.0,)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("size", "threshold", "extrapolation"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")
        require(len(self.pooling_step) > 0, "pooling_step = ()", "a number for each layer")
        require(min(self.pooling_step) >= 0, f"pooling_step = {self.pooling_step}", "numbers of at least 0")

    def pooling_step_of(self, k: int) -> float:
        """β_U of layer k."""
        return self.pooling_step[min(k, len(self.pooling_step)) - 1]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The sizes of every step, given in advance. `inference.unrolled` learns them.

    steps        a `StepSpec` for each step
    contrast     the largest |v| of the images that its β_U are meant for. They are multiplied by (contrast / max |v|)²
                 for every image, so that brighter images take the same steps; None: by 1
    mu_scale, gamma_scale  the fitted start of μ and γ is multiplied by these, a number for each layer; the last one
                 serves every layer above

    >>> ww.InferenceSpec(step=ww.Schedule(steps=[ww.StepSpec(size=0.01, threshold=0.01)] * 5)).steps
    5
    """

    kind: Literal["schedule"] = field(default="schedule", init=False, repr=False)
    steps: tuple[StepSpec, ...]
    contrast: float | None = None
    mu_scale: tuple[float, ...] = (1.0,)
    gamma_scale: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_fields(self)
        require(len(self.steps) > 0, "a schedule without steps", "at least one StepSpec")
        require(self.contrast is None or self.contrast > 0, f"contrast = {self.contrast}", "a number above 0")
        for name in ("mu_scale", "gamma_scale"):
            scales = getattr(self, name)
            require(len(scales) > 0 and min(scales) > 0, f"{name} = {scales}", "a number above 0 for each layer")


CODING: Final[dict[str, Any]] = {"step": LineSearch(momentum=True), "steps": 1000, "tolerance": 3e-4}
"""The settings that `InferenceSpec.coding` changes."""


@dataclass(frozen=True, kw_only=True)
class InferenceSpec:
    """How features and pooling variables are inferred.

    lam           λ, the weight of the reconstruction against the sparsity penalty; `AutoLam` chooses it from the images
    alpha         α of the penalty Σ|p|^α, between ½ and 1
    shrinkage     'gradient' (the paper: soft threshold at α = 1, its printed step at α = ½) or
                  'exact' (the proximal map; α = ½ or 1)
    steps         ISTA steps, T: at most, with a tolerance; no more than those of a `Schedule`
    tolerance     an image is finished once a step changes its cost by less than this share (`inference.convergence`);
                  0 takes all steps, and so does a `Schedule`
    step          β, the size of the features' steps: by a `LineSearch`, `Fixed`, or by a `Schedule`
    pooling_step  β_U, the step of the pooling variables
    moments       how the pooling variables start, and the bounds of γ that they keep: a `MomentFit`

    >>> ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200, step=ww.LineSearch(momentum=True)).moments.gamma_max
    100.0
    >>> ww.InferenceSpec(lam=-1)
    Traceback (most recent call last):
    whatwhere.errors.SpecError: lam = -1... expected a number above 0...
    """

    lam: float | AutoLam = 5.0
    alpha: float = 1.0
    shrinkage: Literal["gradient", "exact"] = "gradient"
    steps: int = 50
    tolerance: float = 0.0
    step: LineSearch | Fixed | Schedule = LineSearch()
    pooling_step: float = 3.0
    moments: MomentFit = MomentFit()

    def __post_init__(self) -> None:
        check_fields(self)
        require(0.5 <= self.alpha <= 1, f"alpha = {self.alpha}", "a number from 0.5 to 1")
        if isinstance(self.lam, AutoLam):
            given = f"lam = {self.lam} with alpha = {self.alpha}"
            require(self.alpha == 1 or self.lam.relative is not None, given, "alpha = 1, or a number for lam")
        else:
            require(self.lam > 0, f"lam = {self.lam}", "a number above 0, or AutoLam")
        require(
            self.shrinkage == "gradient" or self.alpha in (0.5, 1),
            f"shrinkage = 'exact' with alpha = {self.alpha}",
            "alpha = 0.5 or 1 (the proximal map has a closed form there), or shrinkage = 'gradient'",
        )
        require_count("steps", self.steps, least=0)
        if isinstance(self.step, Schedule):
            object.__setattr__(self, "steps", min(self.steps, len(self.step.steps)))
        for name in ("tolerance", "pooling_step"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")

    @classmethod
    def coding(cls, **overrides: Any) -> InferenceSpec:
        """Settings for codes that are sparse and converged: momentum, and steps until the cost no longer changes.

        For coding, decoding and restoration. For classification the paper's few steps are better and faster.
        """
        return cls(**{**CODING, **overrides})

    @property
    def schedule(self) -> Schedule | None:
        """The schedule of the steps, where there is one."""
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
        """What the fitted μ and γ of layer k are multiplied by."""
        if (schedule := self.schedule) is None:
            return 1.0, 1.0
        mu, gamma = (scales[min(k, len(scales)) - 1] for scales in (schedule.mu_scale, schedule.gamma_scale))
        return mu, gamma
