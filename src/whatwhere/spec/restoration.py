"""The settings of restoration, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, require


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint` with the trained denoiser.

    shifts  of its grid that are averaged: 8, 16, 32 or 64; time grows with them, and quality
            (docs/howto/restoration.md)
    tile    side of the tiles that a larger image is cut into, in pixels; the result does not depend on it

    >>> ww.restoration.RestorationSpec(shifts=32).tile
    640
    """

    shifts: int = 16
    tile: Count = 640

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shifts in (8, 16, 32, 64), f"shifts = {self.shifts}", "8, 16, 32 or 64")
