"""The size β of a step on the features: the exact line search of the smooth term, a secant, or a safe constant.

    β = ‖g‖² / (λ ‖M ⊙ R g‖²)                            line search (Eqn. autostep)
    β = ‖p - p_old‖² / (λ ‖M ⊙ (R p - R_old p_old)‖²)    secant (Barzilai and Borwein)

Both are ‖d‖² / (λ ‖M ⊙ R d‖²) along a direction d: the line search needs one more reconstruction, the secant takes the
two that it has, as SpaRSA does (Wright, Nowak and Figueiredo).

With `search_every` = n the line search is made in the steps 0, n, 2n, … only, and the steps in between keep its β, as
in cyclic steepest descent (Dai and others). A β that is long for one gradient may overshoot along the next, so a kept
one grows by no more than KEPT_GROWTH:

    β_t = min(β_{t-1}, KEPT_GROWTH · β_{t-2})            between two searches

Deviation: the print of the line search lacks λ, although the step is λ β g; at λ = 5 it diverges.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whatwhere.model import DeconvNet, SizedModel
from whatwhere.model.sized import masked
from whatwhere.ops.pooling import Weights
from whatwhere.spec import StepSize

BATCH_SHARE = 0.1  # of a mini-batch that the batch rule looks at, as in the paper
KEPT_GROWTH = 2.0  # how many times longer than the step before its line search a kept step may be
SECANT_RANGE = 8.0  # how many times longer or shorter than the first step, by line search, a secant step may be


def line_search(
    rule: StepSize,
    model: SizedModel,
    g: Tensor,
    weights: Sequence[Weights],
    lam: float,
    mask: Tensor | None = None,
) -> Tensor:
    """β of every image, [N, 1, 1, 1]: each its own by the 'image' rule, all the same by the 'batch' rule."""
    if rule == "image":
        return best_step(model, g, weights, lam, mask, per_image=True)
    seen = slice(0, batch_sample(len(g)))
    mask = None if mask is None else mask[seen]
    beta = best_step(model, g[seen], [w[seen] for w in weights], lam, mask, per_image=False)
    return beta.expand(len(g), 1, 1, 1)


def batch_sample(images: int) -> int:
    """How many images of a mini-batch the batch rule looks at: the first tenth, at least one."""
    return max(1, round(BATCH_SHARE * images))


def best_step(
    model: SizedModel,
    g: Tensor,
    weights: Sequence[Weights],
    lam: float,
    mask: Tensor | None = None,
    *,
    per_image: bool,
) -> Tensor:
    """‖g‖² / (λ ‖M ⊙ R g‖²), for every image or for all together; 0 where there is no gradient."""
    numerator = g.square().sum((1, 2, 3), keepdim=True)
    denominator = lam * masked(model.reconstruct(g, weights), mask).square().sum((1, 2, 3), keepdim=True)
    if not per_image:
        numerator, denominator = numerator.sum(0, keepdim=True), denominator.sum(0, keepdim=True)
    return (numerator / denominator).where(denominator > 0, torch.zeros_like(numerator))


def kept_step(last: Tensor, before: Tensor) -> Tensor:
    """β of a step without a search, from those of the two steps before it; 0 for one that does not exist."""
    return torch.minimum(last, KEPT_GROWTH * before).where(before > 0, last)


def secant_step(change: Tensor, change_below: Tensor, lam: float, last: Tensor, first: Tensor) -> Tensor:
    """‖p - p_old‖² / (λ ‖M ⊙ (R p - R_old p_old)‖²) of every image, [N, 1, 1, 1]; where nothing changed, the last β.

    Pooling variables that moved change the reconstruction, too, and a secant may be far too long where the objective
    is flat; so β stays within SECANT_RANGE of the first one.
    """
    numerator = change.square().sum((1, 2, 3), keepdim=True)
    denominator = lam * change_below.square().sum((1, 2, 3), keepdim=True)
    beta = (numerator / denominator).where((numerator > 0) & (denominator > 0), last)
    return torch.minimum(torch.maximum(beta, first / SECANT_RANGE), first * SECANT_RANGE)


def pooling_rate(v: Tensor, mask: Tensor | None, contrast: float | None) -> Tensor:
    """What β_U of a schedule is multiplied by for every image, (contrast / max |M ⊙ v|)², [N]; 0 for a black image.

    The gradient of the pooling variables grows with the square of the images' contrast.
    """
    if contrast is None:
        return v.new_ones(v.shape[0])  # not len(): a size may be symbolic (torch.export)
    largest = masked(v, mask).abs().amax((1, 2, 3))
    return (contrast / largest).square().where(largest > 0, torch.zeros_like(largest))


def safe_step(model: DeconvNet, layer: int, lam: float) -> float:
    """β = 1 / (λ L), the step of the 'fixed' rule: with L ≥ ‖R‖² no step of ISTA overshoots.

    0 where R = 0 (a layer of zeros): there is no gradient, and so no step, as in the line search.
    """
    bound = lipschitz(model, layer)
    return 1 / (lam * bound) if bound > 0 else 0.0


def lipschitz(model: DeconvNet, layer: int) -> float:
    """A bound on ‖R‖² for any pooling variables: the filters' largest gain at any frequency, times the overlap."""
    bound = 1.0  # on the CPU: some devices have no float64
    for f, spec in zip(model.filters[:layer], model.spec.layers, strict=False):
        spectrum = torch.fft.fft2(f.detach().cpu().double(), s=(64, 64)).permute(2, 3, 0, 1)
        overlap = (-(-spec.pool_size // spec.stride)) ** 2
        bound *= overlap * float(torch.linalg.matrix_norm(spectrum, ord=2).square().max())
    return bound
