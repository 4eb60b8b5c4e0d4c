"""The duality gap: how far the objective of features is above its minimum, at most.

With the pooling variables as they are and a convex penalty, the features minimise

    P(p) = λ/2 ‖b - A p‖² + Σ|p|,     A = M R,  b = M ⊙ v

and every y with |Aᵀ y| ≤ 1 (Aᵀ y ≤ 1 where features are ≥ 0) gives a lower bound of the minimum,
D(y) = bᵀ y - ‖y‖² / (2 λ). Here y is the residual times the number that gives the best bound.
"""

from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.latents import Latents
from whatwhere.model.problem import Problem
from whatwhere.model.sized import masked


@torch.no_grad()
def relative_gap(problem: Problem, latents: Latents) -> Tensor:
    """Compute (P - D) / P of every image, [N]: its features' objective is at most this share above
    the minimum for its pooling variables. 0 for an objective of 0; sums are float64 on a CPU."""
    sized = replace(problem.sized, upward=problem.sized.filters)  # the adjoint of the pass down
    weights = sized.weights(latents.pooling_params)
    p = latents.features
    b = masked(problem.images, problem.mask)
    r = b - masked(sized.reconstruct(p, weights), problem.mask)
    slope = problem.lam * sized.propagate(masked(r, problem.mask), weights)
    if not sized.spec.nonnegative:
        slope = slope.abs()
    wide = torch.float64 if p.device.type in ("cpu", "cuda") else p.dtype
    b, r, p = (tensor.flatten(1).to(wide) for tensor in (b, r, p))
    energy = r.square().sum(1)
    primal = problem.lam / 2 * energy + p.abs().sum(1)
    along = (b * r).sum(1)
    # y = share · λ r: the best share without the limit, then within it
    best = along / energy.where(energy > 0, 1)
    limit = 1 / slope.flatten(1).amax(1).to(wide).clamp(min=1e-300)
    share = torch.minimum(best, limit).clamp(min=0)
    dual = problem.lam * (share * along - share.square() * energy / 2)
    gap = (primal - dual) / primal.where(primal > 0, 1)
    return gap.clamp(min=0)
