"""Weights of the views of pictures: from labels that are held out, and from what needs no labels.

Before there are labels, a view counts more if its neighbours are also neighbours in other views:
two views that say nothing about the pictures have the same neighbours by chance only. With labels,
two numbers say how well the graph of a view sorts the pictures. The first is the share of labels
that it finds when they are held out, which takes at least two labels of a class. The second is its
agreement: the share of all pictures to which the view alone gives the same class as all views
together. A view that says nothing about the classes agrees by chance only. Agreement can be
measured with one label of each class. Over views of a set of pictures, it correlates with their
accuracy by 0.58 then, and by 0.70 with three labels a class (benchmarks/labels/results/
weights_again.txt). The evidence for a view is the share of all labels that it finds, in which
agreement counts as some. Its weight is a power of its odds, evidence / (1 - evidence), as in a vote
of experts: a view that is nearly always right decides among others that are often wrong, while
views that are all often wrong are averaged. The weight before there were labels is another factor,
whose influence fades with the number of held-out labels. A view that would get far less weight than
the best one gets none: few of its neighbours are enough to carry labels from one class to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from whatwhere.classification.stability import StabilitySettings
from whatwhere.spec.checks import Checked, NonNegative, Positive, Within


@dataclass(frozen=True)
class ViewWeighting(Checked):
    """How evidence becomes weights (chosen on many sets; benchmarks/labels/views.py).

    Parameters
    ----------
    power
        of the odds of a view: one that is right in nine of ten cases counts 16 times as much as one
        that is right in three of four
    surest
        the evidence is at most this, and at least 1 less this, so that no view is used alone
    agreement_labels
        held-out labels that agreement counts as, so that no view is used alone because of a few
        labels
    least
        a view with less than this share of the weight of the best one is left out
    floor
        overlap that is added to every view's, so that small differences between views that hardly
        overlap do not count
    known
        how much more views count, by their names, before labels say: a network that was trained on
        photographs is usually the best single view, and colours say more than their overlap with
        other views shows (benchmarks/labels/views.py)
    stability
        how stability is measured, which probabilities follow from
    step
        weights are multiples of it, so that a label seldom changes the joined graph
    """

    power: NonNegative = 2.5
    surest: Annotated[float, Within(0.5, 1)] = 0.97
    agreement_labels: Positive = 40.0
    least: Annotated[float, Within(0, 1)] = 0.1
    floor: Positive = 0.05
    known: Mapping[str, float] = field(
        default_factory=lambda: {"network": 3.0, "colour": 1.5, "shapes": 1.3}
    )
    stability: StabilitySettings = field(default_factory=StabilitySettings)
    step: Positive = 0.05


class Overlap(NamedTuple):
    """How far the neighbours of a view are also neighbours in others, less what chance gives.

    Parameters
    ----------
    usual
        the mean share, without the view that it has most in common with: two views of one source,
        such as features with and without their places, agree by nature
    total
        the sum over all others: views that say the same share their weight
    """

    usual: float
    total: float


class ViewEvidence(NamedTuple):
    """How well a view sorts the pictures.

    Parameters
    ----------
    found
        labels that its graph finds when they are held out
    held_out
        labels that were held out
    agreement
        share of the pictures to which it gives the same class as all views together
    """

    found: int
    held_out: int
    agreement: float

    def share(self, agreement_labels: float) -> float:
        """Return the share of labels that the view finds, with agreement as some of them."""
        found = self.found + agreement_labels * self.agreement
        return found / (self.held_out + agreement_labels)


@dataclass(frozen=True)
class ViewWeights:
    """The weights of views, which add up to 1, and what they were estimated from.

    Parameters
    ----------
    names
        the views
    values
        their weights
    evidence
        what was seen of each view; empty before there are labels of two classes

    Examples
    --------
    >>> print(ViewWeights(("colour", "own"), (0.7, 0.3)))
    colour 0.7, own 0.3
    """

    names: tuple[str, ...]
    values: tuple[float, ...]
    evidence: tuple[ViewEvidence, ...] = ()

    def __str__(self) -> str:
        """Return the weights in one line, the largest first; without views of no weight."""
        order = np.argsort(-np.array(self.values), kind="stable")
        used = [number for number in order if self.values[number] > 0]
        return ", ".join(f"{self.names[number]} {self.values[number]:.2g}" for number in used)

    @classmethod
    def before_labels(
        cls, names: Sequence[str], overlaps: Sequence[Overlap], how: ViewWeighting
    ) -> "ViewWeights":
        """Weigh views by how far their neighbours are also neighbours in others."""
        weights = _usual_weights(names, overlaps, how)
        return cls(tuple(names), tuple((weights / weights.sum()).tolist()))

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        evidence: Sequence[ViewEvidence],
        how: ViewWeighting,
        overlaps: Sequence[Overlap],
    ) -> "ViewWeights":
        """Weigh views by their evidence, and by their overlaps while few labels are held out."""
        shares = np.array([seen.share(how.agreement_labels) for seen in evidence])
        held_out = max(seen.held_out for seen in evidence)
        fading = how.agreement_labels / (how.agreement_labels + held_out)
        shares = shares.clip(1 - how.surest, how.surest)
        weights = (shares / (1 - shares)) ** how.power
        weights = weights * _usual_weights(names, overlaps, how) ** fading
        weights = np.where(weights < how.least * weights.max(), 0, weights)
        steps = np.round(weights / weights.sum() / how.step)
        steps[weights.argmax()] = max(1, steps[weights.argmax()])
        rounded = steps / steps.sum()
        return cls(tuple(names), tuple(rounded.tolist()), tuple(evidence))


def _usual_weights(
    names: Sequence[str], overlaps: Sequence[Overlap], how: ViewWeighting
) -> np.ndarray:
    """Return the weights of views before labels say, not scaled."""
    known = np.array([how.known.get(name, 1.0) for name in names])
    usual, total = np.array(overlaps).T
    return np.asarray(known * (usual + how.floor) / (1 + total))
