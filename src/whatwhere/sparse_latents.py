"""Latents of one picture in which only what counts is kept: features that are not 0, and the regions that they use.

The pooling variables of a region whose feature p̂ is 0 have no influence on the reconstruction, so they are left out.
The parts of a large picture, inferred tile by tile, are joined by `SparseLatents.cat`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whatwhere.latents import Background, Latents, PoolingParams


@dataclass(frozen=True)
class SparseMap:
    """Values at some places of a grid [B, H, W].

    grid     the whole grid's B, H and W
    indices  the places, as offsets in the flattened grid, int64 [n], in any order
    values   [n, V]
    """

    grid: tuple[int, int, int]
    indices: Tensor
    values: Tensor

    @classmethod
    def of(
        cls, dense: Tensor, chosen: Tensor, grid: tuple[int, int, int], corner: tuple[int, int] = (0, 0)
    ) -> SparseMap:
        """The chosen places [B, h, w] of values [V, B, h, w] whose first row and column are `corner` in the grid."""
        b, y, x = chosen.nonzero(as_tuple=True)
        _, height, width = grid
        return cls(grid, (b * height + y + corner[0]) * width + x + corner[1], dense[:, b, y, x].T)

    def dense(self) -> Tensor:
        """[V, B, H, W], 0 where nothing is stored."""
        flat = self.values.new_zeros(self.values.shape[1], math.prod(self.grid))
        flat[:, self.indices] = self.values.T
        return flat.view(-1, *self.grid)

    @staticmethod
    def cat(parts: Sequence[SparseMap]) -> SparseMap:
        indices, values = torch.cat([part.indices for part in parts]), torch.cat([part.values for part in parts])
        return SparseMap(parts[0].grid, indices, values)


@dataclass(frozen=True)
class SparseLatents:
    """What and where of one picture.

    features    p of the top layer where it is not 0, [n, 1]
    where       of each layer, μ and then γ of the regions in use, [n, 2 A]
    background  what the input stage took off, [1, C, H, W]
    """

    features: SparseMap
    where: tuple[SparseMap, ...]
    background: Background = field(default_factory=Background)

    @property
    def nonzeros(self) -> int:
        return len(self.features.indices)

    def dense(self) -> Latents:
        """The same latents as `infer` returns them, for one image; μ and γ of regions that are not in use are 0."""
        thetas = []
        for layer in self.where:
            mu, gamma = layer.dense().chunk(2)
            thetas.append(PoolingParams(mu[None], gamma[None]))
        return Latents(self.features.dense(), tuple(thetas), self.background)

    @staticmethod
    def cat(parts: Sequence[SparseLatents]) -> SparseLatents:
        """Join the latents of the tiles of one picture; the background is not joined."""
        where = tuple(SparseMap.cat(layers) for layers in zip(*(part.where for part in parts), strict=True))
        return SparseLatents(SparseMap.cat([part.features for part in parts]), where)
