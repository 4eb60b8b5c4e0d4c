"""Gaussian pooling and unpooling as layers; signals [N, C, T] are images of height 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from whatwhere.errors import EngineError, SpecError
from whatwhere.latents import PoolingParams
from whatwhere.nn import functional as F
from whatwhere.nn.functional import Form, Size2
from whatwhere.nn.scripted import ScriptedPool, ScriptedPoolWithWhere, ScriptedUnpool
from whatwhere.spec import MomentFit

Gaussians = Literal["moments", "learned", "input"]


class GaussianPool2d(nn.Module):
    """Pool every region with its own Gaussian:  p(j) = Σ_i w(i) z(i),  Σ w² = 1.

    Along each axis of a region w = √softmax_i(-γ (x_i - μ)² / 2), with coordinates x centred in the
    region; the weight of an element is w_y w_x. As γ → ∞ this is max pooling (with a sign), at γ =
    0 the sum divided by √(number of elements).

    Parameters
    ----------
    kernel_size, stride, padding, ceil_mode
        as in `torch.nn.MaxPool2d`; positions outside the map have no weight
    dilation, return_indices
        1 and False, the defaults of `torch.nn.MaxPool2d`; nothing else is supported
    gaussians
        where the Gaussians come from. 'moments': μ and 1/γ are the mean and variance of the
        position in each region, weighted by z²; gradients flow through them. 'learned': one
        Gaussian per channel, parameters `mu` and `log_gamma` [2, channels]. 'input': an argument of
        each call, for instance from another branch
    return_where
        return (p, where), for GaussianUnpool2d
    channels
        channels of the input; for gaussians='learned' only
    fit
        bounds of γ and the power of |z|, as in `gaussian_pool2d`; for gaussians='moments' only
    form
        'plain' PyTorch, 'fused' kernels, or 'auto': fused where they are supported
    device, dtype
        device and dtype of the learned Gaussians

    Shapes: input z [N, C, H, W] or [C, H, W]; p [N, C, h, w]; where.mu and where.gamma [N, 2, C, h,
    w] (rows, columns)

    Examples
    --------
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
        *,
        dilation: Size2 = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        gaussians: Gaussians = "moments",
        return_where: bool = False,
        channels: int | None = None,
        fit: MomentFit = MomentFit(),
        form: Form = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        # raises here rather than at the first call
        F._geometry(kernel_size, stride, padding)
        F.require_max_pooling_defaults(dilation, return_indices)
        if gaussians not in get_args(Gaussians):
            raise SpecError(
                f"Got gaussians = {gaussians!r}; expected 'moments', 'learned' or 'input'."
            )
        if (gaussians == "learned") != (channels is not None):
            if channels is None:
                raise SpecError(
                    "gaussians = 'learned' needs `channels`, the number of channels of the input."
                )
            raise SpecError(
                f"Got channels = {channels} with gaussians = {gaussians!r}. Only gaussians ="
                " 'learned' takes `channels`; leave it out."
            )
        self.kernel_size, self.stride, self.padding, self.ceil_mode = (
            kernel_size,
            stride,
            padding,
            ceil_mode,
        )
        self.gaussians, self.return_where, self.fit, self.form = gaussians, return_where, fit, form
        if channels is not None:
            self.mu = nn.Parameter(torch.zeros(2, channels, device=device, dtype=dtype))
            self.log_gamma = nn.Parameter(torch.zeros(2, channels, device=device, dtype=dtype))

    def forward(
        self, input: Tensor, where: PoolingParams | None = None
    ) -> Tensor | tuple[Tensor, PoolingParams]:
        if (where is not None) != (self.gaussians == "input"):
            raise SpecError(
                f"gaussians = {self.gaussians!r}: give `where` with gaussians='input', and only"
                " then."
            )
        if self.gaussians == "learned":
            where = F.learned_gaussians(input, self.mu, self.log_gamma)
        pooled: Tensor | tuple[Tensor, PoolingParams] = F.gaussian_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
            where=where,
            fit=self.fit,
            return_where=self.return_where,
            form=self.form,
        )
        return pooled

    def __prepare_scriptable__(self) -> nn.Module:
        """Return the module that `torch.jit.script` compiles in place of this one."""
        if self.gaussians != "moments" or isinstance(self, GaussianPool1d):
            raise EngineError(
                f"torch.jit.script does not support {type(self).__name__} with gaussians ="
                f" {self.gaussians!r}, only GaussianPool2d with 'moments'. Use torch.compile or"
                " torch.export."
            )
        kind = ScriptedPoolWithWhere if self.return_where else ScriptedPool
        geometry = F._geometry(self.kernel_size, self.stride, self.padding)
        return kind(*geometry, self.ceil_mode, self.fit)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" ceil_mode={self.ceil_mode}, gaussians={self.gaussians!r},"
            f" return_where={self.return_where}"
        )


class GaussianUnpool2d(nn.Module):
    """Spread every feature over its region:  z(i) = Σ_j w(i) p(j), the adjoint of GaussianPool2d.

    Parameters
    ----------
    kernel_size, stride, padding
        as in the pooling
    form
        'plain', 'fused' or 'auto', as in GaussianPool2d

    Call with p [N, C, h, w], where, and optionally `output_size` (height and width, or a full
    shape) if the map that was pooled is not the smallest one that gives h × w. Where regions
    overlap, their contributions add up.

    Examples
    --------
    >>> pool = GaussianPool2d(3, stride=2, padding=1, return_where=True)
    >>> unpool = GaussianUnpool2d(3, 2, 1)
    >>> image = torch.randn(2, 3, 10, 10)
    >>> unpool(*pool(image), output_size=image.shape).shape
    torch.Size([2, 3, 10, 10])
    """

    def __init__(
        self,
        kernel_size: Size2,
        stride: Size2 | None = None,
        padding: Size2 = 0,
        *,
        form: Form = "auto",
    ) -> None:
        super().__init__()
        F._geometry(kernel_size, stride, padding)
        self.kernel_size, self.stride, self.padding, self.form = kernel_size, stride, padding, form

    def forward(
        self, input: Tensor, where: PoolingParams, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.gaussian_unpool2d(
            input, where, self.kernel_size, self.stride, self.padding, output_size, form=self.form
        )

    def __prepare_scriptable__(self) -> nn.Module:
        """Return the module that `torch.jit.script` compiles in place of this one."""
        if isinstance(self, GaussianUnpool1d):
            raise EngineError(
                "torch.jit.script does not support GaussianUnpool1d. Use torch.compile or"
                " torch.export."
            )
        return ScriptedUnpool(*F._geometry(self.kernel_size, self.stride, self.padding))

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class GaussianPool1d(GaussianPool2d):
    """Pool every region of a signal with its own Gaussian:  p(j) = Σ_i w(i) z(i),  Σ w² = 1.

    Parameters
    ----------
    kernel_size, stride, padding
        as in `torch.nn.MaxPool1d`
    options
        the other arguments of `GaussianPool2d`

    Shapes: input z [N, C, T] or [C, T]; p [N, C, t]; where.mu and where.gamma [N, C, t]

    Examples
    --------
    >>> pool, unpool = GaussianPool1d(2, return_where=True), GaussianUnpool1d(2)
    >>> p, where = pool(torch.randn(1, 3, 8))
    >>> p.shape, where.mu.shape, unpool(p, where).shape
    (torch.Size([1, 3, 4]), torch.Size([1, 3, 4]), torch.Size([1, 3, 8]))
    """

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            (1, kernel_size), None if stride is None else (1, stride), (0, padding), **options
        )

    def forward(
        self, input: Tensor, where: PoolingParams | None = None
    ) -> Tensor | tuple[Tensor, PoolingParams]:
        """Pool z [N, C, T] or [C, T], with `where` if gaussians='input'."""
        given = None if where is None else F.with_height(where)
        pooled: Any = super().forward(F.as_maps(input), given)
        if not self.return_where:
            return pooled.squeeze(-2)
        p, theta = pooled
        return p.squeeze(-2), F.without_height(theta)


class GaussianUnpool1d(GaussianUnpool2d):
    """Spread every feature over its region of a signal, the adjoint of GaussianPool1d.

    Parameters
    ----------
    kernel_size, stride, padding
        as in the pooling
    options
        `form` of `GaussianUnpool2d`

    Call with p [N, C, t], where, and optionally `output_size`, the number of samples T, if the
    signal that was pooled is not the shortest one that gives t.

    Examples
    --------
    >>> pool = GaussianPool1d(3, stride=2, padding=1, return_where=True)
    >>> unpool = GaussianUnpool1d(3, 2, 1)
    >>> unpool(*pool(torch.randn(2, 3, 10)), output_size=10).shape
    torch.Size([2, 3, 10])
    """

    def __init__(
        self, kernel_size: int, stride: int | None = None, padding: int = 0, **options: Any
    ) -> None:
        super().__init__(
            (1, kernel_size), None if stride is None else (1, stride), (0, padding), **options
        )

    def forward(
        self, input: Tensor, where: PoolingParams, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Unpool p [N, C, t] or [C, t]."""
        size = None if output_size is None else F.size_with_height(output_size)
        return super().forward(F.as_maps(input), F.with_height(where), size).squeeze(-2)
