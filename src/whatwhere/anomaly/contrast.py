"""Pictures without contrast, such as those of a dead or a covered camera.

None of their spots and textures stands out, so the evidence may rate them as the most normal
pictures of all. Whatever the features, a picture with far less contrast than every normal one is an
anomaly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ContrastSpec:
    """Settings of contrast.

    Parameters
    ----------
    dull
        times less contrast than the dullest normal picture
    none
        contrast that counts as none: less than half a level of 8 bits
    dim
        share of the brightness of the darkest normal picture; darker ones count as this dark
    score
        score for each factor e of missing contrast
    """

    dull: float = 4.0
    none: float = 1e-4
    dim: float = 0.1
    score: float = 10.0


_CONTRAST = ContrastSpec()


@dataclass(frozen=True)
class Contrast:
    """The least contrast and the least brightness of normal pictures."""

    least: float
    darkest: float

    @classmethod
    def of(cls, pictures: Sequence[Tensor]) -> "Contrast":
        """Return the contrast and the brightness of normal pictures, each [C, H, W]."""
        darkest = min(brightness(picture) for picture in pictures)
        return cls(min(_log_contrast(picture, darkest) for picture in pictures), darkest)

    def dead(self, picture: Tensor) -> float:
        """Return how far above the threshold the score of a picture without contrast is; otherwise
        0."""
        missing = self.least - _log_contrast(picture, self.darkest)
        return _CONTRAST.score * missing if missing > math.log(_CONTRAST.dull) else 0.0


def brightness(picture: Tensor) -> float:
    """Return the mean size of the known pixels."""
    return float(picture[:, picture.isfinite().all(0)].abs().mean())


def _log_contrast(picture: Tensor, darkest: float) -> float:
    """Return the logarithm of the mean difference of known pixels from those around them, relative
    to the brightness."""
    known = picture.isfinite().all(0)
    values = picture if known.all() else picture.where(known, 0.0)
    around = F.avg_pool2d(values[None], 3, 1, 1, count_include_pad=False)[0]
    if not known.all():
        share = F.avg_pool2d(known[None].float(), 3, 1, 1, count_include_pad=False)[0]
        around = (around / share.clamp_min(_CONTRAST.none))[:, known]
        values = picture[:, known]
    difference = around.sub_(values).abs_().mean()
    return math.log(
        float(difference) / max(brightness(picture), _CONTRAST.dim * darkest, _CONTRAST.none)
        + _CONTRAST.none
    )
