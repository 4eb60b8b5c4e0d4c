"""The level of white noise in a picture, estimated from patches without texture (Liu, Tanaka and Okutomi 2013).

The smallest eigenvalue of the covariance of patches is the variance of the noise, if the patches have little texture.
A patch of pure noise of variance σ² has a sum of squared derivatives that is below τ σ² with near certainty; patches
above it are left out, and with those that remain the variance is estimated again. Where even the flattest patches have
much more texture than that noise explains, it may be texture that was estimated: the estimate shrinks, down to 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SIDE = 7  # pixels of a patch
TAU = 90.2  # the quantile 1 - 1e-6 of the sum of squared derivatives of a patch of unit noise (a gamma distribution)
ROUNDS = 3
MOST_PATCHES = 100_000
FEWEST_PATCHES = 2 * SIDE * SIDE
UNIT_TEXTURE = SIDE * (SIDE - 2)  # the mean sum of squared derivatives of a patch of unit noise
FLATTEST = 600  # patches, or a tenth of all, that have to be nearly free of texture:
TRUSTED = 1.7  # times the variance of the noise is what they may have, texture and noise together
ENOUGH = 1000  # patches; of fewer, less is trusted


def estimate_noise(plane: Tensor) -> float:
    """The standard deviation of white noise in a picture [H, W], in its units; 0 for one smaller than a patch."""
    if min(plane.shape) < SIDE:
        return 0.0
    every = max(1, round((plane.numel() / MOST_PATCHES) ** 0.5))
    patches = windows(plane, SIDE, SIDE, every).flatten(2).flatten(0, 1).double()
    texture = derivative_energy(plane, every).flatten().double()
    variance = smallest_variance(patches)
    for _ in range(ROUNDS):
        chosen = texture <= TAU * variance
        if int(chosen.sum()) < FEWEST_PATCHES:
            break
        variance = smallest_variance(patches[chosen])
    flat = float(texture.kthvalue(min(FLATTEST, len(texture) // 10 + 1)).values) / UNIT_TEXTURE
    trusted = TRUSTED * min(1.0, len(texture) / ENOUGH)
    return math.sqrt(max(0.0, min(variance, (1 + trusted) * variance - flat)))


def derivative_energy(plane: Tensor, every: int) -> Tensor:
    """The sum of squared central differences inside every patch, along rows and along columns."""
    along = ((plane[:, 2:] - plane[:, :-2]) / 2).square()
    across = ((plane[2:] - plane[:-2]) / 2).square()
    return windows(along, SIDE, SIDE - 2, every).sum((2, 3)) + windows(across, SIDE - 2, SIDE, every).sum((2, 3))


def windows(plane: Tensor, height: int, width: int, every: int) -> Tensor:
    """Patches [h, w, height, width] at distances of `every` pixels."""
    return plane.unfold(0, height, every).unfold(1, width, every)


def smallest_variance(patches: Tensor) -> float:
    """The smallest eigenvalue of the covariance of patches [n, pixels]."""
    centred = patches - patches.mean(0)
    eigenvalues = torch.linalg.eigvalsh(centred.T @ centred / max(len(patches) - 1, 1))
    return max(float(eigenvalues[0]), 0.0)
