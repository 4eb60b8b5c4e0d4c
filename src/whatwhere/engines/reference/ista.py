"""Algorithm 1 of the paper, its inner loop: infer the features and the pooling variables of one
batch of images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from whatwhere.engines.reference.pooling_update import Scales, start_pooling, step_pooling
from whatwhere.engines.reference.step_size import known_sizes, line_search, pooling_rate
from whatwhere.formulas.step import ahead, next_momentum
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import Objective, Problem
from whatwhere.model.sized import masked, objective, residual
from whatwhere.model.solution import Solution, Stats
from whatwhere.ops.pooling import Weights
from whatwhere.spec import StepSpec


@dataclass(frozen=True)
class LearnedSizes:
    """The sizes of one step as tensors, while they are learned; see `StepSpec`."""

    size: Tensor
    threshold: Tensor
    extrapolation: Tensor
    pooling_step: Tensor

    def pooling_step_of(self, k: int) -> Tensor:
        """β_U of layer k."""
        return self.pooling_step[k - 1]


@dataclass(frozen=True, kw_only=True)
class IstaState:
    """What a step moves: features p, pooling variables θ, and, where steps are accelerated, the
    point y ahead of p.

    Without acceleration y is p itself. `t` is FISTA's, [N, 1, 1, 1]; `sizes` are the β of all steps
    if they are known in advance; `number` counts the steps that were taken; `pooling_rate` is the
    factor of the β_U of a schedule.
    """

    p: Tensor
    theta: tuple[PoolingParams, ...]
    y: Tensor
    t: Tensor
    sizes: list[float] | None
    number: int
    pooling_rate: Tensor

    @property
    def latents(self) -> Latents:
        return Latents(self.p, self.theta)


def solve(problem: Problem) -> Solution:
    """T steps of ISTA on the features of `phase.layer`, and of gradient descent on its pooling
    variables."""
    state = start(problem)
    trace: list[Objective] = []
    betas: list[Tensor] = []
    schedule = problem.spec.schedule
    for number in range(problem.spec.steps):
        sizes = None if schedule is None else schedule.steps[number]
        state, measured, beta = step(problem, state, sizes)
        trace.append(measured)
        betas.append(beta)
    trace.append(problem.objective(state.latents))
    return Solution(state.latents, stats(trace, betas), engine="reference")


def step(
    problem: Problem, state: IstaState, sizes: StepSpec | LearnedSizes | None = None
) -> tuple[IstaState, Objective, Tensor]:
    """Take one step, computed from one residual; also return the objective before the step, and its
    size β.

    `sizes`, if given, replace those that the rule of `spec.step` chooses.
    """
    model = problem.sized
    spec = problem.spec
    lam = problem.lam
    y = state.y
    theta = list(state.theta)

    # reconstruct: p̂_0 = R p, and p̂_k on the way
    U = model.weights(theta)
    p_hat = model.descend(y, U)
    e = residual(p_hat[0], problem.images, problem.mask)  # e = M ⊙ (R p - v)

    # propagate: ∇p = Rᵀ (M ⊙ e), and the error at every z_k
    # Deviation: Eqn. 10 calls ∇p the gradient of the cost, which has λ; the step below has it.
    g, errors = model.ascend(masked(e, problem.mask), U)

    # the features: gradient, shrinkage and projection
    beta, threshold = _step_sizes(problem, state, sizes, g, U)
    p = spec.penalty.shrink(y - lam * beta * g, threshold)
    if model.spec.nonnegative:
        p = p.clamp(min=0)

    # the pooling variables, from the errors and features that both passes left
    for k in problem.moving:
        beta_U: float | Tensor = spec.pooling_step
        if sizes is not None:
            beta_U = sizes.pooling_step_of(k) * state.pooling_rate
        theta[k - 1] = step_pooling(
            theta[k - 1], errors[k - 1], p_hat[k], U[k - 1], spec.moments, lam * beta_U
        )

    # the point that the next step starts from
    next_y = p
    t = state.t
    if sizes is not None:
        next_y = ahead(p, state.p, sizes.extrapolation)
    elif spec.momentum:
        next_y, t = accelerate(y, p, state.p, state.t)
    state = replace(state, p=p, theta=tuple(theta), y=next_y, t=t, number=state.number + 1)
    return state, objective(e, y, lam, spec.penalty), beta.flatten()


class StepSizes(NamedTuple):
    """How far a step goes along the gradient, and what the shrinkage subtracts, [N, 1, 1, 1]."""

    beta: Tensor
    threshold: Tensor


def _step_sizes(
    problem: Problem,
    state: IstaState,
    sizes: StepSpec | LearnedSizes | None,
    g: Tensor,
    U: Sequence[Weights],
) -> StepSizes:
    """Return the sizes that are given, or those that the rule of `spec.step` chooses for the
    gradient g."""
    ones = torch.ones_like(state.t)
    if sizes is not None:
        return StepSizes(ones * sizes.size, ones * sizes.threshold)
    if state.sizes is not None:
        beta = ones * state.sizes[state.number]
        return StepSizes(beta, beta)
    beta = line_search(problem, g, U)
    return StepSizes(beta, beta)


def start(problem: Problem, scales: Scales | None = None) -> IstaState:
    """Return the state before the first step; `scales` as in `start_pooling`."""
    p = start_features(problem)
    theta = start_pooling(problem, scales)
    ones = p.new_ones(p.shape[0], 1, 1, 1)  # not len(): a size may be symbolic (torch.export)
    contrast = problem.spec.schedule.contrast if problem.spec.schedule else None
    rate = pooling_rate(problem.images, problem.mask, contrast).view(-1, 1, 1, 1, 1)
    return IstaState(
        p=p,
        theta=theta,
        y=p,
        t=ones,
        sizes=known_sizes(problem),
        number=0,
        pooling_rate=rate,
    )


def known_features(problem: Problem) -> Tensor | None:
    """Return the features that are known, if they are this layer's. They belong to the last layer
    that has θ."""
    latents = problem.latents
    if latents.p is not None and len(latents.pooling_params) == problem.phase.layer:
        return latents.p
    return None


def start_features(problem: Problem) -> Tensor:
    """Return the features that inference starts from: 0 if none are known."""
    known = known_features(problem)
    if known is not None:
        return known
    grid = problem.sized.regions[problem.phase.layer - 1].grid
    return problem.images.new_zeros(problem.images.shape[0], *grid)


def accelerate(y: Tensor, p: Tensor, p_old: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """FISTA's next point y = p + (t - 1)/t' (p - p_old), restarted where it points uphill
    (O'Donoghue, Candès)."""
    t, share = next_momentum(t, ((y - p) * (p - p_old)).sum((1, 2, 3), keepdim=True))
    return ahead(p, p_old, share), t


def stats(trace: list[Objective], betas: list[Tensor]) -> Stats:
    """Return what every step measured, stacked: the objective's parts [T + 1, N], the step sizes
    [T, N]."""
    none = trace[0].reconstruction.new_zeros(0, len(trace[0].reconstruction))
    return Stats(
        reconstruction=torch.stack([o.reconstruction for o in trace]),
        penalty=torch.stack([o.penalty for o in trace]),
        nonzeros=torch.stack([o.nonzeros for o in trace]),
        step=torch.stack(betas) if betas else none,
    )
