"""Gaussian pooling and unpooling as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from whatwhere.errors import SpecError
from whatwhere.latents import PoolingParams
from whatwhere.nn import functional as F
from whatwhere.nn.functional import Form, Size2
from whatwhere.spec import MomentFit


class GaussianPool2d(nn.Module):
    """Pool every region with a Gaussian of its own:  p(j) = Σ_i w(i) z(i),  Σ w² = 1.

    Along each axis of a region w = √softmax_i(-γ (x_i - μ)² / 2), with coordinates x centred in the region; the
    weight of an element is w_y w_x. As γ → ∞ this is max pooling (with a sign), at γ = 0 the sum over √(elements).

    kernel_size, stride, padding, ceil_mode   as of `torch.nn.MaxPool2d`; what lies beyond the map has no weight
    fit          `moments`: μ and 1/γ are mean and variance of the place in each region, weighted by z²; gradients
                 flow through them. `learned`: one Gaussian a channel, parameters `mu` and `log_gamma` [2, channels].
                 `input`: given with each call, for instance by another branch of the network
    return_where return (p, where), for GaussianUnpool2d
    channels     how many the input has; for `learned` only
    moments      bounds of γ and the power of |z|, for `moments` only
    form         `plain` PyTorch, `fused` kernels on CUDA, or `auto`: fused where they can serve

    Shapes: input z [N, C, H, W] or [C, H, W]; p [N, C, h, w]; where.mu and where.gamma [N, 2, C, h, w] (rows, columns)

    >>> pool, unpool = GaussianPool2d(2, return_where=True), GaussianUnpool2d(2)
    >>> image = torch.randn(1, 3, 8, 8)
    >>> p, where = pool(image)
    >>> p.shape, where.mu.shape, unpool(p, where).shape
    (torch.Size([1, 3, 4, 4]), torch.Size([1, 2, 3, 4, 4]), torch.Size([1, 3, 8, 8]))
    """

    def __init__(
        self,
        kernel_size: Size2,
        stride: Size2 | None = None,
        padding: Size2 = 0,
        ceil_mode: bool = False,
        fit: Literal["moments", "learned", "input"] = "moments",
        return_where: bool = False,
        *,
        channels: int | None = None,
        moments: MomentFit = MomentFit(),
        form: Form = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        F._geometry(kernel_size, stride, padding)  # refused here rather than at the first call
        if fit not in ("moments", "learned", "input"):
            raise SpecError(f"fit {fit!r}: give 'moments', 'learned' or 'input'")
        if (fit == "learned") != (channels is not None):
            raise SpecError(f"fit {fit!r} with channels {channels}: give channels for fit='learned', and only there")
        self.kernel_size, self.stride, self.padding, self.ceil_mode = kernel_size, stride, padding, ceil_mode
        self.fit, self.return_where, self.moments, self.form = fit, return_where, moments, form
        if channels is not None:
            self.mu = nn.Parameter(torch.zeros(2, channels, device=device, dtype=dtype))
            self.log_gamma = nn.Parameter(torch.zeros(2, channels, device=device, dtype=dtype))

    def forward(self, input: Tensor, where: PoolingParams | None = None) -> Tensor | tuple[Tensor, PoolingParams]:
        if (where is not None) != (self.fit == "input"):
            raise SpecError(f"fit {self.fit!r}: `where` is to be given for fit='input', and only there")
        regions = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        if self.fit == "moments":
            if not self.return_where:
                return F.gaussian_pool2d(input, *regions, fit=self.moments, form=self.form)
            return F.gaussian_pool2d_with_where(input, *regions, fit=self.moments, form=self.form)
        if self.fit == "learned":
            where = self.learned(input.dim() == 4)
        assert where is not None
        p = F.gaussian_pool2d(input, *regions, where, form=self.form)
        if not self.return_where:
            return p
        shape = (*p.shape[:-3], 2, *p.shape[-3:])
        return p, where.map(lambda theta: theta.expand(shape))

    def learned(self, batched: bool = True) -> PoolingParams:
        """The learned Gaussians, μ and γ [1, 2, C, 1, 1], or [2, C, 1, 1] for a single image."""
        theta = PoolingParams(self.mu, self.log_gamma.exp()).map(lambda tensor: tensor[:, :, None, None])
        return theta.map(lambda tensor: tensor[None]) if batched else theta

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"ceil_mode={self.ceil_mode}, fit={self.fit!r}, return_where={self.return_where}"
        )


class GaussianUnpool2d(nn.Module):
    """Spread every feature over its region:  z(i) = Σ_j w(i) p(j), the adjoint of GaussianPool2d.

    kernel_size, stride, padding   those of the pooling

    Call with p [N, C, h, w], where, and optionally `output_size` (height and width, or a whole shape) when the map
    that was pooled is not the smallest one that gives h × w. Where regions overlap their shares add up.

    >>> pool, unpool = GaussianPool2d(3, stride=2, padding=1, return_where=True), GaussianUnpool2d(3, 2, 1)
    >>> image = torch.randn(2, 3, 10, 10)
    >>> unpool(*pool(image), output_size=image.shape).shape
    torch.Size([2, 3, 10, 10])
    """

    def __init__(
        self, kernel_size: Size2, stride: Size2 | None = None, padding: Size2 = 0, *, form: Form = "auto"
    ) -> None:
        super().__init__()
        F._geometry(kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding, self.form = kernel_size, stride, padding, form

    def forward(self, input: Tensor, where: PoolingParams, output_size: Sequence[int] | None = None) -> Tensor:
        return F.gaussian_unpool2d(
            input, where, self.kernel_size, self.stride, self.padding, output_size, form=self.form
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
