"""A function with a kernel of its own, as PyTorch sees it: an operator in graphs, called straight in eager mode.

A registered operator can be traced, compiled and checked, but the way to it through the dispatcher takes longer than a
small kernel runs. So where nothing is being traced, its kernel and its derivative are called without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Operator:
    """A kernel that can be called, traced and differentiated.

    kernel  the function itself, with the types of its arguments written out
    fake    makes outputs of the same shape, with nothing in them
    """

    def __init__(self, name: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.registered = torch.library.custom_op(f"whatwhere::{name}", kernel, mutates_args=(), device_types="cuda")
        self.registered.register_fake(fake)

    def differentiate(self, vjp: Callable[..., Any], tensors: int) -> None:
        """`vjp(ctx, *gradients)` gives the gradients of the inputs, of which the first `tensors` are kept as
        ctx.saved_tensors, the others as ctx.settings."""

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            # of several outputs some may be unused: their gradients stay None rather than be read as zeros
            ctx.set_materialize_grads(isinstance(output, Tensor))
            ctx.save_for_backward(*inputs[:tensors])
            ctx.settings = inputs[tensors:]

        self.registered.register_autograd(vjp, setup_context=setup_context)

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = self.kernel(*inputs)
            setup_context(ctx, inputs, output)
            return output

        parts = {"forward": staticmethod(forward), "backward": staticmethod(vjp)}
        self.function: Any = type(self.registered._name, (torch.autograd.Function,), parts)

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if watched() or any(type(x) not in (Tensor, nn.Parameter) for x in tensors):
            return self.registered(*inputs)
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return self.function.apply(*inputs)
        return self.kernel(*inputs)


def watched() -> bool:
    """Whether someone records, or stands in for, the operators that run."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack() > 0
