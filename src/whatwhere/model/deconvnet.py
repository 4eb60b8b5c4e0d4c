"""The deconvolutional network of the paper: v̂ = R p = F₁ U₁ F₂ U₂ … F_l U_l p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import ImageError
from whatwhere.latents import PoolingParams
from whatwhere.ops.connectivity import project_filters, random_connectivity
from whatwhere.ops.convolution import convolve_down, convolve_up
from whatwhere.ops.pooling import Regions, Weights, gaussian_weights, pool, unpool
from whatwhere.ops.sparsity import penalty
from whatwhere.spec import ModelSpec


@dataclass(frozen=True)
class Objective:
    """The parts of the cost C = λ/2 ‖Rp - v‖² + Σ|p|^α of every image, [N] each."""

    reconstruction: Tensor
    penalty: Tensor
    nonzeros: Tensor

    @property
    def cost(self) -> Tensor:
        return self.reconstruction + self.penalty


class DeconvNet:
    """Filters f_k [B_{k-1}, B_k, K, K] and connectivity [B_{k-1}, B_k] of every layer; latents are passed in.

    Layers count from 1, as in the paper; 0 is the image.
    """

    def __init__(self, spec: ModelSpec, seed: int = 0, *, dtype: torch.dtype = torch.float32) -> None:
        """Draw the connectivity and Gaussian filters, then project and normalise them (paper, "Initialization")."""
        generator = torch.Generator().manual_seed(seed)
        self.spec = spec
        self.connectivity: list[Tensor] = []
        self.filters: list[Tensor] = []
        for k, layer in enumerate(spec.layers, start=1):
            below, size = spec.maps_below(k), layer.filter_size
            self.connectivity.append(random_connectivity(below, layer.maps, layer.fan_in, generator))
            drawn = torch.randn(below, layer.maps, size, size, generator=generator, dtype=torch.float64)
            self.filters.append(self.project(k, drawn).to(dtype))

    @classmethod
    def from_parts(cls, spec: ModelSpec, filters: Sequence[Tensor], connectivity: Sequence[Tensor]) -> DeconvNet:
        """A model with these filters, taken as they are."""
        model = cls.__new__(cls)
        model.spec, model.filters, model.connectivity = spec, list(filters), list(connectivity)
        return model

    def project(self, k: int, f: Tensor) -> Tensor:
        """Filters of layer k masked, projected to ≥ 0 where the model is non-negative, and of unit length."""
        return project_filters(
            f, self.connectivity[k - 1], nonnegative=self.spec.nonnegative, normalise=self.spec.normalise
        )

    def with_filters(self, k: int, f: Tensor) -> DeconvNet:
        """The same model with other filters at layer k."""
        filters = [f if i == k else old for i, old in enumerate(self.filters, start=1)]
        return self.from_parts(self.spec, filters, self.connectivity)

    def to(self, *args: Any, **kwargs: Any) -> DeconvNet:
        """The same model on another device, in another dtype."""
        filters = [f.to(*args, **kwargs) for f in self.filters]
        connectivity = [c.to(f.device) for c, f in zip(self.connectivity, filters, strict=True)]
        return self.from_parts(self.spec, filters, connectivity)

    @property
    def dtype(self) -> torch.dtype:
        return self.filters[0].dtype

    @property
    def device(self) -> torch.device:
        return self.filters[0].device

    # Sizes --------------------------------------------------------------------------------------------------

    def regions(self, height: int, width: int) -> list[Regions]:
        """The pooling regions of every layer for images of this size (they hold the sizes of z_k and p_k)."""
        found = []
        for layer in self.spec.layers:
            grow = layer.filter_size - 1
            z = (layer.maps, height + grow, width + grow)
            found.append(Regions.of(z, layer.pool_size, layer.pool_stride, layer.pool_maps))
            _, height, width = found[-1].grid
        return found

    def weights(self, pooling: Sequence[PoolingParams], height: int, width: int) -> list[Weights]:
        """The pooling weights of layers 1 … len(pooling) for images of this size."""
        return [gaussian_weights(theta, r) for theta, r in zip(pooling, self.regions(height, width), strict=False)]

    # The two passes -----------------------------------------------------------------------------------------

    def descend(self, p: Tensor, weights: Sequence[Weights], to: int = 0) -> list[Tensor]:
        """Every stage of the reconstruction from the top of `weights` down: [p̂_to, …, p̂_l], p̂_l = p."""
        stages = [p]
        for k in range(len(weights), to, -1):
            stages.append(convolve_down(unpool(stages[-1], weights[k - 1]), self.filters[k - 1]))
        return stages[::-1]

    def ascend(self, signal: Tensor, weights: Sequence[Weights], start: int = 0) -> tuple[Tensor, list[Tensor]]:
        """Propagate a signal at layer `start` up: what arrives at the top, and the signal at z_k on the way."""
        unpooled = []
        for k in range(start + 1, len(weights) + 1):
            unpooled.append(convolve_up(signal, self.filters[k - 1]))
            signal = pool(unpooled[-1], weights[k - 1])
        return signal, unpooled

    def reconstruct(self, p: Tensor, weights: Sequence[Weights], to: int = 0) -> Tensor:
        """R p: features of layer len(weights) down to layer `to` (0: the image)."""
        return self.descend(p, weights, to)[0]

    def propagate(self, signal: Tensor, weights: Sequence[Weights], start: int = 0) -> Tensor:
        """Rᵀ e, the adjoint of `reconstruct`: a signal at layer `start` up to layer len(weights)."""
        return self.ascend(signal, weights, start)[0]

    def objective(self, images: Tensor, p: Tensor, weights: Sequence[Weights], lam: float, alpha: float) -> Objective:
        """C = λ/2 ‖Rp - v‖² + Σ|p|^α in its parts (Eqn. multi)."""
        return objective(self.reconstruct(p, weights) - images, p, lam, alpha)

    def check_images(self, images: Tensor) -> None:
        """Refuse images that this model cannot explain."""
        spec = self.spec
        expected = f"a float tensor [N, {spec.channels}, H, W]"
        if not isinstance(images, Tensor):
            raise ImageError(f"{type(images).__name__} was given; expected {expected} (torch.as_tensor converts)")
        if images.ndim != 4:
            raise ImageError(f"images of shape {list(images.shape)} were given; expected {expected}")
        if images.shape[1] != spec.channels:
            raise ImageError(f"images with {images.shape[1]} channels were given; expected {spec.channels} channels")
        if not images.is_floating_point():
            raise ImageError(f"images of dtype {images.dtype} were given; expected floats (divide bytes by 255)")
        if images.shape[2] == 0 or images.shape[3] == 0:
            raise ImageError(f"images of shape {list(images.shape)} were given; expected at least one pixel each")
        if not images.isfinite().all():
            raise ImageError("images with NaN or Inf were given; expected finite values (clean them first)")
        if spec.nonnegative and (images < 0).any():
            raise ImageError(
                f"images with values down to {images.min():.4g} were given to a non-negative model; expected values ≥ 0"
                " (shift them, or make the model with nonnegative=False)"
            )


def objective(error: Tensor, p: Tensor, lam: float, alpha: float) -> Objective:
    """The parts of the cost from the residual e = Rp - v."""
    return Objective(
        reconstruction=lam / 2 * error.square().flatten(1).sum(1),
        penalty=penalty(p, alpha),
        nonzeros=(p != 0).flatten(1).sum(1),
    )
