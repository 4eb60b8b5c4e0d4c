"""The threshold of anomaly scores: from normal pictures, from pictures with defects, and how far
each can be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from whatwhere.errors import SpecError
from whatwhere.spec.checks import Checked, Positive, Within


@dataclass(frozen=True, kw_only=True)
class ThresholdSpec(Checked):
    """Settings of thresholds.

    Parameters
    ----------
    confidence
        probability of the intervals of rates
    rounding
        of a score, relative to 1 or to its size: a picture that is equal to a normal one must not
        exceed its score by a rounding error
    surprise
        probability that scores of normal pictures alone count as far above the others. About one
        fit in a hundred, because whoever reads the warning looks at pictures
    most_odd
        share of the pictures among which a gap is looked for
    tail_from, tail_to
        quantiles of scores between which the tail's width is measured: the upper half without the
        quarter that odd pictures may be in
    apart
        share of the pictures: those that are further apart in the given order are independent of
        each other
    few_alike
        pictures that count as one, from which on this is said
    """

    confidence: Annotated[float, Within(0, 1, above=True, below=True)] = 0.95
    rounding: Positive = 1e-4
    surprise: Annotated[float, Within(0, 1, above=True)] = 0.01
    most_odd: Annotated[float, Within(0, 0.5)] = 0.1
    tail_from: Annotated[float, Within(0, 1)] = 0.5
    tail_to: Annotated[float, Within(0, 1)] = 0.75
    apart: Annotated[float, Within(0, 1)] = 0.25
    few_alike: Positive = 2.0


USUAL = ThresholdSpec()
Interval = tuple[float, float]


@dataclass(frozen=True)
class Threshold:
    """A threshold of anomaly scores.

    Parameters
    ----------
    value
        pictures with larger scores are anomalies
    false_alarms
        the expected rate of false alarms: the wanted one, or 1 / (n + 1) if that is more
    interval
        the rate lies in this interval with a probability of 95 %; if pictures were left out of the
        fit, the upper end counts all of them as normal
    alike
        number of pictures that count as one, because pictures that follow each other are alike
    """

    value: float
    false_alarms: float
    interval: Interval
    alike: float = 1.0


def choose_threshold(
    normal: np.ndarray,
    false_alarms: float,
    trimmed: int = 0,
    alike: float = 1.0,
    spec: ThresholdSpec = USUAL,
) -> Threshold:
    """Choose the threshold for scores like those of normal pictures, [n].

    Parameters
    ----------
    trimmed
        number of pictures with larger scores that were left out, because they may be anomalies
    alike
        number of pictures that count as one, from `pictures_alike`

    If a share α of new normal pictures may count as anomalies, the threshold is the k-th largest of
    the n scores, k = α (n + 1). Its true rate of false alarms is random and follows Beta(k, n + 1 -
    k), whatever the distribution of the scores, as long as the pictures are independent. If only
    every d-th one is, both numbers are divided by d.
    """
    count = len(normal)
    # A rate that was computed as k / (n + 1) must give k, whatever its rounding.
    k = max(1, math.floor(false_alarms * (count + 1) + 1e-9))
    # The pictures left out are at worst normal ones above the threshold: k + trimmed of all.
    (interval,) = _intervals(np.array([k]), trimmed, np.array([count + 1 - k]), alike, spec)
    value = float(np.sort(normal)[-k])
    value += spec.rounding * max(1.0, abs(value))
    return Threshold(value, k / (count + 1), interval, alike)


def _intervals(
    above: np.ndarray, trimmed: int, below: np.ndarray, alike: float, spec: ThresholdSpec
) -> list[Interval]:
    """Return intervals of the rate of false alarms, by the numbers of normal pictures above a
    threshold, to which `trimmed` may have to be added, and below it."""
    from scipy.stats import beta

    low = beta.ppf((1 - spec.confidence) / 2, above / alike, below / alike)
    # A threshold inside one group of pictures that are alike is no better known than its largest.
    most = np.maximum(above + trimmed, alike)
    high = beta.ppf((1 + spec.confidence) / 2, most / alike, below / alike)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def pictures_alike(scores: np.ndarray, spec: ThresholdSpec = USUAL) -> float:
    """Estimate how many normal pictures count as one, from their scores [n] in the given order.

    Photographs of one part, place or hour follow each other in a folder, and if one of them scores
    high, so do the others: n of them say less about new pictures than n independent ones. The ranks
    of scores have the autocorrelations ρ_l, and 1 + 2 Σ ρ_l of the pictures count as one. The sum
    ends where two terms that follow each other are not positive together, because the others are
    chance.
    """
    from scipy.stats import rankdata

    ranks = rankdata(scores) - (len(scores) + 1) / 2
    variance = float(ranks @ ranks)
    alike = 1.0
    last = int(spec.apart * len(scores))
    if variance == 0:
        return alike
    for lag in range(1, last, 2):
        pair = sum(float(ranks[k:] @ ranks[:-k]) for k in (lag, lag + 1)) / variance
        if pair <= 0:
            break
        alike += 2 * pair
    return alike


def pictures_needed(false_alarms: float, at_most: float) -> int:
    """Count the normal pictures that make the rate of false alarms at most `at_most` with a
    probability of 97.5 %.

    >>> pictures_needed(0.01, at_most=0.02)
    600
    """
    count = math.ceil(1 / false_alarms)
    while choose_threshold(np.zeros(count), false_alarms).interval[1] > at_most:
        count += math.ceil(1 / false_alarms)
    return count


def far_above(scores: np.ndarray, spec: ThresholdSpec = USUAL) -> np.ndarray:
    """Find the scores [n] of normal pictures that are far above the others: their numbers, the
    largest score first.

    Above the median, scores are taken for exponential, which is a heavier tail than most detectors
    have. Its width comes from the middle of the upper half, where a few odd pictures are not. Two
    things happen with the probability `surprise` only: the largest of n scores exceeds a limit, and
    there is a wide gap among the largest tenth (k times the gap below the k-th largest score is
    exponential, too, whatever k).
    """
    order = np.argsort(-scores, kind="stable")
    low, high = np.quantile(scores, [spec.tail_from, spec.tail_to])
    width = (high - low) / math.log((1 - spec.tail_from) / (1 - spec.tail_to))
    most = int(spec.most_odd * len(scores))
    if width <= 0 or not most:
        return order[:0]
    above = (1 - spec.tail_from) * len(scores)
    over_limit = int((scores > low + width * math.log(above / spec.surprise)).sum())
    k = np.arange(1, most + 1)
    gaps = -np.diff(scores[order[: most + 1]])
    wide = k[k * gaps > width * math.log(most / spec.surprise)]
    return order[: max(over_limit, *wide, 0)]


@dataclass(frozen=True)
class OddPictures:
    """Normal pictures that score far above the others, and the threshold if they counted.

    Parameters
    ----------
    numbers
        as in `fitted_`, the largest score first
    names
        of the same pictures
    others
        number of the other pictures
    threshold
        the threshold that all pictures give together
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    others: int
    threshold: Threshold

    @property
    def contamination(self) -> float:
        """The setting that leaves out as many pictures."""
        all_pictures = self.others + len(self.numbers)
        return math.ceil(1e4 * len(self.numbers) / all_pictures) / 1e4


# From pictures with defects


@dataclass(frozen=True)
class Recall:
    """The share of defects that a threshold finds, seen on a few of them.

    Parameters
    ----------
    found, of
        number of defects above the threshold that all other defects chose
    interval
        the share lies in it with a probability of 95 % (Clopper and Pearson)
    """

    found: int
    of: int
    interval: Interval

    @property
    def value(self) -> float:
        return self.found / self.of


def rate_interval(hits: int, of: int, spec: ThresholdSpec = USUAL) -> Interval:
    """Give the interval of Clopper and Pearson for a share."""
    from scipy.stats import beta

    tail = (1 - spec.confidence) / 2
    low = float(beta.ppf(tail, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, of - hits)) if hits < of else 1.0
    return low, high


def rate_intervals(normal: int, alike: float, spec: ThresholdSpec = USUAL) -> list[Interval]:
    """Give the intervals of the rate of false alarms by the number of the normal pictures that are
    above a threshold, from none to all but one. `alike` is as in `choose_threshold`."""
    k = np.arange(1, normal + 1)
    found = _intervals(k, 0, normal + 1 - k, alike, spec)
    return [(round(low, 5), round(high, 5)) for low, high in found]


def cheapest_false_alarms(
    normal: np.ndarray, defects: np.ndarray, cost: float, expected: float
) -> float:
    """Choose the rate of false alarms whose threshold costs least.

    Parameters
    ----------
    normal, defects
        scores [n] and [m]
    cost
        of a missed defect, in false alarms
    expected
        share of pictures that have a defect

    A threshold at the k-th largest normal score has the false alarms k / (n + 1). Of new defects it
    misses (b + ½) / (m + 1) if b of the m are not above it. Of thresholds that cost the same, the
    one with fewer false alarms is chosen.
    """
    order = np.sort(normal)[::-1]
    k = np.arange(1, len(order) + 1)
    k = k[: max(1, len(order) // 2)]  # as settings of a rate allow
    missed = np.searchsorted(np.sort(defects), order[k - 1], side="right")
    rates = (1 - expected) * k / (len(order) + 1)
    costs = rates + cost * expected * (missed + 0.5) / (len(defects) + 1)
    return float(k[costs.argmin()] / (len(order) + 1))


def expected_recall(
    normal: np.ndarray, defects: np.ndarray, cost: float, expected: float
) -> Recall:
    """Measure the share of defects found: each is compared with the threshold that the others
    choose."""
    found = 0
    for n, score in enumerate(defects):
        others = np.delete(defects, n)
        rate = cheapest_false_alarms(normal, others, cost, expected)
        found += bool(score > choose_threshold(normal, rate).value)
    return Recall(found, len(defects), rate_interval(found, len(defects)))


# What an alarm means


def true_alarms(false_alarms: float, expected: float, recall: float = 1.0) -> float:
    """Return the share of alarms that are true, by Bayes' rule.

    Parameters
    ----------
    expected
        share of pictures that have a defect
    recall
        share of defects that raise an alarm; 1 gives the largest possible result
    """
    true = expected * recall
    return true / (true + (1 - expected) * false_alarms)


def read_share(text: str, name: str) -> float:
    """Read '1%', '1 %' or '0.01'."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = float(number.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise SpecError(f"Got {name} {text[:40]!r}; expected a share such as 1% or 0.01.")
    return value


def in_percent(share: float) -> str:
    return f"{_percent(share)} %"


def interval_in_percent(interval: Sequence[float]) -> str:
    low, high = interval
    return f"{_percent(low)} to {_percent(high)} %"


def _percent(share: float) -> str:
    """Two digits; what would be less than 0.01 % is 0."""
    return f"{100 * share:.2g}" if share >= 1e-4 else "0"
