"""From a new folder of 60 pictures to a saved classifier, by keyboard, by mouse and by touch on
a phone: the lists in `walks/` are what a person does.

PYTHONPATH=tests python tests/pages/walk_pictures.py FOLDER     takes pictures along the way
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_run as tiny
import whatwhere as ww
from pages.labelled import NAMES, Served, press, serving, settle_letters
from pages.opened import Opened
from whatwhere.labelling.page import LabelPage

WALKS = Path(__file__).parent / "walks"
COUNT = 60
FEWEST = 13  # labels at the end of both walks


def lines(name: str) -> list[str]:
    text = (WALKS / f"{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(tmp_path_factory.mktemp("walk"), COUNT)


PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}


@pytest.fixture
def walked(browser: Any, made: Served) -> Iterator[tuple[Served, LabelPage, Opened]]:
    """A session on a folder without labels."""
    made.file.unlink(missing_ok=True)
    made.classifier.unlink(missing_ok=True)
    shown = made.page()
    with serving(shown) as server, Opened(browser, server.url) as opened:
        yield made, shown, opened


def current(opened: Opened) -> int:
    """The row that is chosen, once all that was asked for is done."""
    opened.settle()
    return int(opened.tab.locator("#picture").get_attribute("data-row"))


def check_end(made: Served, shown: LabelPage, opened: Opened) -> None:
    opened.tab.locator("#message", has_text="Saved").wait_for()
    said = shown.session.said
    assert len(said) >= FEWEST
    assert list(said.values()).count("not sure") == 1
    wrong = [row for row, name in said.items() if name not in ("not sure", made.truth(row))]
    assert wrong == [], "every key reached the picture that it was meant for"
    classifier = ww.load_classifier(made.classifier)
    assert set(classifier.classes) == set(NAMES)
    images, _ = tiny.bars(5, seed=9)
    found = classifier.predict(np.round(255 * images.clip(0, 1)).astype(np.uint8)[:, None])
    assert set(found) <= set(NAMES)


@pytest.mark.browser
def test_the_walk_by_keyboard_alone(walked: tuple[Served, LabelPage, Opened]) -> None:
    made, shown, opened = walked
    moved: list[str] = []
    opened.tab.expose_function("moved", lambda: moved.append("mouse"))
    opened.tab.evaluate("addEventListener('pointerdown', () => moved())")
    for line in lines("keys"):
        for word in line.split():
            name = made.truth(current(opened)) if word in ("NAME", "DIGIT") else ""
            if word == "NAME":
                press(opened, name)
            elif word == "DIGIT":
                slot = dict(zip(shown.slots.names, shown.slots.numbers, strict=True))[name]
                press(opened, str(slot))
            else:
                press(opened, word)
        settle_letters(opened)
    check_end(made, shown, opened)
    assert moved == []


def walk(name: str, made: Served, opened: Opened) -> None:
    """Do what a list says, by clicks or by taps."""
    taps = name == "phone"

    def point(selector: Any) -> None:
        if taps:
            selector.tap()
        else:
            selector.click()

    for line in lines(name):
        action, _, rest = line.partition(" ")
        if action in ("click", "tap"):
            point(opened.tab.locator(rest))
        elif action == "name":
            opened.tab.locator("#class-name").fill(made.truth(current(opened)))
            point(opened.tab.locator("#give"))
        else:
            right = made.truth(current(opened))
            opened.tab.wait_for_timeout(400)  # a click at once would belong to the one before
            point(opened.tab.locator(".class", has_text=right))
        opened.settle()


@pytest.mark.browser
def test_the_walk_by_mouse(walked: tuple[Served, LabelPage, Opened]) -> None:
    made, shown, opened = walked
    walk("mouse", made, opened)
    check_end(made, shown, opened)


@pytest.mark.browser
def test_the_walk_on_a_phone(browser: Any, made: Served) -> None:
    made.file.unlink(missing_ok=True)
    made.classifier.unlink(missing_ok=True)
    shown = made.page()
    with serving(shown) as server, Opened(browser, server.url, **PHONE) as opened:
        walk("phone", made, opened)
        width = opened.tab.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, "nothing is wider than the phone"
        check_end(made, shown, opened)
