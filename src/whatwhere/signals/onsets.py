"""Where exactly an event begins: the place at which the power of a recording changes most.

Before and after it, the differences of samples are taken for normal noise of two variances. The
place at which these explain them best is that of the Akaike information criterion (Maeda 1985),
which seismologists use to pick arrivals; channels add up.
"""

import numpy as np

from whatwhere.inference.tiled import Picture

_FEWEST = 10  # samples that show a variance


def change_of_power(picture: Picture, near: float, reach: int) -> float:
    """Return the sample, at most `reach` from `near`, at which a recording [C, 1, T] changes most;
    `near` where too few samples are known.

    >>> noise = np.random.default_rng(0).standard_normal((1, 1, 400))
    >>> noise[..., 210:] *= 5
    >>> change_of_power(noise, 200.0, 50)
    210.0
    """
    first = max(0, round(near) - reach)
    part = np.asarray(picture[:, :, first : round(near) + reach + 1], np.float64)[:, 0]
    squares = np.square(np.diff(part, axis=1))
    squares = squares[(squares > 0).mean(1) > 0.5]  # channels that are heard
    count = squares.shape[1]
    if not len(squares) or count < 2 * _FEWEST:
        return near
    before = np.arange(_FEWEST, count - _FEWEST + 1)
    sums = squares.cumsum(1)
    early = sums[:, before - 1]
    late = sums[:, -1:] - early
    cost = before * np.log(np.maximum(early / before, 1e-300))
    cost += (count - before) * np.log(np.maximum(late / (count - before), 1e-300))
    # the first difference after the change ends at the first sample after it
    return float(first + before[cost.sum(0).argmin()] + 1)
