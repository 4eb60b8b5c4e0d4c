"""Estimate the share of wrong classes among the pictures without a label, and say what to label."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from whatwhere.errors import plural
from whatwhere.labelling.label_tables import NOT_SURE
from whatwhere.labelling.neighbourhood import Neighbourhood, Spread


@dataclass(frozen=True)
class EstimateSettings:
    """When an error is estimated, and what suggested labels count in it.

    Parameters
    ----------
    fewest
        labels for an estimate
    searched
        what a class with a single, suggested label counts in the share of pictures whose class has
        no label: suggestions look for such classes
    reach
        of the range on the scale of log odds, times the root of the number of labels. With 7, the
        range held the error in about nine of ten sessions with 8 to 60 labels
        (benchmarks/labels/plain_views.py)
    nothing
        shares below this are 0 in the range
    advice
        labels of each of two confused classes that the advice asks for
    """

    fewest: int = 5
    searched: float = 0.1
    reach: float = 7.0
    nothing: float = 0.01
    advice: int = 5


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimate of the share of wrong classes among pictures without a label.

    Parameters
    ----------
    share
        the estimate
    low, high
        its range
    labels
        labels that it was estimated from
    confused
        the two classes between which most pictures are in doubt; None if none is
    """

    share: float
    low: float
    high: float
    labels: int
    confused: tuple[str, str] | None = None

    @property
    def words(self) -> str:
        """The range as a sentence."""
        low, high = round(100 * self.low), round(100 * self.high)
        if low == high:
            return f"About {low} % of the predicted classes are wrong (an estimate)."
        return f"{low} to {high} % of the predicted classes are wrong (an estimate)."

    def advice(self, each: int = EstimateSettings().advice) -> str:
        """Return what to label next, as a sentence; '' if no classes are confused."""
        if self.confused is None:
            return ""
        first, second = self.confused
        return f"{first} and {second} are confused most: label {each} of each."


def estimate_error(
    graph: Neighbourhood,
    spread: Spread,
    said: Mapping[int, str],
    unprompted: Collection[int],
    settings: EstimateSettings | None = None,
) -> ErrorEstimate | None:
    """Estimate the share of wrong classes among pictures without a label; None if
    something is missing for it (`missing_for_estimate`).

    Pictures of classes that have no label yet are wrong (`_missing_share`). For the others, the
    estimate is the mean doubt, which is 1 minus the probability of the class. Probabilities are
    calibrated on labels that are held out in turn. The errors among these labels are not
    counted: they are not a fair sample, because uncertain pictures are suggested.

    Parameters
    ----------
    unprompted
        the rows that were labelled without having been suggested
    """
    settings = settings or EstimateSettings()
    if missing_for_estimate(said, settings):
        return None
    labels = {row: name for row, name in said.items() if name != NOT_SURE}
    rows = list(labels)
    others = np.setdiff1d(np.arange(len(graph)), rows)
    doubt = 1 - spread.probabilities[others].max(1)
    estimate = float(doubt.mean()) if len(others) else 0.0
    reached = np.isin(graph.parts[others], graph.parts[rows])
    if reached.any():
        # Parts without a label may belong to the missing classes: their doubt counts once.
        missing = _missing_share(labels, unprompted, settings.searched)
        right = float(1 - doubt[reached].mean()) * (1 - missing)
        estimate = max(estimate, 1 - right)
    low, high = _range(estimate, len(rows), settings)
    confused = _most_confused(Spread(spread.classes, spread.probabilities[others]))
    return ErrorEstimate(estimate, low, high, len(rows), confused)


def _range(share: float, labels: int, settings: EstimateSettings) -> tuple[float, float]:
    """Return the range of a share, symmetric in its log odds; it shrinks with the root of the
    number of labels."""
    bounded = min(max(share, settings.nothing / 2), 1 - settings.nothing / 2)
    odds = math.log(bounded / (1 - bounded))
    reach = settings.reach / math.sqrt(labels)
    low, high = (1 / (1 + math.exp(-(odds + sign * reach))) for sign in (-1, 1))
    return (0.0 if low < settings.nothing else low), high


def _most_confused(spread: Spread) -> tuple[str, str] | None:
    """Return the two classes between which most pictures are in doubt."""
    classes, shares = spread
    if len(classes) < 2 or not len(shares):
        return None
    order = np.argsort(-shares, axis=1)
    doubt = np.zeros((len(classes), len(classes)))
    second = np.take_along_axis(shares, order[:, 1:2], 1)[:, 0]
    np.add.at(doubt, (order[:, 0], order[:, 1]), second)
    doubt += doubt.T
    first, other = np.unravel_index(int(doubt.argmax()), doubt.shape)
    if doubt[first, other] < 1:  # less than one picture
        return None
    return classes[min(first, other)], classes[max(first, other)]


def missing_for_estimate(said: Mapping[int, str], settings: EstimateSettings | None = None) -> str:
    """Return what an estimate of the error still needs, in words; '' if it needs nothing."""
    fewest = (settings or EstimateSettings()).fewest
    labels = [name for name in said.values() if name != NOT_SURE]
    if len(labels) < fewest:
        return f"An estimate of the error needs {plural(fewest, 'label')} (so far: {len(labels)})."
    if len(set(labels)) < 2:
        return "An estimate of the error needs labels of two classes."
    return ""


def _missing_share(
    labels: Mapping[int, str], unprompted: Collection[int], searched: float
) -> float:
    """Return the share of the pictures whose class has no label yet, by Good and Turing.

    For labels drawn at random, it is the share of labels that are the only one of their class:
    if such a picture had come next and not before, its class would have been new. Suggested
    pictures are not a random sample, because they are chosen where labels are far.
    """
    counts = Counter(labels.values())
    alone = [row for row, name in labels.items() if counts[name] == 1]
    weights = [1.0 if row in unprompted else searched for row in alone]
    return sum(weights) / len(labels)
