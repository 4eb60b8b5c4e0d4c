"""Where coordinate descent is faster than steps of all coefficients: sparse codes.

The threshold 1/λ as a share of the largest correlation max |Rᵀ M² v| tells how sparse a code is; at
a share of 1 it is empty. The smallest shares come from
`benchmarks/speed/results/greedy_table.json`.
"""

from dataclasses import dataclass

import torch

from whatwhere.model import Problem
from whatwhere.ops.convolution import convolve_up


@dataclass(frozen=True)
class SparseCodes:
    """What codes are sparse enough for coordinate descent.

    Parameters
    ----------
    few
        waveforms up to which it is always faster: they never wait long for each other
    least
        the smallest share of the threshold in the largest correlation
    many, short
        more waveforms than `many` in a signal of fewer samples than `short` overlap everywhere
    least_of_many
        the smallest share for these
    rough
        a larger tolerance, as in training, asks for a rough code: few sweeps suffice
    """

    few: int = 4
    least: float = 0.04
    many: int = 16
    short: int = 1000
    least_of_many: float = 0.1
    rough: float = 1e-3


_SPARSE = SparseCodes()


def is_sparse(problem: Problem, codes: SparseCodes = _SPARSE) -> bool:
    """Tell whether the codes of most signals are so sparse that coordinate descent is faster."""
    waveforms = problem.model.filters[0].shape[1]
    if waveforms <= codes.few or problem.spec.tolerance > codes.rough:
        return True
    many_in_short = waveforms > codes.many and problem.images.shape[3] < codes.short
    least = codes.least_of_many if many_in_short else codes.least
    threshold = 1 / problem.lam
    return threshold >= least * float(largest_correlations(problem).median())


@torch.no_grad()
def largest_correlations(problem: Problem) -> torch.Tensor:
    """max |Rᵀ M² v| of every signal, [N]."""
    correlations = convolve_up(problem.masked_target, problem.model.filters[0]).flatten(1)
    if problem.model.spec.nonnegative:
        return correlations.amax(dim=1).clamp(min=0)
    return correlations.abs().amax(dim=1)
