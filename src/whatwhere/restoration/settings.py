"""The settings of `denoise` and `inpaint`."""

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, require


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint` with the trained denoiser.

    Parameters
    ----------
    quality
        number of shifted grids to average: 8, 16, 32 or 64. The time is proportional to it
        (docs/howto/restoration.md)
    tile
        side of the tiles that larger images are cut into, in pixels; the result does not depend on
        it
    learn
        let `denoise` adapt a dictionary to each image and use it in place of the trained denoiser;
        for images unlike photographs, such as text and lattices (docs/howto/restoration.md)
    frames
        average this many successive frames of a film or a stack, where they show the same, before
        each is restored; 1: every frame by itself
    blurred
        correlated noise of cameras counts as white noise of this many times its standard deviation:
        1.5 gains 2.3 dB on eight photographs, 2.2 gains 2.8 dB
    rounds
        rounds in which `inpaint` improves the gaps. The time is proportional to it
    baseline
        keep the drift and the hum of a recording in the result; otherwise both are removed

    Examples
    --------
    >>> ww.restoration.RestorationSpec(quality=32).tile
    640
    """

    quality: int = 16
    tile: Count = 640
    learn: bool = False
    frames: Count = 1
    blurred: float = 2.2
    rounds: Count = 24
    baseline: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.quality in (8, 16, 32, 64), f"quality = {self.quality}", "8, 16, 32 or 64")
