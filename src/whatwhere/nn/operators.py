"""Kernels as PyTorch operators: called directly in eager mode, registered for programs that are
traced.

`torch.compile` sees a registered operator (`torch.ops.whatwhere.…`) as one node of its graph, with
the shapes of its results and its derivative. A call through PyTorch's dispatcher takes longer than
a small kernel runs, so in eager mode the kernel is called directly.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.jit._trace import is_tracing

from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

NAMESPACE = "whatwhere"
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
# a value at the level of the module: Dynamo of torch 2.11 knows none that is a field's default
DEFAULT_FIT = MomentFit()
SETTINGS = "SymInt[] regions, float[] fit, bool return_where"
Vjp = Callable[..., tuple[Tensor | None, ...]]
Results: TypeAlias = Tensor | tuple[Tensor | None, ...]
Kernel = Callable[..., Results]
Numbers = tuple[Sequence[int], Sequence[float], bool]
"""The settings of an operator as its schema has them."""


class Context(Protocol):
    """What autograd keeps of a call until the gradient is asked for."""

    settings: "Settings"
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def set_materialize_grads(self, value: bool, /) -> None: ...


class Settings(NamedTuple):
    """The arguments of an operator besides its tensors.

    Parameters
    ----------
    regions
        the pooling regions
    fit
        how Gaussians are fitted, for operators that fit
    return_where
        whether fitted Gaussians are returned
    """

    regions: Regions
    fit: MomentFit
    return_where: bool = True

    def numbers(self) -> tuple[list[int], list[float], bool]:
        """Return the settings as arguments of a registered operator."""
        of = self.regions
        regions = [*of.shape, *of.size, *of.stride, *of.padding, int(of.ceil)]
        fit = [float(self.fit.gamma_min), float(self.fit.gamma_max), float(self.fit.power)]
        return regions, fit, self.return_where

    @classmethod
    def of(cls, numbers: Numbers) -> "Settings":
        """Return the settings from arguments of a registered operator; the inverse of `numbers`."""
        regions, fit, return_where = numbers
        shape, size, stride, padding = (
            (regions[first], regions[first + 1], regions[first + 2]) for first in (0, 3, 6, 9)
        )
        return cls(
            Regions(shape, size, stride, padding, bool(regions[12])),
            MomentFit(fit[0], fit[1], int(fit[2])),
            return_where,
        )


class Operator:
    """A kernel that can be called, traced, mapped over and differentiated.

    Parameters
    ----------
    schema
        the tensors and results of the registered operator, such as "(Tensor z) -> Tensor"
    kernel
        kernel(*tensors, settings) computes the results
    empty
        empty(*tensors, settings) returns results of the same shapes, uninitialised
    vjp
        vjp(ctx, *gradients) returns the gradients of the tensors, from ctx.saved_tensors and
        ctx.settings; None: the operator has no derivative
    """

    def __init__(
        self,
        name: str,
        schema: str,
        kernel: Kernel,
        empty: Kernel,
        vjp: Vjp | None = None,
    ) -> None:
        self.kernel = kernel
        self.function = None if vjp is None else _function(name, kernel, vjp)
        self.registered = _register(name, schema, kernel, empty, vjp)

    def __call__(self, *tensors: Tensor | None, settings: Settings) -> Any:
        if is_traced(tensors):
            return self.registered(*tensors, *settings.numbers())
        if self.function is not None and torch.is_grad_enabled():
            return self.function.apply(*tensors, settings)
        return self.kernel(*tensors, settings)


def is_recorded(*tensors: Tensor) -> bool:
    """Tell whether gradients may be asked for, or PyTorch records the operators that run."""
    return torch.is_grad_enabled() or is_traced(tensors)


def is_traced(tensors: Sequence[Tensor | None]) -> bool:
    """Tell whether PyTorch records, replaces or maps the operators that run."""
    if torch.compiler.is_compiling() or is_tracing():
        return True
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active():
        return True
    return any(type(tensor) not in (Tensor, nn.Parameter, type(None)) for tensor in tensors)


def _save(
    ctx: Context, tensors: Sequence[Tensor | None], settings: Settings, results: Results
) -> None:
    # some of several results may be unused: no tensors of zeros for their gradients
    ctx.set_materialize_grads(isinstance(results, Tensor))
    ctx.save_for_backward(*tensors)
    ctx.settings = settings


def _function(name: str, kernel: Kernel, vjp: Vjp) -> type[Function]:
    """Return the kernel as an autograd function, for eager mode."""

    def forward(ctx: Context, *inputs: Any) -> Results:
        *tensors, settings = inputs
        results = kernel(*tensors, settings)
        _save(ctx, tensors, settings, results)
        return results

    def backward(ctx: Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return *vjp(ctx, *gradients), None

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (Function,), parts)


def _register(
    name: str,
    schema: str,
    kernel: Kernel,
    empty: Kernel,
    vjp: Vjp | None,
) -> Any:
    """Return the kernel as `torch.ops.whatwhere.<name>`.

    `torch.library.custom_op` would do the same, but checks every result of every call: on a GPU
    that takes longer than the kernel runs.
    """
    tensors, results = schema.split(" -> ")
    full = f"{tensors[:-1]}, {SETTINGS}) -> {results}"
    qualified = f"{NAMESPACE}::{name}"

    def run(*inputs: Any) -> Results:
        return _without_none(kernel(*inputs[:-3], _cached_settings(inputs[-3:])), inputs[0])

    def fake(*inputs: Any) -> Results:
        return _without_none(empty(*inputs[:-3], Settings.of(inputs[-3:])), inputs[0])

    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
        _save(ctx, inputs[:-3], Settings.of(inputs[-3:]), output)

    def backward(ctx: Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return *vjp(ctx, *gradients), None, None, None  # type: ignore[misc]

    LIBRARY.define(name + full, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        LIBRARY.impl(name, run, device)
    torch.library.register_fake(qualified, fake, lib=LIBRARY)
    if vjp is not None:
        torch.library.register_autograd(
            qualified, backward, setup_context=setup_context, lib=LIBRARY
        )
    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    torch.library.register_vmap(qualified, _mapped(operator), lib=LIBRARY)
    return operator


def _cached_settings(numbers: Numbers) -> Settings:
    """`Settings.of` for a kernel that runs, whose sizes are integers: checked once."""
    regions, fit, return_where = numbers
    return _settings(tuple(regions), tuple(fit), return_where)


@lru_cache(256)
def _settings(regions: tuple[int, ...], fit: tuple[float, ...], return_where: bool) -> Settings:
    return Settings.of((regions, fit, return_where))


def _without_none(results: Results, like: Tensor) -> Results:
    """Return the results of a registered operator, which are tensors: an empty one for None."""
    if isinstance(results, Tensor):
        return results
    return tuple(like.new_empty(0) if result is None else result for result in results)


def _mapped(operator: Callable[..., Tensor | tuple[Tensor, ...]]) -> Callable[..., object]:
    """Return the rule of `vmap`: the axis that is mapped over joins the images' axis."""

    def rule(
        info: Any, in_dims: Sequence[int | None], *inputs: Any
    ) -> tuple[Results, int | tuple[int, ...]]:
        images = 0

        def joined(tensor: Tensor | None, axis: int | None) -> Tensor | None:
            nonlocal images
            if tensor is None:
                return None
            if axis is None:
                tensor = tensor.expand(info.batch_size, *tensor.shape)
            else:
                tensor = tensor.movedim(axis, 0)
            images = tensor.shape[1]
            return tensor.flatten(0, 1)

        def parted(result: Tensor) -> Tensor:
            if result.dim() == 1:  # stands for None
                return result.expand(info.batch_size, 0)
            return result.unflatten(0, (info.batch_size, images))

        tensors = [joined(x, axis) for x, axis in zip(inputs[:-3], in_dims[:-3], strict=True)]
        results = operator(*tensors, *inputs[-3:])
        if isinstance(results, Tensor):
            return parted(results), 0
        return tuple(parted(result) for result in results), (0,) * len(results)

    return rule
