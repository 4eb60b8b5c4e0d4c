"""The threshold for a wanted rate of false alarms, and how well so many normal pictures determine it.

If a share α of new normal pictures may be taken for anomalies, the threshold is the k-th largest of the scores of n
normal pictures, k = α (n + 1). The rate of false alarms that it really has is random: it follows Beta(k, n + 1 - k),
whatever the distribution of the scores, as long as the pictures are independent.
"""

import math
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Threshold:
    """A threshold of anomaly scores.

    value         pictures with larger scores are anomalies
    false_alarms  the rate of false alarms that is expected: the wanted one, or 1 / (n + 1) if that is more
    interval      in which the rate lies with a probability of 95 %
    """

    value: float
    false_alarms: float
    interval: tuple[float, float]


def choose_threshold(normal: np.ndarray, false_alarms: float) -> Threshold:
    """The threshold for scores like those of normal pictures, [n]."""
    from scipy.stats import beta

    count = len(normal)
    k = max(1, math.floor(false_alarms * (count + 1)))
    low, high = beta.ppf([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], k, count + 1 - k)
    return Threshold(float(np.sort(normal)[-k]), k / (count + 1), (float(low), float(high)))


def pictures_needed(false_alarms: float, at_most: float) -> int:
    """How many normal pictures make the rate of false alarms at most `at_most` with a probability of 97.5 %.

    >>> pictures_needed(0.01, at_most=0.02)
    600
    """
    count = math.ceil(1 / false_alarms)
    while choose_threshold(np.zeros(count), false_alarms).interval[1] > at_most:
        count += math.ceil(1 / false_alarms)
    return count
