"""The filters of one layer as a linear least-squares problem (paper, Eqn. cg_f).

With the latents fixed, the reconstruction is linear in f_k:  v̂ = A f_k = R_{k-1} (z_k * f_k), where
z_k = U_k p̂_k comes down from the top layer. Every pass streams over the batches and adds up over images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from whatwhere.inference.engines.triton_engine import filter_map as on_gpu
from whatwhere.latents import Latents
from whatwhere.learning.conjugate_gradient import conjugate_gradient
from whatwhere.model import DeconvNet
from whatwhere.ops.convolution import convolve_down, filter_gradient
from whatwhere.ops.pooling import unpool

Batches = Callable[[], Iterable[tuple[Tensor, Latents]]]  # a fresh pass over (images, latents)
Reduce = Callable[[Tensor], Tensor]  # the sum over all processes


def update_filters(
    model: DeconvNet,
    k: int,
    batches: Batches,
    steps: int,
    reduce: Reduce = lambda total: total,
    engine: str = "reference",
) -> DeconvNet:
    """The model after `steps` conjugate-gradient steps on the filters of layer k, masked, projected, normalised.

    A filter that the projection would wipe out keeps its old values: at zero it could never come back.
    """
    old = model.filters[k - 1]
    f = solve_filters(model, k, batches, steps, reduce, engine)
    new = model.project(k, f).to(old.dtype)
    gone = new.square().sum((0, 2, 3), keepdim=True) == 0
    return model.with_filters(k, old.where(gone, new))


def solve_filters(
    model: DeconvNet,
    k: int,
    batches: Batches,
    steps: int,
    reduce: Reduce = lambda total: total,
    engine: str = "reference",
) -> Tensor:
    """Filters of layer k after `steps` conjugate-gradient steps on ½ Σ ‖A f - v‖², in float64.

    engine  that inferred the latents; where it is 'triton' its kernels apply A too
    """
    filter_map = on_gpu if engine == "triton" else FilterMap
    mask = model.connectivity[k - 1][:, :, None, None]

    def summed(part: Callable[[Tensor, Latents], Tensor]) -> Tensor:
        total = torch.zeros_like(model.filters[k - 1], dtype=torch.float64)
        for images, latents in batches():
            total += part(images, latents)
        return reduce(total) * mask

    def normal(f: Tensor) -> Tensor:
        direction = f.to(model.dtype)
        return summed(lambda images, latents: filter_map(model, k, images, latents).normal(direction))

    def downhill(images: Tensor, latents: Latents) -> Tensor:
        return filter_map(model, k, images, latents).downhill(model.filters[k - 1])

    return conjugate_gradient(normal, summed(downhill), model.filters[k - 1].double(), steps)


class FilterMap:
    """The linear map A from the filters of layer k to the reconstruction of a batch of images."""

    def __init__(self, model: DeconvNet, k: int, images: Tensor, latents: Latents) -> None:
        assert latents.p is not None
        weights = model.weights(latents.pooling, *images.shape[2:])
        self.model, self.images, self.below = model, images, weights[: k - 1]
        self.z = unpool(model.reconstruct(latents.p, weights, to=k), weights[k - 1])

    def __call__(self, f: Tensor) -> Tensor:
        """A f = R_{k-1} (z_k * f)."""
        return self.model.reconstruct(convolve_down(self.z, f), self.below)

    def adjoint(self, e: Tensor) -> Tensor:
        """Aᵀ e: the error propagated up to the maps below the filters, correlated with z_k."""
        return filter_gradient(self.z, self.model.propagate(e, self.below))

    def normal(self, f: Tensor) -> Tensor:
        """Aᵀ A f."""
        return self.adjoint(self(f))

    def downhill(self, f: Tensor) -> Tensor:
        """Aᵀ (v - A f), the negative gradient of ½ ‖A f - v‖²."""
        return self.adjoint(self.images - self(f))
