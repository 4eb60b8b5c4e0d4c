"""The level of white noise in a picture, estimated from patches without texture (Liu, Tanaka and
Okutomi 2013).

The smallest eigenvalue of the covariance of patches is the variance of the noise, if the patches
have little texture. A patch of pure noise of variance σ² has a sum of squared derivatives that is
below τ σ² with near certainty; patches above it are left out, and with those that remain the
variance is estimated again. If even the flattest patches have much more texture than that noise
explains, the estimate may measure texture, and it shrinks, down to 0.
"""

import math

import torch
from torch import Tensor

from whatwhere.restoration.planes import PLANE_NOISE, to_opponent

SIDE = 7  # pixels of a patch
# the quantile 1 - 1e-6 of the sum of squared derivatives of a patch of unit noise (a gamma
# distribution)
TAU = 90.2
ROUNDS = 3
MOST_PATCHES = 100_000
FEWEST_PATCHES = 2 * SIDE * SIDE
UNIT_TEXTURE = SIDE * (SIDE - 2)  # the mean sum of squared derivatives of a patch of unit noise
FLATTEST = 600  # patches, or a tenth of all, that have to be nearly free of texture:
TRUSTED = 1.7  # times the variance of the noise is what they may have, texture and noise together
INDEPENDENT = 0.83  # measured on white noise of 48² to 512² pixels
LEAST_SHARE = 0.7
ENOUGH = 1000  # patches; of fewer, less is trusted
CUT_OFF = 0.3  # share of a patch with extreme values, from which on it does not count


def noise_of(image: Tensor) -> float:
    """The noise of an image [C, H, W], which is taken to be the same in all channels.

    Texture may be taken for noise, and differences of colour have little texture: so the plane with
    the least noise decides.
    """
    planes, factors = (
        (to_opponent(image), PLANE_NOISE) if len(image) == 3 else (image, [1.0] * len(image))
    )
    ends = ((image <= image.min()) | (image >= image.max())).any(0)
    return min(
        estimate_sigma(plane, ends) / factor for plane, factor in zip(planes, factors, strict=True)
    )


def estimate_sigma(plane: Tensor, ends: Tensor | None = None) -> float:
    """The standard deviation of white noise in a picture [H, W], in its units; 0 for one smaller
    than a patch.

    ends  [H, W], where the picture has its lowest or its highest value. Many of them in a patch
          show that values were cut off there, and with them the noise
    """
    if min(plane.shape) < SIDE:
        return 0.0
    every = max(1, round((plane.numel() / MOST_PATCHES) ** 0.5))
    patches = windows(plane, SIDE, SIDE, every).flatten(2).flatten(0, 1).double()
    texture = derivative_energy(plane, every).flatten().double()
    if ends is not None:
        whole = windows(ends.to(plane), SIDE, SIDE, every).mean((2, 3)).flatten() < CUT_OFF
        patches, texture = patches[whole], texture[whole]
        if len(texture) < FEWEST_PATCHES:
            return 0.0
    variance = smallest_variance(patches)
    for _ in range(ROUNDS):
        chosen = texture <= TAU * variance
        if int(chosen.sum()) < FEWEST_PATCHES:
            break
        variance = smallest_variance(patches[chosen])
    flat = float(texture.kthvalue(min(FLATTEST, len(texture) // 10 + 1)).values) / UNIT_TEXTURE
    trusted = TRUSTED * min(1.0, len(texture) / ENOUGH)
    sigma = math.sqrt(max(0.0, min(variance, (1 + trusted) * variance - flat)))
    return sigma / smallest_share(plane.numel())


def smallest_share(pixels: int) -> float:
    """The standard deviation by the smallest eigenvalue of white noise's patches, as a share of the
    noise's.

    It is 1 - √(p / n) for n independent patches of p pixels (Marchenko and Pastur 1967); patches
    that overlap count as INDEPENDENT times the number of pixels.
    """
    return max(LEAST_SHARE, 1 - SIDE / math.sqrt(INDEPENDENT * pixels))


def derivative_energy(plane: Tensor, every: int) -> Tensor:
    """The sum of squared central differences inside every patch, along rows and along columns."""
    along = ((plane[:, 2:] - plane[:, :-2]) / 2).square()
    across = ((plane[2:] - plane[:-2]) / 2).square()
    return windows(along, SIDE, SIDE - 2, every).sum((2, 3)) + windows(
        across, SIDE - 2, SIDE, every
    ).sum((2, 3))


def windows(plane: Tensor, height: int, width: int, every: int) -> Tensor:
    """Patches [h, w, height, width] at distances of `every` pixels."""
    return plane.unfold(0, height, every).unfold(1, width, every)


def smallest_variance(patches: Tensor) -> float:
    centred = patches - patches.mean(0)
    eigenvalues = torch.linalg.eigvalsh(centred.T @ centred / max(len(patches) - 1, 1))
    return max(float(eigenvalues[0]), 0.0)
