"""The values that inference moves: features (what) and pooling variables (where), dense or
sparse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import plural
from whatwhere.html import notebook_strip

TensorMap = Callable[[Tensor], Any]  # a tensor, or what an estimator returns in its place


def moved(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
    """Return a tensor on another device, in another dtype: `Tensor.to`, whose many forms no other
    signature can repeat."""
    to: Callable[..., Tensor] = tensor.to
    return to(*args, **kwargs)


@dataclass(frozen=True, repr=False)
class PoolingParams:
    """Where: the Gaussian of every pooling region of one layer.

    Parameters
    ----------
    mu, gamma
        [N, A, B, H, W], shaped like the pooled map with one axis of the region at a time on A:
        (rows, columns), or (maps, rows, columns) where neighbouring maps are pooled together. The
        centre μ is in elements from the centre of the region, the precision γ in 1 / element²

    Examples
    --------
    >>> where = ww.PoolingParams(torch.zeros(1, 2, 16, 8, 8), torch.ones(1, 2, 16, 8, 8))
    >>> where.map(lambda theta: theta[:, :, :4]).mu.shape
    torch.Size([1, 2, 4, 8, 8])
    >>> mu, gamma = where.detach().to(torch.float64)
    """

    mu: Tensor
    gamma: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.mu, self.gamma))

    def __getitem__(self, index: int) -> Tensor:
        """Return μ for 0 and γ for 1, so that programs recorded by torch.fx can unpack it."""
        return (self.mu, self.gamma)[index]

    def map(self, function: TensorMap) -> PoolingParams:
        """Apply `function` applied to μ and to γ."""
        return PoolingParams(function(self.mu), function(self.gamma))

    def to(self, *args: object, **kwargs: object) -> PoolingParams:
        """Return the same on another device, in another dtype."""
        return self.map(lambda theta: moved(theta, *args, **kwargs))

    def detach(self) -> PoolingParams:
        """Return the same values, through which no gradient flows."""
        return self.map(Tensor.detach)

    def __repr__(self) -> str:
        N, axes, *grid = self.mu.shape
        return (
            f"PoolingParams({plural(N, 'image')}, regions {_sizes(grid)}, μ and γ on {axes} axes)"
        )

    def _repr_html_(self) -> str:
        """Show how far the centres of the first images are from those of their regions, on average
        over the maps, under the line of `repr`."""
        return notebook_strip(repr(self), _as_pictures(self.mu[:12].abs().mean(1)))


@dataclass(frozen=True)
class Background:
    """What the input stage of a model removed from a set of images, and adds back to their
    reconstruction.

    Parameters
    ----------
    low
        the low-pass, [N, C, H, W]; None if none was subtracted
    scale
        the local contrast that the rest was divided by, [N, 1, H, W]; None if it was not divided
    """

    low: Tensor | None = None
    scale: Tensor | None = None

    def map(self, function: TensorMap) -> Background:
        """Apply `function` applied to every tensor that is not None."""
        return Background(
            None if self.low is None else function(self.low),
            None if self.scale is None else function(self.scale),
        )

    def tensors(self) -> list[Tensor]:
        return [part for part in (self.low, self.scale) if part is not None]


@dataclass(frozen=True, repr=False)
class Latents:
    """What and where of a set of images.

    Parameters
    ----------
    p
        features of the top layer inferred so far, [N, B, H, W]; None before inference
    pooling_params
        pooling variables of layer 1, 2, …; layers beyond its end have not been fitted yet
    background
        what the model's input stage removed; engines neither see nor change it

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> latents = ww.infer(model, ww.data.load("digits")[:3], ww.InferenceSpec(steps=2)).latents
    >>> latents.p.shape, [theta.mu.shape[2:] for theta in latents.pooling_params]
    (torch.Size([3, 48, 10, 10]), [torch.Size([16, 16, 16]), torch.Size([48, 10, 10])])
    >>> latents[:1].p.shape                      # of the first image
    torch.Size([1, 48, 10, 10])
    """

    p: Tensor | None = None
    pooling_params: tuple[PoolingParams, ...] = ()
    background: Background = field(default_factory=Background)

    @property
    def features(self) -> Tensor:
        """The features p of the top layer, which inference has always set."""
        assert self.p is not None, "latents without features"
        return self.p

    def map(self, function: TensorMap) -> Latents:
        """Return the same latents with `function` applied to every tensor."""
        return Latents(
            None if self.p is None else function(self.p),
            tuple(theta.map(function) for theta in self.pooling_params),
            self.background.map(function),
        )

    def __repr__(self) -> str:
        if self.p is None:
            what = "no features yet"
        else:
            N, *grid = self.p.shape
            what = f"{plural(N, 'image')}, features {_sizes(grid)}"
        where = [
            f"layer {k}: {_sizes(t.mu.shape[2:])}" for k, t in enumerate(self.pooling_params, 1)
        ]
        return f"Latents({what}; where: {', '.join(where) or 'not fitted yet'})"

    def _repr_html_(self) -> str:
        """Show where the features of the first images are, summed over the maps, under the line of
        `repr`."""
        shown = [] if self.p is None else _as_pictures(self.p[:12].abs())
        return notebook_strip(repr(self), shown)

    def __getitem__(self, images: slice | Tensor) -> Latents:
        return self.map(lambda tensor: tensor[images])

    def to(self, *args: object, **kwargs: object) -> Latents:
        """Return the same on another device, in another dtype."""
        return self.map(lambda tensor: moved(tensor, *args, **kwargs))

    def put(self, images: Tensor, latents: Latents) -> Latents:
        """Return the same latents, replaced for some images, which a mask [N] chooses."""
        new = iter(latents.tensors())
        return self.map(lambda old: old.index_put((images,), next(new)))

    def tensors(self) -> list[Tensor]:
        """Return every tensor, in a fixed order: p, then μ and γ of layer 1, 2, …, then the
        background."""
        tensors = [] if self.p is None else [self.p]
        for theta in self.pooling_params:
            tensors += [theta.mu, theta.gamma]
        return tensors + self.background.tensors()

    @staticmethod
    def cat(parts: Sequence[Latents]) -> Latents:
        """Join the latents of several batches of images."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.tensors() for part in parts), strict=True)
        joined = iter([torch.cat(column) for column in columns])
        return parts[0].map(lambda _: next(joined))


@dataclass(frozen=True)
class SparseMap:
    """Values at some places of a grid [B, H, W].

    Parameters
    ----------
    grid
        the whole grid's B, H and W
    indices
        the places, as offsets in the flattened grid, int64 [n], in any order
    values
        [n, V]
    """

    grid: tuple[int, int, int]
    indices: Tensor
    values: Tensor

    @classmethod
    def of(
        cls,
        dense: Tensor,
        chosen: Tensor,
        grid: tuple[int, int, int],
        corner: tuple[int, int] = (0, 0),
    ) -> SparseMap:
        """Return the chosen places [B, h, w] of values [V, B, h, w] whose first row and column are
        `corner` in the grid."""
        b, y, x = chosen.nonzero(as_tuple=True)
        _, height, width = grid
        indices = (b * height + y + corner[0]) * width + x + corner[1]
        return cls(grid, indices, dense[:, b, y, x].T)

    def dense(self) -> Tensor:
        """Return [V, B, H, W], 0 where nothing is stored."""
        flat = self.values.new_zeros(self.values.shape[1], math.prod(self.grid))
        flat[:, self.indices] = self.values.T
        return flat.view(-1, *self.grid)

    @staticmethod
    def cat(parts: Sequence[SparseMap]) -> SparseMap:
        """Join the values at several places of one grid."""
        indices = torch.cat([part.indices for part in parts])
        values = torch.cat([part.values for part in parts])
        return SparseMap(parts[0].grid, indices, values)


@dataclass(frozen=True, repr=False)
class SparseLatents:
    """What and where of one picture.

    Parameters
    ----------
    features
        p of the top layer where it is not 0, [n, 1]
    where
        for each layer, μ and then γ of the regions in use, [n, 2 A]
    background
        what the input stage removed, [1, C, H, W]
    """

    features: SparseMap
    where: tuple[SparseMap, ...]
    background: Background = field(default_factory=Background)

    def __repr__(self) -> str:
        maps, height, width = self.features.grid
        regions = ", ".join(f"{len(layer.indices):,}" for layer in self.where) or "no"
        return (
            f"SparseLatents({self.nonzeros:,} features of {maps}×{height}×{width}, {regions}"
            " regions)"
        )

    @property
    def nonzeros(self) -> int:
        return len(self.features.indices)

    def dense(self) -> Latents:
        """Return the same latents as `infer` returns them, for one image; μ and γ of regions that
        are not in use are 0."""
        thetas = []
        for layer in self.where:
            mu, gamma = layer.dense().chunk(2)
            thetas.append(PoolingParams(mu[None], gamma[None]))
        return Latents(self.features.dense(), tuple(thetas), self.background)

    @staticmethod
    def cat(parts: Sequence[SparseLatents]) -> SparseLatents:
        """Join the latents of the tiles of one picture; the background is not joined."""
        features = SparseMap.cat([part.features for part in parts])
        layers = zip(*(part.where for part in parts), strict=True)
        return SparseLatents(features, tuple(SparseMap.cat(layer) for layer in layers))


def _as_pictures(values: Tensor) -> list[Tensor]:
    """Return sums over maps, [N, B, H, W], as pictures [1, H, W] from 0 to 1."""
    sums = values.detach().float().sum(1, keepdim=True)
    return list(sums / sums.amax().clamp(min=1e-12))


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
