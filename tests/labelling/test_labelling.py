"""A labelling session: what is said, what follows from it, what is suggested, and what is
written."""

import csv
import fcntl
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from whatwhere.data.pictures import earlier_names, picture_names
from whatwhere.errors import ImageError, RunError, SpecError
from whatwhere.files import RECORD, locked
from whatwhere.labelling.estimate import EstimateSettings
from whatwhere.labelling.label_file import change_labels
from whatwhere.labelling.label_tables import labels_of_pictures, read_labels

CLASSES = 4


def blobs(each: int = 40, spread: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows around the corners of a simplex, and their classes as text."""
    y = np.repeat(np.arange(CLASSES), each)
    rows = 4 * np.eye(CLASSES, 6)[y] + spread * np.random.default_rng(seed).normal(size=(len(y), 6))
    return rows.astype(np.float32), np.array(list("abcd"))[y]


def test_the_first_suggestions_are_of_every_class_and_then_all_is_right() -> None:
    rows, y = blobs()
    session = ww.Labelling(rows)
    first = session.suggest(CLASSES)
    assert set(y[first]) == set("abcd"), "from different regions before there is any label"
    for _ in range(CLASSES):
        (row,) = session.suggest(1)
        assert row not in session.said
        session.label({row: y[row]})
    found = session.predict()
    assert (found.classes == y).all()
    assert found.said.sum() == CLASSES
    assert found.probabilities[found.said].min() == 1
    assert len(set(session.suggest(12)) - set(session.said)) == 12


@pytest.mark.parametrize("seed", range(4))
def test_uncertain_pictures_are_suggested_before_others(seed: int) -> None:
    """Two places without labels, as wide as each other: one within a class, one between two."""
    x = np.linspace(-1, 1, 241)
    noise = np.random.default_rng(seed).uniform(-0.05, 0.05, len(x))
    rows = np.stack([x, noise], 1).astype(np.float32)
    without_labels = (np.abs(x) < 0.12) | (np.abs(x - 0.5) < 0.12)
    session = ww.Labelling(rows)
    session.label(
        {
            row: "left" if x[row] < 0 else "right"
            for row in range(0, len(x), 4)
            if not without_labels[row]
        }
    )
    (first,) = session.suggest(1)
    assert abs(x[first]) < 0.1, "between the classes, not within one"
    sure = session.predict().probabilities
    assert sure[first] < sure.mean() - 0.1


def test_undo_relabel_not_sure_and_taking_a_label_away() -> None:
    rows, _ = blobs()
    session = ww.Labelling(rows)
    session.label({0: "a", 40: "b"})
    before = session.probabilities
    session.label({0: "b"})
    assert session.predict().classes[0] == "b"
    assert session.undo()
    assert np.array_equal(session.probabilities, before)
    session.label({1: "not sure"})
    assert np.array_equal(session.probabilities, before), "it has no influence"
    assert 1 not in session.suggest(len(rows))
    assert session.predict().said.sum() == 2
    session.label({40: None})
    assert session.classes == ["a"]
    assert [session.undo() for _ in range(4)] == [True, True, True, False]
    assert session.said == {}
    assert set(session.predict().classes) == {""}


def test_a_single_class_says_nothing_of_other_pictures(tmp_path: Path) -> None:
    rows, _ = blobs()
    session = ww.Labelling(rows, labels=tmp_path / "labels.csv")
    session.label({0: "a", 7: "a"})
    found = session.predict()
    assert np.flatnonzero(found.classes == "a").tolist() == [0, 7]
    assert set(found.classes[~found.said]) == {""}
    assert found.probabilities.tolist() == found.said.tolist()
    with (tmp_path / "predictions.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["file", "class", "probability", "source", "a"]
    assert table[1] == ["0", "a", "1.0000", "labelled", "1.0000"]
    assert table[2] == ["1", "", "", "", ""]
    for name in ("x.csv", "x.json"):
        with pytest.raises(ImageError, match=r"All labels are 'a'.* a picture of a second class"):
            session.export(tmp_path / name)
    with pytest.raises(ImageError, match="The labels have 1 class; expected at least two"):
        session.save(tmp_path / "classifier.safetensors")
    session.label({40: "b"})
    assert set(session.predict().classes) == {"a", "b"}


def test_none_of_these_is_a_class_that_spreads() -> None:
    rows, _ = blobs()
    session = ww.Labelling(rows)
    session.label({0: "a", 40: "b", 80: "none of these", 120: "none of these"})
    found = session.predict().classes
    assert (found[80:] == "none of these").mean() > 0.95
    assert (found[:40] == "a").all()


def test_labels_of_unknown_pictures_raise_an_error_and_change_nothing() -> None:
    session = ww.Labelling(blobs()[0])
    for key in ("cat.png", 1000, -1, 2.5):
        with pytest.raises(ImageError, match="the name or the number of a picture"):
            session.label({key: "a"})
    with pytest.raises(ImageError, match="an empty class"):
        session.label({0: "  "})
    assert session.said == {}
    with pytest.raises(ImageError, match="at least two"):
        ww.Labelling(np.zeros((1, 3), np.float32))


def test_the_error_is_estimated_once_there_are_enough_labels() -> None:
    """Classes that overlap: an estimate that may be too large, since uncertain pictures were
    labelled, but is seldom too small, and right on average."""
    truths = []
    estimates = []
    for seed in range(2):
        rows, y = blobs(each=80, spread=1.9, seed=seed)
        session = ww.Labelling(rows)
        assert session.error() is None
        for _ in range(40):
            (row,) = session.suggest(1)
            session.label({row: y[row]})
        others = ~session.predict().said
        truth = np.mean(session.predict().classes[others] != y[others])
        assert truth > 0.1, "nothing to estimate"
        assert truth - 0.05 < session.error() < 2 * truth
        assert session.curve == [(40, session.error())]
        truths.append(truth)
        estimates.append(session.error())
    assert np.mean(estimates) == pytest.approx(np.mean(truths), rel=0.25)


def test_the_estimate_begins_with_five_labels_and_is_honest_in_a_small_set() -> None:
    """60 pictures: the mean estimate of several draws is near the mean error."""
    rows, y = blobs(each=20, spread=1.9)
    estimates = []
    errors = []
    for seed in range(8):
        session = ww.Labelling(rows)
        order = np.random.default_rng(seed).permutation(len(y))
        session.label({int(row): y[row] for row in order[:4]})
        assert session.error() is None
        session.label({int(row): y[row] for row in order[4:12]})
        estimates.append(session.error())
        others = order[12:]
        errors.append(np.mean(session.predict().classes[others] != y[others]))
    assert np.mean(errors) > 0.1, "nothing to estimate"
    assert np.mean(estimates) == pytest.approx(np.mean(errors), abs=0.1)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ([], "An estimate of the error needs 5 labels (so far: 0)."),
        (["a", "a", "b"], "An estimate of the error needs 5 labels (so far: 3)."),
        (["a"] * 7, "An estimate of the error needs labels of two classes."),
        (["a", "not sure", "not sure", "b", "c"], "needs 5 labels (so far: 3)."),
    ],
)
def test_what_an_estimate_needs_is_said_in_words(classes: list[str], words: str) -> None:
    session = ww.Labelling(blobs()[0])
    session.label(dict(enumerate(classes)))
    assert session.missing_for_estimate().endswith(words)
    assert session.error_words() == session.missing_for_estimate()


def test_an_estimate_is_a_sentence_with_its_limits() -> None:
    rows, y = blobs(spread=1.9)
    session = ww.Labelling(rows)
    session.label({row: y[row] for row in range(0, len(y), 8)})
    assert session.missing_for_estimate() == ""
    estimate = session.estimate()
    assert estimate is not None
    assert estimate.low < session.error() < estimate.high
    low, high = (round(100 * bound) for bound in (estimate.low, estimate.high))
    others = ~session.predict().said
    best = np.sort(session.probabilities[others], axis=1)[:, -2]
    pairs = np.sort(np.argsort(session.probabilities[others], axis=1)[:, -2:], axis=1)
    doubt = {
        pair: best[(pairs == pair).all(1)].sum() for pair in sorted({*map(tuple, pairs.tolist())})
    }
    first, second = ("abcd"[number] for number in max(doubt, key=lambda pair: doubt[pair]))
    assert session.error_words() == (
        f"{low} to {high} % of the predicted classes are wrong (an estimate). {first} and"
        f" {second} are confused most: label 5 of each."
    )


def test_a_range_is_narrower_with_more_labels() -> None:
    rows, y = blobs(each=80, spread=1.9)
    widths = []
    for step in (20, 10, 5):
        session = ww.Labelling(rows)
        session.label({row: y[row] for row in range(0, len(y), step)})
        estimate = session.estimate()
        assert estimate is not None
        widths.append(estimate.high - estimate.low)
    assert widths == sorted(widths, reverse=True)


def test_a_label_that_others_contradict_looks_wrong() -> None:
    rows, y = blobs()
    session = ww.Labelling(rows)
    said = {row: str(y[row]) for row in range(0, len(y), 4)}
    session.label({**said, 8: "c"})
    (suspect,) = session.suspects()
    assert (suspect.row, suspect.expected) == (8, "a")
    session.label({8: "a"})
    assert session.suspects() == []


def test_different_labels_of_near_doubles_look_wrong() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    rows[7] = rows[3] + 1e-3
    session = ww.Labelling(rows)
    session.label({3: "a", 20: "b", 30: "a", 40: "b"})
    assert not {3, 7} & {one.row for one in session.suspects()}
    session.label({7: "b"})
    found = {one.row: one.expected for one in session.suspects()[:2]}
    assert found == {3: "b", 7: "a"}
    session.label({7: "a"})
    assert not {3, 7} & {one.row for one in session.suspects() if one.probability == 1}


def test_pictures_far_from_all_others_are_suggested_last() -> None:
    rows, y = blobs()
    far = 30 * np.random.default_rng(1).normal(size=(8, rows.shape[1])).astype(rows.dtype)
    session = ww.Labelling(np.concatenate([rows, far]))
    session.label({0: y[0], 40: y[40]})
    suggested = session.suggested_rows(len(rows) + len(far))
    first = suggested[: len(rows) // 2]
    assert not set(first) & set(range(len(rows), len(rows) + len(far)))
    assert len(set(suggested)) == len(rows) + len(far) - 2, "and all others come in the end"


def test_a_session_continues_from_its_files(tmp_path: Path) -> None:
    rows, _ = blobs()
    file = tmp_path / "new" / "labels.csv"
    session = ww.Labelling(rows, labels=file)
    session.label({0: 'a, with "quotes"', 40: "b\u00e4r"})
    session.label({80: "not sure"})
    assert read_labels(file) == {"0": 'a, with "quotes"', "40": "b\u00e4r", "80": "not sure"}
    with file.with_name("predictions.csv").open(newline="", encoding="utf-8") as table:
        lines = list(csv.DictReader(table))
    assert [line["source"] for line in lines].count("labelled") == 2
    assert lines[0]["class"] == 'a, with "quotes"'
    file.write_text(file.read_text(encoding="utf-8") + "gone.png,c\n", encoding="utf-8")
    with pytest.warns(
        UserWarning,
        match=r"1 label of pictures that are not here, such as 'gone\.png'. The file keeps",
    ):
        again = ww.Labelling(rows, labels=file)
    assert again.said == session.said
    np.testing.assert_array_equal(again.probabilities, session.probabilities)
    again.label({1: "a"})
    assert read_labels(file)["gone.png"] == "c"


def means(pictures: torch.Tensor) -> torch.Tensor:
    """A feature map of one mean for each picture."""
    return pictures.mean((1, 2, 3), keepdim=True)


def test_a_table_may_leave_out_the_folders_of_pictures(tmp_path: Path) -> None:
    """As for `whatwhere classify`: a name without a folder is that of the only such picture."""
    folder = tmp_path / "pictures"
    names = ["a/1.png", "a/2.png", "b/1.png", "b/3.png"]
    for shade, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 60 * shade).save(folder / name)
    file = tmp_path / "labels.csv"
    file.write_text("2.png,dark\n3.png,light\n1.png,either\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"not here, such as '1\.png'"):
        session = ww.Labelling(folder, features=means, labels=file)
    assert session.said == {1: "dark", 3: "light"}
    session.label({"a/2.png": "middle"})
    assert read_labels(file) == {"3.png": "light", "1.png": "either", "a/2.png": "middle"}

    file.write_text("a/2.png,dark\n2.png,removed\n3.png,light\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"not here, such as '2\.png'"):
        session = ww.Labelling(folder, features=means, labels=file)
    assert session.said == {1: "dark", 3: "light"}, "2.png was another picture"
    session.label({"a/2.png": "middle"})
    assert read_labels(file)["2.png"] == "removed"


def test_two_sessions_on_one_table_lose_no_label(tmp_path: Path) -> None:
    rows, _ = blobs()
    file = tmp_path / "labels.csv"
    one, two = (ww.Labelling(rows, labels=file) for _ in range(2))
    one.label({0: "a", 1: "a"})
    two.label({40: "b"})
    assert two.said == {0: "a", 1: "a", 40: "b"}, "what the other one said counts here, too"
    one.label({80: "c"})
    one.undo()
    two.label({1: "d"})
    assert read_labels(file) == {"0": "a", "40": "b", "1": "d"}
    np.testing.assert_array_equal(ww.Labelling(rows, labels=file).probabilities, two.probabilities)
    file.unlink()
    two.label({120: "e"})
    assert read_labels(file) == {
        "0": "a",
        "40": "b",
        "1": "d",
        "120": "e",
    }, "a file that was removed comes back"
    file.write_text("damaged\n")
    with pytest.raises(ImageError, match=r"line 1 of .*labels\.csv is 'damaged'"):
        two.label({121: "e"})
    assert file.read_text() == "damaged\n", "and is not overwritten"


def test_writers_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"

    def write(writer: int) -> None:
        for number in range(20):
            change_labels(file, {f"{writer}-{number}": "a"}, {})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(read_labels(file)) == 80
    with (
        locked(tmp_path, ""),
        pytest.raises(RunError, match=r"Another process has been writing to .* for 0\.05 s"),
    ):
        change_labels(file, {"more": "a"}, {}, patience=0.05)


def test_a_full_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ww.Labelling(blobs()[0], labels=tmp_path / "labels.csv")
    session.label({0: "a"})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"labels\.csv failed"):
        session.label({40: "b"})
    assert read_labels(tmp_path / "labels.csv") == {"0": "a"}, "what was there stays"


def test_labels_of_a_table_that_do_not_fit_raise_an_error(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    names = ["a.png", "b.png", "c.png", "x/e.png", "y/e.png", "x/f.png"]

    def read(text: str) -> dict[str, str]:
        file.write_text(text)
        return labels_of_pictures(file, read_labels(file), names)

    assert read("\ufefffile,class\na.png, cat\n\nc.png,dog") == {"a.png": "cat", "c.png": "dog"}
    assert read("Name,Label\na.png,cat\nc.png,dog") == {"a.png": "cat", "c.png": "dog"}
    assert read("a.png,cat\na.png,cat\nb.png,dog") == {"a.png": "cat", "b.png": "dog"}
    assert read("a.png,cat\nf.png,dog") == {"a.png": "cat", "x/f.png": "dog"}, "without its folder"
    assert read("x/e.png,cat\ny/e.png,dog") == {"x/e.png": "cat", "y/e.png": "dog"}
    for text, words in (
        (
            "a.png,cat\ne.png,dog",
            r"labels.csv labels 'e.png', but 2 pictures have this name: 'x/e.png', 'y/e.png'. Write"
            " the name with its folder",
        ),
        ("a.png,cat\nz/f.png,dog", r"labels.csv labels 'z/f.png'; expected the name of one"),
        ("f.png,cat\nx/f.png,dog", "gives 'x/f.png' two classes, 'cat' and 'dog'"),
        (
            "a.png,cat\nd.png,dog",
            r"labels.csv labels 'd.png'; expected the name of one of the pictures, such as"
            r" 'a.png'\. Labels are for pictures of this folder\. .*classify NEW/"
            r" OUT/classifier\.safe",
        ),
        ("a.png,cat\na.png,dog", "an earlier line gives it another class"),
        ("a.png,cat,1", "expected the name of a picture and its class"),
        ("a.png,", "expected the name of a picture and its class"),
        (
            "a.png,cat\nb.png,cat",
            "has only the class cat; expected pictures of at least two classes",
        ),
        ("a.png,cat\nb.png,not sure", "has only the class cat"),
        ("", "has no class"),
    ):
        with pytest.raises(ImageError, match=words):
            read(text)
    with pytest.raises(ImageError, match="as a table of labels"):
        read_labels(tmp_path / "none.csv")


def test_a_full_disk_leaves_the_labels_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = blobs()
    session = ww.Labelling(rows, labels=tmp_path / "labels.csv")
    session.label({0: "a", 40: "b"})
    before = (tmp_path / "labels.csv").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) - 1, limits[1]))
    try:
        with pytest.raises(
            RunError, match=r"labels\.csv.*Free some disk space, or choose another folder"
        ):
            session.label({80: "c"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "labels.csv").read_bytes() == before
    session.label({120: "d"})
    assert set(read_labels(tmp_path / "labels.csv").values()) >= {"a", "b", "d"}


# What a person says is never lost, and goes to the picture that it was said of


def test_a_foreign_file_of_predictions_stays(tmp_path: Path) -> None:
    rows, _ = blobs()
    foreign = tmp_path / "predictions.csv"
    foreign.write_text("mine")
    with pytest.raises(RunError, match=r"predictions\.csv is not a file that whatwhere wrote"):
        ww.Labelling(rows, labels=tmp_path / "labels.csv")
    foreign.unlink()
    session = ww.Labelling(rows, labels=tmp_path / "labels.csv")
    session.label({0: "a"})
    session.label({40: "b"})
    changed = foreign.read_text() + "a note\n"
    foreign.write_text(changed)
    with pytest.raises(RunError, match=r"predictions\.csv is not a file that whatwhere wrote"):
        session.label({41: "b"})
    assert foreign.read_text() == changed
    assert read_labels(tmp_path / "labels.csv")["41"] == "b", "what was said is kept"


def test_predictions_of_earlier_versions_are_continued(tmp_path: Path) -> None:
    rows, _ = blobs()
    ww.Labelling(rows, labels=tmp_path / "labels.csv").label({0: "a", 40: "b"})
    (tmp_path / RECORD).unlink()
    ww.Labelling(rows, labels=tmp_path / "labels.csv").label({1: "a"})
    assert "labelled" in (tmp_path / "predictions.csv").read_text()


@pytest.mark.parametrize("name", ["predictions.csv", "Predictions.CSV", "labels.run"])
def test_labels_have_a_file_of_their_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Choose another name, such as labels\.csv"):
        ww.Labelling(blobs()[0], labels=tmp_path / name)


def pictures(folder: Path, *names: str) -> Path:
    """A folder of small pictures, each of another kind."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name in names:
        values = rng.integers(0, 256, (2, 8, 8), np.uint8)
        pages = [Image.fromarray(page) for page in values]
        if name.endswith(".tif") and "-" not in name:
            pages[0].save(folder / name, save_all=True, append_images=pages[1:])
        else:
            pages[0].save(folder / name, format="PNG" if ".png" in name else "TIFF")
    return folder


HOSTILE_NAMES = (
    " a.png",
    "a.png",
    "a .png",
    "b\x1b.png",
    r"b\x1b.png",
    "s.tif",
    "s-1.tif",
    "s-2.tif",
    "file,class.png",
    '"q".png',
    "new\nline.png",
    "-.png",
)


def test_a_label_goes_to_its_own_picture(tmp_path: Path) -> None:
    """Whatever the name is: spaces, control characters, pages that are called like other files."""
    images = ww.data.load(pictures(tmp_path / "pictures", *HOSTILE_NAMES))
    names = picture_names(images.pixels)
    assert names is not None
    assert len(set(names)) == len(names) == len(HOSTILE_NAMES) + 1
    assert {"s.tif/1", "s.tif/2", "s-1.tif", " a.png", "a.png"} <= set(names)
    file = tmp_path / "labels.csv"
    said = {name: f"class {number}" for number, name in enumerate(names)}
    change_labels(file, said, {})
    assert read_labels(file) == said


def test_labels_of_pages_by_their_earlier_names(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures", "s.tif", "a.png")
    earlier = earlier_names(ww.data.load(folder).pixels)
    assert earlier == {"s-1.tif": "s.tif/1", "s-2.tif": "s.tif/2"}
    pictures(folder, "s-1.tif")
    assert earlier_names(ww.data.load(folder).pixels) == {"s-2.tif": "s.tif/2"}


@pytest.mark.parametrize(
    "name",
    ["a\rb", "a\nb", "a\x00b", "a\x1bb", "x" * 131_073, "x" * 201, "\ud800", "a\u2028b", " "],
)
def test_classes_that_a_table_cannot_hold_raise(name: str, tmp_path: Path) -> None:
    session = ww.Labelling(blobs()[0], labels=tmp_path / "labels.csv")
    session.label({0: "a"})
    with pytest.raises(ImageError, match="; expected"):
        session.label({1: name})
    assert read_labels(tmp_path / "labels.csv") == {"0": "a"}


@pytest.mark.parametrize("name", ["a,b", 'a"b', "=1+1", "ä", "😀", "x" * 200, "#", "'", "file"])
def test_all_other_classes_come_back(name: str, tmp_path: Path) -> None:
    session = ww.Labelling(blobs()[0], labels=tmp_path / "labels.csv")
    session.label({0: name, 40: "b"})
    assert ww.Labelling(blobs()[0], labels=tmp_path / "labels.csv").said == {0: name, 40: "b"}


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_rows_that_have_no_distances_raise(value: float) -> None:
    rows = blobs()[0]
    rows[3, 2] = value
    with pytest.raises(ImageError, match="expected finite values"):
        ww.Labelling(rows)


def test_the_estimate_counts_classes_without_a_label() -> None:
    """Of labels at random, the share that are the only one of their class estimates the share of
    pictures whose class has none; suggested pictures are no random sample."""
    rows, y = blobs(each=20)
    session = ww.Labelling(rows)
    session.label({0: "a", 1: "a", 2: "a", 20: "b", 21: "b", 40: "c"})
    others = ~session.predict().said
    doubt = (1 - session.probabilities[others].max(1)).mean()
    assert session.error() > max(1 / 6, doubt), "one label of six is the only one of its class"
    (row,) = session.suggest(1)
    session.label({row: "d", 41: "c"})
    single = EstimateSettings().searched / 8
    assert session.error() == pytest.approx(single, abs=0.05), "all classes have labels"
    assert y[row] == "d"


def test_every_other_suggestion_is_where_classes_meet() -> None:
    """Points spread evenly in a square, whose halves are the classes."""
    found = []
    for seed in range(2):
        points = np.random.default_rng(seed).uniform(-1, 1, size=(400, 2)).astype(np.float32)
        y = np.where(points[:, 0] > 0, "right", "left")
        session = ww.Labelling(points)
        for _ in range(20):
            (row,) = session.suggest(1)
            session.label({row: y[row]})
        doubtful = [row for place, row in enumerate(session.said) if place >= 10 and place % 2]
        found.append(np.abs(points[doubtful, 0]).mean())
    assert np.mean(found) < 0.3, "the mean of all points is 0.5"


def test_what_is_most_like_a_picture_has_no_label_and_counts_as_suggested() -> None:
    rows = np.concatenate([np.arange(12)[:, None] / 100 + 1, np.ones((12, 1))], 1)
    session = ww.Labelling(rows)
    session.label({0: "a", 2: "a"})
    assert session.similar(0, 4) == [1, 3, 4, 5], "the nearest first, without those with a label"
    session.label(dict.fromkeys([1, 3], "a"))
    assert session.labels.unprompted == {0, 2}
    assert session.similar(1, 2) == [4, 5]


def test_a_session_says_what_it_holds() -> None:
    digits = ww.data.load("digits")[:30]
    rows = ww.Labelling(digits.flatten(1).numpy())
    rows.label({0: "a", 1: "b", 2: "a"})
    assert repr(rows) == "Labelling(30 pictures, 3 labels of 2 classes)"
    assert "<img" not in rows._repr_html_()
    pictures = ww.Labelling(digits, features="edges")
    pictures.label({3: "a", 4: "b"})
    assert pictures._repr_html_().count("<img ") == 2


def test_temporary_files_of_a_killed_session_are_removed_and_those_of_others_stay(
    tmp_path: Path,
) -> None:
    """A session that was killed while it wrote leaves such a file; a living one locks its own."""
    dead = [
        tmp_path / ".labels.csv-0123456789abcdef.part",
        tmp_path / ".predictions.csv-0123456789abcdef.part",
    ]
    foreign = tmp_path / ".notes.csv-0123456789abcdef.part"
    living = tmp_path / ".labels.csv-fedcba9876543210.part"
    for file in (*dead, foreign, living):
        file.write_text("half a tab")
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ww.Labelling(np.eye(6, dtype=np.float32), labels=tmp_path / "labels.csv")
    assert not any(file.exists() for file in dead)
    assert foreign.exists()
    assert living.exists()
