"""Samples of a feature, projected to the pixels (paper, "Model visualization").

A sample is one activation, drawn uniformly from all activations of the feature over the images, not from the largest.
It is projected down on its own, with the pooling variables of its image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class Samples:
    """Activations of one feature: image, row and column on the map, and value; [n] each."""

    feature: int
    image: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.image)


def draw_samples(p: Tensor, feature: int, count: int = 16, seed: int = 0) -> Samples:
    """Draw `count` non-zero activations of a feature uniformly, without replacement; p [N, B, H, W].

    If the feature has fewer activations, all are returned. The seed and the feature determine the draw.
    """
    activations = p[:, feature].detach().cpu().numpy()
    positions = np.argwhere(activations)
    generator = np.random.default_rng([seed, feature])
    image, row, column = positions[generator.permutation(len(positions))[:count]].T
    return Samples(feature, image, row, column, activations[image, row, column])


def project_samples(model: DeconvNet, latents: Latents, samples: Samples, height: int, width: int) -> Tensor:
    """Each sample on its own, projected to the pixels and cropped to its footprint: [n, C, h, w].

    height, width   size of the images
    """
    assert latents.p is not None
    n, layer = len(samples), len(latents.pooling_params)
    p = latents.p.new_zeros(n, *latents.p.shape[1:])
    p[np.arange(n), samples.feature, samples.row, samples.column] = torch.as_tensor(samples.value).to(p)
    pooling_params = latents[torch.as_tensor(samples.image)].pooling_params
    pixels = model.at(height, width).decode(Latents(p, pooling_params))
    side = footprint(model, layer, 0)[1] - footprint(model, layer, 0)[0]
    pixels = F.pad(pixels, (side, side, side, side))  # a footprint may extend beyond the image
    top = side + np.array([footprint(model, layer, int(row))[0] for row in samples.row], dtype=int)
    left = side + np.array([footprint(model, layer, int(column))[0] for column in samples.column], dtype=int)
    crops = [image[:, y : y + side, x : x + side] for image, y, x in zip(pixels, top, left, strict=True)]
    return torch.stack(crops) if crops else pixels.new_zeros(0, pixels.shape[1], side, side)


def footprint(model: DeconvNet, layer: int, position: int) -> tuple[int, int]:
    """The range of pixels (first, last + 1) that one element of p_layer can affect along an axis."""
    first, end = position, position + 1
    for spec in reversed(model.spec.layers[:layer]):
        first, end = first * spec.stride, (end - 1) * spec.stride + spec.pool_size
        first = first - (spec.filter_size - 1)
    return first, end
