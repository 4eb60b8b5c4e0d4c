"""Estimate the level of white noise in pictures from patches without texture (Liu, Tanaka and
Okutomi 2013).

The smallest eigenvalue of the covariance of patches is the variance of the noise, if the patches
have little texture. A patch of pure noise of variance σ² has a sum of squared derivatives that is
below τ σ² with near certainty; patches above it are left out, and with those that remain the
variance is estimated again. If even the flattest patches have much more texture than that noise
explains, the estimate may measure texture, and it shrinks, down to 0. Pictures that were taken
alike share their patches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor

from whatwhere.restoration.planes import PLANE_NOISE, to_opponent


@dataclass(frozen=True, kw_only=True)
class WhiteNoiseSettings:
    """Settings of the estimate of white noise.

    Parameters
    ----------
    side
        side of a patch in pixels
    most_texture
        sum of squared derivatives up to which a patch of unit noise counts as flat: the quantile 1
        - 1e-6 of a gamma distribution
    rounds
        rounds in which flat patches are chosen by the variance of the last one
    most_patches
        larger pictures are sampled
    flattest
        number of patches, at most a tenth of all, that have to be nearly free of texture
    trusted
        their texture and noise together, in variances of the noise, at most
    enough
        least number of patches: drawings on an even ground and pictures below 38 × 38 pixels have
        fewer
    independent
        overlapping patches count as this many times the number of pixels: measured on white noise
        of 48² to 512² pixels
    least_share
        least share of the noise's deviation that the smallest eigenvalue has
    whole
        so many patches with the fewest extreme values count, and all that have as few, because
        noise is weaker where values were cut off
    cut_off
        largest share of extreme values in a patch that counts
    """

    side: int = 7
    most_texture: float = 90.2
    rounds: int = 3
    most_patches: int = 100_000
    flattest: int = 600
    trusted: float = 1.7
    enough: int = 1000
    enough_small: tuple[float, int] = (0.75, 800)
    independent: float = 0.83
    least_share: float = 0.7
    whole: int = 3000
    cut_off: float = 0.3

    @property
    def fewest(self) -> int:
        """The least number of patches whose covariance is estimated."""
        return 2 * self.side**2

    def least_patches(self, every: int) -> int:
        """Return how many patches without cut-off values are enough, of so many."""
        share, least = self.enough_small
        return min(self.enough, max(least, math.ceil(share * every)))

    def smallest_share(self, pixels: int) -> float:
        """Return the standard deviation by the smallest eigenvalue of white noise's patches, as a
        share of the noise's.

        It is 1 - √(p / n) for n independent patches of p pixels (Marchenko and Pastur 1967).
        """
        return max(self.least_share, 1 - self.side / math.sqrt(self.independent * pixels))


_DEFAULT = WhiteNoiseSettings()


def noise_of(images: Sequence[Tensor], settings: WhiteNoiseSettings = _DEFAULT) -> float:
    """Return the noise of images [C, H, W], which is taken to be the same in all channels.

    Texture may be taken for noise, and differences of colour have little texture: so the plane with
    the least noise decides.
    """
    in_colour = len(images[0]) == 3
    ends = [((image <= image.min()) | (image >= image.max())).any(0) for image in images]
    stacks = [to_opponent(image) if in_colour else image for image in images]
    factors = PLANE_NOISE if in_colour else [1.0] * len(images[0])
    planes = zip(zip(*stacks, strict=True), factors, strict=True)
    return min(estimate_sigma(plane, ends, settings) / factor for plane, factor in planes)


def estimate_sigma(
    planes: Sequence[Tensor],
    ends: Sequence[Tensor] | None = None,
    settings: WhiteNoiseSettings = _DEFAULT,
) -> float:
    """Return the standard deviation of white noise in pictures [H, W], in their units; 0 for
    pictures smaller than a patch.

    Parameters
    ----------
    ends
        [H, W] each, where a picture has its lowest or its highest value. Many of them in a patch
        show that values were cut off there, and with them the noise
    """
    side = settings.side
    large = [min(plane.shape) >= side for plane in planes]
    planes = list(compress(planes, large))
    if not planes:
        return 0.0
    pixels = sum(plane.numel() for plane in planes)
    every = max(1, round((pixels / settings.most_patches) ** 0.5))
    patches = torch.cat(
        [_windows(x, side, side, every).flatten(2).flatten(0, 1).double() for x in planes]
    )
    texture = torch.cat([_derivative_energy(x, side, every).flatten().double() for x in planes])
    every_patch = len(texture)
    if ends is not None:
        shares = [
            _windows(extreme.to(patches), side, side, every).mean((2, 3)).flatten()
            for extreme in compress(ends, large)
        ]
        share = torch.cat(shares)
        # patches that lost the least, if these are enough
        least = share.kthvalue(min(settings.whole, len(share))).values
        whole = share <= least.clamp(max=settings.cut_off)
        patches, texture = patches[whole], texture[whole]
        pixels = int(pixels * float(whole.double().mean()))
    if len(texture) < settings.least_patches(every_patch):
        return 0.0
    variance = _smallest_variance(patches)
    for _ in range(settings.rounds):
        chosen = texture <= settings.most_texture * variance
        if int(chosen.sum()) < settings.fewest:
            break
        variance = _smallest_variance(patches[chosen])
    few = min(settings.flattest, len(texture) // 10 + 1)
    # the mean sum of squared derivatives of a patch of unit noise
    flat = float(texture.kthvalue(few).values) / (side * (side - 2))
    sigma = math.sqrt(max(0.0, min(variance, (1 + settings.trusted) * variance - flat)))
    return sigma / settings.smallest_share(pixels)


def _derivative_energy(plane: Tensor, side: int, every: int) -> Tensor:
    """Return the sum of squared central differences inside every patch, along rows and columns."""
    along = ((plane[:, 2:] - plane[:, :-2]) / 2).square()
    across = ((plane[2:] - plane[:-2]) / 2).square()
    return _windows(along, side, side - 2, every).sum((2, 3)) + _windows(
        across, side - 2, side, every
    ).sum((2, 3))


def _windows(plane: Tensor, height: int, width: int, every: int) -> Tensor:
    """Return patches [h, w, height, width] at distances of `every` pixels."""
    return plane.unfold(0, height, every).unfold(1, width, every)


def _smallest_variance(patches: Tensor) -> float:
    centred = patches - patches.mean(0)
    eigenvalues = torch.linalg.eigvalsh(centred.T @ centred / max(len(patches) - 1, 1))
    return max(float(eigenvalues[0]), 0.0)
