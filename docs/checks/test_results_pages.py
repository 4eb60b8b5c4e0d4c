"""What the pages say of few labels, labelling, denoising and inpainting is what their result files
hold."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks.tables import rows_of, study_results

from benchmarks.labels import page_errors

PAGES, RESULTS = (
    Path(__file__).parents[2] / folder for folder in ("docs/results", "benchmarks/labels/results")
)
ROWS = rows_of(PAGES / "few_labels.md")


def mean(text: str) -> float:
    return float(text.split("±")[0])


def cells(row: str) -> list[list[str]]:
    """The numbers of a row of which a cell has one for each of several settings."""
    return [re.split(r"[;,] ", cell) for cell in ROWS[row]]


def test_poses() -> None:
    found = study_results("pose")
    for row, name in {
        "small convolutional network": "pose small network",
        "… centred and upright images": "pose small network, upright",
        "one model, centred and upright images, metric (800 columns, share 0.3), linear SVM": (
            "pose features, share 0.3 rank 800 power 0.0, linear SVM"
        ),
    }.items():
        numbers = [cell.strip("*") for cell in ROWS[row]]
        assert numbers == [f"{found[name][part]:.2f}" for part in ("test in place", "test")], row


NEAR, THREE = "ridge + near of P 0.01", "three models"


def test_errors_on_fashion() -> None:
    few = study_results("ten_labels")
    for row, (name, rule) in {
        "graph, the former default without the prior": (f"{THREE}, first", "R"),
        "graph, Poisson learning alone": (f"{THREE}, first", "P"),
        "shorter walks, ridge regression on the classes": (f"{THREE}, first", NEAR),
        "… scattering": ("scattering, first", NEAR),
        "… with ridge regression on the labels": (f"{THREE}, second", f"{NEAR} + 0.25 smooth"),
        "… scattering, the same": ("scattering, second", f"{NEAR} + 0.25 smooth"),
    }.items():
        found = few[f"fashion-mnist test {name} choice"]
        draws = [found[labels][rule]["draws"] for labels in ("10", "100")]
        expected = [[np.mean(each), np.std(each)] for each in draws]
        shown = [[float(part.strip("* ")) for part in cell.split("±")] for cell in ROWS[row][:2]]
        np.testing.assert_allclose(shown, expected, atol=5.1e-2, err_msg=row)
    svm = few[f"fashion-mnist test svm {THREE}, first choice"]["svm"]
    shown = [float(cell) for cell in ROWS["linear SVM"][1:]]
    assert shown == pytest.approx(
        [mean(svm[n]["1.0"]) for n in ("100", "300", "1000", "3000", "all")], abs=5.1e-2
    )


RULE = "both of R 5 of P 0.003, even"


@pytest.mark.parametrize(
    ("name", "counts"), [("mnist", ("10", "50", "100")), ("fashion-mnist", ("10", "100"))]
)
def test_one_rule_on_test_images(name: str, counts: tuple[str, ...]) -> None:
    rows = {
        "mnist": (
            "three models, both views: **the default**",
            "scattering, both views, the same metric: the default",
        ),
        "fashion-mnist": ("graph, **the default**", "… scattering, the same metric"),
    }[name]
    for row, features in zip(rows, (THREE, "scattering"), strict=True):
        found = study_results("ten_labels")[f"one rule: {name} test {features}"]
        assert found["rule"] == RULE
        draws = [found[labels][RULE]["draws"] for labels in counts]
        shown = [
            [float(part.strip("* ")) for part in cell.split("±")]
            for cell in ROWS[row][: len(counts)]
        ]
        expected = [[np.mean(each), np.std(each)] for each in draws]
        np.testing.assert_allclose(
            shown, expected, atol=5.1e-3 if name == "mnist" else 5.1e-2, err_msg=row
        )


def test_suggested_labels() -> None:
    found = json.loads((RESULTS / "labelling.json").read_text())["errors"]
    text = (PAGES / "labelling.md").read_text(encoding="utf-8")
    tables = re.findall(r"<!-- (\w+) -->\n\n(\| labels \| 5 .*?)\n\n", text, re.DOTALL)
    assert {name for name, _ in tables} == {key.split()[0] for key in found}
    for name, table in tables:
        head, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        )
        for kind, row in zip(("suggested", "random"), rows, strict=True):
            each = [found[f"{name} {kind} {seed}"] for seed in range(3)]
            expected = [
                f"{100 * np.mean([errors[count] for errors in each]):.1f}" for count in head[1:]
            ]
            assert [cell.strip("*") for cell in row[1:]] == expected, (name, kind)


def _tables_after(text: str, mark: str) -> list[list[str]]:
    """The rows of the table after a mark, without its head."""
    table = text.partition(f"<!-- {mark} -->\n\n")[2].partition("\n\n")[0]
    lines = table.splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_errors_and_estimates_of_the_labelling_page() -> None:
    text = (PAGES / "labelling.md").read_text(encoding="utf-8")
    lines = page_errors.read(RESULTS / "page_errors.jsonl")
    names = sorted({line.name for line in lines})
    *of_sets, suggested, random = _tables_after(text, "page errors")
    assert len(of_sets) == len(names)
    wanted = [[line for line in lines if line.name == name] for name in names]
    chosen = [("suggested", some) for some in wanted] + [("suggested", lines), ("random", lines)]
    for row, (kind, some) in zip([*of_sets, suggested, random], chosen, strict=True):
        for cell, way in zip(row[1:], page_errors.WAYS, strict=True):
            errors = [
                np.mean([one.error for one in some if one[1:3] == (way, kind) and one.labels == n])
                for n in page_errors.LABELS
            ]
            assert cell == " / ".join(f"{100 * error:.1f}" for error in errors), (row[0], way)
    for row, count in zip(_tables_after(text, "estimates"), page_errors.LABELS, strict=True):
        shown = row[1:]
        for kind in ("random", "suggested"):
            some = [
                one
                for one in lines
                if one[1:3] == ("page", kind) and one.labels == count and one.estimate >= 0
            ]
            errors = np.array([one.error for one in some])
            estimates = np.array([one.estimate for one in some])
            held = [one.low <= one.error <= one.high for one in some]
            checked = [one.check_low <= one.error <= one.check_high for one in some]
            assert shown[:4] == [
                f"{100 * errors.mean():.0f} / {100 * estimates.mean():.0f}",
                *(f"{100 * np.mean(x):.0f}" for x in (abs(errors - estimates), held, checked)),
            ]
            shown = shown[4:]


def test_times_of_the_labelling_page() -> None:
    text = (PAGES / "labelling.md").read_text(encoding="utf-8")
    before, now, server = (
        json.loads((RESULTS / f"first_question{name}.json").read_text())
        for name in ("_before", "", "_server")
    )
    of_sets = (("fruit", "p300"), ("crops5000", "p5000"), ("crops20000", "p20000"))
    for row, (name, count) in zip(_tables_after(text, "times"), of_sets, strict=True):
        start, later = (server[count][when] for when in ("labels at the start", "labels then"))
        seconds = [before[name]["processor"], now[name]["processor"]]
        seconds += [min(one["question"] for one in server[count]["starts"])]
        seconds += [server["seconds to import torch"]]
        short = [later["next picture"], start["classes"], later["classes"]]
        expected = [f"{one:.1f} s" for one in seconds]
        assert row[1:] == expected + [f"{one['median']:.2f} s" for one in short], row[0]


def test_seconds_to_the_next_picture_in_a_browser() -> None:
    text = " ".join((PAGES / "labelling.md").read_text(encoding="utf-8").split())
    found = json.loads((RESULTS / "next_picture.json").read_text())
    names = ("fruit", "digits5000", "digits20000")
    first, second, third = (f"{found[name]['next picture']['median']:.2f}" for name in names)
    assert f"painted {first}, {second} and {third} s after Enter" in text


def test_seconds_after_a_label() -> None:
    text = (PAGES / "labelling.md").read_text(encoding="utf-8")
    before, now = (
        json.loads((RESULTS / f"after_a_label{name}.json").read_text()) for name in ("_before", "")
    )
    counts = ("360", "5000", "20000")
    for row, count in zip(_tables_after(text, "after a label"), counts, strict=True):
        pairs = []
        for phase in ("views", "three candidates", "a label when learned features are offered"):
            seconds = [found[count][phase]["processor"] for found in (before, now)]
            medians = [one["median"] if isinstance(one, dict) else one for one in seconds]
            pairs.append(" → ".join(f"{one:.2f} s" for one in medians))
        later = now[count]["three candidates"]["all processor"]["median"]
        assert row[1:] == [*pairs, f"{later:.1f} s"], row[0]


ROOT = Path(__file__).parents[2]
RESTORED = ROOT / "benchmarks/restoration/results"


def results(name: str) -> Any:
    """The content of a result file of a benchmark, given as subject/file."""
    subject, _, file = name.partition("/")
    path = ROOT / "benchmarks" / subject / "results" / file
    return json.loads(path.read_text(encoding="utf-8"))


def page(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_no_crop_is_worse_than_its_input() -> None:
    rows = results("restoration/denoising_crops.json")["rows"]
    assert len({row["crop"] for row in rows}) == 100
    assert min(row["sigma"] for row in rows) == 2
    assert max(row["sigma"] for row in rows) == 75
    assert [row for row in rows if max(row["given"], row["estimated"]) > 1] == []


def test_no_result_of_the_larger_study_is_worse_than_its_input() -> None:
    lines = (RESTORED / "never_worse.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row for row in rows if row["after"] < row["before"]] == []
    text = page("docs/explanation/restoration.md")
    assert f"none of the {len(rows):,} results was worse than its input" in text
    lines = (RESTORED / "never_worse_other.jsonl").read_text(encoding="utf-8").splitlines()
    others = [json.loads(line) for line in lines]
    assert [row for row in others if row["after"] < row["before"]] == []
    count = len({row["number"] for row in others})
    assert f"None of {len(others)} results of {count} other pictures" in text


def test_the_noise_is_estimated_as_reported() -> None:
    text = page("docs/explanation/restoration.md")
    for sigma, ratios in results("restoration/denoising.json")["noise"]["ratios"].items():
        assert len(ratios) == 68
        within = int((np.abs(np.array(ratios) - 1) <= 0.05).sum())
        assert f"| {sigma} | {np.mean(ratios):.3f} | {np.std(ratios):.3f} | {within} |" in text
        assert abs(np.mean(ratios) - 1) < 0.05


def test_mnist1d_is_reported_as_measured() -> None:
    found = results("signals/mnist1d.json")
    accuracy = {name: 100 * np.mean(row["test"]) for name, row in found["pooling"].items()}
    linear = found["features"]["linear"]
    source = (ROOT / "examples/gallery/20_ten_classes_of_signals.py").read_text(encoding="utf-8")
    for score, what in (
        (100 * linear["test_on_the_signals"], "with a linear classifier of the samples"),
        (100 * linear["test"], "with one of the features"),
        (accuracy["max"], "with max pooling"),
        (accuracy["gaussian"], "with Gaussian pooling"),
    ):
        assert f"{score:.1f} % {what}" in " ".join(source.split())


ANY_FOLDER = results("labels/any_folder.json")


def three_numbers(name: str, rows: str, method: str, kind: str) -> str:
    """The mean errors with 1, 3 and 10 labels a class; – where they were not measured."""
    draws = [ANY_FOLDER["draws"].get(f"{name}, {rows}, {count} {kind}") for count in (1, 3, 10)]
    if None in draws:
        return "–"
    return " / ".join(f"{np.mean(found[method]):.1f}" for found in draws)


@pytest.mark.parametrize("name", sorted({key.split(", ")[0] for key in ANY_FOLDER["rows"]}))
def test_errors_of_any_folder(name: str) -> None:
    text = page("docs/results/few_labels.md")
    for kind, words in {"balanced": name, "random": f"{name}, labels at random"}.items():
        own = [three_numbers(name, "own", way, kind) for way in ("graph", "nearest", "linear")]
        others = [three_numbers(name, rows, "graph", kind) for rows in ("network", "scattering")]
        assert f"| {words} | {' | '.join([*own, *others])} |" in text


@pytest.mark.parametrize("name", sorted({key.split(", ")[0] for key in ANY_FOLDER["sessions"]}))
def test_suggested_labels_of_any_folder(name: str) -> None:
    text = page("docs/results/few_labels.md")
    means = {}
    for kind in ("suggested", "random"):
        sessions = [
            session["errors"]
            for key, session in ANY_FOLDER["sessions"].items()
            if key.startswith(f"{name}, {kind}, ")
        ]
        assert len(sessions) == 10
        means[kind] = {
            count: np.mean([errors[count] for errors in sessions]) for count in sessions[0]
        }
        assert " | ".join(f"{mean:.1f}" for mean in means[kind].values()) in text
    worse = [
        (name, int(count))
        for count, mean in means["suggested"].items()
        if int(count) >= 10 and mean >= means["random"][count]
    ]
    assert set(worse) <= {("steel", 60)}  # as the page says


def test_tables_without_a_prior() -> None:
    text = page("docs/results/few_labels.md")
    found = results("labels/few_labels_tables.json")

    def errors(name: str, version: str, prior: str, counts: tuple[int, ...], digits: int) -> str:
        means = [found[name][version][f"{prior}, {count}"]["mean"] for count in counts]
        return " / ".join(f"{mean:.{digits}f}" for mean in means) + " %"

    mnist = "mnist, test, three models, both views"
    clothes = "fashion-mnist, test, three models"
    for prior in ("no prior", "uniform"):
        assert errors(mnist, "now", prior, (10, 50, 100), 2) in text
        assert errors(clothes, "now", prior, (10, 100), 1) in text
    before = errors(clothes, "before", "no prior", (10, 100), 1)
    assert f"the version before has {before}" in text


def test_simulated_recordings_are_reported_as_measured() -> None:
    measured = json.loads(
        (ROOT / "benchmarks/signals/results/recordings_present.json").read_text(encoding="utf-8")
    )
    rows = [row for row in measured["rows"] if row["method"] == "whatwhere"]
    text = page("docs/results/recordings.md")
    assert f"{len(rows)} simulated recordings" in text
    assert f"find at least {100 * min(row['recall'] for row in rows):.1f} % of the events" in text
    of_readme = f"at least {100 * min(row['recall'] for row in rows):.1f} % of the events in"
    assert f"{of_readme} {len(rows)} simulated recordings" in page("README.md")
    least = min(row["precision"] for row in rows)
    assert f"at least {100 * least:.1f} % of what they find are events" in text
    least = min(row["sorted_recall"] for row in rows)
    assert f"At least {100 * least:.1f} % of the events also get the right waveform" in text


@pytest.mark.parametrize("side", [28, 128, 1024])
@pytest.mark.parametrize("machine", ["core", "H200"])
def test_rates_of_many_pictures(side: int, machine: str) -> None:
    file = ROOT / "benchmarks/learning/results/cluster_rates.json"
    device = "cpu" if machine == "core" else "cuda"
    rates = json.loads(file.read_text(encoding="utf-8"))[machine][f"rates {device} {side}"]

    def number(name: str) -> str:
        rate = rates[name]
        digits = 3 if rate < 0.1 else 2 if rate < 1 else 1 if rate < 50 else 0
        return f"{rate:,.{digits}f}"

    training = "not measured"
    if "train layer 1" in rates:
        training = f"{number('train layer 1')} / {number('train layer 2')}"
    numbers = [training, *map(number, ("infer", "write codes", "describe"))]
    start = f"| {side:,}², a core |" if machine == "core" else "| … an H200 |"
    assert f"{start} {' | '.join(numbers)} |" in page("docs/explanation/millions.md")


def test_every_simulated_recording_is_in_the_table_as_measured() -> None:
    measured = json.loads(
        (ROOT / "benchmarks/signals/results/recordings.json").read_text(encoding="utf-8")
    )
    found = {(row["recording"], row["method"]): row for row in measured["rows"]}
    rows = rows_of(PAGES / "recordings.md", "Simulated recordings")
    names = {name for name, _ in found}
    assert len(names) == 20
    for name in names:
        cells = rows[name]
        own, right, threshold, alphacsc, seconds = cells
        shown = {"whatwhere": own, "threshold": threshold, "alphacsc": alphacsc}
        for method, cell in shown.items():
            row = found.get((name, method))
            if row is None:
                assert cell == "–", name
                continue
            assert cell == f"{100 * row['precision']:.1f} / {100 * row['recall']:.1f}", name
        assert right == f"{100 * found[name, 'whatwhere']['sorted_recall']:.1f}"
        measured_times = [found.get((name, method)) for method in shown]
        times = [
            "–" if row is None else f"{row['processor_seconds']:.1f}" for row in measured_times
        ]
        assert seconds == ", ".join(times)
        least = 0.85 if "overlaps" in name else 0.95
        assert found[name, "whatwhere"]["precision"] >= least, name
        assert found[name, "whatwhere"]["recall"] >= least, name


def test_real_recordings_are_reported_as_measured() -> None:
    results = ROOT / "benchmarks/signals/results/real_recordings.json"
    measured = json.loads(results.read_text(encoding="utf-8"))["rows"]
    rows = rows_of(PAGES / "recordings.md", "Real recordings")
    for row in measured:
        cells = rows[row["recording"]]
        if "triggers" in row:
            counts = [len(row["triggers"]), len(row["bursts"]), row["both"]]
            assert cells == [str(count) for count in counts]
        else:
            assert cells[2] == f"{row['f1']:.3f}", row["recording"]


def test_the_branches_of_the_reset_are_reported_as_measured() -> None:
    path = ROOT / "reproduction/studies/results/reset.json"
    branches = json.loads(path.read_text(encoding="utf-8"))["branches"]
    table = rows_of(ROOT / "docs/results/reproduction.md")
    for key, branch in branches.items():
        history = {epoch["epoch"]: epoch for epoch in branch["history"]}
        row = table[key.removesuffix(", seed 0")]
        assert row[:2] == [str(history[epoch]["unused"]) for epoch in (26, 30)], key
        if 50 in history:
            last = history[50]
            cost = last["reconstruction"] + last["penalty"]
            expected = [str(last["unused"]), f"{cost:.3f}", f"{last['nonzeros']:.1f}"]
            assert row[2:6] == [*expected, f"{branch['test error']:.2f}"], key


def test_the_raw_output_of_every_trial_is_there() -> None:
    text = (PAGES / "trials.md").read_text(encoding="utf-8")
    raw = [line.strip("|").split("|")[-1] for line in text.splitlines() if line[:1] == "|"]
    files = {
        path.name
        for folder in (ROOT / "benchmarks", ROOT / "reproduction")
        for path in folder.rglob("results/*")
    }
    named = {name for cell in raw for name in re.findall(r"`([^`]+)`", cell)}
    assert named - files == set()
    logs = json.loads((ROOT / "benchmarks/results/logs.json").read_text(encoding="utf-8"))
    names = {name for cell in raw for name in re.findall(r"logs, \*(\w+)\*", cell)}
    assert names - set(logs) == set()
