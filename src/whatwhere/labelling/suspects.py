"""Find labels that look wrong: those that the other labels contradict when they are held out."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whatwhere.labelling.neighbourhood import Neighbourhood


class Suspect(NamedTuple):
    """A label that looks wrong.

    row          the picture
    expected     the class that the other labels expect
    probability  of that class
    """

    row: int
    expected: str
    probability: float


@dataclass(frozen=True)
class SuspectSettings:
    """When a label looks wrong.

    certainty  probability of another class from which on a held-out label is shown: lower ones are
               mostly right labels of difficult pictures
    most       labels that are shown, the most certain first
    """

    certainty: float = 0.7
    most: int = 24


def suspected_labels(
    graph: Neighbourhood, settings: SuspectSettings | None = None
) -> list[Suspect]:
    """Return the labels of the last `spread` that look wrong, by their places in the graph, the
    most certain first."""
    settings = settings or SuspectSettings()
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
    return [found[number] for number in order[: settings.most]]
