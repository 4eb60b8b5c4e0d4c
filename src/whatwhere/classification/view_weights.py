"""Weights of the views of pictures: from labels that are held out, and from what needs no labels.

Three numbers say how well the graph of a view sorts the pictures. The first is the share of labels
that it finds when they are held out, which takes at least two labels of a class. The second is its
agreement: the share of all pictures to which the view alone gives the same class as all views
together. A view that says nothing about the classes agrees by chance only. The third is its
stability: the share of pictures whose class stays if other pictures of the same classes, as the
view sees them, had been labelled. It is small where a view has no clusters. The last two can be
measured with one label of each class. The evidence for a view is the mean of all labels, in which
agreement and stability count as some; its weight is exp(β (evidence - that of the best view)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whatwhere.spec.checks import Checked, Count, NonNegative, Positive


@dataclass(frozen=True)
class ViewWeighting(Checked):
    """How evidence becomes weights (chosen on many sets; benchmarks/labels/views.py).

    sharpness         β: a view that finds a tenth fewer labels than the best has exp(-0.1 β) of its
                      weight
    agreement_labels  held-out labels that agreement and stability count as, so that no view is used
                      alone because of a few labels
    repeats           how often other labels are drawn for the stability
    enough            held-out labels from which on stability is no longer measured: it would change
                      little, and takes most of the time
    step              weights are multiples of it, so that a label seldom changes the joined graph
    """

    sharpness: NonNegative = 12.0
    agreement_labels: Positive = 10.0
    repeats: Count = 4
    enough: Count = 50
    step: Positive = 0.05


class ViewEvidence(NamedTuple):
    """How well a view sorts the pictures.

    found      labels that its graph finds when they are held out
    held_out   labels that were held out
    agreement  share of the pictures to which it gives the same class as all views together
    stability  share of the pictures whose class would stay with other labels; None where it was not
               measured
    """

    found: int
    held_out: int
    agreement: float
    stability: float | None = None

    def share(self, agreement_labels: float) -> float:
        """The share of labels that the view finds, with agreement and stability as some of them."""
        unlabelled = self.agreement
        if self.stability is not None:
            unlabelled = (self.agreement + self.stability) / 2
        found = self.found + agreement_labels * unlabelled
        return found / (self.held_out + agreement_labels)


@dataclass(frozen=True)
class ViewWeights:
    """The weights of views, which add up to 1, and what they were estimated from.

    names     the views
    values    their weights
    evidence  what was seen of each view; empty before there are labels of two classes

    >>> print(ViewWeights(("colour", "own"), (0.7, 0.3)))
    colour 0.7, own 0.3
    """

    names: tuple[str, ...]
    values: tuple[float, ...]
    evidence: tuple[ViewEvidence, ...] = ()

    def __str__(self) -> str:
        """The weights in one line, the largest first; without views of no weight."""
        order = np.argsort(-np.array(self.values), kind="stable")
        used = [number for number in order if self.values[number] > 0]
        return ", ".join(f"{self.names[number]} {self.values[number]:.2g}" for number in used)

    @classmethod
    def equal(cls, names: Sequence[str]) -> "ViewWeights":
        """Give all views the same weight."""
        return cls(tuple(names), (1 / len(names),) * len(names))

    @classmethod
    def of(
        cls, names: Sequence[str], evidence: Sequence[ViewEvidence], how: ViewWeighting
    ) -> "ViewWeights":
        """Weigh views by their evidence."""
        shares = np.array([seen.share(how.agreement_labels) for seen in evidence])
        weights = np.exp(how.sharpness * (shares - shares.max()))
        steps = np.round(weights / weights.sum() / how.step)
        steps[shares.argmax()] = max(1, steps[shares.argmax()])
        rounded = steps / steps.sum()
        return cls(tuple(names), tuple(rounded.tolist()), tuple(evidence))
