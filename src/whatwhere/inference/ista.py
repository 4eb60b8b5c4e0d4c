"""Algorithm 1 of the paper, its inner loop: infer the features and the pooling variables of one batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from whatwhere.inference.pooling_update import StartScales, start_pooling, step_pooling
from whatwhere.inference.step_size import line_search, pooling_rate, safe_step
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Objective, SizedModel
from whatwhere.model.sized import masked, objective, residual
from whatwhere.model.solution import Solution, Stats
from whatwhere.ops import sparsity
from whatwhere.ops.pooling import Weights
from whatwhere.spec import Fixed, InferenceSpec, LineSearch, Phase


class StepSizes(Protocol):
    """The sizes of one step: numbers (`StepSpec`), or tensors where they are learned."""

    @property
    def size(self) -> float | Tensor: ...
    @property
    def threshold(self) -> float | Tensor: ...
    @property
    def extrapolation(self) -> float | Tensor: ...
    def pooling_step_of(self, k: int) -> float | Tensor: ...


@dataclass(frozen=True, kw_only=True)
class IstaState:
    """What a step moves: features p, pooling variables θ, and, where steps are accelerated, the point y ahead of p.

    Without acceleration y is p itself. `fista_t` is FISTA's t of every image, [N, 1, 1, 1]; `beta` the size of every
    step where it is fixed; `pooling_rate` what the β_U of a schedule are multiplied by.
    """

    p: Tensor
    theta: tuple[PoolingParams, ...]
    y: Tensor
    fista_t: Tensor
    beta: Tensor
    pooling_rate: Tensor


def solve(
    model: DeconvNet,
    images: Tensor,
    latents: Latents,
    phase: Phase,
    spec: InferenceSpec,
    mask: Tensor | None = None,
) -> Solution:
    """Run T steps of ISTA on the features of `phase.layer` and gradient steps on the pooling of `phase.update_pooling`.

    images [N, C, H, W]; `latents` are where to start from: what is missing is fitted, p starts at 0. `mask`
    [N, 1 or C, H, W] weighs the pixels.
    """
    sized = model.at(*images.shape[2:])
    state = start(sized, images, latents, phase, spec, mask)
    moving = moving_layers(model, phase)
    trace: list[Objective] = []
    betas: list[Tensor] = []
    for t in range(spec.steps):
        sizes = spec.schedule.steps[t] if spec.schedule else None
        state, measured, beta = step(sized, images, state, moving, spec, mask, sizes)
        trace.append(measured)
        betas.append(beta)
    trace.append(sized.objective(images, state.p, sized.weights(state.theta), spec.lam_value, spec.alpha, mask))
    return Solution(Latents(state.p, state.theta), stats(trace, betas), engine="reference")


def step(
    model: SizedModel,
    v: Tensor,
    state: IstaState,
    moving: tuple[int, ...],
    spec: InferenceSpec,
    mask: Tensor | None = None,
    sizes: StepSizes | None = None,
) -> tuple[IstaState, Objective, Tensor]:
    """One step, all of it from one residual; also the objective before the step, and its size β.

    `sizes` are given in place of those that the rules of `spec` choose.
    """
    lam, alpha, y, theta = spec.lam_value, spec.alpha, state.y, list(state.theta)
    U = model.weights(theta)
    p_hat = model.descend(y, U)  #                          reconstruct: p̂_0 = R p, and p̂_k on the way
    e = residual(p_hat[0], v, mask)  #                      e = M ⊙ (R p - v)
    g, errors = model.ascend(masked(e, mask), U)  #         ∇p = Rᵀ (M ⊙ e), and the error at every z_k
    if sizes is not None:
        beta, threshold = (torch.ones_like(state.beta) * size for size in (sizes.size, sizes.threshold))
    else:
        beta = threshold = step_size(model, state, g, U, spec, mask)

    shrink = sparsity.shrink_exact if spec.shrinkage == "exact" else sparsity.shrink
    p = shrink(y - lam * beta * g, threshold, alpha)  #     gradient and shrinkage step
    p = sparsity.project(p, model.spec.nonnegative)  #      projection step
    for k in moving:  #                                     pooling variables
        beta_U = spec.pooling_step if sizes is None else sizes.pooling_step_of(k) * state.pooling_rate
        theta[k - 1] = step_pooling(theta[k - 1], errors[k - 1], p_hat[k], U[k - 1], spec, beta_U)

    ahead, t = p, state.fista_t
    if spec.momentum:
        ahead, t = accelerate(y, p, state.p, t)
    elif sizes is not None:
        ahead = p + sizes.extrapolation * (p - state.p)
    state = replace(state, p=p, theta=tuple(theta), y=ahead, fista_t=t)
    return state, objective(e, y, lam, alpha), beta.flatten()


def step_size(
    model: SizedModel,
    state: IstaState,
    g: Tensor,
    weights: Sequence[Weights],
    spec: InferenceSpec,
    mask: Tensor | None,
) -> Tensor:
    """β of every image by the rule of `spec`, [N, 1, 1, 1]."""
    if isinstance(spec.step, LineSearch):
        return line_search(spec.step.per, model, g, weights, spec.lam_value, mask)
    return state.beta


def start(
    model: SizedModel,
    images: Tensor,
    latents: Latents,
    phase: Phase,
    spec: InferenceSpec,
    mask: Tensor | None = None,
    scales: StartScales | None = None,
) -> IstaState:
    """The state before the first step."""
    p, theta = start_latents(model, images, latents, phase, spec, mask, scales)
    ones = p.new_ones(p.shape[0], 1, 1, 1)  # not len(): a size may be symbolic (torch.export)
    beta = ones * safe_step(model.model, phase.layer, spec.lam_value) if isinstance(spec.step, Fixed) else 0 * ones
    rate = pooling_rate(images, mask, spec.schedule.contrast if spec.schedule else None).view(-1, 1, 1, 1, 1)
    return IstaState(p=p, theta=theta, y=p, fista_t=ones, beta=beta, pooling_rate=rate)


def start_latents(
    model: SizedModel,
    images: Tensor,
    latents: Latents,
    phase: Phase,
    spec: InferenceSpec,
    mask: Tensor | None = None,
    scales: StartScales | None = None,
) -> tuple[Tensor, tuple[PoolingParams, ...]]:
    """Fit the pooling variables that are not known; take the features that are known if they are this layer's, else 0.

    Known features belong to the last layer that has pooling variables.
    """
    signal, known = masked(masked(images, mask), mask), latents.pooling_params
    theta = start_pooling(model, signal, known, phase.layer, spec, scales)
    if latents.p is not None and len(latents.pooling_params) == phase.layer:
        return latents.p, theta
    return images.new_zeros(images.shape[0], *model.regions[phase.layer - 1].grid), theta


def moving_layers(model: DeconvNet, phase: Phase) -> tuple[int, ...]:
    """The layers whose pooling variables move: of those that the phase names, the Gaussian ones."""
    return tuple(k for k in phase.update_pooling if model.spec.layers[k - 1].pooling_kind == "gaussian")


def accelerate(y: Tensor, p: Tensor, p_old: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """FISTA's next point y = p + (t - 1)/t' (p - p_old), restarted where it points uphill (O'Donoghue, Candès)."""
    uphill = ((y - p) * (p - p_old)).sum((1, 2, 3), keepdim=True) > 0
    t = t.where(~uphill, torch.ones_like(t))
    t_next = (1 + (1 + 4 * t.square()).sqrt()) / 2
    return p + (t - 1) / t_next * (p - p_old), t_next


def stats(trace: list[Objective], betas: list[Tensor]) -> Stats:
    """What every step measured, stacked: the objective's parts [T + 1, N], the step sizes [T, N]."""
    none = trace[0].reconstruction.new_zeros(0, len(trace[0].reconstruction))
    return Stats(
        reconstruction=torch.stack([o.reconstruction for o in trace]),
        penalty=torch.stack([o.penalty for o in trace]),
        nonzeros=torch.stack([o.nonzeros for o in trace]),
        step=torch.stack(betas) if betas else none,
    )
