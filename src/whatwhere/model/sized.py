"""A model bound to images of one size: pooling regions, the two passes, the objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.errors import EngineError
from whatwhere.latents import Latents, PoolingParams, SparseLatents, SparseMap, moved
from whatwhere.ops.convolution import convolve_down, convolve_up
from whatwhere.ops.input_stage import InputStage
from whatwhere.ops.pooling import Regions, Weights, gaussian_weights, has_pairs, pair_weights
from whatwhere.spec import ModelSpec, Penalty


@dataclass(frozen=True)
class Objective:
    """The parts of the cost C = λ/2 ‖M ⊙ (Rp - v)‖² + Σ|p|^α of every image; the second term is
    that of `InferenceSpec.penalty`.

    Parameters
    ----------
    reconstruction
        the first term, [N]
    penalty
        the second term, [N]
    nonzeros
        the number of p ≠ 0, [N]

    Examples
    --------
    >>> parts = Objective(torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([3]))
    >>> parts.cost
    tensor([2.5000])
    """

    reconstruction: Tensor
    penalty: Tensor
    nonzeros: Tensor

    @property
    def cost(self) -> Tensor:
        """The sum of both terms, [N]."""
        return self.reconstruction + self.penalty


@dataclass(frozen=True)
class SizedModel:
    """A model for images of height × width; `model.at(height, width)` makes it.

    Parameters
    ----------
    spec
        the architecture
    filters
        filters of every layer, [B_{k-1}, B_k, K, L]
    upward
        filters of the pass up, [B_{k-1}, B_k, K, L]: the same ones, unless the model has separate
        ones
    height, width
        height and width of the images, in pixels
    regions
        the pooling regions of every layer, which hold the sizes of z_k and p_k
    pairs
        pool 2 × 2 regions by `ops.pooling.PairWeights`, which back-propagates faster; equal up to
        rounding

    Examples
    --------
    >>> sized = ww.DeconvNet(ww.ModelSpec.paper()).at(28, 28)
    >>> [r.grid for r in sized.regions]          # maps, rows and columns of p_1 and p_2
    [(16, 16, 16), (48, 10, 10)]
    """

    spec: ModelSpec
    filters: tuple[Tensor, ...]
    upward: tuple[Tensor, ...]
    height: int
    width: int
    regions: tuple[Regions, ...]
    pairs: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the filters."""
        return self.filters[0].dtype

    @property
    def device(self) -> torch.device:
        """The device that the filters are on, where inference runs."""
        return self.filters[0].device

    def to(self, *args: object, **kwargs: object) -> SizedModel:
        """Return the same model on another device, in another dtype."""
        filters = move_filters(self.filters, *args, **kwargs)
        tied = self.upward is self.filters
        upward = filters if tied else move_filters(self.upward, *args, **kwargs)
        return replace(self, filters=filters, upward=upward)

    def weights(self, pooling_params: Sequence[PoolingParams]) -> tuple[Weights, ...]:
        """Return the pooling weights of layers 1 … len(pooling_params)."""
        return tuple(
            pair_weights(theta, r) if self.pairs and has_pairs(r) else gaussian_weights(theta, r)
            for theta, r in zip(pooling_params, self.regions, strict=False)
        )

    def descend(self, p: Tensor, weights: Sequence[Weights], to: int = 0) -> list[Tensor]:
        """Return every stage of the reconstruction from the top of `weights` down: [p̂_to, …,
        p̂_l], p̂_l = p."""
        stages = [p]
        for k in range(len(weights), to, -1):
            stages.append(convolve_down(weights[k - 1].unpool(stages[-1]), self.filters[k - 1]))
        return stages[::-1]

    def ascend(
        self, values: Tensor, weights: Sequence[Weights], start: int = 0
    ) -> tuple[Tensor, list[Tensor]]:
        """Propagate values at layer `start` up: what arrives at the top, and at z_k on the way."""
        unpooled = []
        for k in range(start + 1, len(weights) + 1):
            unpooled.append(convolve_up(values, self.upward[k - 1]))
            values = weights[k - 1].pool(unpooled[-1])
        return values, unpooled

    def reconstruct(self, p: Tensor, weights: Sequence[Weights], to: int = 0) -> Tensor:
        """R p: features of layer len(weights) down to layer `to` (0: the image)."""
        return self.descend(p, weights, to)[0]

    def propagate(self, values: Tensor, weights: Sequence[Weights], start: int = 0) -> Tensor:
        """Rᵀ e: values at layer `start` up to layer len(weights). With tied filters the adjoint
        of `reconstruct`."""
        return self.ascend(values, weights, start)[0]

    def decode(self, latents: Latents) -> Tensor:
        """Return the images that latents reconstruct, [N, C, H, W]: R p, plus what the input stage
        removed."""
        target = self.reconstruct(latents.features, self.weights(latents.pooling_params))
        return InputStage(self.spec.input).inverse(target, latents.background)

    def sparse(self, latents: Latents, *, where: bool = True) -> list[SparseLatents]:
        """Return the latents of each image without those that have no influence on its
        reconstruction; `dense()` is the inverse.

        Parameters
        ----------
        where
            whether to keep the pooling variables of the regions in use, too
        """
        thetas = latents.pooling_params
        top = len(thetas)
        stages = []
        if where:
            stages = self.descend(latents.features, self.weights(thetas), to=1)
        codes = []
        for n, p in enumerate(latents.features):
            features = SparseMap.of(p[None], p != 0, self.regions[top - 1].grid)
            used = []
            for stage, theta, regions in zip(stages, thetas, self.regions, strict=False):
                variables = torch.cat([theta.mu[n], theta.gamma[n]])
                used.append(SparseMap.of(variables, stage[n] != 0, regions.grid))
            background = latents[n : n + 1].background
            codes.append(SparseLatents(features, tuple(used), background))
        return codes


def move_filters(filters: Sequence[Tensor], *args: object, **kwargs: object) -> tuple[Tensor, ...]:
    """Return filters on another device, in another dtype; raises an EngineError for a device that
    this machine does not offer."""
    try:
        return tuple(moved(f, *args, **kwargs) for f in filters)
    except (RuntimeError, AssertionError) as error:  # torch raises either for a missing device
        given = ", ".join(map(str, (*args, *kwargs.values())))
        reason = str(error).splitlines()[0]
        raise EngineError(f"This machine does not support {given}: {reason}. Use 'cpu'.") from None


def residual(v_hat: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """e = M ⊙ (R p - v), the one place where a reconstruction meets the images."""
    return masked(v_hat - v, mask)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """M ⊙ x; without a mask, x."""
    return x if mask is None else mask * x


def objective(e: Tensor, p: Tensor, lam: float, penalty: Penalty) -> Objective:
    """Return the parts of the cost from the residual e."""
    return Objective(
        reconstruction=lam / 2 * e.square().flatten(1).sum(1),
        penalty=penalty.cost(p).flatten(1).sum(1),
        nonzeros=(p != 0).flatten(1).sum(1),
    )


def layer_regions(spec: ModelSpec, height: int, width: int) -> tuple[Regions, ...]:
    """Return the pooling regions of every layer for images of this size: they follow from the size
    below."""
    regions: list[Regions] = []
    rows = height
    columns = width
    for layer in spec.layers:
        K, L = layer.filter_shape
        z = (layer.maps, rows + K - 1, columns + L - 1)
        regions.append(Regions.of(z, layer.pool_size, layer.pool_stride, layer.pool_maps))
        _, rows, columns = regions[-1].grid
    return tuple(regions)


@dataclass(frozen=True)
class LayerPlaces:
    """Where the features of a layer are along rows or columns of the image.

    Feature j is centred at pixel stride · j + offset, and draws on `reach` pixels around it.
    """

    stride: int
    offset: float
    reach: int

    @classmethod
    def of(cls, spec: ModelSpec, axis: int) -> tuple[LayerPlaces, ...]:
        """Return the places of the pixels (layer 0) and of every layer's features, along rows (axis
        0) or columns (1)."""
        places = [cls(1, 0.0, 1)]
        for layer in spec.layers:
            below = places[-1]
            K = layer.filter_shape[axis]
            s = layer.pool_shape[axis]
            # z(i) explains what lies K - 1 before i up to i; a region is s of them
            offset = below.offset + below.stride * (s - K) / 2
            reach = below.reach + below.stride * (K + s - 2)
            places.append(cls(below.stride * layer.strides[axis], offset, reach))
        return tuple(places)

    def unpooled(self, filter_size: int) -> tuple[int, float]:
        """Map an element i of the map z above, whose filters have this size, is centred at pixel
        stride · i + offset."""
        return self.stride, self.offset - self.stride * (filter_size - 1) / 2

    def first_from(self, pixel: int) -> int:
        """Return the first feature that is centred at this pixel or after it."""
        return math.ceil((pixel - self.offset) / self.stride)

    def pixels_of(self, feature: int) -> tuple[int, int]:
        """Return the first pixel that a feature draws on, and the one after the last."""
        first = round(self.stride * feature + self.offset - (self.reach - 1) / 2)
        return first, first + self.reach
