"""From patches of a code back to pixels: where an image is unlike normal ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.descriptors import strides
from whatwhere.model import SizedModel
from whatwhere.spec import DescriptorSpec

FLOOR = 1e-6  # of the mean: what is smaller is rounding


def spread_patches(values: Tensor, spec: DescriptorSpec, layer: int, extent: tuple[int, int]) -> Tensor:
    """The mean value of the patches that cover each element of a map:  [N, rows, columns] → [N, height, width]."""
    patch, stride = (sizes[min(layer, len(sizes)) - 1] for sizes in (spec.patch, spec.stride))
    total, count = values.new_zeros(len(values), *extent), values.new_zeros(extent)
    sides = tuple(min(patch, size) for size in extent)
    tops, lefts = (strides(size - side, stride).tolist() for size, side in zip(extent, sides, strict=True))
    for i, top in enumerate(tops):
        for j, left in enumerate(lefts):
            inside = (slice(top, top + sides[0]), slice(left, left + sides[1]))
            total[(slice(None), *inside)] += values[:, i, j, None, None]
            count[inside] += 1
    return total / count.clamp_min(1)


def to_pixels(values: Tensor, model: SizedModel) -> Tensor:
    """A map of the top layer, [N, h, w], as a map of the pixels below its elements, [N, height, width]."""
    scale, edge = 1, 0.0  # pixels an element covers, and where the first one begins
    for layer in model.spec.layers:
        edge -= scale * (layer.filter_size - 1) / 2
        scale *= layer.stride
    wide = F.interpolate(values[:, None], scale_factor=scale, mode="bilinear", align_corners=False)[:, 0]
    top = left = round(-edge)
    return wide[:, top : top + model.height, left : left + model.width]


def smooth(values: Tensor, size: int) -> Tensor:
    """The mean over a square of pixels around each, [N, height, width]; at the borders, of those that exist."""
    if size == 1:
        return values
    return F.avg_pool2d(values[:, None], size, stride=1, padding=size // 2, count_include_pad=False)[:, 0]


@dataclass(frozen=True)
class UsualResidual:
    """The residuals that normal images have, and how unusual others are, too large or too small ones.

    A blurred place of a texture is explained better than a normal one, so it leaves too small a residual. Large ones
    count by their difference from the mean, small ones by their logarithm, each in deviations of normal pixels.
    """

    mean: float
    deviation: float
    log_mean: float
    log_deviation: float
    floor: float

    @classmethod
    def of(cls, normal: Tensor) -> UsualResidual:
        """From the residuals of normal images, which are ≥ 0."""
        values = normal.double()
        floor = max(FLOOR * float(values.mean()), float(torch.finfo(torch.float32).tiny))  # 0 has no logarithm
        logs = values.clamp_min(floor).log()
        below = (logs.mean() - logs).clamp_min(0).square().mean().sqrt()
        deviations = [float(d) if d > 0 else 1.0 for d in (values.std(correction=0), below)]
        return cls(float(values.mean()), deviations[0], float(logs.mean()), deviations[1], floor)

    def unusual(self, values: Tensor) -> Tensor:
        """How far from usual residuals are, either way."""
        too_large = (values - self.mean) / self.deviation
        too_small = (self.log_mean - values.clamp_min(self.floor).log()) / self.log_deviation
        return torch.maximum(too_large, too_small)
