"""Images as planes that are restored one at a time.

Red, green and blue are restored as brightness and two differences of colour. Noise that is the same and independent in
every channel stays independent from plane to plane, with a standard deviation in each that is known. Most of a picture
is in its brightness; the differences are smooth, and little of them is left to be mistaken for noise. Every plane of a
picture from 0 to 1 is from 0 to 1, too, which a trained denoiser expects: brightness up to √3, as an orthonormal
transform has it, loses 1 dB and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Progress = Callable[[int], None]
OPPONENT = torch.tensor(
    [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, -1 / 2], [1 / 4, -1 / 2, 1 / 4]], dtype=torch.float64, device="cpu"
)  # brightness, red against blue, green against both
OFFSET = torch.tensor([0, 0.5, 0.5], dtype=torch.float64, device="cpu")
PLANE_NOISE: list[float] = OPPONENT.norm(dim=1).tolist()  # of noise of 1 in each channel


def to_opponent(images: Tensor) -> Tensor:
    """[N, 3, H, W] in red, green and blue → brightness and two differences of colour."""
    return torch.einsum("oc,nchw->nohw", OPPONENT.to(images), images) + OFFSET.to(images)[:, None, None]


def from_opponent(images: Tensor) -> Tensor:
    """The inverse of `to_opponent`."""
    return torch.einsum("co,nohw->nchw", OPPONENT.inverse().to(images), images - OFFSET.to(images)[:, None, None])


class PlaneRestorer(Protocol):
    """What restores images of one channel."""

    def restore(self, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor: ...
    def count_tiles(self, channels: int, height: int, width: int) -> int: ...


def restore_planes(restorer: PlaneRestorer, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor:
    """Images [N, C, H, W] restored: three channels as brightness and differences of colour.

    Other numbers, and channels that differ in their masks, are restored one by one.
    """
    C = images.shape[1]
    opponent = C == 3 and (mask is None or mask.shape[1] == 1)
    planes = to_opponent(images) if opponent else images
    weights = [None] * C if mask is None else mask.expand_as(images).split(1, 1)
    noises = [factor * noise for factor in PLANE_NOISE] if opponent else [noise] * C
    parts = zip(planes.split(1, 1), noises, weights, strict=True)
    restored = torch.cat([restorer.restore(*part) for part in parts], 1)
    return from_opponent(restored) if opponent else restored
