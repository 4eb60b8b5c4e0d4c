"""Which signals a model restores: images of its own channels as they are, others as planes one at a time.

Red, green and blue are restored as brightness and two differences of colour. The transform is orthonormal, so that
noise which is the same and independent in every channel stays so. Most of a picture is in its brightness; the
differences are smooth, and little of them is left to be mistaken for noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Progress = Callable[[int], None]
OPPONENT = torch.tensor(
    [[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64, device="cpu"
)  # brightness, red against blue, green against both
OPPONENT = OPPONENT / OPPONENT.norm(dim=1, keepdim=True)


def to_opponent(images: Tensor) -> Tensor:
    """[N, 3, H, W] in red, green and blue → brightness and two differences of colour."""
    return torch.einsum("oc,nchw->nohw", OPPONENT.to(images), images)


def from_opponent(images: Tensor) -> Tensor:
    """The inverse of `to_opponent`, which is its adjoint."""
    return torch.einsum("oc,nohw->nchw", OPPONENT.to(images), images)


class PlaneRestorer(Protocol):
    """What restores images of its number of channels."""

    @property
    def channels(self) -> int: ...
    def restore(self, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor: ...
    def count_tiles(self, channels: int, height: int, width: int) -> int: ...


def restore_planes(restorer: PlaneRestorer, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor:
    """Images [N, C, H, W] restored by a model of C channels or of one.

    A model of one channel restores brightness and differences of colour, or channel by channel where there are other
    than three or a mask differs from channel to channel.
    """
    N, C, H, W = images.shape
    if restorer.channels == C:
        return restorer.restore(images, noise, mask)
    opponent = C == 3 and (mask is None or mask.shape[1] == 1)
    planes = to_opponent(images) if opponent else images
    weights = None if mask is None else mask.expand(N, C, H, W).reshape(N * C, 1, H, W)
    restored = restorer.restore(planes.reshape(N * C, 1, H, W), noise, weights).view(N, C, H, W)
    return from_opponent(restored) if opponent else restored
