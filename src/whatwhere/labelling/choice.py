"""Choose between descriptions of the same pictures by the labels, each held out in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whatwhere.labelling.descriptions import Description, joined_description
from whatwhere.labelling.neighbourhood import Neighbourhood
from whatwhere.progress import no_op


class Candidate(NamedTuple):
    """A description of the pictures, and their graph."""

    description: Description
    graph: Neighbourhood

    @classmethod
    def of(cls, description: Description) -> "Candidate":
        return cls(description, Neighbourhood(description.rows, views=description.columns))


def candidates(
    plain: Candidate, learned: Description, progress: Callable[[int], object] = no_op
) -> list[Candidate]:
    """Return the descriptions between which labels choose: views and learned features side by side,
    which is usually best and therefore comes first, and each alone.

    Parameters
    ----------
    progress
        called with 1 after each of the two graphs that are made
    """
    made = []
    for description in (joined_description(plain.description, learned), learned):
        made.append(Candidate.of(description))
        progress(1)
    return [*made, plain]


@dataclass(frozen=True)
class ChoiceSettings:
    """When labels decide between descriptions.

    Parameters
    ----------
    fewest
        held-out labels from which on they decide; before, the description that is usually better is
        taken
    margin
        nats per label by which another description must be better to replace the usual one: a
        change moves the map, and a smaller difference may be chance
    floor
        least probability that counts, so that one confident mistake does not decide
    """

    fewest: int = 12
    margin: float = 0.05
    floor: float = 0.02


def held_out_loss(graph: Neighbourhood, said: Mapping[int, str], floor: float) -> tuple[float, int]:
    """Return the mean negative logarithm of the probabilities of labels that were held out, and how
    many those are; (inf, 0) if there are none."""
    graph.spread(said)
    held_out = getattr(graph.classifier, "held_out_", None)
    if held_out is None or len(held_out.rows) == 0:
        return float("inf"), 0
    shares = held_out.probabilities.cpu().numpy()
    labels = held_out.labels.cpu().numpy()
    right = shares[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(right, floor)).mean()), len(labels)


def elect(
    among: Sequence[Candidate],
    said: Mapping[int, str],
    pause: Callable[[], object] = no_op,
    settings: ChoiceSettings | None = None,
) -> Candidate:
    """Return the candidate that explains held-out labels best; the first while too few labels say,
    or while another is only a little better.

    Parameters
    ----------
    pause
        called often, because the labels spread over the graphs of all candidates
    """
    settings = settings or ChoiceSettings()
    usual = among[0]
    if len(set(said.values())) < 2:
        return usual
    losses = []
    for one in among:
        one.graph.weigh(said, pause)
        pause()
        losses.append(held_out_loss(one.graph, said, settings.floor))
    if min(count for _, count in losses) < settings.fewest:
        return usual
    best = min(range(len(among)), key=lambda number: losses[number][0])
    is_clearly_better = losses[best][0] < losses[0][0] - settings.margin
    return among[best] if is_clearly_better else usual
