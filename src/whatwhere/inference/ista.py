"""Algorithm 1 of the paper, its inner loop: infer the features and the pooling variables of one batch of images."""

from __future__ import annotations

import torch
from torch import Tensor

from whatwhere.inference.pooling_update import start_pooling, step_pooling
from whatwhere.inference.step_size import step_size
from whatwhere.latents import Latents, Solution, Stats
from whatwhere.model import DeconvNet, Objective
from whatwhere.model.deconvnet import objective
from whatwhere.ops import sparsity
from whatwhere.spec import InferenceSpec, Phase


def solve(model: DeconvNet, images: Tensor, latents: Latents, phase: Phase, spec: InferenceSpec) -> Solution:
    """Run T steps of ISTA on the features of `phase.layer` and gradient steps on the pooling of `phase.pooling`.

    images [N, C, H, W]; `latents` are where to start from: what is missing is fitted, p starts at 0.
    """
    lam, alpha, v = spec.lam, spec.alpha, images
    theta = list(start_pooling(model, v, latents.pooling, phase.layer, spec))
    p = start_features(model, v, latents, phase.layer)
    moving = [k for k in phase.pooling if model.spec.layers[k - 1].pooling == "gaussian"]
    shrink = sparsity.shrink_exact if spec.shrinkage == "exact" else sparsity.shrink
    y, momentum = p, torch.ones_like(p[:, :1, :1, :1])  # y is p itself unless steps are accelerated
    trace: list[Objective] = []
    steps: list[Tensor] = []

    for _ in range(spec.steps):
        U = model.weights(theta, *v.shape[2:])
        p_hat = model.descend(y, U)  #                          reconstruct: p̂_0 = R p, and p̂_k on the way
        e = p_hat[0] - v  #                                     the residual
        g, errors = model.ascend(e, U)  #                       ∇p = Rᵀ e, and the error at every z_k
        beta = step_size(spec.step_size, model, g, U, lam)  #   the step size
        trace.append(objective(e, y, lam, alpha))
        steps.append(beta.flatten())

        p_old = p
        p = shrink(y - lam * beta * g, beta, alpha)  #          gradient and shrinkage step
        p = sparsity.project(p, model.spec.nonnegative)  #      projection step
        y, momentum = accelerate(y, p, p_old, momentum) if spec.momentum else (p, momentum)
        for k in moving:  #                                     pooling variables, from the same residual
            theta[k - 1] = step_pooling(theta[k - 1], errors[k - 1], p_hat[k], U[k - 1], spec)

    e = model.reconstruct(p, model.weights(theta, *v.shape[2:])) - v
    trace.append(objective(e, p, lam, alpha))
    return Solution(Latents(p, tuple(theta)), stats(trace, steps), engine="reference")


def start_features(model: DeconvNet, images: Tensor, latents: Latents, layer: int) -> Tensor:
    """The known features if they are this layer's (they belong to the last layer that has pooling), else 0."""
    if latents.p is not None and len(latents.pooling) == layer:
        return latents.p
    return images.new_zeros(len(images), *model.regions(*images.shape[2:])[layer - 1].grid)


def accelerate(y: Tensor, p: Tensor, p_old: Tensor, momentum: Tensor) -> tuple[Tensor, Tensor]:
    """FISTA's next point y = p + (t - 1)/t' (p - p_old), restarted where it points uphill (O'Donoghue, Candès)."""
    uphill = ((y - p) * (p - p_old)).sum((1, 2, 3), keepdim=True) > 0
    t = momentum.where(~uphill, torch.ones_like(momentum))
    t_next = (1 + (1 + 4 * t.square()).sqrt()) / 2
    return p + (t - 1) / t_next * (p - p_old), t_next


def stats(trace: list[Objective], steps: list[Tensor]) -> Stats:
    """What every step measured, stacked: the objective's parts [T + 1, N], the step sizes [T, N]."""
    empty = trace[0].reconstruction.new_zeros(0, len(trace[0].reconstruction))
    return Stats(
        reconstruction=torch.stack([o.reconstruction for o in trace]),
        penalty=torch.stack([o.penalty for o in trace]),
        nonzeros=torch.stack([o.nonzeros for o in trace]),
        step=torch.stack(steps) if steps else empty,
    )
