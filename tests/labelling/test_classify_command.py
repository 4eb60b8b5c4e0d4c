"""`whatwhere classify`, run as a command."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import tiny_run as tiny
import whatwhere as ww
from tiny_run import PLAIN, whatwhere
from whatwhere.commands import outputs
from whatwhere.errors import ImageError, RunError, SpecError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("classify") / "run")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of pictures without labels, and a table of labels for one of each class and
    a half."""
    from PIL import Image

    images, labels = tiny.bars(60, seed=3)
    (tmp_path / "pictures").mkdir()
    for i, image in enumerate(images):
        Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save(
            tmp_path / "pictures" / f"{i:02d}.png"
        )
    rows = [int(np.flatnonzero(labels == c)[k]) for c in range(3) for k in range(2)]
    lines = [f"{row:02d}.png,{['upright', 'lying', 'cross'][labels[row]]}" for row in rows]
    (tmp_path / "labels.csv").write_text("file,class\n" + "\n".join(lines) + "\n")
    np.save(tmp_path / "truth.npy", labels)
    return tmp_path


def test_a_few_labels_give_every_picture_a_class(run: Path, pictures: Path) -> None:
    table = pictures / "labels.csv"
    arguments = (
        "classify",
        pictures / "pictures",
        run,
        "--labels",
        table,
        "--out",
        pictures / "out",
        "--json",
    )
    result = json.loads(whatwhere(*arguments, "--set", "copies=2", *PLAIN))
    assert (result["images"], result["labels"]) == (60, 6)
    with (pictures / "out" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [f"{i:02d}.png" for i in range(60)]
    names = ["upright", "lying", "cross"]
    right = [
        row["class"] == names[label]
        for row, label in zip(rows, np.load(pictures / "truth.npy"), strict=True)
    ]
    assert np.mean(right) > 0.6, "chance is a third"
    for row in rows:
        shares = {name: float(row[name]) for name in names}
        assert sum(shares.values()) == pytest.approx(1, abs=2e-4)
        assert row["class"] == max(shares, key=shares.__getitem__)
        assert float(row["probability"]) == max(shares.values())
    given = {line.split(",")[0]: line.split(",")[1] for line in table.read_text().split()[1:]}
    assert all(row["class"] == given[row["file"]] for row in rows if row["file"] in given), (
        "labels are kept"
    )
    page = (pictures / "out" / "index.html").read_text()
    assert all(f"<h2>{name} (" in page for name in names)
    assert page.count("<h2>") == 4
    assert page.index("<h2>Least sure</h2>") < page.index("<h2>cross (")
    assert not set(result["worth_labelling"]) & set(given)
    metric, table = (
        (run / "metric.safetensors").read_bytes(),
        (pictures / "out" / "predictions.csv").read_bytes(),
    )
    whatwhere(*arguments, "--set", "copies=2", *PLAIN)
    assert (run / "metric.safetensors").read_bytes() == metric
    assert (pictures / "out" / "predictions.csv").read_bytes() == table
    (pictures / "other").mkdir()
    (pictures / "other" / "index.html").write_text("mine")
    with pytest.raises(RunError, match="overwrite"):
        whatwhere(*arguments[:-2], pictures / "other", *PLAIN)


def test_a_saved_classifier_gives_new_pictures_a_class(run: Path, pictures: Path) -> None:
    from whatwhere.classification.settings import Distortions
    from whatwhere.labelling.session import Labelling
    from whatwhere.spec.execution import TrainingOptions

    options = TrainingOptions(engine="reference", device="cpu")
    session = Labelling(
        pictures / "pictures",
        run=run,
        labels=pictures / "labels.csv",
        invariant_to=Distortions(copies=2),
        options=options,
    )
    session.save(pictures / "bars.safetensors")
    arguments = ("classify", pictures / "pictures", pictures / "bars.safetensors", "--json")
    result = json.loads(whatwhere(*arguments, "--out", pictures / "out"))
    assert sum(result["classes"].values()) == 60
    with (pictures / "out" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    same = [row["class"] == name for row, name in zip(rows, session.predict().classes, strict=True)]
    assert np.mean(same) > 0.9
    assert {row["source"] for row in rows} == {"predicted"}
    with pytest.raises(SpecError, match="is a classifier, which needs no labels"):
        whatwhere(*arguments, "--out", pictures / "out", "--labels", pictures / "labels.csv")


@pytest.fixture
def new_pictures(tmp_path: Path) -> Path:
    """A folder of other pictures of the same kinds."""
    from PIL import Image

    folder = tmp_path / "new"
    folder.mkdir()
    for number, image in enumerate(tiny.bars(20, seed=4)[0]):
        shades = (255 * image.clip(0, 1)).astype(np.uint8)
        Image.fromarray(shades).save(folder / f"new_{number:02d}.png")
    return folder


def page_session(run: Path, pictures: Path) -> ww.Labelling:
    """The session that the labelling page has with the same run and labels."""
    from whatwhere.spec.execution import TrainingOptions

    return ww.Labelling(
        pictures / "pictures",
        run=run,
        labels=pictures / "labels.csv",
        invariant_to=ww.Distortions(copies=2),
        options=TrainingOptions(engine="reference", device="cpu"),
    )


def test_a_table_gives_the_classifier_of_the_labelling_page(
    run: Path, pictures: Path, new_pictures: Path
) -> None:
    from whatwhere.labelling.page import save_classifier

    out = pictures / "my classes"
    arguments = ("classify", pictures / "pictures", run, "--labels", pictures / "labels.csv")
    printed = whatwhere(*arguments, "--out", out, "--set", "copies=2", "--set", "views=own", *PLAIN)
    command = f"whatwhere classify NEW/ '{out / 'classifier.safetensors'}' --out NEW_OUT"
    assert printed.splitlines()[-1] == f"Sort new pictures with: {command}"
    save_classifier(page_session(run, pictures), pictures / "page.safetensors")
    tables = []
    for classifier in (out / "classifier.safetensors", pictures / "page.safetensors"):
        folder = pictures / f"sorted by {classifier.stem}"
        whatwhere("classify", new_pictures, classifier, "--out", folder, "--quiet")
        tables.append((folder / "predictions.csv").read_text())
    assert tables[0] == tables[1]
    assert tables[0].count("\n") == 21
    shares = [
        ww.load_classifier(file).predict_proba(tiny.bars(20, seed=4)[0])
        for file in (out / "classifier.safetensors", pictures / "page.safetensors")
    ]
    np.testing.assert_array_equal(shares[0], shares[1])
    mine = b"whatever I put here"
    (out / "classifier.safetensors").write_bytes(mine)
    with pytest.raises(RunError, match=r"classifier\.safetensors exists already"):
        whatwhere(*arguments, "--out", out, "--set", "copies=2", "--set", "views=own", *PLAIN)
    assert (out / "classifier.safetensors").read_bytes() == mine


def test_a_table_gives_the_estimate_of_the_labelling_page(run: Path, pictures: Path) -> None:
    arguments = ("classify", pictures / "pictures", run, "--labels", pictures / "labels.csv")
    own = ("--set", "copies=2", "--set", "views=own")
    arguments += ("--out", pictures / "out", *own, *PLAIN)
    session = page_session(run, pictures)
    estimate = json.loads(whatwhere(*arguments, "--json"))["estimated_error"]
    assert estimate == pytest.approx(session.error(), abs=1e-6)
    assert session.error_words() in whatwhere(*arguments)
    assert (
        session.error_words().endswith("each.")
        or "predicted classes are wrong" in session.error_words()
    )
    lines = (pictures / "labels.csv").read_text().splitlines()
    (pictures / "labels.csv").write_text("\n".join(lines[:4]))
    assert json.loads(whatwhere(*arguments, "--json"))["estimated_error"] is None
    assert "An estimate of the error needs 5 labels (so far: 3)." in whatwhere(*arguments)


def test_labels_of_other_pictures_are_an_error_that_names_the_way_for_new_ones(
    run: Path, pictures: Path, new_pictures: Path
) -> None:
    arguments = ("classify", new_pictures, run, "--labels", pictures / "labels.csv")
    words = r"one of the pictures, such as 'new_00\.png'\. Labels are for pictures of this folder\."
    with pytest.raises(ImageError, match=rf"{words} .* NEW/ OUT/classifier\.safetensors"):
        whatwhere(*arguments, "--out", pictures / "out", *PLAIN)


def test_what_measures_a_model_answers_with_the_command_that_does(
    run: Path, pictures: Path
) -> None:
    given = ("classify", pictures / "pictures", run, "--out", pictures / "out", *PLAIN)
    with pytest.raises(SpecError, match=r"is not a classifier\. .* whatwhere svm .*pictures .*run"):
        whatwhere(*given)
    with pytest.raises(SpecError, match=r"whatwhere svm .*pictures .*run --labels .*truth\.npy"):
        whatwhere(*given, "--labels", pictures / "truth.npy")


def test_a_stage_says_when_it_begins_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with outputs.Stages().stage("learning", 100) as advance:
        advance(50)
    lines = [line.partition(".")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["learning …", "learning: 0"]


def test_a_mistake_in_the_table_is_known_before_the_long_work(run, pictures, tmp_path, capsys):
    table = tmp_path / "labels.csv"
    table.write_text("file,class\nnowhere.png,cat\n")
    with pytest.raises(ImageError, match=r"labels 'nowhere\.png'; expected the name of one"):
        whatwhere(
            *("classify", pictures / "pictures", run, "--labels", table),
            *("--out", tmp_path / "classes", *PLAIN),
        )
    assert "learning" not in capsys.readouterr().err


HOSTILE_TABLES = {
    "of zeros": b"\0" * 5000,
    "in UTF-16": "00.png,cat\n01.png,dog\n".encode("utf-16"),
    "with an open quote": b'"00.png,cat\n01.png,dog\n',
    "with a cell of a megabyte": b"00.png," + b"x" * 10**6 + b"\n01.png,dog\n",
    "with a class of 201 characters": b"00.png," + b"x" * 201 + b"\n01.png,dog\n",
    "with an escape in a class": b"00.png,cat\x1b[2J\n01.png,dog\n",
    "with a name outside the folder": b"../00.png,cat\n01.png,dog\n",
    "with two classes of a picture": b"00.png,cat\n00.png,dog\n",
    "of a hundred thousand columns": b",".join([b"00.png"] * 100_000),
    "of one class": b"00.png,cat\n01.png,cat\n",
}


@pytest.mark.parametrize("kind", HOSTILE_TABLES)
def test_a_hostile_table_is_an_error_and_nothing_is_written(run, pictures, tmp_path, kind):
    table = tmp_path / "labels.csv"
    table.write_bytes(HOSTILE_TABLES[kind])
    out = tmp_path / "classes"
    with pytest.raises(ImageError, match=r"labels\.csv|The class") as raised:
        whatwhere(
            *("classify", pictures / "pictures", run, "--labels", table, "--out", out, *PLAIN)
        )
    assert len(str(raised.value)) < 1000
    assert not list(out.rglob("*.csv"))
