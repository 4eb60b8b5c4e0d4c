"""Choose what to label next on the graph of the pictures.

A picture is *known* as far as walks over the graph that start there meet a labelled one before they
end; *trust* in its class is how far it is known times the lead of its class over the next. The
picture with the least trust around it is suggested; those that follow are chosen as if it had a
label, so that they differ from it. Every other suggestion is the picture with the smallest lead
around it, known or not: the former find classes, the latter errors. The pictures that are farthest
from all others come last: their labels say little about others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from whatwhere.labelling.neighbourhood import Neighbourhood, Spread


@dataclass(frozen=True)
class SuggestionSettings:
    """How pictures are suggested.

    Parameters
    ----------
    around
        steps over which trust is averaged, so that a doubtful region comes before one doubtful
        picture
    lonely
        share of the pictures, the farthest from all others, that are suggested last
    """

    around: int = 2
    lonely: float = 0.1


def suggested_rows(
    graph: Neighbourhood,
    spread: Spread,
    said: Mapping[int, str],
    count: int,
    goes_on: Callable[[], bool] = lambda: True,
    settings: SuggestionSettings | None = None,
) -> list[int]:
    """Return the rows that are worth labelling next, the first most of all.

    Parameters
    ----------
    spread
        the classes of all pictures
    said
        what a person said about rows; they are not suggested
    goes_on
        tells before each row whether more are wanted
    """
    settings = settings or SuggestionSettings()
    lead = spread.lead
    lonely = graph.distances > np.quantile(graph.distances, 1 - settings.lonely)
    chosen: list[int] = []
    while len(chosen) < min(count, len(graph) - len(said)) and goes_on():
        taken = [*said, *chosen]
        if len(taken) % 2 and len(spread.classes) > 1:
            # doubt alone; what was chosen just now counts as known, so that the next differs
            trust = 1 - (1 - lead) * (1 - graph.known(chosen)) if chosen else lead
        else:
            trust = graph.known(taken) * lead
        for _ in range(settings.around):
            trust = graph.mean(trust)
        trust[taken] = np.inf
        others = np.where(lonely, np.inf, trust)
        # Lonely pictures are suggested once no others are left.
        order = others if np.isfinite(others).any() else trust
        chosen.append(int(order.argmin()))
    return chosen
