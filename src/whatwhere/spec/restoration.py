"""The settings of restoration, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, require


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint` with the trained denoiser.

    quality  8, 16, 32 or 64: how many shifts of its grid are averaged; time is proportional to it
             (docs/howto/restoration.md)
    tile     side of the tiles that a larger image is cut into, in pixels; the result does not depend on it

    >>> ww.restoration.RestorationSpec(quality=32).tile
    640
    """

    quality: int = 16
    tile: Count = 640

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.quality in (8, 16, 32, 64), f"quality = {self.quality}", "8, 16, 32 or 64")
