"""The size β of a step on the features: the exact line search of the smooth term, or a safe
constant.

    β = ‖g‖² / (λ ‖M ⊙ R g‖²)                            line search (Eqn. autostep)

Deviation: the printed line search lacks λ, although the step is λ β g; at λ = 5 it diverges.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from whatwhere.formulas import step as formulas
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.sized import masked
from whatwhere.ops.pooling import Weights
from whatwhere.spec import Fixed

BATCH_SHARE = 0.1  # share of a mini-batch that the batch rule uses, as in the paper


def line_search(problem: Problem, g: Tensor, weights: Sequence[Weights]) -> Tensor:
    """‖g‖² / (λ ‖M ⊙ R g‖²) of every image, or of the first tenth of the batch together, [N, 1, 1,
    1].

    0 where there is no gradient.
    """
    N = len(g)
    seen = g
    mask = problem.mask
    per_batch = problem.spec.per_batch
    if per_batch:
        first = slice(0, batch_sample(N))
        seen = g[first]
        weights = [w[first] for w in weights]
        mask = None if mask is None else mask[first]
    numerator = seen.square().sum((1, 2, 3), keepdim=True)
    gained = masked(problem.sized.reconstruct(seen, weights), mask)
    denominator = problem.lam * gained.square().sum((1, 2, 3), keepdim=True)
    if per_batch:
        numerator = numerator.sum(0, keepdim=True)
        denominator = denominator.sum(0, keepdim=True)
    beta: Tensor = formulas.line_search(numerator, denominator)
    return beta.expand(N, 1, 1, 1)


def batch_sample(images: int) -> int:
    """Return how many images of a mini-batch the batch rule uses: the first tenth, at least one."""
    return max(1, round(BATCH_SHARE * images))


def pooling_rate(v: Tensor, mask: Tensor | None, contrast: float | None) -> Tensor:
    """Return the factor of a schedule's β_U for every image, (contrast / max |M ⊙ v|)², [N]; 0 for
    a black image.

    The gradient of the pooling variables grows with the square of the images' contrast.
    """
    if contrast is None:
        return v.new_ones(v.shape[0])  # not len(): a size may be symbolic (torch.export)
    largest = masked(v, mask).abs().amax((1, 2, 3))
    return (contrast / largest).square().where(largest > 0, torch.zeros_like(largest))


def known_sizes(problem: Problem) -> list[float] | None:
    """β of every step, if the rule of `spec.step` knows it in advance; None if a line search finds
    it in every step.

    All engines call this function, so a new rule of this kind is one more case here.
    """
    spec = problem.spec
    if spec.schedule is not None:
        return [sizes.size for sizes in spec.schedule.steps[: spec.steps]]
    if isinstance(spec.step, Fixed):
        return [safe_step(problem.model, problem.phase.layer, problem.lam)] * spec.steps
    return None


def safe_step(model: DeconvNet, layer: int, lam: float) -> float:
    """β = 1 / (λ L), the step of `Fixed`: with L ≥ ‖R‖² no step of ISTA overshoots.

    0 where R = 0 (a layer of zeros): there is no gradient, and so no step, as in the line search.
    """
    bound = lipschitz(model, layer)
    return 1 / (lam * bound) if bound > 0 else 0.0


def lipschitz(model: DeconvNet, layer: int) -> float:
    """Make a bound on ‖R‖² for any pooling variables: the filters' largest gain at any frequency,
    times the overlap."""
    bound = 1.0  # on the CPU: some devices have no float64
    for f, spec in zip(model.filters[:layer], model.spec.layers, strict=False):
        samples = [max(64, 4 * side) if side > 1 else 1 for side in spec.filter_shape]
        spectrum = torch.fft.fft2(f.detach().cpu().double(), s=samples).permute(2, 3, 0, 1)
        overlaps = (
            -(-side // stride) for side, stride in zip(spec.pool_shape, spec.strides, strict=True)
        )
        bound *= math.prod(overlaps) * float(
            torch.linalg.matrix_norm(spectrum, ord=2).square().max()
        )
    return bound
