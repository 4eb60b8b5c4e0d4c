"""How a region's Gaussian is fitted to its moments."""

from dataclasses import dataclass

from whatwhere.errors import SpecError


@dataclass(frozen=True)
class Fit:
    """μ and 1/γ are the mean and the variance of the place, weighted by |s|^power of the signal s.

    gamma_min, gamma_max  bounds of the precision γ, in 1 / element²
    power                 1 or 2
    """

    gamma_min: float = 0.01
    gamma_max: float = 100.0
    power: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.gamma_min <= self.gamma_max < float("inf"):
            raise SpecError(f"gamma_min = {self.gamma_min}, gamma_max = {self.gamma_max}; 0 ≤ minimum ≤ maximum < ∞")
        if self.power not in (1, 2):
            raise SpecError(f"power = {self.power}: moments are fitted to |s|^power with power 1 or 2")


MOMENTS = Fit()
