"""A classifier as a file: saved by a session, it gives new pictures a class."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_run as tiny
import whatwhere as ww
from whatwhere.classification.picture_classifier import (
    DescribingSettings,
    describe_pictures,
    is_classifier,
)
from whatwhere.errors import ImageError, RunError, SpecError
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution, TrainingOptions

NAMES = np.array(["upright", "lying", "cross"])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ww.Labelling:
    """Bars, described by a tiny run, with three labels of each class."""
    folder = tmp_path_factory.mktemp("classifier")
    images, labels = tiny.bars(90, seed=1)
    how, options = ww.Distortions(copies=2), TrainingOptions(engine="reference", device="cpu")
    session = ww.Labelling(
        images,
        run=tiny.make(folder / "run"),
        labels=folder / "labels.csv",
        invariant_to=how,
        options=options,
    )
    rows = [int(row) for c in range(3) for row in np.flatnonzero(labels == c)[:5]]
    session.label({row: NAMES[labels[row]] for row in rows})
    return session


def test_a_saved_classifier_gives_new_pictures_the_classes_that_the_session_would(
    session: ww.Labelling, tmp_path: Path
) -> None:
    session.save(tmp_path / "classifier.safetensors")
    loaded = ww.load_classifier(tmp_path / "classifier.safetensors")
    assert loaded.classes == ("cross", "lying", "upright")
    images, labels = tiny.bars(40, seed=2)
    shares = loaded.predict_proba(images)
    np.testing.assert_allclose(shares, session.classifier().predict_proba(images), atol=1e-4)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    assert np.mean(loaded.predict(images) == NAMES[labels]) > 0.6, "chance is a third"
    y = np.array([session.said.get(row, -1) for row in range(90)], dtype=object)
    graph = session.graph.classifier.refit(y)
    np.testing.assert_allclose(
        shares, graph.predict_proba(session.describe(images).numpy()), atol=1e-4
    )
    with pytest.raises(ImageError, match=r"rows of shape \(2, 3\)"):
        loaded.predict(np.zeros((2, 3), np.float32))
    with pytest.raises(ImageError, match="the classifier takes 1×10×10"):
        loaded.predict(np.zeros((2, 12, 12), np.float32))


def test_rows_are_described_once_for_the_same_pictures(
    session: ww.Labelling, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whatwhere.classification import picture_classifier

    def never(*given: object, **options: object) -> None:
        raise AssertionError("described again")

    images, _ = tiny.bars(90, seed=1)
    how, options = ww.Distortions(copies=2), TrainingOptions(engine="reference", device="cpu")
    run = session.file.with_name("run")
    monkeypatch.setattr(picture_classifier, "describe_images", never)
    again = ww.Labelling(images, run=run, labels=session.file, invariant_to=how, options=options)
    np.testing.assert_array_equal(again.rows, session.rows)
    with pytest.raises(AssertionError, match="described again"):
        ww.Labelling(images[:89], run=run, labels=session.file, invariant_to=how, options=options)


def test_a_damaged_or_foreign_file_raises_an_error(session: ww.Labelling, tmp_path: Path) -> None:
    file = tmp_path / "classifier.safetensors"
    session.save(file)
    assert is_classifier(file)
    os.mkfifo(tmp_path / "pipe")
    assert not is_classifier(tmp_path / "pipe"), "and it does not wait for what the pipe will bring"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(RunError, match="checksum does not match"):
        ww.load_classifier(file)
    other = ww.models.path("mnist")
    assert not is_classifier(other)
    with pytest.raises(RunError, match="its format is 'whatwhere model 2'"):
        ww.load_classifier(other)
    with pytest.raises(ImageError, match="The labels have 0 classes; expected at least two"):
        ww.Labelling(np.eye(5, dtype=np.float32)).save(tmp_path / "none.safetensors")


def test_an_unknown_number_of_the_format_is_refused(tmp_path: Path) -> None:
    from whatwhere.model.files import checked_bytes

    file = tmp_path / "classifier.safetensors"
    file.write_bytes(checked_bytes("whatwhere picture classifier 999", {}, {}))
    with pytest.raises(
        RunError, match="its format is 'whatwhere picture classifier 999'"
    ) as raised:
        ww.load_classifier(file)
    assert "expected 'whatwhere picture classifier 1'" in str(raised.value)
    assert "Another version of whatwhere may have written it" in str(raised.value)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """One bit of every byte: none gives another classifier without a word."""
    file = tmp_path / "classifier.safetensors"
    session = ww.Labelling(np.eye(4, dtype=np.float32))
    session.label({0: "cat", 3: "dog"})
    session.save(file)
    content = file.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(bytes(flipped))
        with pytest.raises(RunError, match=r"classifier\.safetensors is not a usable classifier"):
            ww.load_classifier(file)


def test_without_a_run_a_model_is_learned_in_a_stream_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whatwhere.classification import picture_classifier
    from whatwhere.learning.defaults import Defaults

    small = ww.override(tiny.recipe(), {"learning": {"each": {"update": "batch", "epochs": 1}}})
    monkeypatch.setattr(
        picture_classifier, "choose_defaults", lambda images: Defaults(small, 32, "")
    )
    images, _ = tiny.bars(30, seed=1)
    reported: list[str] = []

    def stage(title: str, total: int) -> Any:
        reported.append(title)
        return no_stage(title, total)

    session = ww.Labelling(
        images,
        features=["own"],
        labels=tmp_path / "labels.csv",
        invariant_to=ww.Distortions(copies=2),
        options=TrainingOptions(engine="reference", device="cpu"),
        stage=stage,
    )
    assert reported == [
        "learning 2 layers of features, each from 32 pictures",
        "learning which small shifts and rotations do not matter",
        "describing the pictures",
    ]
    assert ww.read_run(tmp_path / "labels.run").model == session.describe.model


@pytest.mark.parametrize("where", ["keep", "forget", "both"])
@pytest.mark.parametrize("image_count", [32, None])
def test_all_pieces_of_slow_parts_are_counted(
    where: str, image_count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rows describe, and in epochs as well as in a stream."""
    from whatwhere.classification import picture_classifier
    from whatwhere.learning.defaults import Defaults

    changes = {
        "learning": {"each": {"update": "batch", "epochs": 1 if image_count else 2}},
        "descriptor": {"where": where},
    }
    small = ww.override(tiny.recipe(), changes)
    monkeypatch.setattr(
        picture_classifier, "choose_defaults", lambda images: Defaults(small, image_count, "")
    )
    images, _ = tiny.bars(32, seed=1)
    totals: dict[str, int] = {}
    done: dict[str, int] = {}

    @contextmanager
    def stage(title: str, total: int) -> Iterator[Callable[[int], None]]:
        totals[title] = total
        done[title] = 0

        def advance(pieces: int) -> None:
            done[title] += pieces

        yield advance

    ww.Labelling(
        images,
        features=["own"],
        invariant_to=ww.Distortions(copies=2),
        options=TrainingOptions(engine="reference", device="cpu"),
        stage=stage,
    )
    assert done == totals
    pictures = "from 32 pictures" if image_count else "in 2 passes over 32 pictures"
    ignored = "small shifts and rotations"
    if where == "forget":
        ignored = "differences between parts of a picture"
    assert list(totals) == [
        f"learning 2 layers of features, each {pictures}",
        f"learning which {ignored} do not matter",
        "describing the pictures",
    ]


def test_a_wrong_setting_is_found_before_a_model_is_learned() -> None:
    images = ww.data.load(tiny.bars(12, seed=1)[0])
    begun: list[str] = []

    def stage(title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        begun.append(title)
        return no_stage(title, total)

    wrong = DescribingSettings(
        change=lambda recipe: ww.override(recipe, {"descriptor": {"were": 1}})
    )
    with pytest.raises(SpecError):
        describe_pictures(images, None, ww.Distortions(), Execution(), None, stage, wrong)
    assert begun == []


def test_learning_that_was_interrupted_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished model is never taken for the learned one."""
    from whatwhere.classification import picture_classifier
    from whatwhere.learning.defaults import Defaults

    small = ww.override(tiny.recipe(), {"learning": {"each": {"update": "batch", "epochs": 1}}})
    monkeypatch.setattr(
        picture_classifier, "choose_defaults", lambda images: Defaults(small, 32, "")
    )
    images, _ = tiny.bars(30, seed=1)

    def session(folder: str, stage: Any = no_stage) -> ww.Labelling:
        return ww.Labelling(
            images,
            features=["own"],
            labels=tmp_path / folder / "labels.csv",
            invariant_to=ww.Distortions(copies=2),
            options=TrainingOptions(engine="reference", device="cpu"),
            stage=stage,
        )

    @contextmanager
    def interrupting(title: str, total: int) -> Iterator[Callable[[int], None]]:
        batches = []

        def advance(pieces: int) -> None:
            batches.append(pieces)
            if len(batches) == 3:
                raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        session("one", interrupting)
    run = tmp_path / "one" / "labels.run"
    assert (run / "model.safetensors").exists()
    assert not picture_classifier.is_finished(run)
    continued = session("one")
    assert picture_classifier.is_finished(run)
    assert continued.describe.model == session("two").describe.model
    assert session("one").describe.model == continued.describe.model


@pytest.mark.parametrize("far", [1e18, 1e30, 3e38])
def test_rows_far_away_have_probabilities(far: float) -> None:
    rows = np.eye(4, dtype=np.float32).repeat(3, 0)
    session = ww.Labelling(rows)
    session.label({0: "cat", 3: "dog"})
    queries = far * np.float32([[1, 0, 0, 0], [0, -1, 0, 1], [1, 1, 1, 1]])
    for found in (session.classifier(), session.graph.classifier):
        shares = found.predict_proba(queries)
        assert np.isfinite(shares).all()
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    with pytest.raises(ImageError, match="NaN or infinite"):
        session.classifier().predict_proba(np.full((1, 4), np.nan, np.float32))
