"""The settings of restoration, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, CountOrZero, Positive, require


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint`, chosen on validation pictures (docs/explanation/restoration.md).

    threshold     of a feature, in standard deviations σ of the noise; the share of noise in the signal is added to it:
                  1/λ = (threshold + σ/s) σ, with s the root mean square of the signal
    steps         of inference; None: 5 (s/σ)², at least 8 and at most 60. Inference that ends before it has converged
                  restores better than one that has
    scales        sizes at which an image is restored: the low-pass comes from the restored image of half the size,
                  which takes a third of the steps
    shifts        of the trained denoiser's grid that are averaged: 8, 16, 32 or 64; time grows with them, and quality
                  (docs/howto/restoration.md)
    tile          side of the tiles that a larger image is cut into, in pixels
    overlap       of neighbouring tiles

    >>> ww.restoration.RestorationSpec(steps=20).threshold
    1.3
    """

    threshold: Positive = 1.3
    steps: Count | None = None
    scales: Count = 1
    shifts: int = 16
    tile: Count = 640
    overlap: CountOrZero = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shifts in (8, 16, 32, 64), f"shifts = {self.shifts}", "8, 16, 32 or 64")
        require(
            2 * self.overlap <= self.tile,
            f"overlap = {self.overlap} with tile = {self.tile}",
            "an overlap of at most half a tile",
        )


DENOISING, INPAINTING = RestorationSpec(), RestorationSpec(steps=24, scales=3)
"""The settings of `denoise` and `inpaint`."""
