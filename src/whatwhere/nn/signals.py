"""Gaussian pooling and unpooling of signals, [N, C, T]: those of images, on images of height 1."""

from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.latents import PoolingParams
from whatwhere.nn.functional import require_params
from whatwhere.nn.modules import GaussianPool2d, GaussianUnpool2d


class GaussianPool1d(GaussianPool2d):
    """Pool every region of a signal with its own Gaussian:  p(j) = Σ_i w(i) z(i),  Σ w² = 1.

    kernel_size, stride, padding, ceil_mode  as in `torch.nn.MaxPool1d`
    options       `gaussians`, `return_where`, `channels`, `fit`, `form`, `device` and `dtype` of `GaussianPool2d`

    Shapes: input z [N, C, T] or [C, T]; p [N, C, t]; where.mu and where.gamma [N, C, t]

    >>> pool, unpool = GaussianPool1d(2, return_where=True), GaussianUnpool1d(2)
    >>> p, where = pool(torch.randn(1, 3, 8))
    >>> p.shape, where.mu.shape, unpool(p, where).shape
    (torch.Size([1, 3, 4]), torch.Size([1, 3, 4]), torch.Size([1, 3, 8]))
    """

    def __init__(
        self, kernel_size: int, stride: int | None = None, padding: int = 0, ceil_mode: bool = False, **options: Any
    ) -> None:
        super().__init__((1, kernel_size), None if stride is None else (1, stride), (0, padding), ceil_mode, **options)

    def forward(self, input: Tensor, where: PoolingParams | None = None) -> Tensor | tuple[Tensor, PoolingParams]:
        """Pool z [N, C, T] or [C, T], with `where` if gaussians='input'."""
        pooled = super().forward(_as_maps(input), None if where is None else _with_height(where))
        if isinstance(pooled, Tensor):
            return pooled.squeeze(-2)
        p, theta = pooled
        return p.squeeze(-2), theta.map(lambda both: both.select(-4, 1).squeeze(-2))


class GaussianUnpool1d(GaussianUnpool2d):
    """Spread every feature over its region of a signal, the adjoint of GaussianPool1d.

    kernel_size, stride, padding  those of the pooling
    options                       `form` of `GaussianUnpool2d`

    Call with p [N, C, t], where, and optionally `output_size`, the number of samples T, if the signal that was pooled
    is not the shortest one that gives t.

    >>> pool, unpool = GaussianPool1d(3, stride=2, padding=1, return_where=True), GaussianUnpool1d(3, 2, 1)
    >>> unpool(*pool(torch.randn(2, 3, 10)), output_size=10).shape
    torch.Size([2, 3, 10])
    """

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0, **options: Any) -> None:
        super().__init__((1, kernel_size), None if stride is None else (1, stride), (0, padding), **options)

    def forward(self, input: Tensor, where: PoolingParams, output_size: Any = None) -> Tensor:
        """Unpool p [N, C, t] or [C, t]."""
        samples = output_size if output_size is None or isinstance(output_size, int) else output_size[-1]
        size = None if samples is None else (1, samples)
        return super().forward(_as_maps(input), _with_height(where), size).squeeze(-2)


def _as_maps(signals: Tensor) -> Tensor:
    """Signals [N, C, T] or [C, T] as maps of height 1."""
    if signals.dim() not in (2, 3):
        raise SpecError(f"a tensor of shape {tuple(signals.shape)} was given; expected signals [N, C, T] or [C, T]")
    return signals.unsqueeze(-2)


def _with_height(where: PoolingParams) -> PoolingParams:
    """μ and γ [..., C, t] of samples with those of rows, which have one element: [..., 2, C, 1, t]."""
    require_params(where)
    return where.map(lambda theta: torch.stack([torch.zeros_like(theta), theta], -3).unsqueeze(-2))
