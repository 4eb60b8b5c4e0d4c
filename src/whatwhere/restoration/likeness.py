"""How far what was removed from a picture looks like its noise.

An estimate of noise may be wrong: fine texture passes for noise. But noise has no direction, white
noise has no neighbours that are alike, and no more of it can be removed than there is. Where what
was removed differs, it was texture, and a part of it is given back. A result is not worse than the
picture unless more than twice the best share was removed.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LikenessSettings:
    """Limits between noise and texture, for what was removed. Between two values the share falls.

    Parameters
    ----------
    directed
        difference of the correlations of neighbours along rows and along columns: at most 0.06 for
        24 micrographs, and 0.05 for 98 % of pictures with the noise of photons. For correlated
        noise the values are three times as large
    alike
        mean correlation of neighbours of white noise: at most 0.04 for the micrographs, 0.03 for 98
        % of the others
    textured
        share of what was removed that is worth removing from the second values on
    """

    directed: tuple[float, float] = (0.06, 0.16)
    alike: tuple[float, float] = (0.1, 0.25)
    textured: float = 0.4


_DEFAULT = LikenessSettings()


def share_like_noise(
    removed: Tensor, correlated: bool, settings: LikenessSettings = _DEFAULT
) -> float:
    """Return the share of what was removed, [C, H, W], that is worth removing.

    Parameters
    ----------
    removed
        has the standard deviation 1 if it is all of the noise
    correlated
        whether neighbours share the noise
    """
    energy = float(removed.square().mean())
    if energy == 0 or min(removed.shape[1:]) < 2:
        return 1.0
    rows = float((removed[:, 1:] * removed[:, :-1]).mean()) / energy
    columns = float((removed[..., 1:] * removed[..., :-1]).mean()) / energy
    difference = abs(rows - columns) / (3 if correlated else 1)
    doubt = ramp(difference, settings.directed)
    if not correlated:
        doubt = max(doubt, ramp((rows + columns) / 2, settings.alike))
    return min(1.0, 1 / energy) * (1 - (1 - settings.textured) * doubt)


def ramp(value: float, ends: tuple[float, float]) -> float:
    """Return 0 up to the first of two values, 1 from the second on, and a line between them."""
    return min(max((value - ends[0]) / (ends[1] - ends[0]), 0.0), 1.0)
