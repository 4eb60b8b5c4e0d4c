"""RESULTS.md and the curves are what the result files say."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from safetensors import safe_open

from raising import raises
from reproduction import report
from reproduction.claims import (
    FAILS,
    HOLDS,
    ONE_SEED,
    OPEN,
    WITHIN_SEEDS,
    MeasuredCell,
    evaluate_claim,
)
from reproduction.curves import draw, lowest
from reproduction.few_labels import FewLabels
from reproduction.jobs import DataSpec, RecordedJob, TrainingJob
from reproduction.report import (
    curves,
    figures,
    measured_tables,
    open_scales,
    results_page,
    section,
    summary,
    write_report,
)
from reproduction.reproduce import job_cells, open_store
from reproduction.results import EpochRecord, EvaluationResult, FewLabelResult, TrainingResult
from reproduction.table import ALL_TABLES, TABLES, Cell, Claim
from whatwhere.classification.protocol import Score
from whatwhere.errors import NoSuchRun
from whatwhere.model import load
from whatwhere.model.files import FORMAT

ROOT = Path(__file__).parents[2]
DIGITS = DataSpec("digits")


@pytest.fixture(scope="module")
def published():
    return open_scales(ROOT / "reproduction/results")


def test_results_md_agrees_with_the_result_files(published):
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == results_page(published), (
        "run `python -m reproduction report`"
    )


def test_everything_is_measured(published):
    """Every job of the tables is found in the result files: another form of a setting would orphan
    them."""
    for scale, store in published:
        tables = ALL_TABLES if scale.name == "paper" else TABLES
        assert [
            cell.name for job, cell in job_cells(tables, scale).items() if store.find(job) is None
        ] == []


def test_every_published_result_has_the_name_that_the_program_gives(published):
    for _, store in published:
        for job, record in store.records.items():
            assert record.name == store.names(job)


def test_every_curve_is_drawn(published):
    for scale, store in published:
        names = [
            name
            for name, cells in measured_tables(scale, store).items()
            if curves(name, cells) is not None
        ]
        drawn = {path.stem for path in (store.folder / "figures").iterdir()}
        assert drawn == {*figures(scale, store)}, "run `python -m reproduction report`"
        assert {*names, "claims", "filters", "invariance"} == drawn


def test_the_page_shows_our_numbers_and_the_paper_s(scale, measured):
    lines = map(json.loads, (measured.folder / "results.jsonl").read_text().splitlines())
    names = ("pooling/max-pooling-layer-1-seed0", "pooling/max-pooling-layer-1-seed1")
    rates = [100 * line["result"]["score"]["error"] for line in lines if line["name"] in names]
    text = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    (row,) = [line for line in text.splitlines() if line.startswith("| Max pooling")]
    assert f"**{sum(rates) / 2:.2f}** ± " in row.split("|")[2]
    assert "(2 seeds) (paper 1.30)" in row.split("|")[2]


def test_another_number_in_a_result_file_is_another_page(scale, measured, tmp_path):
    before = section("pooling", scale, measured_tables(scale, measured)["pooling"])
    copy = shutil.copytree(measured.folder, tmp_path / "tiny")
    contents = list(map(json.loads, (copy / "results.jsonl").read_text().splitlines()))
    next(c for c in contents if c["name"].startswith("pooling/"))["result"]["score"]["error"] += 0.1
    (copy / "results.jsonl").write_text("\n".join(map(json.dumps, contents)))
    changed = open_store(tmp_path, scale)
    assert section("pooling", scale, measured_tables(scale, changed)["pooling"]) != before


def test_what_was_not_run_says_so(scale, measured, tmp_path):
    nothing_run = measured_tables(scale, open_store(tmp_path, scale))
    assert "not run (paper 1.00)" in section("reset", scale, nothing_run["reset"])
    claims = summary(scale, nothing_run, open_store(tmp_path, scale)).splitlines()[2:]
    assert claims
    assert all(claim.endswith("| not run |") for claim in claims)
    partly = section("joint", scale, measured_tables(scale, measured)["joint"])
    assert "not run (paper 1.79)" in partly
    assert "*not run*: One phase of inference beats two" in partly


def test_curves_and_histories_are_those_of_the_result_files(scale, measured):
    tables = measured_tables(scale, measured)
    content = curves("steps", tables["steps"])
    assert content["curves"][0]["x"] == [1.0, 2.0]
    assert "std" not in content["curves"][0], "at one step there is one seed alone"
    histories = curves("cost", tables["cost"])["histories"]
    assert {name: len(history) for name, history in histories.items()} == {
        "Max pooling": 2,
        "Gaussian pooling": 2,
    }
    assert curves("pooling", tables["pooling"]) is None


def test_a_folder_without_results_is_an_error_and_the_page_stays(tmp_path):
    page_file = tmp_path / "RESULTS.md"
    page_file.write_text("as it was")
    with raises(NoSuchRun, path=str(tmp_path / "typo")):
        write_report(tmp_path / "typo", page_file)
    assert page_file.read_text() == "as it was"


def test_the_command_writes_the_page_and_the_figures(scale, measured_folder, tmp_path, monkeypatch):
    results = shutil.copytree(measured_folder, tmp_path / "results")
    monkeypatch.setattr(report, "SCALES", ("tiny",))
    monkeypatch.setattr(report, "read_scale", lambda name: scale)
    monkeypatch.setitem(report.SCALE_NOTES, "tiny", "Tiny.")
    written = write_report(results, tmp_path / "RESULTS.md")
    names = ["RESULTS.md", "steps.svg", "cost.svg", "claims.svg"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 0 for path in written)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "(reproduction/results/tiny/figures/steps.svg)" in text
    assert text == results_page(open_scales(results))


def test_every_published_model_loads_and_is_the_one_of_its_record(published, tmp_path):
    for _, store in published:
        trained = {
            record.name: job
            for job, record in store.records.items()
            if isinstance(job, TrainingJob)
        }
        with ZipFile(store.folder / "models.zip") as archive:
            archive.extractall(tmp_path / store.folder.name)
        files = sorted((tmp_path / store.folder.name).iterdir())
        assert files
        for file in files:
            with safe_open(file, framework="pt") as content:
                assert content.metadata()["format"] == FORMAT, "saved with a checksum"
            assert load(file).spec == trained[f"models/{file.stem}"].recipe.model


# Verdicts from made-up numbers --------------------------------------------------------------------


def few(value, interval):
    """A cell of few labels, in per cent."""
    draws = FewLabels(
        100, (value / 100,), (1.0,), value / 100, tuple(bound / 100 for bound in interval)
    )
    result = FewLabelResult(draws=draws, dimensions=1, density=1.0)
    return MeasuredCell(Cell("t", "a", "x", "error", None, False, ()), (result,))


def cells(numbers):
    """Cells from per cent, by 'row / column'; a list has a value for each seed."""
    measured = {}
    for name, value in numbers.items():
        values = value if isinstance(value, list) else [value]
        row, column = name.split(" / ")
        measured[name] = MeasuredCell(
            Cell("t", row, column, "error", 1.0, False, ()), tuple(map(evaluated, values))
        )
    return measured


def evaluated(value):
    score = Score(
        value / 100, (0.0, 1.0), round(value * 100), 10_000, (0, 1), ((0, 0), (0, 0)), 1.0, "newton"
    )
    return EvaluationResult(score=score, trials=(), dimensions=1, density=1.0)


def test_below_compares_means_over_seeds():
    claim = Claim(text="a beats b", below=(("a / x", "b / x"),))
    assert evaluate_claim(claim, cells({"a / x": [0.7, 0.9], "b / x": 0.81})).verdict == HOLDS
    assert evaluate_claim(claim, cells({"a / x": [0.7, 0.9], "b / x": 0.79})).verdict == FAILS
    assert evaluate_claim(claim, cells({"a / x": [], "b / x": 0.79})).verdict == OPEN
    assert evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 0.8})).verdict == FAILS, (
        "as good is not better"
    )


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([0.77, 0.79, 0.81], [0.78, 0.80, 0.82], WITHIN_SEEDS),
        ([0.78, 0.80, 0.82], [0.77, 0.79, 0.81], WITHIN_SEEDS),  # and so it neither holds nor fails
        ([0.77, 0.79, 0.81], [0.82, 0.84, 0.86], HOLDS),
        ([0.77, 0.79, 0.81], [0.50, 0.84, 1.20], WITHIN_SEEDS),  # the larger deviation counts
        ([0.77, 0.79, 0.81], 0.80, HOLDS),  # one seed has no known deviation
    ],
)
def test_a_difference_within_the_seeds_is_no_difference(first, second, verdict):
    measured = cells({"a / x": first, "b / x": second})
    below = Claim(text="a beats b", below=(("a / x", "b / x"),))
    lowest_of_all = Claim(text="a is lowest", lowest=("a / x",))
    assert evaluate_claim(below, measured).verdict == verdict
    assert evaluate_claim(lowest_of_all, measured).verdict == verdict


def test_one_comparison_beyond_the_seeds_decides_by_the_means():
    near, far = [0.78, 0.80, 0.82], [1.78, 1.80, 1.82]
    measured = cells({"a / x": [0.77, 0.79, 0.81], "b / x": near, "c / x": far})
    claim = Claim(text="", below=(("a / x", "b / x"), ("a / x", "c / x")))
    assert evaluate_claim(claim, measured).verdict == HOLDS
    reverse = Claim(text="", below=(("b / x", "a / x"), ("a / x", "c / x")))
    assert evaluate_claim(reverse, measured).verdict == FAILS


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (0.80, 0.83, ONE_SEED),
        (0.83, 0.80, ONE_SEED),
        (0.80, 0.85, HOLDS),
        (0.85, 0.80, FAILS),
        ([0.79, 0.80, 0.81], 0.83, ONE_SEED),
        ([0.79, 0.80, 0.81], [0.83, 0.83, 0.83], HOLDS),
    ],
)
def test_one_seed_does_not_decide_by_a_small_difference(first, second, verdict):
    measured = {
        name: replace(cell, cell=replace(cell.cell, jobs=(RecordedJob(DIGITS, "x", None, 0),)))
        for name, cell in cells({"a / x": first, "b / x": second}).items()
    }
    claim = Claim(text="a beats b", below=(("a / x", "b / x"),))
    assert evaluate_claim(claim, measured).verdict == verdict
    lowest_of_all = Claim(text="a is lowest", lowest=("a / x",))
    assert evaluate_claim(lowest_of_all, measured).verdict == verdict


def test_one_seed_does_not_decide_near_a_limit():
    (cell,) = cells({"a / x": 0.82}).values()
    seeded = replace(cell, cell=replace(cell.cell, jobs=(RecordedJob(DIGITS, "x", None, 0),)))
    verdicts = {
        limit: evaluate_claim(Claim(text="", at_most={"a / x": limit}), {"a / x": seeded}).verdict
        for limit in (0.77, 0.80, 0.84, 0.87)
    }
    assert verdicts == {0.77: FAILS, 0.80: ONE_SEED, 0.84: ONE_SEED, 0.87: HOLDS}


def test_overlapping_intervals_are_mentioned():
    claim = Claim(text="a beats b", below=(("a / x", "b / x"),))
    assert "overlap" in evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 0.9})).numbers
    assert "overlap" not in evaluate_claim(claim, cells({"a / x": 0.8, "b / x": 2.0})).numbers


def test_more_seeds_on_the_same_images_do_not_narrow_the_interval():
    one, three = (cells({"a / x": values})["a / x"].interval() for values in (0.8, [0.8, 0.8, 0.8]))
    assert one == pytest.approx(three)
    # Wilson's interval of 80 in 10,000
    assert one == pytest.approx((100 * 0.006428, 100 * 0.009952), rel=1e-3)


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
    assert evaluate_claim(claim, cells({"a / x": 1.0, "b / x": 1.0})).verdict == FAILS, (
        "as low is not lowest"
    )
    assert evaluate_claim(claim, cells({"a / x": 3.0, "a / y": 1.0, "b / x": []})).verdict == OPEN


@pytest.mark.parametrize(("value", "verdict"), [(0.84, HOLDS), (0.85, FAILS)])
def test_at_most(value, verdict):
    assert (
        evaluate_claim(Claim(text="", at_most={"a / x": 0.84}), cells({"a / x": value})).verdict
        == verdict
    )


@pytest.mark.parametrize(("value", "verdict"), [(1.2, HOLDS), (0.1, HOLDS), (1.21, FAILS)])
def test_within_so_many_points_of_the_paper_or_better(value, verdict):  # its number is 1
    assert (
        evaluate_claim(
            Claim(text="", within={"a / *": 0.2}), cells({"a / x": value, "b / x": 9.0})
        ).verdict
        == verdict
    )


@pytest.mark.parametrize(("second", "verdict"), [(1.0, HOLDS), (5.0, FAILS)])
def test_every_epoch_of_the_top_layer_counts(second, verdict):
    measured = {
        "a / cost": trained("a", [2.0, second, 1.0]),
        "b / cost": trained("b", [3.0, 3.0, 3.0]),
    }
    claim = Claim(text="", below=(("a / cost", "b / cost"),), every_epoch=True)
    assert evaluate_claim(claim, measured).verdict == verdict


def test_an_epoch_is_the_mean_over_the_seeds():
    assert trained("a", [2.0, 1.0], [4.0, 2.0]).series("cost") == [3.0, 1.5]


def trained(row, *seeds):
    """A cell of trainings: their costs at every epoch of layer 2."""

    def epoch(layer, cost):
        return EpochRecord(layer=layer, epoch=1, cost=cost, nonzeros=1.0, seconds=1.0, engine="cpu")

    results = tuple(
        TrainingResult(
            history=(epoch(1, 99.0), *(epoch(2, cost) for cost in costs)), training_seconds=1.0
        )
        for costs in seeds
    )
    return MeasuredCell(Cell("t", row, "cost", "cost", None, False, ()), results)


# Curves are drawn as they are: a ring at the lowest point, a title within the figure, no warning --


no_warnings = pytest.mark.filterwarnings("error")
CONTENT = {
    "title": "Error against λ",
    "x": {"label": "λ", "scale": "log"},
    "y": {"label": "error, %"},
    "curves": [
        {"label": "ℓ1", "x": [1, 2, 5], "y": [1.5, 1.3, 1.2], "std": [0.2, 0.3, 0.1]},
        {"label": "ℓ0.5", "x": [1, 2, 5], "y": [1.1, 0.9, 1.0]},
    ],
}


@no_warnings
def test_curves_and_the_ring_around_the_lowest_point_are_drawn() -> None:
    axes = draw(CONTENT).axes[0]
    first, second, ring = axes.lines
    np.testing.assert_array_equal(first.get_ydata(), [1.5, 1.3, 1.2])
    np.testing.assert_array_equal(second.get_xdata(), [1, 2, 5])
    assert (*ring.get_xdata(), *ring.get_ydata()) == lowest(CONTENT["curves"]) == (2, 0.9)
    assert len(axes.collections) == 1, "a band of ± one deviation, where it was measured"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "5"]


@no_warnings
def test_histories_are_drawn_as_the_cost_over_training() -> None:
    epochs = [
        {"layer": 2, "epoch": e, "reconstruction": 3 / e, "penalty": 1.0, "nonzeros": 5.0}
        for e in (1, 2)
    ]
    assert draw({"histories": {"max": epochs}}).axes[0].get_title(loc="left") == "cost"


@no_warnings
def test_a_long_title_stays_within_the_figure() -> None:
    figure: Figure = draw({**CONTENT, "title": "Error against λ, " + "and against much else, " * 3})
    figure.canvas.draw()
    (text,) = [text for text in figure.findobj(Text) if text.get_text().startswith("Error against")]
    title = text.get_window_extent()
    assert figure.bbox.x0 <= title.x0
    assert title.x1 <= figure.bbox.x1
    assert title.y1 <= figure.bbox.y1
