"""Descriptions of pictures that are there at once, and those that follow."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_run as tiny
import whatwhere as ww
from whatwhere.classification.settings import Distortions
from whatwhere.data import Images
from whatwhere.data.images import LazyPixels
from whatwhere.errors import SpecError
from whatwhere.labelling.descriptions import (
    Behind,
    PlainSettings,
    plain_description,
)
from whatwhere.labelling.follower import Follower
from whatwhere.labelling.label_tables import read_labels
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution

VIEWS = PlainSettings().views


def colours(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [N, 16, 16, 3] in three colours, and which."""
    random = np.random.default_rng(0)
    y = np.arange(count) % 3
    shades = random.integers(0, 60, (count, 16, 16, 3))
    shades[np.arange(count), :, :, y] += 150
    return shades.astype(np.uint8), y


def test_plain_views_classify_without_a_model_and_the_classifier_is_saved(tmp_path: Path) -> None:
    pictures, y = colours()
    session = ww.Labelling(pictures[:45], features=VIEWS)
    session.label({row: "rgb"[y[row]] for row in range(6)})
    assert "".join(session.predict().classes) == "".join("rgb"[one] for one in y[:45])
    session.save(tmp_path / "classifier.safetensors")
    found = ww.load_classifier(tmp_path / "classifier.safetensors").predict(pictures[45:])
    assert "".join(found) == "".join("rgb"[one] for one in y[45:])


def test_a_share_is_described_first_and_labels_of_others_are_kept(tmp_path: Path) -> None:
    pictures, y = colours()
    file = tmp_path / "labels.csv"
    session = ww.Labelling(pictures, features=VIEWS, first=20, labels=file)
    assert len(session.rows) == 20
    assert set(session.suggest(12)) <= set(session.at.tolist())
    others = np.setdiff1d(np.arange(len(y)), session.at)
    for row in (*session.at[:8], others[0]):
        session.label({int(row): "rgb"[y[row]]})
    found = session.predict()
    assert [found.classes[row] for row in session.at] == ["rgb"[y[row]] for row in session.at]
    assert found.classes[others[0]] == "rgb"[y[others[0]]]
    assert set(found.classes[others[1:]]) == {""}, "not described yet"
    assert session.nearest_labelled(int(others[1])) == []
    assert session.error() is not None
    session.use(plain_description(session.images, VIEWS))
    session.update()
    assert "".join(session.predict().classes) == "".join("rgb"[one] for one in y)
    assert len(read_labels(file)) == 9


def test_learned_features_come_in_and_the_classifier_of_both_is_saved(tmp_path: Path) -> None:
    images, y = tiny.bars(48, seed=3)
    run = tiny.make(tmp_path / "run")
    session = ww.Labelling(images, features=VIEWS, first=30, labels=tmp_path / "labels.csv")
    options = Execution(engine="reference", device="cpu")
    plain = PlainSettings(first=30)
    behind = Behind(session.images, run, Distortions(copies=2), options, None, plain)
    titles: list[str] = []

    @contextmanager
    def stage(title: str, total: int) -> Iterator[Callable[[int], None]]:
        titles.append(title)
        yield lambda pieces: None

    follower = Follower(session, threading.RLock(), lambda: None)
    names = []
    for one in behind(stage):
        names.append(one.name)
        follower.offer(one, stage)
    assert names == ["colour and edges", "learned features"]
    assert len(titles) == len(behind.weights()), "one clock knows all stages"
    session = ww.Labelling(images, features=VIEWS, labels=tmp_path / "labels.csv")
    session.label({row: "abc"[y[row]] for row in range(9)})
    session.use_best(behind.learned(no_stage))
    assert session.description.name == "colour, edges and learned features"
    session.save(tmp_path / "classifier.safetensors")
    found = ww.load_classifier(tmp_path / "classifier.safetensors")
    torch.testing.assert_close(found.describe(images), session.rows, rtol=1e-4, atol=1e-4)


def test_words_and_callables_are_views_and_weights_are_said() -> None:
    pictures, y = colours()
    session = ww.Labelling(pictures, features=["colour", lambda v: v.diff(dim=3).abs()])
    assert session.views == "Weights of the views: colour 0.6, <lambda> 0.4."
    session.label({row: "rgb"[y[row]] for row in range(9)})
    assert "".join(session.predict().classes) == "".join("rgb"[one] for one in y)
    assert session.views.startswith("Weights of the views: colour ")
    with pytest.raises(SpecError):
        ww.Labelling(pictures, features=["colours"])
    with pytest.raises(SpecError):
        ww.Labelling(pictures, features=["colour", "colour"])


def test_fewer_pictures_are_described_first_if_decoding_takes_long() -> None:
    slow = Images(LazyPixels((1000, 1, 8, 8), np.dtype(np.uint8), _slow_zeros), None, "slow")
    fast = Images(np.zeros((1000, 1, 8, 8), np.uint8), None, "fast")
    settings = PlainSettings(first=600, fewest=5, seconds=0.1)
    assert settings.for_pictures(fast).first == 600
    assert 5 <= settings.for_pictures(slow).first <= 10
    assert replace(settings, seconds=0.01).for_pictures(slow).first == 5


def _slow_zeros(rows: np.ndarray) -> np.ndarray:
    time.sleep(0.01 * len(rows))
    return np.zeros((len(rows), 1, 8, 8), np.uint8)
