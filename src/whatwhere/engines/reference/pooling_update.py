"""The start and the steps of the pooling variables θ = (μ, γ)."""

from collections.abc import Callable

from torch import Tensor

from whatwhere.formulas.pooling import step_theta
from whatwhere.latents import PoolingParams
from whatwhere.model import Problem
from whatwhere.ops import pooling as ops
from whatwhere.ops.convolution import convolve_up
from whatwhere.spec import MomentFit, Pooling

Scales = Callable[[int], tuple[float | Tensor, float | Tensor]]
"""The factors of the fitted start of μ and γ of a layer: numbers (`InferenceSpec.start_scales`), or
tensors."""


def start_pooling(problem: Problem, scales: Scales | None = None) -> tuple[PoolingParams, ...]:
    """Fit the pooling variables of layers 1 … phase.layer to the images propagated up (paper,
    "Initialization").

    Variables of Gaussians that are known already are latents, so they stay. Switches are not
    latents but a function of the image and the filters, so they are computed again. `scales`, if
    given, replace those of the spec.
    """
    model = problem.sized
    known = problem.latents.pooling_params
    layers = model.spec.layers[: problem.phase.layer]
    if len(known) >= len(layers) and all(layer.pooling.moves for layer in layers):
        return known[: len(layers)]  # there is none left to fit
    if scales is None:
        scales = problem.spec.start_scales
    arriving = problem.masked_target
    thetas: list[PoolingParams] = []
    for k, layer in enumerate(layers, start=1):
        regions = model.regions[k - 1]
        s = convolve_up(arriving, model.upward[k - 1])
        if layer.pooling.moves and k <= len(known):
            theta = known[k - 1]
        else:
            theta = fit(layer.pooling, s, regions, problem.spec.moments, scales(k))
        thetas.append(theta)
        arriving = ops.gaussian_weights(theta, regions).pool(s)
    return tuple(thetas)


def fit(
    kind: Pooling,
    arriving: Tensor,
    regions: ops.Regions,
    moments: MomentFit,
    scales: tuple[float | Tensor, float | Tensor] = (1.0, 1.0),
) -> PoolingParams:
    """Return the pooling variables suggested by what arrives at z from below; those that move are
    multiplied by `scales`."""
    theta = ops.fit(kind, arriving, regions, moments)
    unscaled = isinstance(scales[0], float) and scales == (1.0, 1.0)
    if unscaled or not kind.moves:
        return theta
    scaled = PoolingParams(scales[0] * theta.mu, scales[1] * theta.gamma)
    return ops.bound(scaled, regions, moments)


def step_pooling(
    theta: PoolingParams,
    error: Tensor,
    p: Tensor,
    weights: ops.Weights,
    moments: MomentFit,
    step: float | Tensor,
) -> PoolingParams:
    """θ ← bound(θ - λ β_U ∇θ) from the error at z and the features p̂ of the same layer; `step` is
    λ β_U."""
    gradient = weights.gradient(error, p, theta)
    bounds = ops.bounds_of(weights.regions, moments, theta.mu)
    moved = step_theta((theta.mu, theta.gamma), (gradient.mu, gradient.gamma), step, bounds)
    return PoolingParams(*moved)
