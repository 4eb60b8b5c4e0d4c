"""How a layer pools: the kinds of pooling. Import them from `whatwhere.spec`, with all other
settings.

All kinds are one operator, whose weights follow from the pooling variables μ and γ of a region
(`ops.pooling`). They differ in how these are chosen from the signal that comes up to a region, and
in whether inference moves them. A kind is a value that owns both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple

from whatwhere.spec.checks import Checked, NonNegative, Within, require

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MomentFit(Checked):
    """How a region's Gaussian is fitted: μ and 1/γ are the mean and variance of the position,
    weighted by |s|^power.

    Parameters
    ----------
    gamma_min, gamma_max
        bounds of the precision γ, in 1 / element²
    power
        power of the signal s: 1 or 2

    Examples
    --------
    >>> MomentFit(gamma_max=20.0).power
    2
    """

    gamma_min: NonNegative = 0.01
    gamma_max: NonNegative = 100.0
    power: Annotated[int, Within(1, 2)] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds = {"gamma_min": self.gamma_min, "gamma_max": self.gamma_max}
        require(self.gamma_min <= self.gamma_max, bounds, "gamma_min ≤ gamma_max")


class Fit(NamedTuple):
    """The pooling variables that a signal suggests, [N, axis, b, h, w] each."""

    mu: "Tensor"
    gamma: "Tensor"


@dataclass(frozen=True, kw_only=True)
class Gaussian(Checked):
    """Differentiable pooling (the paper): a Gaussian in every region, inferred for every image.

    >>> ww.LayerSpec(maps=8, pooling=ww.Gaussian()).pooling.moves
    True
    """

    moves: ClassVar[bool] = True
    """Its variables are latents: steps of inference move them, and those that are known stay."""

    kind: Literal["gaussian"] = field(default="gaussian", init=False, repr=False)

    def fit(self, s: "Tensor", axes: Sequence[int], moments: MomentFit) -> Fit:
        """Return the Gaussian with the moments of |s|^power, for the elements s of every region."""
        from whatwhere.formulas import fits  # settings are read without torch

        low = moments.gamma_min
        high = moments.gamma_max
        return Fit(*fits.moments(s, axes, low, high, moments.power))


@dataclass(frozen=True, kw_only=True)
class Max(Checked):
    """Max pooling: a switch in every region, at the largest element of the signal.

    >>> ww.LayerSpec(maps=8, pooling=ww.Max()).pooling.moves
    False
    """

    moves: ClassVar[bool] = False
    """Its variables follow from the image and the filters, so they are fitted again every time."""

    kind: Literal["max"] = field(default="max", init=False, repr=False)

    def fit(self, s: "Tensor", axes: Sequence[int], moments: MomentFit) -> Fit:
        """Return a switch at the largest |s|, for the elements s of every region."""
        from whatwhere.formulas import fits

        return Fit(*fits.switches(s, axes))


@dataclass(frozen=True, kw_only=True)
class Sum(Checked):
    """Sum pooling: the same weight for all elements of a region.

    >>> ww.LayerSpec(maps=8, pool_size=1, pooling=ww.Sum()).pooling
    Sum()
    """

    moves: ClassVar[bool] = False
    """Its variables are constants."""

    kind: Literal["sum"] = field(default="sum", init=False, repr=False)

    def fit(self, s: "Tensor", axes: Sequence[int], moments: MomentFit) -> Fit:
        """Return the same weight everywhere."""
        from whatwhere.formulas import fits

        return Fit(*fits.flat(s, axes))


Pooling = Gaussian | Max | Sum
"""Every kind of pooling."""

PoolingKind = Literal["gaussian", "max", "sum"]
"""Their names, which stand for them in recipe files and as arguments."""

KINDS: Final[dict[str, Pooling]] = {pooling.kind: pooling for pooling in (Gaussian(), Max(), Sum())}


def pooling_of(kind: str) -> Pooling:
    """Return the pooling of this name."""
    names = "one of " + ", ".join(map(repr, KINDS))
    require(kind in KINDS, {"pooling_kind": kind}, names)
    return KINDS[kind]
