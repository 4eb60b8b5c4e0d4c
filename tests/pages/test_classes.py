"""The page of classes, which needs no server."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import whatwhere as ww
from pages.opened import Opened
from whatwhere.labelling.classes_page import classes_page


def test_names_with_html_in_them_are_text_on_the_page_of_classes() -> None:
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    session.label({0: "<b>cat", 3: "dog"})
    written = classes_page(session, ww.data.load(np.zeros((12, 8, 8), np.uint8)))
    assert "<b>" not in written
    # the least sure predictions, and all classes
    assert written.count("<figcaption>") == written.count("<img ") == 10 + 12
    assert "&lt;b&gt;cat, 100%" in written


def two_blobs(count: int) -> ww.Labelling:
    """A session with pictures of two classes that touch; three of each class have labels."""
    generator = np.random.default_rng(0)
    y = np.arange(count) % 2
    rows = generator.normal(size=(count, 4)).astype(np.float32)
    rows[:, 0] += 3 * y
    session = ww.Labelling(rows)
    session.label({row: "ab"[row % 2] for row in range(6)})
    return session


def sections_of(page: str) -> dict[str, list[str]]:
    """The texts of the pictures below each heading."""
    sections = re.findall(r"<h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL)
    return {title: re.findall('alt="(.*?)"', body) for title, body in sections}


def test_the_page_begins_with_the_predictions_that_are_least_sure() -> None:
    session = two_blobs(100)
    page = classes_page(session, ww.data.load(np.zeros((100, 8, 8), np.uint8)))
    sections = sections_of(page)
    assert next(iter(sections)) == "Least sure"
    predictions = session.predict()
    unsure = [
        row
        for row in np.argsort(predictions.probabilities, kind="stable")
        if not predictions.said[row]
    ]
    shown = [int(words.partition(":")[0]) for words in sections["Least sure"]]
    assert shown == unsure[:24]
    assert "24 of 94 predictions, the least sure first. Check these first." in page
    assert session.error_words() in page


def test_the_page_counts_the_classes_and_leads_back_to_label() -> None:
    session = two_blobs(100)
    images = ww.data.load(np.zeros((100, 8, 8), np.uint8))
    page = classes_page(session, images, label_command="whatwhere label 'my pictures' run")
    found = session.predict().classes
    for number, name in enumerate("ab", start=1):
        count = int((found == name).sum())
        row = f'<tr><td><a href="#class-{number}">{name}</a></td><td>{count}</td><td>3</td></tr>'
        assert row in page
        assert f'id="class-{number}"' in page
    assert "<code>whatwhere label &#39;my pictures&#39; run</code>" in page
    assert "<code>" not in classes_page(session, images)


def test_a_class_that_is_cut_says_so() -> None:
    session = two_blobs(100)
    page = classes_page(session, ww.data.load(np.zeros((100, 8, 8), np.uint8)))
    count = int((session.predict().classes == "a").sum())
    assert f"<p>24 of {count} pictures, the surest first, the least sure last.</p>" in page
    session = two_blobs(12)
    page = classes_page(session, ww.data.load(np.zeros((12, 8, 8), np.uint8)))
    count = int((session.predict().classes == "a").sum())
    assert f"<p>{count} pictures, the surest first, the least sure last.</p>" in page
    assert "<p>6 predictions, the least sure first. Check these first.</p>" in page


@pytest.fixture
def named(tmp_path: Path) -> str:
    """A page of pictures with long paths; two of them have the same name."""
    folder = tmp_path / "a_long_name_of_a_folder_without_any_space"
    generator = np.random.default_rng(0)
    for number in range(12):
        sub = folder / f"cell_{number % 2}"
        sub.mkdir(parents=True, exist_ok=True)
        name = "same.png" if number < 2 else f"cell_with_a_long_name_of_its_own_{number:04d}.png"
        Image.fromarray(generator.integers(0, 255, (12, 12), np.uint8)).save(sub / name)
    session = ww.Labelling(folder, features=lambda pictures: pictures)
    assert session.images is not None
    session.label({0: "a class with a name that is long, too, and has spaces", 6: "b"})
    return classes_page(session, session.images)


def test_names_are_shown_without_folders_unless_they_need_them(named: str) -> None:
    assert "<span>cell_with_a_long_name_of_its_own_0002.png</span>" in named
    assert "<span>cell_0/<wbr>same.png</span>" in named
    assert 'cell_0/same.png"><img ' in named, "a click opens the file"
    assert 'title="cell_0/cell_with_a_long_name_of_its_own_0002.png: ' in named


@pytest.mark.browser
def test_captions_are_lower_than_pictures_on_a_phone(
    named: str, tmp_path: Path, browser: Any
) -> None:
    file = tmp_path / "index.html"
    file.write_text(named, encoding="utf-8")
    with Opened(browser, file.as_uri(), viewport={"width": 390, "height": 844}, report=True) as at:
        heights = at.tab.locator(".row figure").evaluate_all(
            "all => all.map(one => [one.querySelector('img').getBoundingClientRect().height,"
            " one.querySelector('figcaption').getBoundingClientRect().height])"
        )
    assert len(heights) == 10 + 12
    assert all(0 < caption <= picture for picture, caption in heights)
