"""Restore a large picture in parts that overlap, with little memory beside the picture.

What is measured on a whole picture, such as how much of what was removed looks like noise, is
measured on each part; neighbours are blended along a ramp, so no border shows.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from whatwhere.restoration.planes import Progress

RestorePart = Callable[[Tensor, Progress | None], Tensor]
"""A function of a part [N, C, h, w] that reports its pixels and returns the restored part."""


@dataclass(frozen=True, kw_only=True)
class PartSettings:
    """Settings of the parts of a picture.

    Parameters
    ----------
    side
        largest side of a part in pixels: larger pictures are cut. A part has two million pixels at
        most, which say as much about noise as a whole picture does
    overlap
        pixels along which neighbours are blended, about what the result of a pixel depends on
    """

    side: int = 1536
    overlap: int = 96


_DEFAULT = PartSettings()


def restore_in_parts(
    restore: RestorePart,
    image: Tensor,
    progress: Progress | None = None,
    settings: PartSettings = _DEFAULT,
) -> Tensor:
    """Return images [N, C, H, W], restored in parts; small ones are restored as they are."""
    if max(image.shape[-2:]) <= settings.side:
        return restore(image, progress)
    result = torch.zeros_like(image)
    down, across = (list(_ramps(n, settings)) for n in image.shape[-2:])
    for rows, down_weight in down:
        for columns, across_weight in across:
            weight = (down_weight[:, None] * across_weight).to(image)
            own = _report_share(progress, float(weight.mean()))
            result[..., rows, columns] += weight * restore(image[..., rows, columns], own)
    return result


def _ramps(length: int, settings: PartSettings) -> Iterator[tuple[slice, Tensor]]:
    """Yield where each part of an axis is, and its weights: at every place they have the sum 1."""
    count = max(1, math.ceil((length - settings.overlap) / (settings.side - settings.overlap)))
    side = math.ceil((length + (count - 1) * settings.overlap) / count)
    starts = [round(i * (length - side) / max(count - 1, 1)) for i in range(count)]
    shared = [0] + [before + side - after for before, after in pairwise(starts)] + [0]
    for start, left, right in zip(starts, shared[:-1], shared[1:], strict=True):
        weight = torch.ones(side)
        weight[:left] = (torch.arange(left) + 0.5) / max(left, 1)
        weight[side - right :] = 1 - (torch.arange(right) + 0.5) / max(right, 1)
        yield slice(start, start + side), weight


def _report_share(progress: Progress | None, share: float) -> Progress | None:
    """Return the progress of a part, of which this share counts: pixels in two parts count once."""
    if progress is None:
        return None
    done = 0
    reported = 0

    def report(pixels: int) -> None:
        nonlocal done, reported
        done += pixels
        progress(round(share * done) - reported)
        reported = round(share * done)

    return report
