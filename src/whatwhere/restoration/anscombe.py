"""Noise whose variance grows with the brightness: y = gain · Poisson(x / gain) + σ · Gaussian.

Anscombe's transform makes its standard deviation 1 wherever it is bright enough, so that what removes white noise is
of use; the inverse has no bias (Mäkitalo and Foi 2013, in their closed form), whereas the algebraic one darkens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PoissonGaussian:
    """A photon is `gain` units of the image; σ is the standard deviation of what is added, in its units."""

    gain: float = 1.0
    sigma: float = 0.0

    def stabilise(self, images: Tensor) -> Tensor:
        """Images whose noise has a standard deviation of 1."""
        return 2 * (images / self.gain + 3 / 8 + self._variance).clamp(min=0).sqrt()

    def restore_units(self, stabilised: Tensor) -> Tensor:
        """The expected images, given the expected values of what `stabilise` returns."""
        lowest = 2 * math.sqrt(3 / 8 + self._variance)
        d = stabilised.clamp(min=lowest)
        root = math.sqrt(3 / 2)
        counts = d**2 / 4 + root / (4 * d) - 11 / (8 * d**2) + 5 * root / (8 * d**3) - 1 / 8 - self._variance
        return self.gain * counts.clamp(min=0)

    @property
    def _variance(self) -> float:
        """Of the Gaussian part, in counts."""
        return (self.sigma / self.gain) ** 2
