"""Steps of inference with gradients: on a CPU by the engine, whose forward pass and adjoint are one
function of autograd; on a GPU by recordings of the reference.

A derivative that is differentiated again uses the reference.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.functional import vjp

from whatwhere.engines.cpu import CPUEngine
from whatwhere.engines.reference.ista import LearnedSizes
from whatwhere.inference.unrolled import run_steps
from whatwhere.latents import Background, Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.nn import replayed_steps
from whatwhere.nn.fused import is_transformed
from whatwhere.nn.operators import is_traced

_ENGINE = CPUEngine()


class Given(NamedTuple):
    """What the steps follow from, besides the filters.

    Parameters
    ----------
    images
        after the input stage, [N, C, H, W]
    sizes
        size, threshold, extrapolation and β_U of every layer, [T, 3 + layers]
    scales
        of the fitted μ and γ, [layers, 2]
    rates
        factors of β_U, [N]
    """

    images: Tensor
    sizes: Tensor
    scales: Tensor
    rates: Tensor


def supports(problem: Problem) -> bool:
    """Tell whether the CPU engine computes the steps of a problem, and nothing else needs to see
    them."""
    tensors = (problem.images, *problem.model.filters)
    if is_traced(tensors) or is_transformed(*tensors):
        return False
    return _ENGINE.unsupported_gradients(problem) is None


def run(fixed: Problem, differentiable: Problem, given: Given, *, return_where: bool) -> Latents:
    """Return the latents after the last step.

    Parameters
    ----------
    fixed
        the problem with the sizes of the steps as numbers
    differentiable
        the same for the reference (`UnrolledInference.problem`)
    return_where
        whether gradients of the pooling variables may come back
    """
    outputs = _Steps.apply(  # type: ignore[no-untyped-call]
        fixed, differentiable, return_where, *given, *fixed.model.filters
    )
    return _latents(outputs)


def replay(owner: nn.Module, differentiable: Problem, given: Given) -> Latents:
    """Return the latents after the last step on a GPU, from a recording of the reference
    (`replayed_steps`).

    Parameters
    ----------
    owner
        the layer, which the recording belongs to
    """
    filters = differentiable.model.filters
    key = (differentiable.model.spec, differentiable.phase, differentiable.spec)

    def make() -> Callable[..., tuple[Tensor, ...]]:
        model = differentiable.model
        kept = [f.detach() for f in filters]
        model = DeconvNet.from_parts(model.spec, kept, model.connectivity)
        return _reference(replace(differentiable.detach()[:1], model=model))

    return _latents(replayed_steps.run(owner, make, key, (*given, *filters)))


def _latents(tensors: Sequence[Tensor]) -> Latents:
    p, *theta = tensors
    pairs = zip(theta[::2], theta[1::2], strict=True)
    return Latents(p, tuple(PoolingParams(mu, gamma) for mu, gamma in pairs), Background())


def _tensors(latents: Latents) -> tuple[Tensor, ...]:
    theta = (tensor for each in latents.pooling_params for tensor in (each.mu, each.gamma))
    return latents.features, *theta


class _Steps(Function):
    """The steps as a function of `Given` and the filters."""

    @staticmethod
    def forward(
        ctx: Any, fixed: Problem, differentiable: Problem, return_where: bool, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.steps = _ENGINE.unrolled(fixed, exact_fit=return_where)
        ctx.problem = differentiable
        ctx.save_for_backward(*inputs)
        # a loss of the features alone has no gradients of μ and γ, and zeros for them take time
        ctx.set_materialize_grads(False)
        outputs = _tensors(ctx.steps.solve())
        ctx.shapes = [output.shape for output in outputs]
        return outputs

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        known = [gradient for gradient in given if gradient is not None]
        if not known:
            return None, None, None, *(None for _ in inputs)
        if len(known) == 1 and given[0] is not None and not torch.is_grad_enabled():
            return _Steps._pulled_back(ctx, Latents(given[0]))
        gradients = tuple(
            known[0].new_zeros(shape) if gradient is None else gradient
            for gradient, shape in zip(given, ctx.shapes, strict=True)
        )
        if torch.is_grad_enabled():
            again = vjp(_reference(ctx.problem), inputs, gradients, create_graph=True)[1]
            return None, None, None, *again
        return _Steps._pulled_back(ctx, _latents(gradients))

    @staticmethod
    def _pulled_back(ctx: Any, gradients: Latents) -> tuple[Tensor | None, ...]:
        found = ctx.steps.pull_back(gradients)
        parts = (found.images, found.steps, found.scales, found.rates, *found.filters)
        pairs = zip(parts, ctx.saved_tensors, strict=True)
        same = (part.to(like.dtype) for part, like in pairs)
        return None, None, None, *same


def _reference(problem: Problem) -> Callable[..., tuple[Tensor, ...]]:
    """Return the steps in plain PyTorch, as a function of `Given` and the filters."""

    def steps(*inputs: Tensor) -> tuple[Tensor, ...]:
        given, filters = Given(*inputs[:4]), inputs[4:]
        model = DeconvNet.from_parts(problem.model.spec, list(filters), problem.model.connectivity)
        again = Problem(model, given.images, problem.phase, problem.spec, pairs=True)
        sizes = [
            LearnedSizes(row[0], row[1], extrapolation=row[2], pooling_step=row[3:])
            for row in given.sizes
        ]
        scales = [row.unbind() for row in given.scales]
        return _tensors(run_steps(again, sizes, lambda k: scales[k - 1], given.rates))

    return steps
