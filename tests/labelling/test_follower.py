"""All pictures follow the labels behind the page."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from pages.labelled import GivenRows
from whatwhere.data import Images
from whatwhere.labelling.descriptions import Description
from whatwhere.labelling.follower import Follower
from whatwhere.labelling.page import LabelPage
from whatwhere.labelling.session import Labelling
from whatwhere.progress import Stage


def made() -> tuple[Labelling, Follower, threading.RLock]:
    rows = np.random.default_rng(0).normal(size=(60, 5)) + np.repeat(np.eye(3, 5) * 20, 20, 0)
    session = ww.Labelling(rows.astype(np.float32))
    lock = threading.RLock()
    return session, Follower(session, lock, lambda: None), lock


def say(session: Labelling, follower: Follower, lock: threading.RLock, labels: dict) -> None:
    with lock:
        session.labels.say(labels)
        follower.labels_changed()
        follower.settle()


def test_classes_follow_labels_and_what_changed_is_counted() -> None:
    session, follower, lock = made()
    say(session, follower, lock, {0: "a", 20: "b"})
    assert set(session.predict().classes) == {"a", "b"}
    say(session, follower, lock, {40: "c", 41: "c", 1: "a"})
    assert "".join(session.predict().classes[::10]) == "aabbcc"
    assert follower.change is not None
    assert follower.change.labels == 3
    assert follower.change.pictures == 18, "besides those that were labelled"
    assert follower.change.after is not None
    with lock:
        assert not set(follower.tray()) & set(session.said)
        assert len(follower.tray()) == 12


def test_a_label_does_not_wait_for_classes() -> None:
    session, follower, lock = made()
    slow = threading.Event()
    follow = session.graph.follow
    session.graph.follow = lambda said, **how: (slow.wait(5), follow(said, **how))[1]  # type: ignore[method-assign]
    start = time.monotonic()
    for row in (0, 20, 40):
        with lock:
            session.labels.say({row: "abc"[row // 20]})
            follower.labels_changed()
    assert time.monotonic() - start < 1
    assert follower.is_behind
    slow.set()
    with lock:
        follower.wait()
    assert "".join(session.predict().classes[::10]) == "aabbcc"


def test_a_label_is_followed_while_the_views_are_weighed() -> None:
    session, follower, lock = made()
    say(session, follower, lock, {0: "a", 20: "b"})
    in_weighing, go_on = threading.Event(), threading.Event()
    weigh = session.graph.weigh

    def slow(said: dict, pause) -> None:  # type: ignore[no-untyped-def]
        in_weighing.set()
        while not go_on.wait(0.01):
            pause()
        weigh(said, pause)

    session.graph.weigh = slow  # type: ignore[method-assign]
    with lock:
        session.labels.say({21: "b"})
        follower.labels_changed()
    assert in_weighing.wait(5)
    with lock:
        session.labels.say({40: "c"})
        follower.labels_changed()
        follower.wait(5)
        assert not follower.is_behind
        assert not follower.is_settled
    assert "".join(session.predict().classes[::20]) == "abc"
    assert follower.change is not None
    assert follower.change.labels == 1
    go_on.set()
    with lock:
        follower.settle(5)
        assert follower.is_settled
    assert follower.change.labels == 1, "what follows later belongs to the same label"


def test_graphs_of_other_descriptions_are_made_before_labels_wait_for_them() -> None:
    _, follower, lock = made()
    thread = threading.current_thread()
    made_by = []

    class Rows(Description):
        @property
        def columns(self) -> None:  # asked for when a graph is made
            made_by.append(threading.current_thread())

    follower.offer(Rows("colour", torch.randn(60, 3)))
    with lock:
        follower.settle()
    assert set(made_by) == {thread}


def test_another_description_is_used_and_the_classes_follow() -> None:
    session, follower, lock = made()
    say(session, follower, lock, {0: "a", 20: "b", 40: "c"})
    rows = torch.zeros(60, 3)
    rows[:, 0] = torch.arange(60)  # b and a lie next to each other now, not apart
    follower.offer(Description("colour", rows))
    with lock:
        follower.settle()
    assert session.description.name == "colour"
    assert follower.change is not None
    assert follower.change.cause == "all pictures are described now"
    assert not follower.trouble


def test_the_work_behind_the_page_gives_way_to_labels(tmp_path: Path) -> None:
    images = Images(np.zeros((60, 1, 4, 4), np.uint8), None, "sixty")
    rows = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    learn, done = threading.Event(), threading.Event()

    def behind(stage: Stage) -> Iterator[Description]:
        with stage("learning features", 2) as advance:
            learn.wait(5)
            advance(1)
            done.set()
        return iter(())

    behind.weights = lambda: [1.0]
    shown = LabelPage(lambda stage: GivenRows(images, rows), "sixty", tmp_path / "classifier")
    shown.thread.join()
    slow = threading.Event()
    follow = shown.session.graph.follow
    shown.session.graph.follow = lambda said, **how: (slow.wait(5), follow(said, **how))[1]
    threading.Thread(target=shown._describe_better, args=(behind,), daemon=True).start()
    shown.act("label", {"rows": [3], "name": "a"})
    learn.set()
    assert not done.wait(0.1), "the classes do not follow yet"
    slow.set()
    assert done.wait(5)
