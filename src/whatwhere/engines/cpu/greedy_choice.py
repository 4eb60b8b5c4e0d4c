"""Where coordinate descent is faster than steps of all coefficients: sparse codes.

The threshold 1/λ as a share of the largest correlation max |Rᵀ M² v| tells how sparse a code is; at
a share of 1 it is empty. The smallest shares come from
`benchmarks/speed/results/greedy_table.json`.
"""

import torch

from whatwhere.model import Problem
from whatwhere.ops.convolution import convolve_up

FEW_WAVEFORMS = 4  # so few never wait long for each other
MANY_WAVEFORMS = 16
LEAST_SHARE = 0.04
# many waveforms in a short signal overlap everywhere
SHORT_SIGNAL = 1000  # samples
LEAST_SHARE_OF_MANY = 0.1
ROUGH = 1e-3  # a larger tolerance, as in training, asks for a rough code: few sweeps suffice


def is_sparse(problem: Problem) -> bool:
    """Whether the codes of most signals are so sparse that coordinate descent is faster."""
    waveforms = problem.model.filters[0].shape[1]
    if waveforms <= FEW_WAVEFORMS or problem.spec.tolerance > ROUGH:
        return True
    many_in_short = waveforms > MANY_WAVEFORMS and problem.images.shape[3] < SHORT_SIGNAL
    least = LEAST_SHARE_OF_MANY if many_in_short else LEAST_SHARE
    threshold = 1 / problem.lam
    return threshold >= least * float(largest_correlations(problem).median())


@torch.no_grad()
def largest_correlations(problem: Problem) -> torch.Tensor:
    """max |Rᵀ M² v| of every signal, [N]."""
    correlations = convolve_up(problem.signal, problem.model.filters[0]).flatten(1)
    if problem.model.spec.nonnegative:
        return correlations.amax(dim=1).clamp(min=0)
    return correlations.abs().amax(dim=1)
