"""Find labels that look wrong: those that the other labels contradict when they are held out, and
different labels of pictures that are nearly the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whatwhere.labelling.label_tables import NOT_SURE
from whatwhere.labelling.neighbourhood import Neighbourhood


class Suspect(NamedTuple):
    """A label that looks wrong.

    Parameters
    ----------
    row
        the picture
    expected
        the class that the other labels expect
    probability
        of that class
    """

    row: int
    expected: str
    probability: float


@dataclass(frozen=True)
class SuspectSettings:
    """When a label looks wrong.

    Parameters
    ----------
    certainty
        probability of another class from which on a held-out label is shown: lower ones are mostly
        right labels of difficult pictures
    most
        labels that are shown, the most certain first
    double
        two pictures are near doubles if their square distance is below this share of the median one
        of a picture to its nearest neighbour
    sample
        pictures that the median is computed of
    """

    certainty: float = 0.7
    most: int = 24
    double: float = 0.1
    sample: int = 64


def suspected_labels(
    graph: Neighbourhood, said: Mapping[int, str], settings: SuspectSettings | None = None
) -> list[Suspect]:
    """Return the labels of the last `spread` that look wrong, by their places in the graph, the
    most certain first."""
    settings = settings or SuspectSettings()
    doubles = _double_labels(graph, said, settings)
    known = {one.row for one in doubles}
    others = [one for one in _contradicted(graph, settings) if one.row not in known]
    return [*doubles, *others][: settings.most]


def _double_labels(
    graph: Neighbourhood, said: Mapping[int, str], settings: SuspectSettings
) -> list[Suspect]:
    """Return the labels of near doubles that have another label."""
    rows = [row for row, name in said.items() if name != NOT_SURE]
    if len(rows) < 2:
        return []
    unit = graph.unit_rows()
    labelled = unit[rows]
    distances = (2 - 2 * (labelled @ labelled.T)).numpy()
    np.fill_diagonal(distances, np.inf)
    names = np.array([said[row] for row in rows])
    others = np.where(names[:, None] != names, distances, np.inf)  # of another class
    # The nearest label is farther than the nearest picture, and much faster to find.
    if others.min() >= settings.double * np.median(distances.min(1)):
        return []
    every = unit[:: max(1, len(unit) // settings.sample)]
    nearest = (2 - 2 * (every @ unit.T)).topk(2, largest=False).values[:, 1]
    doubles = np.flatnonzero(others.min(1) < settings.double * float(nearest.median()))
    return [Suspect(rows[one], str(names[others[one].argmin()]), 1.0) for one in doubles]


def _contradicted(graph: Neighbourhood, settings: SuspectSettings) -> list[Suspect]:
    """Return the labels that the others contradict when they are held out."""
    held_out = getattr(graph.classifier, "held_out_", None)
    if held_out is None or not len(held_out.rows):
        return []
    classes = [str(name) for name in graph.classifier.classes_]
    shares = held_out.probabilities.cpu().numpy()
    best = shares.argmax(1)
    wrong = best != held_out.labels.cpu().numpy()
    found = [
        Suspect(int(row), classes[expected], float(share))
        for row, expected, share, is_wrong in zip(
            held_out.rows.tolist(), best, shares.max(1), wrong, strict=True
        )
        if is_wrong and share >= settings.certainty
    ]
    order = np.argsort([-one.probability for one in found], kind="stable")
    return [found[number] for number in order]
