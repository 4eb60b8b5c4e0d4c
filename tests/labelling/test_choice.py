"""Labels choose between descriptions."""

import numpy as np
import torch

import whatwhere as ww
from whatwhere.labelling.choice import Candidate, candidates, elect
from whatwhere.labelling.descriptions import Description, joined_description, plain_description
from whatwhere.labelling.neighbourhood import Neighbourhood
from whatwhere.views import Colour, Edges


def descriptions(seed: int = 0) -> tuple[np.ndarray, dict[str, Description]]:
    """Classes, and rows that show them, that show nothing, and that show half of them each."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), 30)
    noise = random.normal(size=(len(y), 6)).astype(np.float32)

    def rows(number: np.ndarray) -> torch.Tensor:
        return torch.from_numpy((np.eye(4, 6)[number] * 5 + noise).astype(np.float32))

    named = {"all": rows(y), "none": rows(0 * y), "half": rows(y // 2), "other half": rows(y % 2)}
    return y, {name: Description(name, given) for name, given in named.items()}


def elected(first: str, second: str, labels: int) -> str:
    y, known = descriptions()
    order = np.random.default_rng(1).permutation(len(y))[:labels]
    said = {int(row): "abcd"[y[row]] for row in order}
    among = [Candidate.of(known[first]), Candidate.of(known[second])]
    return elect(among, said).description.name


def test_labels_choose_what_explains_them() -> None:
    assert elected("none", "all", 40) == "all"
    assert elected("all", "none", 40) == "all"


def test_the_first_stays_until_enough_labels_say_otherwise() -> None:
    assert elected("none", "all", 5) == "none"
    assert elected("half", "half", 40) == "half"


def test_learned_features_come_next_to_views_as_a_view_of_their_own() -> None:
    images = ww.data.load(np.random.default_rng(0).random((40, 12, 12)).astype(np.float32))
    plain = plain_description(images, [Colour(), Edges()])
    learned = Description("learned features", 3 * plain.rows)
    joined = joined_description(plain, learned)
    assert joined.columns == plain.columns | {"learned": plain.rows.shape[1]}
    torch.testing.assert_close(joined.rows, torch.cat([plain.rows, learned.rows], 1))
    first, second, third = candidates(Candidate.of(plain), learned)
    assert first.graph.classifier.weights_.names == ("colour", "edges", "learned")
    assert second.graph.classifier.weights_ is None
    assert third.graph.classifier.weights_.names == ("colour", "edges")


def test_a_graph_keeps_its_last_spread_for_the_election() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    graph = Neighbourhood(torch.from_numpy(rows))
    said = {0: "a", 1: "b"}
    first = graph.spread(said)
    assert graph.spread(dict(said)) is first
    others = graph.spread({0: "b", 1: "a"})
    assert (others.probabilities != first.probabilities).any()
    np.testing.assert_array_equal(graph.spread(said).probabilities, first.probabilities)
