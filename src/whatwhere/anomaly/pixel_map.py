"""From patches of a code back to pixels: where an image is unlike normal ones."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.descriptors import strides
from whatwhere.model import SizedModel
from whatwhere.spec import DescriptorSpec


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
