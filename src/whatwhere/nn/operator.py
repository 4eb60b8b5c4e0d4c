"""A kernel as PyTorch calls it: a registered operator in graphs, a direct call in eager mode.

A registered operator can be traced, compiled and checked, but a call through the dispatcher takes longer than a small
kernel runs. So if nothing is traced, the kernel and its derivative are called directly.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import is_tracing


class Operator:
    """A kernel that can be called, traced and differentiated.

    kernel   the function, with type annotations for all arguments
    fake     returns uninitialised outputs of the same shapes
    vjp      vjp(ctx, *gradients) returns the gradients of the inputs; None: has no derivative
    tensors  how many inputs are ctx.saved_tensors; the others are ctx.settings
    """

    def __init__(
        self,
        name: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        vjp: Callable[..., Any] | None = None,
        tensors: int = 0,
    ) -> None:
        self.kernel = kernel
        self.registered = torch.library.custom_op(
            f"whatwhere::{name}", kernel, mutates_args=(), device_types=("cpu", "cuda")
        )
        self.registered.register_fake(fake)
        self.function: Any = None
        if vjp is None:
            return

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            # some of several outputs may be unused: their gradients stay None instead of becoming tensors of zeros
            ctx.set_materialize_grads(isinstance(output, Tensor))
            ctx.save_for_backward(*inputs[:tensors])
            ctx.settings = inputs[tensors:]

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            setup_context(ctx, inputs, output)
            return output

        self.registered.register_autograd(vjp, setup_context=setup_context)
        parts = {"forward": staticmethod(forward), "backward": staticmethod(vjp)}
        self.function = type(name, (torch.autograd.Function,), parts)

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if is_traced() or any(type(x) not in (Tensor, nn.Parameter) for x in tensors):
            return self.registered(*inputs)
        if self.function and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return self.function.apply(*inputs)
        return self.kernel(*inputs)


def is_traced() -> bool:
    """Whether the operators that run are recorded or replaced."""
    return torch.compiler.is_compiling() or is_tracing() or torch._C._len_torch_dispatch_stack() > 0
