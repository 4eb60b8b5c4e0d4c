"""The pooling layers as `torch.jit.script` compiles them: calls of the registered operators.

TorchScript has no dataclasses with methods, so `where` is a pair (μ, γ) here. It has no
unpacking in lists either, hence the sums of lists.
"""

import torch
from torch import Tensor, nn

from whatwhere.spec import MomentFit


class _Window(nn.Module):
    """The geometry of a layer's regions, in the numbers that the operators take."""

    def __init__(
        self, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
    ) -> None:
        super().__init__()
        self.window = [1, *size, 1, *stride, 0, *padding]


class ScriptedPool(_Window):
    """GaussianPool2d with Gaussians fitted to the moments: [N, C, H, W] → p."""

    def __init__(
        self,
        size: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        ceil_mode: bool,
        fit: MomentFit,
    ) -> None:
        super().__init__(size, stride, padding)
        self.ceil = [int(ceil_mode)]
        self.fit = [float(fit.gamma_min), float(fit.gamma_max), float(fit.power)]

    def forward(self, input: Tensor) -> Tensor:
        z = input if input.dim() == 4 else input.unsqueeze(0)
        regions = [z.size(1), z.size(2), z.size(3)] + self.window + self.ceil  # noqa: RUF005
        p = torch.ops.whatwhere.gaussian_fit_pool(z, regions, self.fit, False)[0]
        return p if input.dim() == 4 else p.squeeze(0)


class ScriptedPoolWithWhere(ScriptedPool):
    """GaussianPool2d with return_where=True: [N, C, H, W] → p and (μ, γ)."""

    def forward(self, input: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # type: ignore[override]
        size = [input.size(1), input.size(2), input.size(3)]
        regions = size + self.window + self.ceil
        p, mu, gamma = torch.ops.whatwhere.gaussian_fit_pool(input, regions, self.fit, True)
        return p, (mu, gamma)


class ScriptedUnpool(_Window):
    """GaussianUnpool2d: p and (μ, γ) → [N, C, H, W]."""

    def __init__(
        self, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
    ) -> None:
        super().__init__(size, stride, padding)
        self.fit = [0.0, 1.0, 2.0]  # not used: the Gaussians are given

    def forward(
        self, input: Tensor, where: tuple[Tensor, Tensor], output_size: list[int] | None = None
    ) -> Tensor:
        window = self.window
        if output_size is None:
            height = (input.size(2) - 1) * window[4] + window[1] - 2 * window[7]
            width = (input.size(3) - 1) * window[5] + window[2] - 2 * window[8]
        else:
            height = output_size[-2]
            width = output_size[-1]
        ceil = int((height + 2 * window[7] - window[1]) // window[4] + 1 != input.size(2))
        if (width + 2 * window[8] - window[2]) // window[5] + 1 != input.size(3):
            ceil = 1
        regions = [input.size(1), height, width] + window + [ceil]  # noqa: RUF005
        mu, gamma = where
        shape = [input.size(0), 2, input.size(1), input.size(2), input.size(3)]
        return torch.ops.whatwhere.gaussian_unpool(
            input, mu.expand(shape), gamma.expand(shape), regions, self.fit, True
        )
