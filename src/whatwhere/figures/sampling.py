"""Samples of what a feature answers to (paper, "Model visualization").

A sample is one activation, drawn from all activations of the feature over the images: not one of the largest. It is
projected down alone, with the pooling variables of the image it came from.
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
    """Activations of one feature: the image each came from, its place on the map, its value; [n] each."""

    feature: int
    image: np.ndarray
    row: np.ndarray
    column: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.image)


def draw_samples(p: Tensor, feature: int, count: int = 16, seed: int = 0) -> Samples:
    """Draw `count` of the activations ≠ 0 of a feature, each as likely as the other, none twice; p [N, B, H, W].

    A feature with fewer activations gives all it has. The draw depends on the seed and the feature alone.
    """
    activations = p[:, feature].detach().cpu().numpy()
    where = np.argwhere(activations)
    chance = np.random.default_rng([seed, feature])
    image, row, column = where[chance.permutation(len(where))[:count]].T
    return Samples(feature, image, row, column, activations[image, row, column])


def project_samples(model: DeconvNet, latents: Latents, samples: Samples, height: int, width: int) -> Tensor:
    """Each sample alone, projected to the pixels and cut to its footprint: [n, C, h, w].

    height, width   size of the images that the latents explain
    """
    assert latents.p is not None
    n, layer = len(samples), len(latents.pooling_params)
    p = latents.p.new_zeros(n, *latents.p.shape[1:])
    p[np.arange(n), samples.feature, samples.row, samples.column] = torch.as_tensor(samples.value).to(p)
    own_pooling = latents[torch.as_tensor(samples.image)].pooling_params
    pixels = model.reconstruct(p, model.weights(own_pooling, height, width))
    side = footprint(model, layer, 0)[1] - footprint(model, layer, 0)[0]
    pixels = F.pad(pixels, (side, side, side, side))  # a footprint may reach beyond the image
    top = side + np.array([footprint(model, layer, int(row))[0] for row in samples.row], dtype=int)
    left = side + np.array([footprint(model, layer, int(column))[0] for column in samples.column], dtype=int)
    cut = [one[:, y : y + side, x : x + side] for one, y, x in zip(pixels, top, left, strict=True)]
    return torch.stack(cut) if cut else pixels.new_zeros(0, pixels.shape[1], side, side)


def footprint(model: DeconvNet, layer: int, place: int) -> tuple[int, int]:
    """The pixels, first and one past the last, that the element at `place` of p_layer can reach along an axis."""
    first, beyond = place, place + 1
    for spec in reversed(model.spec.layers[:layer]):
        first, beyond = first * spec.stride, (beyond - 1) * spec.stride + spec.pool_size
        first = first - (spec.filter_size - 1)
    return first, beyond
