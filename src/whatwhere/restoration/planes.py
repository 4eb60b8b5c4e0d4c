"""Which signals a model restores: images of its own channels as they are, others as planes one at a time."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from whatwhere.restoration.colour import from_opponent, to_opponent


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
