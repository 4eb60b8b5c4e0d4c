"""The settings of inference. Import them from `whatwhere.spec`, with all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any, Final, Literal

from whatwhere.errors import SpecError
from whatwhere.spec.checks import check_fields, convert, require, require_count

StepSize = Literal["image", "secant", "batch", "fixed"]
PAPER_LAM: Final = 5.0
CODING: Final[dict[str, Any]] = {"momentum": True, "step_size": "image", "steps": 1000, "tolerance": 3e-4}
"""The settings that `InferenceSpec.coding` changes."""


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
        require(
            0 <= self.gamma_min <= self.gamma_max < float("inf"),
            f"gamma_min = {self.gamma_min}, gamma_max = {self.gamma_max}",
            "0 ≤ gamma_min ≤ gamma_max, both finite",
        )
        require(self.power in (1, 2), f"moments with power = {self.power}", "1 or 2")


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """The sizes of one step, in place of the rules that choose them. `inference.unrolled` learns them.

    size          β, the size of the features' step
    threshold     what the shrinkage takes off; ISTA takes β
    momentum      how far the next step starts ahead of the features, as a share of their last change
    pooling_step  β_U of every layer; the last one serves every layer above
    """

    size: float
    threshold: float
    momentum: float = 0.0
    pooling_step: tuple[float, ...] = (3.0,)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("size", "threshold", "momentum"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")
        require(len(self.pooling_step) > 0, "pooling_step = ()", "a number for each layer")
        require(min(self.pooling_step) >= 0, f"pooling_step = {self.pooling_step}", "numbers of at least 0")

    def pooling_step_of(self, k: int) -> float:
        """β_U of layer k."""
        return self.pooling_step[min(k, len(self.pooling_step)) - 1]


@dataclass(frozen=True, kw_only=True)
class InferenceSpec:
    """How features and pooling variables are inferred.

    lam           λ, the weight of the reconstruction against the sparsity penalty; 'auto' chooses it from the images;
                  `sparsity`, the weight of the penalty, may be given instead
    sparsity      1/λ; only λ is stored
    noise         with lam = 'auto': the standard deviation of the noise, in units of the images; None estimates it
    sparsity_share  with lam = 'auto', instead of a noise level: 1/λ as a share of the smallest that leaves no feature
    alpha         α of the penalty Σ|p|^α, between ½ and 1
    shrinkage     'gradient' (the paper: soft threshold at α = 1, its printed step at α = ½) or
                  'exact' (the proximal map; α = ½ or 1)
    steps         ISTA steps, T; with a tolerance, at most
    tolerance     an image is finished once a step changes its cost by less than this share (`inference.convergence`);
                  0 takes all steps
    step_size     β for each 'image', by a line search in every step or, faster, by a 'secant' through its last two
                  points; one for the 'batch' (the paper); or the safe 'fixed' one
    search_every  with 'image' and 'batch': β is searched for in every n-th step, from the first on, and kept in between
                  (`inference.step_size`). 1 is the paper's; with 2 or 3 steps take less time, and 50 of them end
                  with the same cost to about 1 %
    momentum      accelerate the features' steps (FISTA with restart)
    pooling_step  β_U, the step of the pooling variables
    gamma_min, gamma_max, moment_power  see `MomentFit`
    mu_scale, gamma_scale  the fitted start of μ and γ is multiplied by these, a number for each layer; the last one
                  serves every layer above. `inference.unrolled` learns them
    schedule      the sizes of every step; empty leaves them to the rules above. See `InferenceSpec.scheduled`
    contrast      with a schedule: the largest |v| of the images that its β_U are meant for. They are multiplied by
                  (contrast / max |v|)² for every image, so that brighter images take the same steps; None: by 1

    >>> ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200).moment_fit.gamma_max
    100.0
    >>> ww.InferenceSpec(lam=-1)
    Traceback (most recent call last):
    whatwhere.errors.SpecError: lam = -1... expected a number above 0...
    """

    lam: float | Literal["auto"] = PAPER_LAM
    sparsity: InitVar[float | None] = None
    noise: float | None = None
    sparsity_share: float | None = None
    alpha: float = 1.0
    shrinkage: Literal["gradient", "exact"] = "gradient"
    steps: int = 50
    tolerance: float = 0.0
    step_size: StepSize = "image"
    search_every: int = 1
    momentum: bool = False
    pooling_step: float = 3.0
    gamma_min: float = MomentFit.gamma_min
    gamma_max: float = MomentFit.gamma_max
    moment_power: int = MomentFit.power
    mu_scale: tuple[float, ...] = (1.0,)
    gamma_scale: tuple[float, ...] = (1.0,)
    schedule: tuple[StepSpec, ...] = ()
    contrast: float | None = None

    def __post_init__(self, sparsity: float | None) -> None:
        if sparsity is not None:
            object.__setattr__(self, "lam", self._inverse(convert(sparsity, float, "sparsity")))
        check_fields(self)
        self._check_lam()
        require(0.5 <= self.alpha <= 1, f"alpha = {self.alpha}", "a number from 0.5 to 1")
        require(
            self.shrinkage == "gradient" or self.alpha in (0.5, 1),
            f"shrinkage = 'exact' with alpha = {self.alpha}",
            "alpha = 0.5 or 1 (the proximal map has a closed form there), or shrinkage = 'gradient'",
        )
        require_count("steps", self.steps, least=0)
        require(self.tolerance >= 0, f"tolerance = {self.tolerance}", "a number of at least 0")
        require(
            self.tolerance == 0 or self.step_size != "batch",
            f"tolerance = {self.tolerance} with step_size = 'batch'",
            "step_size = 'image', 'secant' or 'fixed', since each image is finished at its own step",
        )
        require_count("search_every", self.search_every)
        require(
            not (self.momentum and self.step_size == "secant"),
            "momentum with step_size = 'secant'",
            "one of them, since both use the last change: momentum = False, or step_size = 'image'",
        )
        require(self.pooling_step >= 0, f"pooling_step = {self.pooling_step}", "a number of at least 0")
        for name in ("mu_scale", "gamma_scale"):
            scales = getattr(self, name)
            require(len(scales) > 0 and min(scales) > 0, f"{name} = {scales}", "a number above 0 for each layer")
        self._check_schedule()
        require(
            self.search_every == 1 or self.step_size in ("image", "batch"),
            f"search_every = {self.search_every} with step_size = {self.step_size!r}",
            "search_every = 1, or step_size = 'image' or 'batch', which search for β in every step",
        )
        _ = self.moment_fit  # raises where its values are not possible

    def _check_schedule(self) -> None:
        """A schedule says everything about its steps: no rule may say it again."""
        count, contrast = len(self.schedule), self.contrast
        require(contrast is None or contrast > 0, f"contrast = {contrast}", "a number above 0")
        require(contrast is None or count > 0, f"contrast = {contrast} without a schedule", "a schedule, or None")
        rules = {"steps": count, "step_size": "fixed", "search_every": 1, "momentum": False, "tolerance": 0.0}
        for name, value in rules.items() if count else ():
            given = getattr(self, name)
            require(given == value, f"{name} = {given!r} with a schedule of {count} steps", f"{name} = {value!r}")

    def _inverse(self, sparsity: float) -> float:
        """λ of a sparsity, if it is given alone."""
        require(sparsity > 0, f"sparsity = {sparsity}", "a number above 0")
        require(
            self.lam is PAPER_LAM,  # the same object, not only the same number: lam was not given
            f"lam = {self.lam} with sparsity = {sparsity}",
            "one of them (in dataclasses.replace give lam = 1 / sparsity)",
        )
        return 1 / sparsity

    def _check_lam(self) -> None:
        """Is λ a number, or are there the settings that choose one?"""
        rules = {"noise": self.noise, "sparsity_share": self.sparsity_share}
        given = [f"{name} = {value}" for name, value in rules.items() if value is not None]
        if self.lam != "auto":
            require(self.lam > 0, f"lam = {self.lam}", "a number above 0, or 'auto'")
            require(not given, f"{' and '.join(given)} with lam = {self.lam}", "lam = 'auto'")
            return
        require(self.alpha == 1, f"lam = 'auto' with alpha = {self.alpha}", "alpha = 1, or a number for lam")
        require(len(given) < 2, " and ".join(given), "one of them")
        require(self.noise is None or self.noise > 0, f"noise = {self.noise}", "a number above 0")
        share = self.sparsity_share
        require(share is None or 0 < share < 1, f"sparsity_share = {share}", "a number between 0 and 1")

    @classmethod
    def coding(cls, **overrides: Any) -> InferenceSpec:
        """Settings for codes that are sparse and converged: momentum, and steps until the cost no longer changes.

        For coding, decoding and restoration. For classification the paper's few steps are better and faster.
        """
        return cls(**{**CODING, **overrides})

    @classmethod
    def scheduled(cls, schedule: Sequence[StepSpec], **overrides: Any) -> InferenceSpec:
        """Settings that take the sizes of their steps from a schedule."""
        return cls(**{"schedule": tuple(schedule), "steps": len(schedule), "step_size": "fixed", **overrides})

    @property
    def lam_value(self) -> float:
        """λ as a number. 'auto' has none yet: `infer` and `train` choose it, or `inference.resolve_lam`."""
        if self.lam == "auto":
            raise SpecError("lam = 'auto' was given; expected a number here (inference.resolve_lam chooses it)")
        return self.lam

    def start_scales(self, k: int) -> tuple[float, float]:
        """What the fitted μ and γ of layer k are multiplied by."""
        mu, gamma = (scales[min(k, len(scales)) - 1] for scales in (self.mu_scale, self.gamma_scale))
        return mu, gamma

    @property
    def moment_fit(self) -> MomentFit:
        """How the pooling variables start, and the bounds that they keep."""
        return MomentFit(self.gamma_min, self.gamma_max, self.moment_power)
