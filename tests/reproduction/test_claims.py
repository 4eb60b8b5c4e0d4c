"""Verdicts from made-up numbers."""

import pytest

from reproduction.claims import FAILS, HOLDS, OPEN, MeasuredCell, evaluate_claim
from reproduction.few_labels import FewLabels
from reproduction.results import EpochRecord, EvaluationResult, FewLabelResult, TrainingResult
from reproduction.table import Cell, Claim
from whatwhere.classification.protocol import Score


def few(value, interval):
    """A cell of few labels, in per cent."""
    draws = FewLabels(100, (value / 100,), (1.0,), value / 100, tuple(bound / 100 for bound in interval))
    result = FewLabelResult(draws=draws, dimensions=1, density=1.0)
    return MeasuredCell(Cell("t", "a", "x", "error", None, False, ()), (result,))


def cells(numbers):
    """Cells from per cent, by 'row / column'; a list has a value for each seed."""
    measured = {}
    for name, value in numbers.items():
        values = value if isinstance(value, list) else [value]
        row, column = name.split(" / ")
        measured[name] = MeasuredCell(Cell("t", row, column, "error", 1.0, False, ()), tuple(map(evaluated, values)))
    return measured


def evaluated(value):
    score = Score(value / 100, (0.0, 1.0), round(value * 100), 10_000, (0, 1), ((0, 0), (0, 0)), 1.0, "newton")
    return EvaluationResult(score=score, trials=(), dimensions=1, density=1.0)


def test_below_compares_means_over_seeds():
    claim = Claim(text="a beats b", below=(("a / x", "b / x"),))
    assert evaluate_claim(claim, cells({"a / x": [0.7, 0.9], "b / x": 0.81})).verdict == HOLDS
    assert evaluate_claim(claim, cells({"a / x": [0.7, 0.9], "b / x": 0.79})).verdict == FAILS
    assert evaluate_claim(claim, cells({"a / x": [], "b / x": 0.79})).verdict == OPEN
    assert evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 0.8})).verdict == FAILS, "as good is not better"


def test_overlapping_intervals_are_mentioned():
    claim = Claim(text="a beats b", below=(("a / x", "b / x"),))
    assert "overlap" in evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 0.9})).numbers
    assert "overlap" not in evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 2.0})).numbers


def test_more_seeds_on_the_same_images_do_not_narrow_the_interval():
    one, three = (cells({"a / x": values})["a / x"].interval() for values in (0.8, [0.8, 0.8, 0.8]))
    assert one == pytest.approx(three)
    assert one == pytest.approx((100 * 0.006428, 100 * 0.009952), rel=1e-3)  # Wilson's interval of 80 in 10,000


def test_the_interval_of_few_labels_is_that_of_its_draws():
    claim = Claim(text="", below=(("a / x", "b / x"),))
    low, near, far = few(4.4, (4.2, 4.7)), few(4.9, (4.6, 5.2)), few(6.0, (5.5, 6.5))
    assert "overlap" in evaluate_claim(claim, {"a / x": low, "b / x": near}).numbers
    assert "overlap" not in evaluate_claim(claim, {"a / x": low, "b / x": far}).numbers


def test_a_star_stands_for_each_row_or_each_column():
    columns = Claim(text="", below=(("* / x", "* / y"),))
    rows = Claim(text="", below=(("a / *", "b / *"),))
    numbers = {"a / x": 1.0, "a / y": 2.0, "b / x": 3.0, "b / y": 4.0}
    assert evaluate_claim(columns, cells(numbers)).verdict == HOLDS
    assert evaluate_claim(rows, cells(numbers)).verdict == HOLDS
    assert evaluate_claim(columns, cells({**numbers, "b / x": 5.0})).verdict == FAILS
    assert evaluate_claim(rows, cells({**numbers, "a / y": 5.0})).verdict == FAILS


def test_the_lowest_of_all():
    claim = Claim(text="", lowest=("a / *",))
    held = evaluate_claim(claim, cells({"a / x": 3.0, "a / y": 1.0, "b / x": 2.0, "b / y": 1.1}))
    assert held.verdict == HOLDS
    assert held.numbers == "1.000 against 1.100 (95 % intervals overlap) at b / y"
    failed = evaluate_claim(claim, cells({"a / x": 3.0, "a / y": 1.0, "b / x": 0.2}))
    assert failed.verdict == FAILS
    assert failed.numbers == "the lowest is b / x: 0.200 against 1.000"
    assert evaluate_claim(claim, cells({"a / x": 1.0, "b / x": 1.0})).verdict == FAILS, "as low is not lowest"
    assert evaluate_claim(claim, cells({"a / x": 3.0, "a / y": 1.0, "b / x": []})).verdict == OPEN


@pytest.mark.parametrize(("value", "verdict"), [(0.84, HOLDS), (0.85, FAILS)])
def test_at_most(value, verdict):
    assert evaluate_claim(Claim(text="", at_most={"a / x": 0.84}), cells({"a / x": value})).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(1.2, HOLDS), (0.1, HOLDS), (1.21, FAILS)])
def test_within_so_many_points_of_the_paper_or_better(value, verdict):  # its number is 1
    assert (
        evaluate_claim(Claim(text="", within={"a / *": 0.2}), cells({"a / x": value, "b / x": 9.0})).verdict == verdict
    )


@pytest.mark.parametrize(("second", "verdict"), [(1.0, HOLDS), (5.0, FAILS)])
def test_every_epoch_of_the_top_layer_counts(second, verdict):
    measured = {"a / cost": trained("a", [2.0, second, 1.0]), "b / cost": trained("b", [3.0, 3.0, 3.0])}
    claim = Claim(text="", below=(("a / cost", "b / cost"),), every_epoch=True)
    assert evaluate_claim(claim, measured).verdict == verdict


def test_an_epoch_is_the_mean_over_the_seeds():
    assert trained("a", [2.0, 1.0], [4.0, 2.0]).series("cost") == [3.0, 1.5]


def trained(row, *seeds):
    """A cell of trainings: their costs at every epoch of layer 2."""

    def epoch(layer, cost):
        return EpochRecord(layer=layer, epoch=1, cost=cost, nonzeros=1.0, seconds=1.0, engine="cpu")

    results = tuple(
        TrainingResult(history=(epoch(1, 99.0), *(epoch(2, cost) for cost in costs)), training_seconds=1.0)
        for costs in seeds
    )
    return MeasuredCell(Cell("t", row, "cost", "cost", None, False, ()), results)
