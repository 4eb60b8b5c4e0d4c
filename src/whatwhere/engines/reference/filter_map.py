"""The filters' linear map: with the latents fixed, the reconstruction is linear in the filters of
one layer.

v̂ = A f_k = R_{k-1} (z_k * f_k), where z_k = U_k p̂_k comes down from the top layer.
"""

from torch import Tensor

from whatwhere.engines.base import LinearMap
from whatwhere.model import Problem
from whatwhere.model.sized import masked, residual
from whatwhere.ops.convolution import convolve_down, filter_gradient


class FilterMap(LinearMap):
    """The linear map A from the filters of layer k to the reconstruction of a batch of images."""

    def __init__(self, problem: Problem, k: int) -> None:
        self.model = problem.sized
        self.images = problem.images
        self.mask = problem.mask
        weights = self.model.weights(problem.latents.pooling_params)
        self.below = weights[: k - 1]
        self.z = weights[k - 1].unpool(
            self.model.reconstruct(problem.latents.features, weights, to=k)
        )

    def __call__(self, f: Tensor) -> Tensor:
        """Compute A f = M ⊙ R_{k-1} (z_k * f)."""
        return masked(self.model.reconstruct(convolve_down(self.z, f), self.below), self.mask)

    def adjoint(self, e: Tensor) -> Tensor:
        """Aᵀ e: the error propagated up to the maps below the filters, correlated with z_k."""
        return filter_gradient(self.z, self.model.propagate(masked(e, self.mask), self.below))

    def gradient(self, f: Tensor, *, subtract: bool) -> Tensor:
        return self.adjoint(
            residual(self(f), masked(self.images, self.mask)) if subtract else self(f)
        )
