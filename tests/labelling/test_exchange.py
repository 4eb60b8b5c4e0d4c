"""Labels for other programs and from them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import whatwhere as ww
from whatwhere.errors import ImageError, RunError
from whatwhere.labelling.exchange import (
    ClassTable,
    ForeignLabels,
    label_studio_tasks,
    read_foreign_labels,
    write_folders,
)
from whatwhere.labelling.label_file import change_labels
from whatwhere.labelling.label_tables import predictions_text, read_labels

NAMES = ["a/1.png", "a/2.png", "b/1.png", "3 ü.png"]


@pytest.fixture
def table() -> ClassTable:
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0], [0.4, 0.6]])
    return ClassTable(NAMES, ["cat", "dog"], shares, frozenset({2}))


def labels_of(text: str, source: str = "labels.csv") -> ForeignLabels:
    return read_foreign_labels(text.encode(), source, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "file,class\na/1.png,cat\n3 ü.png,dog\n",
        "a/1.png,cat\n3 ü.png,dog\n",
        "\ufefflabel;name\ncat;a/1.png\ndog;3 ü.png\n",
        "id\tfilename\tcategory\n7\ta/1.png\tcat\n8\t/home/x/3 ü.png\tdog\n\n",
        "file,class,probability,source\na/1.png,cat\na/2.png,cat,.9,predicted\n3 ü.png,dog,,\n",
        "file,class,probability,source\na/1.png,cat,1,labelled\na/2.png,cat,.9,predicted\n"
        "3 ü.png,dog,1,labelled\n",
        "file,class,probability,source\na/1.png,cat,1,said\na/2.png,cat,.9,predicted\n"
        "3 ü.png,dog,1,said\n",  # as version 0.2 wrote it
    ],
)
def test_tables_of_other_programs_are_read(text: str) -> None:
    found = labels_of(text)
    assert found.labels == {"a/1.png": "cat", "3 ü.png": "dog"}
    assert list(found.unknown) == []


def test_the_json_of_label_studio_is_read_in_both_forms() -> None:
    def result(*names: str) -> list[dict]:
        return [{"type": "choices", "value": {"choices": list(names)}}]

    tasks = [
        {
            "data": {"image": "/data/local-files/?d=a/1.png"},
            "annotations": [{"result": result("x")}],
        },
        {
            "data": {"image": "/data/upload/1/0a1b2c3d-3%20%C3%BC.png"},
            "annotations": [
                {"result": result("first")},
                {"result": result("second")},
                {"was_cancelled": True, "result": result("third")},
            ],
        },
        {"data": {"image": "a/2.png"}, "annotations": [], "predictions": [{"result": result("x")}]},
        {"data": {"image": "gone.png"}, "annotations": [{"result": result("x")}]},
        {"data": {"image": "b/1.png"}, "annotations": [{"result": result("x", "y")}]},
    ]
    found = labels_of(json.dumps(tasks), "project.json")
    assert found.labels == {"a/1.png": "x", "3 ü.png": "second"}
    assert list(found.unknown) == ["gone.png"]
    short = [{"image": "https://host/a/2.png", "choice": "x"}, {"file": "b/1.png", "class": "y"}]
    assert labels_of(json.dumps(short), "min.json").labels == {"a/2.png": "x", "b/1.png": "y"}


@pytest.mark.parametrize(
    ("text", "source", "words"),
    [
        ("file,class\nother.png,cat\n", "x.csv", "has no label for these pictures"),
        ("a/1.png\n", "x.csv", "expected the name of a picture and its class"),
        ("a/1.png,cat\na/1.png,dog\n", "x.csv", "two classes"),
        ("1.png,cat\n", "x.csv", "2 pictures have this name: 'a/1.png', 'b/1.png'. Write"),
        ("{}", "x.json", "not a list of tasks"),
        ("[1]", "x.json", "not a list of tasks"),
        ("[{", "x.json", "not JSON"),
        ("[" * 100_000, "x.json", "not JSON"),
        ("", "x.csv", "has no label"),
    ],
)
def test_what_cannot_be_read_is_an_error_in_words(text: str, source: str, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        labels_of(text, source)
    with pytest.raises(ImageError, match="not UTF-8"):
        read_foreign_labels(b"\xff\xfe\x00", source, NAMES)


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        ([], "Imported 1 label."),
        (["x.png"], "Imported 1 of 2 labels; no picture is called 'x.png'."),
        (
            ["x.png", "y.png", "z.png", "w.png"],
            "Imported 1 of 5 labels; no picture is called 'x.png' or 'y.png' or 'z.png' (1 more"
            " name without a picture).",
        ),
    ],
)
def test_labels_without_a_picture_are_counted_and_named(unknown: list[str], words: str) -> None:
    text = "".join(f"{name},dog\n" for name in ["a/1.png", *unknown])
    assert labels_of(text).words == words


def test_tasks_for_label_studio_come_back_as_the_labels_that_were_said(table: ClassTable) -> None:
    tasks = label_studio_tasks(table)
    assert [task["data"]["file"] for task in tasks] == NAMES
    assert [len(task.get("annotations", [])) for task in tasks] == [0, 0, 1, 0]
    assert tasks[1]["predictions"][0]["score"] == 0.8
    assert labels_of(json.dumps(tasks), "x.json").labels == {"b/1.png": "cat"}


def test_folders_by_class_hold_copies_or_links_and_nothing_is_replaced(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    for number, label in ((1, "a"), (2, "a"), (1, "b")):
        (pictures / label).mkdir(parents=True, exist_ok=True)
        shade = np.full((8, 8), 40 * number + 5 * (label == "b"), np.uint8)
        Image.fromarray(shade).save(pictures / label / f"{number}.png")
    images = ww.data.load(pictures)
    shares = np.eye(3)[[0, 1, 0]]
    table = ClassTable(["a/1.png", "a/2.png", "b/1.png"], ["../x", "Y", "y"], shares, frozenset())
    folder = write_folders(table, images, tmp_path / "out")
    files = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    assert files == ["Y/a-2.png", "_x/a-1.png", "_x/b-1.png"]
    original = (pictures / "b" / "1.png").read_bytes()
    assert (folder / "_x" / "b-1.png").read_bytes() == original
    again = write_folders(table, images, tmp_path / "out", links=True)
    assert again == tmp_path / "out-2"
    assert (again / "_x" / "b-1.png").resolve() == pictures / "b" / "1.png"


def test_a_session_exports_what_it_predicts_and_imports_in_one_action(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3)) + np.repeat(np.eye(2, 3) * 20, 10, 0)
    session = ww.Labelling(rows)
    with pytest.raises(ImageError, match="no class yet"):
        session.export(tmp_path / "x.csv")
    file = tmp_path / "labels.csv"
    file.write_text("file,class\n0,left\n10,right\nother,left\n")
    with pytest.warns(UserWarning, match=r"^Imported 2 of 3 labels; no picture is called 'other'"):
        assert session.import_labels(file) == ["other"]
    written = session.export(tmp_path / "x.csv")
    with open(written, newline="") as opened:
        table = list(csv.DictReader(opened))
    assert [line["class"] for line in table] == ["left"] * 10 + ["right"] * 10
    assert len(json.loads(session.export(tmp_path / "x.json").read_text())) == 20
    with pytest.raises(ImageError, match="only descriptors"):
        session.export(tmp_path / "folder")
    assert session.undo()
    assert session.said == {}
    assert not session.undo()


def test_the_classes_are_a_table_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    session.label({0: "cat", 3: "dog"})
    table = session.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table["class"].tolist() == session.predict().classes.tolist()
    assert (table["source"] == "labelled").sum() == 2
    assert table["p(cat)"].tolist() == session.probabilities[:, 0].tolist()
    assert table["probability"].tolist() == table[["p(cat)", "p(dog)"]].max(axis=1).tolist()


# What we write ourselves is read back, whatever pictures and classes are called


file_names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=12
).filter(str.strip)
paths = st.lists(file_names, min_size=1, max_size=3).map("/".join)
awkward = st.sampled_from(
    ['5" pipe, left.png', "'good'", "'s-Hertogenbosch", '"', ";", "\t", "a\rb", "a\n", "\ufeffx"]
)
class_names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12
).filter(lambda name: name == name.strip() and name != "")
classes = st.one_of(class_names, st.sampled_from(["'good'", '"q"', "a;b", "a,b", "not sure"]))
labelled = st.dictionaries(st.one_of(paths, awkward), classes, min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(labels=labelled)
def test_a_table_of_predictions_is_read_back(labels: dict[str, str]) -> None:
    names = list(labels)
    kinds = sorted(set(labels.values()))
    shares = np.eye(len(kinds))[[kinds.index(name) for name in labels.values()]]
    text = predictions_text(names, kinds, shares, range(len(names)))
    found = read_foreign_labels(text.encode(), "predictions.csv", names)
    assert (found.labels, list(found.unknown)) == (labels, [])


@settings(max_examples=60, deadline=None)
@given(labels=labelled)
def test_a_table_of_labels_and_tasks_are_read_back(
    labels: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("round") / "labels.csv"
    change_labels(file, labels, {})
    assert read_labels(file) == labels
    names = list(labels)
    assert read_foreign_labels(file.read_bytes(), file.name, names).labels == labels
    kinds = sorted({*labels.values(), "another"})
    shares = np.eye(len(kinds))[[kinds.index(name) for name in labels.values()]]
    table = ClassTable(names, kinds, shares, frozenset(range(len(names))))
    tasks = json.dumps(label_studio_tasks(table))
    assert read_foreign_labels(tasks.encode(), "tasks.json", names).labels == labels


# What is there already stays, unless the user says otherwise


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.safetensors"])
def test_a_file_is_replaced_only_with_overwrite(name: str, tmp_path: Path) -> None:
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0), labels=tmp_path / "labels.csv")
    session.label({0: "cat", 3: "dog"})
    write = session.save if name.endswith("safetensors") else session.export
    file = tmp_path / name
    file.write_text("mine")
    with pytest.raises(RunError):
        write(file)
    assert file.read_text() == "mine"
    write(file, overwrite=True)
    assert file.read_bytes() != b"mine"
    for own in ("labels.csv", "predictions.csv"):
        before = (tmp_path / own).read_bytes()
        with pytest.raises(RunError):
            write(tmp_path / own, overwrite=True)
        assert (tmp_path / own).read_bytes() == before
