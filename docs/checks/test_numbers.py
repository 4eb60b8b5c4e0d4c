"""The numbers of the README and of its pages are those of the result files (`make docs`)."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks.tables import rows_of, study_results

from reproduction.report import measured_tables
from reproduction.reproduce import open_store
from reproduction.results import mean_and_deviation
from reproduction.scale import read_scale

ROOT = Path(__file__).parents[2]
README, RESULTS, START = ROOT / "README.md", ROOT / "docs/results/index.md", ROOT / "docs/start.md"


ONE_CELL = {  # a row of the README, and where its number comes from
    "**Gaussian pooling**": ("pooling", "Gaussian pooling / Layer 2"),
    "its layer 1 alone": ("pooling", "Gaussian pooling / Layer 1"),
    "max pooling": ("pooling", "Max pooling / Layer 2"),
    "layer 1 of max pooling": ("pooling", "Max pooling / Layer 1"),
    "without the reset of the features in training": (
        "reset",
        "Gaussian pooling, 2 layers / No reset",
    ),
    "without non-negativity: Gaussian pooling": (
        "nonnegativity",
        "Gaussian pooling / Positive/negative",
    ),
    "without non-negativity: max pooling": ("nonnegativity", "Max pooling / Positive/negative"),
}
MANY_LABELS = {
    "Gaussian pooling, two layers": "This model, Gaussian pooling, 2 layers",
    "three of them, of three seeds, side by side": "Three of them side by side (beyond the paper)",
    "baselines, the same SVM: raw pixels": "Raw pixels",
    "k-means on whitened patches": "k-means on whitened patches (Coates and Ng)",
    "scattering": "Scattering (kymatio)",
}


FEW = [
    f"({frame}) {method}"
    for frame in ("a", "a, upright")
    for method in ("this model", "scattering", "k-means")
] + [
    f"(a) {row}"
    for row in ("this model, not whitened", "scattering, standardised", "k-means, standardised")
]


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Any]]:
    paper = read_scale("paper")
    return measured_tables(paper, open_store(ROOT / "reproduction/results", paper))


def test_every_error_rate_is_from_its_result_files(tables: dict[str, dict[str, Any]]) -> None:
    rows = rows_of(RESULTS)
    for row, (table, name) in ONE_CELL.items():
        cell = tables[table][name]
        mean, deviation = mean_and_deviation(cell.values)
        expected = [
            str(len(cell.values)),
            f"{mean:.2f} ± {deviation:.2f}",
            f"{cell.cell.paper:.2f}",
        ]
        assert rows[row] == expected, row


IN_README = {"Gaussian pooling, two layers, as in the paper": "Gaussian pooling, two layers"}
IN_README |= {"raw pixels": "baselines, the same SVM: raw pixels"}


@pytest.mark.parametrize(
    ("page", "names"), [(README, IN_README), (RESULTS, {})], ids=["README", "results"]
)
def test_every_error_rate_with_few_labels_is_from_its_result_files(
    page: Path, names: dict[str, str], tables: dict[str, dict[str, Any]]
) -> None:
    rows = rows_of(page)
    for row, known in (names or dict(zip(MANY_LABELS, MANY_LABELS, strict=True))).items():
        labels = ("all", "3000", "1000", "300", "100")
        cells = [tables["comparison"][f"{MANY_LABELS[known]} / {n} labels"] for n in labels]
        assert rows[row] == [f"{cell.mean:.2f}" for cell in cells], row


def test_the_errors_of_the_best_features_are_from_their_result_files(
    tables: dict[str, dict[str, Any]],
) -> None:
    rows, labels = rows_of(ROOT / "docs/results/best.md"), ("3000", "1000", "300", "100")
    best = [f"({name}{frame})" for name in "abc" for frame in ("", ", upright")]
    for table, before, names, places in (
        ("best", "", best, 3),
        ("best_fashion", "Fashion-MNIST ", ["(a)", "(c)"], 2),
    ):
        for name in names:
            ours, *others = (
                tables[table][f"{name} {who} / error"]
                for who in ("this model", "scattering", "k-means")
            )
            expected = [
                f"{ours.mean:.{places}f}",
                ", ".join(f"{value:.2f}" for value in ours.values),
            ]
            # without what stands in brackets
            found = [cell.split(" (")[0] for cell in rows[before + name][1:5]]
            assert found == [*expected, *(f"{other.mean:.2f}" for other in others)], name
    few = {
        row: [f"{tables['best_few'][f'{row} / {n} labels'].mean:.2f}" for n in labels]
        for row in rows
        if row in FEW
    }
    assert {row: rows[row] for row in few} == few
    assert len(few) == len(FEW)


def svm_errors(row: dict[str, Any]) -> list[float]:
    """The errors in % of a linear SVM with all labels, 3,000, 1,000, 300 and 100."""
    return [
        float(row["svm"][labels]["1.0"].split("±")[0])
        for labels in ("all", "3000", "1000", "300", "100")
    ]


def test_the_errors_with_ten_labels_are_from_their_result_files() -> None:
    rows, few = rows_of(ROOT / "docs/results/few_labels.md"), study_results("ten_labels")
    ours, scattering = "three models, both views", "scattering, both views"
    for row, name in {
        ours: ours,
        "one model, both views": "one model, both views",
        f"{scattering}, the same metric": scattering,
    }.items():
        assert rows[row] == [
            f"{error:.2f}" for error in svm_errors(few[f"mnist test svm {name}"])
        ], row
    in_readme = {row.partition(",")[0]: cells for row, cells in rows_of(README).items()}
    assert in_readme["best"] == rows[ours]
    assert in_readme["scattering"] == rows[f"{scattering}, the same metric"]
    runs = study_results("one_example")
    for row, name in {
        "metric of both": "both",
        "metric of small distortions: no label is used": "distortions",
    }.items():
        assert float(rows[row][1]) == runs[f"omniglot test {name}"]["test"], row


def test_the_numbers_in_sentences_are_from_the_result_files(
    tables: dict[str, dict[str, Any]],
) -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert (
        f"(the paper: {tables['pooling']['Gaussian pooling / Layer 2'].cell.paper} with all labels)"
        in text
    )
    tutorial = rows_of(ROOT / "docs/tutorial/ten_labels.md")
    for row, name in {
        "this model, two layers": "Gaussian pooling, two layers",
        "raw pixels": "baselines, the same SVM: raw pixels",
    }.items():
        assert tutorial[row] == rows_of(RESULTS)[name][1:], row


def test_the_numbers_of_photographs_and_defects_are_from_their_result_files() -> None:
    text = README.read_text(encoding="utf-8")
    rows = json.loads(
        (ROOT / "benchmarks/restoration/results/denoising.json").read_text(encoding="utf-8")
    )["denoising"]
    chosen = {"method": "trained", "data": "bsd68", "sigma": 25, "shifts": 16}
    (denoised,) = (row for row in rows if chosen.items() <= row.items())
    assert f"{denoised['psnr']:.1f} dB on BSD68 at σ = 25" in text
    tiles = json.loads(
        (ROOT / "benchmarks/defects/results/anomaly_folds.json").read_text(encoding="utf-8")
    )["tiles"]
    own, network = (f"{tiles[name]['image']:.2f}" for name in ("own", "network"))
    assert f"its AUROC is {own};" in text
    assert f"(EfficientNet-Lite0) has an AUROC of {network}" in text


def test_the_moves_of_the_gaussians_are_those_of_their_study() -> None:
    page = (ROOT / "docs/explanation/model.md").read_text(encoding="utf-8").replace("\n", " ")
    result = json.loads(
        (ROOT / "reproduction/studies/results/pooling_moves.json").read_text(encoding="utf-8")
    )
    top = result["layers"][-1]
    assert f"On {result['images']} test digits, inference changes μ of layer 2 by" in page
    moves = f"{top['change of mu']:.2f} on average and log γ by {top['change of log gamma']:.2f}."
    assert moves in page
    cost = {name: f"{value:.2f}" for name, value in result["cost"].items()}
    assert f"the cost rises from {cost['as inferred']} to {cost['gamma put back']};" in page
    assert f"if μ does, the cost rises to {cost['mu put back']} (" in page


def test_the_page_of_the_autoencoder_has_its_errors() -> None:
    page = (ROOT / "docs/results/pooling.md").read_text(encoding="utf-8")
    assert "(mean squared error 0.0004 against 0.0030)" in page


def test_the_points_that_unpooling_finds_are_those_of_their_study() -> None:
    path = ROOT / "benchmarks/layers/results/decoders.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    names = {
        "where": "unpooling by *where* finds",
        "max": "max\nunpooling",
        "bilinear": "bilinear upsampling",
    }
    how_to = (ROOT / "docs/howto/pooling.md").read_text(encoding="utf-8")
    for way, words in names.items():
        found = np.mean([row["within one pixel, %"] for row in rows if row["way"] == way])
        assert f"{words} {found:.1f} %" in how_to


@pytest.mark.parametrize("path", sorted((ROOT / "docs/howto").glob("*.md")), ids=lambda p: p.stem)
def test_a_how_to_has_at_most_800_words(path: Path) -> None:
    """Results belong on the pages of results, and reasons on those of explanation."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    assert len(re.findall(r"\w\S*", text)) <= 800


def test_the_reference_has_every_key_of_the_labelling_page() -> None:
    script = ROOT / "src/whatwhere/html/assets/label_keys.js"
    keys = re.findall(r'^  \["(.*?)", "(.*?)"\],$', script.read_text(encoding="utf-8"), re.M)
    page = (ROOT / "docs/reference/labelling_page.md").read_text(encoding="utf-8")
    table = page[page.index("| key |") : page.index("The letters `u`")]
    assert table.splitlines()[2:-1] == [f"| {key} | {what} |" for key, what in keys]


def test_the_readme_has_at_most_700_words() -> None:
    text = re.sub(r"<!--.*?-->", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    assert len(text.split()) <= 700


@pytest.mark.parametrize(("name", "words"), [("steel", "steel surfaces"), ("blood", "blood cells")])
def test_the_errors_with_three_labels_are_from_their_result_files(name: str, words: str) -> None:
    path = ROOT / "benchmarks/labels/results/must_hold.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    want = {"version": "now", "set": name, "rows": "default", "per_class": 3}
    draws = [row["error"] for row in rows if want.items() <= row.items()]
    assert len(draws) == 10
    assert f"{np.mean(draws):.1f} % of {words}" in README.read_text(encoding="utf-8")
    page = (ROOT / "docs/results/few_labels.md").read_text(encoding="utf-8")
    assert f"{np.mean(draws):.1f} % of {words} " in page


@pytest.mark.parametrize("name", ["steel", "blood"])
def test_the_errors_of_a_whole_folder_are_from_their_result_files(name: str) -> None:
    path = ROOT / f"benchmarks/labels/results/any_folder_{name}.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    errors = [np.mean(results[f"{labels} a class"]["graph"]) for labels in (1, 3, 10)]
    page = (ROOT / "docs/results/few_labels.md").read_text(encoding="utf-8")
    sentence = " / ".join(f"{error:.1f}" for error in errors) + f" % on {name}"
    assert sentence in " ".join(page.split())


def anomaly_results() -> dict[str, Any]:
    return dict(
        json.loads((ROOT / "benchmarks/defects/results/anomaly.json").read_text(encoding="utf-8"))
    )


DETECTORS = {  # a row of the page, and what the result file calls it
    "`AnomalyDetector`": "own",
    "`AnomalyDetector(features=…)`: EfficientNet-Lite0, pretrained on ImageNet": "network",
    "both, joined by ranks": "joined",
}


def test_the_numbers_of_the_anomaly_page_are_from_its_result_file() -> None:
    results, page = anomaly_results(), ROOT / "docs/results/defects.md"
    folds = json.loads(
        (ROOT / "benchmarks/defects/results/anomaly_folds.json").read_text(encoding="utf-8")
    )["tiles"]
    text, rows = " ".join(page.read_text(encoding="utf-8").split()), rows_of(page)
    for row, method in DETECTORS.items():
        found = folds[method]
        expected = [f"{found['image']:.3f} ± {found['standard error']:.3f}"]
        expected += [f"{found[name]:.3f}" for name in ("tile", "pixel", "PRO")]
        assert rows[row][:4] == expected, row
    for name, draws in results["textures, other draws"].items():
        mean, before = (
            np.mean([draw["all"] for draw in rows.values()])
            for rows in (draws, results["before"]["textures, other draws"][name])
        )
        assert f"{mean:.3f} ({before:.3f})" in text, name


DENOISED = {  # a row of the page, and what the result file says of it
    "noisy": {"method": "noisy"},
    "total variation": {"method": "tv"},
    "non-local means": {"method": "nlm"},
    "SPORCO": {"method": "sporco"},
    "sparse coding, our former way": {"method": "photographs"},
    "BM3D": {"method": "bm3d"},
    "**without pairs: a dictionary**": {"method": "dictionary", "learn": False},
    **{
        f"**trained, quality {q}{' (default)' if q == 16 else ''}**": {
            "method": "trained",
            "shifts": q,
        }
        for q in (8, 16, 32, 64)
    },
}


def denoising_results() -> dict[str, Any]:
    results = ROOT / "benchmarks/restoration/results/denoising.json"
    return dict(json.loads(results.read_text(encoding="utf-8")))


@pytest.mark.parametrize("row", DENOISED)
def test_the_table_of_denoising_is_from_its_result_file(row: str) -> None:
    rows, cells = denoising_results()["denoising"], rows_of(ROOT / "docs/results/noise.md")[row]
    for place, pictures in ((0, "bsd68"), (2, "set12")):
        if (row, pictures) == ("BM3D", "bsd68"):
            continue  # published
        wanted = DENOISED[row] | {"data": pictures, "colour": False}
        measured = [
            r for r in rows if all(r.get(key, value) == value for key, value in wanted.items())
        ]
        measured = sorted(
            (r for r in measured if r.get("complete", True)), key=lambda r: r["sigma"]
        )
        assert [r["sigma"] for r in measured] == [15, 25, 50]
        assert cells[place] == "/".join(f"{r['psnr']:.2f}" for r in measured)
        assert cells[place + 1] == "/".join(f"{r['ssim']:.3f}" for r in measured)


def test_the_table_of_inpainting_is_from_its_result_file() -> None:
    found, page = denoising_results()["inpainting"], rows_of(ROOT / "docs/howto/inpainting.md")
    before, ours = found["pictures"]["rows"], found["pictures_fourth"]["rows"]
    for name, rows, key in (
        ("biharmonic", before, "biharmonic"),
        ("sparse coding, our former way", before, "former"),
        ("**whatwhere**", ours, "psnr"),
    ):
        means = [
            np.mean([row[key] for row in rows if row["missing"] == missing])
            for missing in (30, 50, 80)
        ]
        assert page[name] == [f"{mean:.2f}" for mean in means], name


def test_colour_with_40_held_out_is_from_its_result_file() -> None:
    colour = json.loads(
        (ROOT / "benchmarks/restoration/results/denoiser_colour.json").read_text(encoding="utf-8")
    )
    ours, former = (
        [colour["held_out_40"][way][f"psnr{sigma}"] for sigma in (15, 25, 50)]
        for way in ("trained", "former")
    )
    assert min(np.subtract(ours, former)) >= 1  # what was asked for
    text = " ".join((ROOT / "docs/results/noise.md").read_text(encoding="utf-8").split())
    shown = ("/".join(f"{value:.2f}" for value in way) for way in (ours, former))
    assert "{} dB on these (former way: {})".format(*shown) in text


def test_the_seconds_of_denoising_are_those_that_were_measured() -> None:
    rows = rows_of(ROOT / "docs/results/noise.md")
    times = {
        row["method"]: row["processor_seconds"] for row in denoising_results()["times"]["rows"]
    }
    for row, wanted in DENOISED.items():
        if (method := wanted["method"]) in times and method != "trained":
            assert rows[row][4] == f"{times[method]:.{0 if method == 'bm3d' else 1}f}"
    speed = json.loads(
        (ROOT / "benchmarks/restoration/results/denoising_speed.json").read_text(encoding="utf-8")
    )["quality"]
    for row, wanted in DENOISED.items():
        if wanted["method"] == "trained":
            assert rows[row][4] == f"{speed[str(wanted['shifts'])]['seconds']:.1f}"
    assert speed["16"]["seconds"] <= 3
    default = rows["**trained, quality 16 (default)**"]
    decibels = float(default[0].split("/")[1])
    assert f"{decibels:.1f} dB on BSD68 at σ = 25, in {default[4]} s a picture" in README.read_text(
        encoding="utf-8"
    )


def test_the_speeds_are_from_their_result_files() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    training = json.loads(
        (ROOT / "benchmarks/speed/results/gpu_training.json").read_text(encoding="utf-8")
    )["time"]
    streams = json.loads(
        (ROOT / "benchmarks/learning/results/streaming_gpu.json").read_text(encoding="utf-8")
    )["seeds"]
    stream = np.mean([each["training_seconds"] for each in streams])
    seconds = f"full training takes {training['training_seconds']:.0f} s on one H200"
    assert f"{seconds}; a [stream](docs/howto/streaming.md), {stream:.0f} s." in text
    measured = json.loads(
        (ROOT / "benchmarks/speed/results/sporco_comparison.json").read_text(encoding="utf-8")
    )["results"]
    ratios = []
    for (
        problem
    ) in measured:  # the best setting of each program that comes within 1 % of the best objective
        rows = [row for row in problem["rows"] if row["steps"] is not None]
        assert all(row["cost"] <= 1.01 * problem["best"] for row in rows)
        theirs, ours = (
            min(row["processor"] for row in rows if row["method"].startswith(name))
            for name in ("SPORCO", "whatwhere")
        )
        ratios.append(theirs / ours)
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as SPORCO" in text


def test_the_errors_of_the_demo_are_those_that_were_measured() -> None:
    measured = json.loads(
        (ROOT / "benchmarks/speed/results/demo.json").read_text(encoding="utf-8")
    )["result"]["scores"]
    page = RESULTS.read_text(encoding="utf-8")
    for score in measured:
        assert f"| {score['name']} | {100 * score['score']['error']:.2f} % |" in page


def test_the_range_of_the_errors_with_three_labels_is_from_its_result_file() -> None:
    path = ROOT / "benchmarks/labels/results/views.json"
    sets = json.loads(path.read_text(encoding="utf-8"))
    draws = {name: of["3"]["joined: all but the network"]["errors"] for name, of in sets.items()}
    joined = {name: np.mean(errors) for name, errors in draws.items()}
    text = README.read_text(encoding="utf-8")
    assert f"{joined['tiles']:.0f} % of tile defects" in text
    assert f"[{len(joined)} folders]" in text
    assert f"{np.mean(list(joined.values())):.0f} % on average" in text
