"""Weights of views from evidence, by hand."""

import pytest

from whatwhere.classification.view_weights import (
    Overlap,
    ViewEvidence,
    ViewWeighting,
    ViewWeights,
)

FINE = ViewWeighting(step=1e-6, least=0)


def overlaps(*usual: float) -> list[Overlap]:
    """Overlaps of views that have nothing in common with one another but these means."""
    return [Overlap(one, 0.0) for one in usual]


def odds(share: float) -> float:
    return share / (1 - share)


def test_weights_follow_the_shares_of_labels_that_are_found() -> None:
    evidence = [ViewEvidence(100, 100, 1.0), ViewEvidence(50, 100, 0.5)]
    weights = ViewWeights.of(["good", "bad"], evidence, FINE, overlaps(0.2, 0.2))
    ratio = (odds(0.5) / odds(0.97)) ** 2.5
    assert weights.values[1] / weights.values[0] == pytest.approx(ratio, rel=2e-2)
    assert sum(weights.values) == pytest.approx(1)


def test_few_labels_do_not_choose_one_view_alone() -> None:
    """One view finds both held-out labels, the other none; they agree equally with all."""
    evidence = [ViewEvidence(2, 2, 0.8), ViewEvidence(0, 2, 0.8)]
    weights = ViewWeights.of(["first", "second"], evidence, FINE, overlaps(0.2, 0.2))
    assert weights.values[1] > 0.1
    many = [ViewEvidence(200, 200, 0.8), ViewEvidence(0, 200, 0.8)]
    assert ViewWeights.of(["first", "second"], many, FINE, overlaps(0.2, 0.2)).values[1] < 0.01


def test_agreement_decides_without_held_out_labels() -> None:
    evidence = [ViewEvidence(0, 0, share) for share in (0.9, 0.3, 0.9)]
    first, second, third = ViewWeights.of("abc", evidence, FINE, overlaps(0.2, 0.2, 0.2)).values
    assert first == pytest.approx(third)
    assert second / first == pytest.approx((odds(0.3) / odds(0.9)) ** 2.5, rel=5e-2)


def test_weights_are_rounded_and_said_in_a_line() -> None:
    evidence = [
        ViewEvidence(9, 10, 0.9),
        ViewEvidence(5, 10, 0.5),
        ViewEvidence(8, 10, 0.9),
    ]
    weights = ViewWeights.of(
        ("colour", "edges", "own"), evidence, ViewWeighting(step=0.1), overlaps(0.2, 0.2, 0.2)
    )
    assert all(value == pytest.approx(round(value, 1)) for value in weights.values)
    assert str(weights) == "colour 0.7, own 0.3"
    assert str(ViewWeights.before_labels(["a", "b"], overlaps(0.3, 0.3), FINE)) == "a 0.5, b 0.5"


def test_a_view_counts_more_if_its_neighbours_are_those_of_others() -> None:
    first, second = ViewWeights.before_labels("ab", overlaps(0.35, 0.05), FINE).values
    assert second / first == pytest.approx(0.1 / 0.4)


def test_what_counts_before_labels_fades_with_held_out_labels() -> None:
    ratios = []
    for held_out in (0, 30, 30_000):
        evidence = [ViewEvidence(held_out, held_out, 0.8)] * 2
        first, second = ViewWeights.of("ab", evidence, FINE, overlaps(0.35, 0.05)).values
        ratios.append(second / first)
    assert ratios == pytest.approx([0.25, 0.25 ** (40 / 70), 1], rel=1e-2)


def test_a_network_and_colours_count_more_before_labels_say() -> None:
    names = ["network", "colour", "edges"]
    network, colour, edges = ViewWeights.before_labels(names, overlaps(0.2, 0.2, 0.2), FINE).values
    assert (network, colour) == (pytest.approx(3 * edges), pytest.approx(1.5 * edges))


def test_views_that_say_the_same_share_their_weight() -> None:
    """Two copies of one view count about as much as another view alone."""
    copies = [Overlap(0.2, 1.0), Overlap(0.2, 1.0), Overlap(0.2, 0.0)]
    first, second, other = ViewWeights.before_labels("abc", copies, FINE).values
    assert first + second == pytest.approx(other)


def test_a_view_that_is_far_worse_than_the_best_is_left_out() -> None:
    evidence = [ViewEvidence(0, 0, share) for share in (0.95, 0.9, 0.7)]
    how = ViewWeighting(step=1e-6, least=0.1)
    first, second, third = ViewWeights.of("abc", evidence, how, overlaps(0.2, 0.2, 0.2)).values
    assert (odds(0.7) / odds(0.95)) ** 2.5 < 0.1 < (odds(0.9) / odds(0.95)) ** 2.5
    assert third == 0
    assert second / first == pytest.approx((odds(0.9) / odds(0.95)) ** 2.5, rel=1e-3)
