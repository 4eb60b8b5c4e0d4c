"""The start and the steps of the pooling variables θ = (μ, γ)."""

from collections.abc import Callable

from torch import Tensor

from whatwhere.latents import PoolingParams
from whatwhere.model import Problem
from whatwhere.ops import pooling as ops
from whatwhere.ops.convolution import convolve_up
from whatwhere.spec import MomentFit, PoolingKind

Scales = Callable[[int], tuple[float | Tensor, float | Tensor]]
"""What the fitted start of μ and γ of a layer is multiplied by: numbers
(`InferenceSpec.start_scales`), or tensors."""


def start_pooling(problem: Problem, scales: Scales | None = None) -> tuple[PoolingParams, ...]:
    """Fit the pooling variables of layers 1 … phase.layer to the images propagated up (paper,
    "Initialization").

    Gaussians that are known already are latent variables, and stay. Switches are no latents but a
    function of the image and the filters, so they are computed again. `scales` are given in place
    of those of the spec.
    """
    model, known, layer = problem.sized, problem.latents.pooling_params, problem.phase.layer
    if len(known) >= layer and all(
        below.pooling_kind == "gaussian" for below in model.spec.layers[:layer]
    ):
        return known[:layer]  # there is none left to fit
    signal, fitted = problem.signal, []
    for k, regions in enumerate(model.regions[:layer], start=1):
        kind = model.spec.layers[k - 1].pooling_kind
        s = convolve_up(signal, model.model.upward[k - 1])
        if kind == "gaussian" and k <= len(known):
            fitted.append(known[k - 1])
        else:
            fitted.append(
                fit(
                    kind, s, regions, problem.spec.moments, (scales or problem.spec.start_scales)(k)
                )
            )
        signal = ops.gaussian_weights(fitted[-1], regions).pool(s)
    return tuple(fitted)


def fit(
    kind: PoolingKind,
    signal: Tensor,
    regions: ops.Regions,
    moments: MomentFit,
    scales: tuple[float | Tensor, float | Tensor] = (1.0, 1.0),
) -> PoolingParams:
    """The pooling variables that a bottom-up signal at z suggests; those of a Gaussian times
    `scales`."""
    if kind == "gaussian":
        theta = ops.fit_moments(
            signal, regions, moments.gamma_min, moments.gamma_max, moments.power
        )
        if isinstance(scales[0], float) and scales == (1.0, 1.0):
            return theta
        scaled = PoolingParams(scales[0] * theta.mu, scales[1] * theta.gamma)
        return ops.bound(scaled, regions, moments.gamma_min, moments.gamma_max)
    return ops.fit_switches(signal, regions) if kind == "max" else ops.fit_flat(signal, regions)


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
    moved = PoolingParams(theta.mu - step * gradient.mu, theta.gamma - step * gradient.gamma)
    return ops.bound(moved, weights.regions, moments.gamma_min, moments.gamma_max)
