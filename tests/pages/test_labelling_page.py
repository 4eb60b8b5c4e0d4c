"""The labelling page in Chromium: every sentence that its how-to says of it."""

import csv
import io
import json
import os
import socket
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from pages.labelled import (
    COUNT,
    HOSTILE,
    GivenRows,
    Served,
    press,
    serving,
    settle_letters,
    take_all_back,
    until_said,
)
from pages.opened import Opened, needs_node
from whatwhere.data import Images
from whatwhere.data.images import LazyPixels
from whatwhere.data.mixed import PicturesBecomeSquares
from whatwhere.data.pictures import SkippedFiles
from whatwhere.html.server import PageServer
from whatwhere.labelling.label_tables import read_labels
from whatwhere.labelling.page import (
    ClassSlots,
    LabelPage,
    LabelsFirst,
    page,
)

Session = tuple[Served, LabelPage, PageServer]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Served(tmp_path_factory.mktemp("label"))
    shown = made.page()
    with serving(shown) as server:
        yield made, shown, server


@pytest.fixture(scope="module")
def shared_tab(browser: Any, served: Session) -> Iterator[Opened]:
    with Opened(browser, served[2].url) as opened:
        yield opened


@pytest.fixture
def tab(shared_tab: Opened, served: Session) -> Iterator[Opened]:
    """The tab that tests share, opened again on a session without labels."""
    _, shown, _ = served
    take_all_back(shown)
    shown.revision += 1
    shared_tab.reopen()
    yield shared_tab
    shared_tab.check()


def name_class(opened: Opened, name: str) -> None:
    opened.tab.locator("#class-name").fill(name)
    opened.tab.locator("#class-name").press("Enter")


def label_truly(tab: Opened, session: Session, count: int) -> int:
    """Label the next suggestions with their right names, by keys, until so many have a label and
    two classes are there.

    returns  the number of labels
    """
    made, shown, _ = session
    while len(shown.session.said) < count or len(shown.session.classes) < 2:
        row = chosen_row(tab)
        before = len(shown.session.said)
        press(tab, f"{made.truth(row)} <Enter>")
        until_said(tab, shown, before + 1)
    return len(shown.session.said)


def on_map(tab: Opened, shown: LabelPage, row: int) -> tuple[float, float]:
    """Where a picture is on the whole map, in pixels of the page."""
    box = tab.box("#map")
    x, y = shown.places[row]
    margin = float(tab.tab.locator("#size").input_value()) / 2 + 10
    return (
        box["x"] + margin + x * (box["width"] - 2 * margin),
        box["y"] + margin + y * (box["height"] - 2 * margin),
    )


def chosen_row(tab: Opened) -> int:
    return int(tab.tab.locator("#tray .cell[aria-pressed=true]").first.get_attribute("data-row"))


def is_in_field(tab: Opened) -> bool:
    return bool(tab.tab.evaluate("document.activeElement.id === 'class-name'"))


# The keyboard -----------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_first_key_starts_a_name_and_enter_gives_it(tab: Opened, served: Session) -> None:
    made, shown, _ = served
    first = chosen_row(tab)
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    assert shown.session.said == {first: "bar"}
    assert read_labels(made.file) == {shown.session.names[first]: "bar"}
    assert not is_in_field(tab)
    assert chosen_row(tab) != first, "the next suggestion is chosen"


@pytest.mark.browser
@pytest.mark.parametrize("name", ["upright", "zebra", "Xaver", "white", "n", "uu"])
def test_names_may_start_with_the_letter_of_a_shortcut(
    tab: Opened, served: Session, name: str
) -> None:
    _, shown, _ = served
    if name == "n":
        press(tab, "<Enter> n <Enter>")
    else:
        press(tab, f"{name} <Enter>")
    until_said(tab, shown, 1)
    assert list(shown.session.said.values()) == [name]
    assert tab.tab.locator("#large").is_hidden()


@pytest.mark.browser
def test_digits_and_shortcuts_work_right_after_a_name(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    press(tab, "1")
    until_said(tab, shown, 2)
    press(tab, "0")
    until_said(tab, shown, 3)
    assert sorted(shown.session.said.values()) == ["bar", "bar", "none of these"]
    press(tab, "u")
    until_said(tab, shown, 2)
    press(tab, "n")
    tab.until(lambda: "not sure" in shown.session.said.values())
    tab.settle()
    undone = chosen_row(tab)
    press(tab, "<Control+z>")
    tab.until(lambda: len(shown.session.said) == 2)
    tab.settle()
    assert undone not in shown.session.said
    assert "not sure" not in shown.session.said.values()


@pytest.mark.browser
def test_digits_and_shortcuts_work_wherever_the_focus_is_outside_of_the_field(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    for count, place in enumerate(("#filter", "#size", "#map", "#save", "#tray .cell"), start=2):
        tab.tab.locator(place).first.focus()
        press(tab, "1")
        until_said(tab, shown, count)
    tab.tab.locator("#filter").focus()
    press(tab, "u")
    until_said(tab, shown, 5)


@pytest.mark.browser
def test_a_digit_labels_only_pictures_that_are_shown_as_chosen(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    first = chosen_row(tab)
    assert tab.tab.evaluate("document.activeElement.dataset.row") == str(first)
    press(tab, "<Space>")
    assert tab.text("#chosen") == "No picture is chosen."
    assert tab.tab.evaluate("document.activeElement.dataset.row") == str(first)
    press(tab, "1")
    assert tab.text("#armed").startswith("Every picture that you click gets the class bar.")
    press(tab, "1")
    assert tab.tab.locator("#armed").inner_text() == "", "as a second click on the class does"
    press(tab, "x")
    tab.tab.locator("#message", has_text="Choose a picture first.").wait_for()
    assert len(shown.session.said) == 1
    press(tab, "1")
    tab.tab.locator("#tray .cell").nth(1).click()
    until_said(tab, shown, 2)
    assert first not in shown.session.said
    press(tab, "<Escape>")


@pytest.mark.browser
def test_keys_that_follow_each_other_at_once_label_one_picture_each(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    press(tab, "1 1 1 0")
    until_said(tab, shown, 5)
    assert sorted(shown.session.said.values()) == [*["bar"] * 4, "none of these"]


@pytest.mark.browser
def test_escape_always_leaves(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    press(tab, "bar")
    assert is_in_field(tab)
    press(tab, "<Escape>")
    assert not is_in_field(tab)
    assert tab.tab.locator("#class-name").input_value() == ""
    for opens, what in (("?", "#keys"), ("z", "#large")):
        press(tab, opens)
        tab.tab.locator(what).wait_for()
        press(tab, "<Escape>")
        assert tab.tab.locator(what).is_hidden()
    tab.tab.locator("#exchange summary").click()
    press(tab, "<Escape>")
    assert tab.tab.locator("#export-csv").is_hidden()
    press(tab, "<Escape>")
    assert tab.text("#chosen") == "No picture is chosen."
    name_class(tab, "bar")
    assert "gets the class bar" in tab.text("#armed")
    press(tab, "<Escape>")
    assert tab.tab.locator("#armed").inner_text() == ""
    assert shown.session.said == {}


@pytest.mark.browser
def test_a_class_without_a_label_is_gone_after_undo(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    for count, name in enumerate(("bar", "stripe"), start=1):
        press(tab, f"{name} <Enter>")
        until_said(tab, shown, count)
    press(tab, "u")
    until_said(tab, shown, 1)
    assert "stripe" not in tab.text("#classes")
    assert "stripe" not in tab.tab.locator("#filter").inner_text()
    assert tab.text("#counts").endswith("1 class")
    press(tab, "2")
    assert is_in_field(tab), "no class has this digit: it starts a name"
    press(tab, "<Escape>")


@pytest.mark.browser
def test_a_question_mark_shows_all_keys(tab: Opened) -> None:
    press(tab, "?")
    assert tab.tab.locator("#keys").is_visible()
    listed = tab.tab.locator("#key-list").inner_text()
    for key in ("letters", "Enter", "Tab", "1 … 9", "0", "n", "x", "u", "z", "w", "Esc", "?"):
        assert key in listed
    press(tab, "<Escape>")


@pytest.mark.browser
def test_tab_completes_the_name_of_a_class(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    press(tab, "stripe <Enter>")
    until_said(tab, shown, 1)
    press(tab, "st")
    assert tab.text("#completion") == "Tab completes: stripe"
    press(tab, "<Tab> <Enter>")
    until_said(tab, shown, 2)
    assert set(shown.session.said.values()) == {"stripe"}


@pytest.mark.browser
def test_arrows_move_in_the_suggestions_the_grid_and_the_map(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    rows = [int(cell.get_attribute("data-row")) for cell in tab.tab.locator("#tray .cell").all()]
    press(tab, "<ArrowRight> <ArrowRight>")
    assert chosen_row(tab) == rows[2]
    press(tab, "<ArrowLeft>")
    assert chosen_row(tab) == rows[1]
    tab.tab.locator("#show-grid").click()
    tab.tab.locator("#grid .cell").first.focus()
    press(tab, "<ArrowRight> <ArrowRight>")
    assert tab.text("#chosen").startswith(f"{shown.session.names[2]}:")
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    assert shown.session.said == {2: "bar"}
    tab.tab.locator("#show-map").click()
    tab.tab.locator("#map").focus()
    before = tab.text("#chosen")
    press(tab, "<ArrowLeft>")
    assert tab.text("#chosen") != before


def test_classes_keep_their_digits_while_they_have_a_label() -> None:
    slots = ClassSlots()
    slots.update(["cat", "dog"])
    slots.update(["ant", "cat", "dog"])
    assert dict(zip(slots.names, slots.numbers, strict=True)) == {
        "none of these": 0,
        "cat": 1,
        "dog": 2,
        "ant": 3,
    }
    slots.update(["ant", "dog"])
    slots.update(["3", "ant", "bee", "dog", "7"])
    assert dict(zip(slots.names, slots.numbers, strict=True)) == {
        "none of these": 0,
        "3": 1,
        "dog": 2,
        "ant": 3,
        "bee": 4,
        "7": 7,
    }


# Pictures ---------------------------------------------------------------------------------------


@pytest.mark.browser
def test_labels_by_mouse_and_undo(tab: Opened, served: Session) -> None:
    made, shown, _ = served
    assert tab.text("#counts") == f"0 of {COUNT} pictures labelled, 0 classes"
    assert "Type the name" in tab.text("#first-steps")
    first = chosen_row(tab)
    name_class(tab, "upright")
    until_said(tab, shown, 1)
    assert "Label a picture of another class" in tab.text("#first-steps")
    assert shown.session.said == {first: "upright"}
    tab.tab.locator("#tray .cell").nth(2).click()
    name_class(tab, "lying")
    until_said(tab, shown, 2)
    assert tab.tab.locator("#classes .class").count() == 3, "two, and none of these"
    tab.tab.locator("#show-grid").click()
    tab.tab.locator("#grid .cell").nth(3).click()
    tab.tab.locator("#grid .cell").nth(6).click(modifiers=["Shift"])
    before = len(set(shown.session.said) - {3, 4, 5, 6})
    tab.tab.locator("#classes .class").first.click()
    until_said(tab, shown, before + 4)
    assert {shown.session.said[row] for row in (3, 4, 5, 6)} == {"upright"}
    tab.tab.locator("#undo").click()
    until_said(tab, shown, 2)
    assert len(read_labels(made.file)) == 2


@pytest.mark.browser
def test_the_chosen_picture_comes_from_its_file_and_is_zoomed_by_click_or_z(
    tab: Opened, served: Session, tmp_path: Path
) -> None:
    size = "i => [i.naturalWidth, i.naturalHeight]"
    tab.until(lambda: tab.tab.locator("#picture").evaluate(size)[0] > 0)
    assert tab.tab.locator("#picture").evaluate(size) == [250, 250], "10 pixels, 25 times as large"
    for act in (lambda: tab.tab.locator("#zoom").click(), lambda: press(tab, "z")):
        act()
        tab.tab.locator("#large").wait_for()
        tab.until(lambda: tab.tab.locator("#large-picture").evaluate(size)[0] > 0)
        box = tab.box("#large-picture")
        assert min(box["width"], box["height"]) > 500
        press(tab, "<Escape>")
    press(tab, "bar <Enter>")
    _, shown, _ = served
    until_said(tab, shown, 1)
    press(tab, "z")
    tab.tab.locator("#large").wait_for()
    press(tab, "1")
    until_said(tab, shown, 2)
    assert tab.tab.locator("#large").is_visible(), "labels can be given to large pictures"
    press(tab, "<Escape>")


def test_few_large_pictures_are_read_at_a_time_for_a_sheet() -> None:
    from whatwhere.labelling.thumbnails import PictureSizes, SessionPictures

    pixels = np.random.default_rng(0).integers(0, 256, (7, 1, 60, 50), np.uint8)
    whole = SessionPictures(Images(pixels, None, "seven")).sheet(0)
    read = []

    def read_some(rows: np.ndarray) -> np.ndarray:
        read.append(len(rows))
        return pixels[rows]

    lazy = Images(LazyPixels(pixels.shape, pixels.dtype, read_some), None, "seven")
    few = PictureSizes(values=2 * 60 * 50)
    assert SessionPictures(lazy, few).sheet(0) == whole
    assert read == [2, 2, 2, 1]


def test_originals_are_sent_as_they_are_in_their_files_and_bounded(tmp_path: Path) -> None:
    from whatwhere.labelling.thumbnails import PictureSizes, SessionPictures

    generator = np.random.default_rng(0)
    sizes = ((300, 500), (3000, 100), (64, 64))
    for number, size in enumerate(sizes):
        noise = generator.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    Image.new("RGB", (2400, 90), "teal").save(tmp_path / "3.jpg")
    with pytest.warns(PicturesBecomeSquares):
        images = ww.data.load(tmp_path)
    pictures = SessionPictures(images)
    sent = [Image.open(io.BytesIO(pictures.original(row))) for row in range(4)]
    assert np.array_equal(np.asarray(sent[0]), np.asarray(Image.open(tmp_path / "0.png")))
    assert max(sent[1].size) == PictureSizes().largest
    assert (sent[3].format, max(sent[3].size)) == ("JPEG", PictureSizes().largest)
    assert sent[2].size == (256, 256)
    assert sent[2].getpixel((5, 5)) == Image.open(tmp_path / "2.png").getpixel((1, 1))


@pytest.mark.browser
def test_pictures_on_the_map_are_framed_whole_and_their_size_can_be_changed(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    label_truly(tab, served, 3)
    tab.tab.locator("#tray .cell").nth(1).click()  # whatever lit up goes out
    tab.until(lambda: bool((tab.pixels("#map")[..., 3] > 0).mean() > 0.01))  # the sheet is here
    tab.tab.locator("#size").fill("24")
    tab.next_frame()
    small = tab.pixels("#map")
    tab.tab.locator("#size").fill("96")
    tab.next_frame()
    large = tab.pixels("#map")
    assert (small[..., 3] > 0).mean() < 0.6 * (large[..., 3] > 0).mean()
    outermost = []
    for row in {*np.argmin(shown.places, 0).tolist(), *np.argmax(shown.places, 0).tolist()}:
        tab.tab.mouse.click(*on_map(tab, shown, row))
        tab.next_frame()
        outermost.append(tab.pixels("#map"))
    for drawn in (small, large, *outermost):
        for edge in (drawn[:2], drawn[-2:], drawn[:, :2], drawn[:, -2:]):
            assert (edge[..., 3] == 0).all(), "nothing is cut off at an edge"
    # a picture is seen as it is: in its middle there is its own grey, not the colour of a class
    grey = np.ptp(large[..., :3], axis=2)[large[..., 3] == 255]
    assert (grey == 0).mean() > 0.8
    opaque = large[large[..., 3] == 255][:, :3]
    for colour in class_colours(tab):
        assert (opaque == colour).all(1).mean() > 0.003, "frames have the colours of the classes"


def class_colours(tab: Opened) -> list[tuple[int, ...]]:
    """The colours of the classes in use, as their buttons have them."""
    hues = tab.tab.locator("#classes .class").evaluate_all(
        "all => all.map(one => one.style.getPropertyValue('--hue'))"
    )
    return [tuple(bytes.fromhex(hue.lstrip("#"))) for hue in hues[:-1]]  # not "none of these"


def record_texts(tab: Opened) -> None:
    """From now on, the page records what it writes on canvases."""
    tab.tab.evaluate(
        """() => {
          const proto = CanvasRenderingContext2D.prototype, fill = proto.fillText;
          window.written = [];
          proto.fillText = function (text, ...rest) {
            window.written.push([this.canvas.id, text]);
            return fill.call(this, text, ...rest);
          };
        }"""
    )


def written_on(tab: Opened, canvas: str) -> list[str]:
    """What was written on a canvas; the pictures of the map are drawn on one without a name."""
    return [text for place, text in tab.tab.evaluate("window.written") if place == canvas]


@pytest.mark.browser
def test_classes_have_a_mark_next_to_their_colour(tab: Opened, served: Session) -> None:
    label_truly(tab, served, 4)
    marks = tab.tab.locator("#classes .class .mark").all_inner_texts()
    assert len(set(marks)) == len(marks) > 2
    assert set(tab.tab.locator("#tray .cell .mark").all_inner_texts()) <= set(marks)
    assert tab.tab.locator("#tray .cell:not(:has(.mark))").count() == 0
    record_texts(tab)
    tab.tab.locator("#size").fill("60")
    tab.next_frame()
    written = written_on(tab, "")
    joined = [int(text[1:]) for text in written if text.startswith("×")]
    tiles = sum(text in marks for text in written)
    frames, rest = divmod(tiles + sum(joined) - len(joined), COUNT)
    assert (min(frames, 1), rest) == (1, 0), (
        "one on every picture or tile of the map, in every frame"
    )
    assert joined, "pictures of this size would cover each other"
    record_texts(tab)
    tab.tab.locator("#size").fill("12")
    tab.next_frame()
    assert not [text for text in written_on(tab, "") if text in marks], "too small for marks"


@pytest.mark.browser
def test_the_map_uses_the_free_space_of_the_window(tab: Opened) -> None:
    for width, height in ((1680, 1050), (1280, 720)):  # the second is that of all tests
        tab.tab.set_viewport_size({"width": width, "height": height})
        tab.reopen()
        box = tab.box("#map")
        assert box["height"] > 0.7 * height
        assert box["y"] + box["height"] <= height
        assert box["width"] > 0.4 * width
        assert tab.tab.evaluate("document.documentElement.scrollHeight") <= height
    # a long column beside it scrolls, and the page does not
    tab.tab.locator("#reasons").evaluate("place => { place.style.height = '2000px'; }")
    assert tab.tab.evaluate("document.documentElement.scrollHeight") <= height


@pytest.mark.browser
def test_why_shows_this_picture_next_to_its_neighbours(tab: Opened, served: Session) -> None:
    label_truly(tab, served, 4)
    press(tab, "w")
    reasons = tab.tab.locator("#reasons .reason").first.locator("canvas")
    reasons.first.wait_for()
    names = [one.get_attribute("aria-label") for one in reasons.all()]
    assert names[0].startswith("This picture")
    assert len(names) == 4
    assert all(", labelled " in name for name in names[1:])
    assert tab.text("#reasons .why-words").startswith("Most like these 3 labelled pictures (")
    assert tab.tab.locator("#reasons .heat").evaluate("one => one.naturalWidth") == 288
    drawn = tab.tab.locator("#reasons canvas[aria-label^=Feature]")
    assert not drawn.first.is_visible(), "behind Details"
    tab.tab.locator("#reasons summary").click()
    assert drawn.first.is_visible()
    assert drawn.count() % 4 == 0
    assert drawn.count() > 0


@pytest.mark.browser
def test_a_lasso_chooses_many(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    box = tab.box("#map")
    left = box["x"] + 1
    top = box["y"] + 1
    right = box["x"] + box["width"] - 1
    bottom = box["y"] + box["height"] - 1
    tab.tab.mouse.move(left, top)
    tab.tab.mouse.down()
    for place in ((right, top), (right, bottom), (left, bottom)):
        tab.tab.mouse.move(*place, steps=3)
    tab.tab.mouse.up()
    assert tab.text("#chosen").startswith(f"{COUNT} pictures")
    name_class(tab, "all")
    until_said(tab, shown, COUNT)
    assert tab.text("#tray-empty") == "Every picture has a label."


# The estimate -----------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_estimate_says_what_is_missing_and_its_curve_has_axes(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    tab.until(lambda: tab.text("#error").startswith("An estimate of the error needs 5 labels"))
    assert tab.text("#error").startswith("An estimate of the error needs 5 labels")
    record_texts(tab)
    label_truly(tab, served, 13)
    # on a busy machine, an estimate from fewer labels comes before the one that is looked at
    tab.tab.locator("#error-curve[aria-label*='with 13 labels']").wait_for()
    assert "% of the predicted classes are wrong" in tab.text("#error")
    assert "the axes end at" in tab.tab.locator("#error-curve").get_attribute("aria-label")
    *percents, zero, middle, last, across, upwards = written_on(tab, "error-curve")[-8:]
    assert [percent.endswith(" %") for percent in percents] == [True] * 3
    assert [zero, middle, last] == ["0", "10", "20"]
    assert [upwards, across] == ["wrong", "labels"]
    assert len(shown.session.curve) > 0


# Many at once -----------------------------------------------------------------------------------


@pytest.mark.browser
def test_unsure_pictures_come_first_and_a_class_is_confirmed_at_once(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    label_truly(tab, served, 8)
    session = shown.session
    tab.tab.locator("#filter").select_option("unsure")
    assert tab.tab.locator("#grid").is_visible(), "only the grid has an order"
    certainty = shown._state("")["certainty"]
    cells = tab.tab.locator("#grid .cell").all()
    rows = [int(cell.get_attribute("data-row")) for cell in cells]
    assert [certainty[row] for row in rows] == sorted(certainty[row] for row in rows)
    assert not set(rows) & set(session.said)
    tab.tab.locator("#show-map").click()
    assert tab.tab.locator("#filter").input_value() == "all", "the map has no order"
    # through the magnifying glass of a class, from the least to the most sure
    predictions = session.predict()
    open_classes = predictions.classes[~predictions.said].tolist()
    name = max(set(open_classes), key=open_classes.count)
    tab.tab.locator(".class-row", has_text=name).locator(".look").last.click()
    members = np.flatnonzero(predictions.classes == name)
    predicted = [int(member) for member in members if member not in session.said]
    shown_rows = [
        int(cell.get_attribute("data-row")) for cell in tab.tab.locator("#grid .cell").all()
    ][: len(predicted)]
    assert len(predicted) > 2, "too few to try it"
    assert set(shown_rows) == set(predicted)
    assert [certainty[row] for row in shown_rows] == sorted(certainty[row] for row in shown_rows)
    # one is taken out by mouse, one by keys; the rest is confirmed
    tab.tab.locator("#grid .cell").first.click()
    press(tab, "<ArrowRight> <Space>")
    assert tab.tab.locator("#grid .cell.out").count() == 2
    assert tab.text("#confirm") == f"Confirm {len(predicted) - 2} pictures as {name}"
    before = len(session.said)
    tab.tab.locator("#confirm").click()
    until_said(tab, shown, before + len(predicted) - 2)
    assert not set(shown_rows[:2]) & set(session.said)
    assert all(session.said[row] == name for row in shown_rows[2:])
    assert tab.text("#chosen").startswith("2 pictures"), "what was taken out is chosen"
    press(tab, "<Control+z>")
    until_said(tab, shown, before)


def look_through_the_largest_class(tab: Opened, shown: LabelPage) -> str:
    """Show the pictures of the class that has the most predictions; returns its name."""
    predictions = shown.session.predict()
    open_classes = predictions.classes[~predictions.said].tolist()
    name = max(set(open_classes), key=open_classes.count)
    tab.tab.locator(".class-row", has_text=name).locator(".look").last.click()
    return str(name)


@pytest.mark.browser
def test_after_a_class_is_confirmed_a_suggestion_follows_and_undo_chooses_nothing(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    label_truly(tab, served, 8)
    session = shown.session
    look_through_the_largest_class(tab, shown)
    before = dict(session.said)
    press(tab, "<Control+Enter>")
    tab.tab.locator("#message", has_text="confirmed as").wait_for()
    tab.settle()
    assert len(session.said) > len(before) + 1
    assert chosen_row(tab) not in session.said
    assert "your label" not in tab.tab.locator("#spoken").text_content()
    press(tab, "u")
    until_said(tab, shown, len(before))
    assert tab.text("#chosen") == "No picture is chosen."
    press(tab, "1")
    assert tab.text("#armed") != ""
    assert session.said == before
    press(tab, "<Escape>")
    # one that was taken out is what follows
    tab.tab.locator("#grid .cell").first.click()
    press(tab, "<Control+Enter>")
    tab.tab.locator("#message", has_text="What you took out is chosen").wait_for()
    name = tab.text("#chosen").partition(":")[0]
    assert f"Next: {name}:" in tab.tab.locator("#spoken").text_content()


@pytest.mark.browser
def test_after_a_label_in_the_grid_the_next_picture_without_a_label_follows(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    shown.session.label({1: "bar", 2: "bar", 3: "bar"})
    shown.revision += 1
    tab.reopen()
    tab.tab.locator("#show-grid").click()
    for row, following in ((0, 4), (1, 2)):
        tab.tab.locator(f'#grid .cell[data-row="{row}"]').click()
        press(tab, "0")
        until_said(tab, shown, 4)
        tab.tab.locator(f'#picture[data-row="{following}"]').wait_for()


@pytest.mark.browser
def test_a_picture_of_a_class_is_seen_large_without_being_taken_out(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    label_truly(tab, served, 8)
    look_through_the_largest_class(tab, shown)
    assert "point at it and press z" in tab.text("#review-words")
    confirm = tab.text("#confirm")
    before = dict(shown.session.said)
    cells = tab.tab.locator("#grid .cell")
    for number, reach in ((2, "pointer"), (3, "arrow")):
        if reach == "pointer":
            cells.nth(2).hover()
        else:
            cells.nth(2).focus()
            press(tab, "<ArrowRight>")
        press(tab, "z")
        tab.tab.locator("#large").wait_for()
        name = shown.session.names[int(cells.nth(number).get_attribute("data-row"))]
        assert tab.text("#large-words").startswith(f"{name}:"), reach
        press(tab, "<Escape>")
    assert tab.tab.locator("#grid .cell.out").count() == 0
    assert tab.text("#confirm") == confirm
    assert shown.session.said == before


@pytest.mark.browser
def test_what_is_most_like_a_labelled_picture_lights_up_and_enter_confirms_it(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    session = shown.session
    first = chosen_row(tab)
    press(tab, "bar <Enter>")
    tab.tab.locator("#like").wait_for()
    lit = [int(one.get_attribute("data-lit")) for one in tab.tab.locator("#like-cells .cell").all()]
    asked = chosen_row(tab)
    cosines = dict(session.graph.nearest(first, range(COUNT), COUNT))
    nearest = [row for row in cosines if row not in (first, asked)]
    assert lit == [row for row in session.similar(first) if row != asked]
    assert cosines[lit[-1]] >= max(cosines[row] for row in nearest if row not in lit) - 1e-6
    tab.tab.wait_for_timeout(450)  # an Enter at once would be that of the name
    press(tab, "<ArrowDown> <ArrowRight> <ArrowDown>")
    assert tab.text("#like-give").startswith(f"{len(lit) - 1} pictures: bar")
    press(tab, "<Enter>")
    until_said(tab, shown, len(lit))
    assert set(session.said) == {first, *lit} - {lit[1]}
    assert tab.tab.locator("#like").is_hidden()
    press(tab, "u")
    until_said(tab, shown, 1)
    tab.tab.locator("#tray .cell").first.click()
    press(tab, "stripe <Enter>")
    tab.tab.locator("#like").wait_for()
    tab.tab.locator("#like-cells .cell").first.click()
    assert tab.tab.locator("#like-cells .out").count() == 1
    press(tab, "<Escape>")
    assert tab.tab.locator("#like").is_hidden()
    assert sorted(session.said.values()) == ["bar", "stripe"]
    press(tab, "stripe <Enter>")
    tab.tab.locator("#like").wait_for()
    tab.tab.get_by_role("button", name="Look through").first.click()
    assert tab.tab.locator("#like").is_hidden(), "Enter in a class means no lights above it"


@pytest.mark.browser
def test_labels_that_the_server_does_not_get_are_sent_again(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    first = chosen_row(tab)
    tab.tab.route("**/label", lambda route: route.abort())
    press(tab, "bar <Enter>")
    tab.tab.locator("#message.bad").wait_for()
    second = chosen_row(tab)
    press(tab, "stripe <Enter>")
    assert shown.session.said == {}
    tab.tab.unroute("**/label")
    until_said(tab, shown, 2)
    assert shown.session.said == {first: "bar", second: "stripe"}
    assert tab.text("#message") == "", "it answers again"
    assert all("ERR_FAILED" in error for error in tab.errors)
    tab.errors.clear()


@pytest.mark.browser
def test_a_double_click_on_a_class_is_one_label(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    tab.tab.locator("#classes .class").first.dblclick()
    until_said(tab, shown, 2)
    tab.tab.wait_for_timeout(100)
    assert len(shown.session.said) == 2


@pytest.mark.browser
def test_a_class_without_a_chosen_picture_stays_pressed_and_every_click_gives_it(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    press(tab, "<Escape>")
    name_class(tab, "bar")
    assert "Every picture that you click gets the class bar" in tab.text("#armed")
    for count in (1, 2):
        tab.tab.wait_for_timeout(400)  # a click at once would belong to the one before
        tab.tab.locator("#tray .cell").first.click()
        assert tab.text("#at-pointer") == "bar", "shown where the click is"
        until_said(tab, shown, count)
    assert set(shown.session.said.values()) == {"bar"}
    press(tab, "<Escape>")
    assert tab.tab.locator("#at-pointer").is_hidden()


@pytest.mark.browser
def test_a_blind_check_measures_the_error_and_its_answers_become_labels(
    tab: Opened, served: Session
) -> None:
    made, shown, _ = served
    count = label_truly(tab, served, 3)
    tab.tab.locator("#check-begin").click()
    tab.tab.locator("body.checking").wait_for()
    assert tab.text("#check-words") == "Check: picture 1 of 30. What is it?"
    assert "%" not in tab.text("#chosen"), "the prediction is not shown"
    for hidden in ("#map", "#tray", "#error", "#classes small"):
        assert not tab.tab.locator(hidden).first.is_visible(), hidden
    asked: list[int] = []
    for number in range(5):
        row = int(tab.tab.locator("#picture").get_attribute("data-row"))
        asked.append(row)
        press(tab, f"{made.truth(row)} <Enter>")
        tab.until(lambda n=number: f"picture {n + 2} of 30" in tab.text("#check-words"))
    assert len(shown.session.said) == count, "answers are no labels yet"
    press(tab, "u")
    tab.until(lambda: "picture 5 of 30" in tab.text("#check-words"))
    tab.tab.reload()
    tab.settle()
    assert "picture 5 of 30" in tab.text("#check-words"), "a check outlives the tab"
    tab.tab.locator("#check-end").click()
    until_said(tab, shown, count + 4)
    assert {row: shown.session.said[row] for row in asked[:4]} == {
        row: made.truth(row) for row in asked[:4]
    }
    assert tab.text("#check-words").startswith(("Measured: ", "Done: "))
    assert "of 4 pictures drawn at random" in tab.text("#check-words")
    assert tab.tab.locator("#map").is_visible()


@needs_node
@pytest.mark.parametrize("name", ["clicks", "kind", "lit", "names", "tiles", "zoom"])
def test_a_module_of_the_page_alone(name: str) -> None:
    script = Path(__file__).with_name(f"{name}.mjs")
    done = subprocess.run(["node", "--test", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.browser
def test_a_class_is_renamed_joined_and_removed(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    session = shown.session
    for count, name in enumerate(("tulip", "rose", "tulip"), start=1):
        press(tab, f"{name} <Enter>")
        until_said(tab, shown, count)
    first = dict(session.said)
    rows = tab.tab.locator(".class-row", has_text="tulip")
    rows.locator(".class").focus()
    press(tab, "<F2>")
    tab.tab.locator("#rename-name").fill("lily")
    press(tab, "<Enter>")
    tab.until(lambda: set(session.said.values()) == {"lily", "rose"})
    tab.settle()
    lily = tab.tab.locator(".class-row", has_text="lily")
    assert lily.locator("kbd").inner_text() == "1", "it keeps its number and its colour"
    lily.locator(".look").first.click()
    tab.tab.locator("#rename-name").fill("rose")
    assert tab.tab.locator("#rename-give").inner_text() == "Join rose"
    press(tab, "<Enter>")
    tab.until(lambda: set(session.said.values()) == {"rose"})
    tab.settle()
    press(tab, "u")
    settle_letters(tab)
    press(tab, "u")
    settle_letters(tab)
    assert session.said == first
    tab.tab.locator(".class-row", has_text="tulip").locator(".look").first.click()
    tab.tab.locator("#rename-delete").click()
    until_said(tab, shown, 1)
    assert set(session.said.values()) == {"rose"}


@pytest.mark.browser
def test_a_class_gets_another_colour_and_keeps_it(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    for count, name in enumerate(("tulip", "rose"), start=1):
        press(tab, f"{name} <Enter>")
        until_said(tab, shown, count)

    def colour(name: str) -> str:
        row = tab.tab.locator(".class-row", has_text=name).locator(".class")
        return str(row.evaluate("button => button.style.getPropertyValue('--hue')"))

    assert (colour("tulip"), colour("rose")) == ("#0072b2", "#e69f00")
    tab.tab.locator(".class-row", has_text="tulip").locator(".class").focus()
    press(tab, "<F2>")
    tab.tab.get_by_role("radio", name="violet").check()
    tab.until(lambda: colour("tulip") == "#5b3a8c")
    tab.tab.locator("#rename-name").fill("lily")
    press(tab, "<Enter>")
    tab.until(lambda: "lily" in shown.session.said.values())
    tab.until(lambda: tab.tab.locator(".class-row", has_text="lily").count() == 1)
    assert colour("lily") == "#5b3a8c"
    tab.tab.reload()
    tab.until(lambda: tab.tab.locator(".class-row", has_text="lily").count() == 1)
    assert (colour("lily"), colour("rose")) == ("#5b3a8c", "#e69f00")


@pytest.mark.browser
def test_a_near_double_is_asked_about(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    press(tab, "tulip <Enter>")
    until_said(tab, shown, 1)
    name_class(tab, "tuilp")
    assert tab.text("#completion") == "Did you mean tulip? Tab takes it, Enter keeps “tuilp”."
    press(tab, "<Tab> <Enter>")
    until_said(tab, shown, 2)
    assert set(shown.session.said.values()) == {"tulip"}
    name_class(tab, "tuilp")
    press(tab, "<Enter>")
    until_said(tab, shown, 3)
    assert set(shown.session.said.values()) == {"tulip", "tuilp"}


@pytest.mark.browser
def test_the_map_is_zoomed_by_wheel_keys_and_buttons_and_fits_again(
    tab: Opened, served: Session
) -> None:
    _, shown, _ = served
    tab.until(lambda: bool((tab.pixels("#map")[..., 3] > 0).mean() > 0.01))
    whole = tab.pixels("#map")
    row = int(np.argsort(np.hypot(*(np.array(shown.places).T - 0.5)))[0])
    at = on_map(tab, shown, row)
    tab.tab.mouse.move(*at)
    tab.tab.mouse.wheel(0, -600)
    tab.next_frame()
    assert not np.array_equal(tab.pixels("#map"), whole)
    tab.tab.mouse.click(*at)
    tab.next_frame()
    assert tab.text("#chosen").startswith(shown.session.names[row]), "it stayed under the pointer"
    tab.tab.locator("#fit").click()
    tab.next_frame()
    assert tab.tab.locator("#fit").is_disabled()
    tab.tab.locator("#map").focus()
    press(tab, "<+>")
    tab.next_frame()
    assert tab.tab.locator("#fit").is_enabled()
    press(tab, "<->")
    tab.next_frame()
    assert tab.tab.locator("#fit").is_disabled()


# Export and import ------------------------------------------------------------------------------


@pytest.mark.browser
def test_classes_are_exported_and_labels_imported(
    tab: Opened, served: Session, tmp_path: Path
) -> None:
    made, shown, _ = served
    session = shown.session
    label_truly(tab, served, 5)
    tab.tab.locator("#exchange summary").click()
    with tab.tab.expect_download() as download:
        tab.tab.locator("#export-csv").click()
    with open(download.value.path(), newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["file"] for line in table] == session.names
    assert [line["class"] for line in table] == session.predict().classes.tolist()
    assert sum(line["source"] == "labelled" for line in table) == 5
    with tab.tab.expect_download() as download:
        tab.tab.locator("#export-studio").click()
    tasks = json.loads(Path(download.value.path()).read_text())
    assert len(tasks) == COUNT
    assert sum("annotations" in task for task in tasks) == 5
    tab.tab.locator("#export-copies").click()
    tab.tab.locator("#message", has_text="Written").wait_for()
    folder = made.folder / "labels.classes"
    found = {path.name: path.parent.name for path in folder.glob("*/*")}
    assert len(found) == COUNT
    # the same labels come back from Label Studio's file
    said = {session.names[row]: name for row, name in session.said.items()}
    for count in range(4, -1, -1):
        press(tab, "<Control+z>")
        until_said(tab, shown, count)
    studio = tmp_path / "studio.json"
    studio.write_text(json.dumps(tasks))
    tab.tab.locator("#import-file").set_input_files(studio)
    until_said(tab, shown, 5)
    assert {session.names[row]: name for row, name in session.said.items()} == said
    assert tab.text("#message") == "studio.json: Imported 5 labels."
    press(tab, "u")
    tab.until(lambda: not session.said)
    tab.settle()
    assert session.said == {}, "an import is one action"
    tab.tab.locator("#import-file").set_input_files(
        {"name": "x.csv", "mimeType": "text/csv", "buffer": b"file,class\nother.png,a\n"}
    )
    tab.tab.locator("#message", has_text="has no label for these pictures").wait_for()
    table = f"{session.names[1]},a\nother.png,b\n".encode()
    tab.tab.locator("#import-file").set_input_files(
        {"name": "x.csv", "mimeType": "text/csv", "buffer": table}
    )
    until_said(tab, shown, 1)
    words = "x.csv: Imported 1 of 2 labels; no picture is called 'other.png'."
    assert tab.text("#message") == words


@pytest.mark.browser
def test_other_pictures_get_a_class_from_the_second_class_on(tab: Opened, served: Session) -> None:
    _, shown, _ = served
    assert tab.text("#first-steps").startswith("What is this?")
    assert tab.tab.locator("#save").is_disabled()
    press(tab, "bar <Enter>")
    until_said(tab, shown, 1)
    state = shown._state("")
    assert [row for row, best in enumerate(state["best"]) if best >= 0] == list(shown.session.said)
    assert tab.text("#first-steps").startswith("All labels are bar. Label a picture of another")
    assert tab.tab.locator(".class-row", has_text="bar").locator("small").inner_text() == "1 / 1"
    assert b"All labels are 'bar'" in shown.answer("export/predictions.csv").body
    tab.tab.locator("#exchange summary").click()
    assert tab.tab.locator("#exports").evaluate("one => one.inert")
    assert tab.tab.locator("#export-needs").is_visible()
    press(tab, "<Escape>")
    assert tab.tab.locator("#save").is_disabled()
    press(tab, "cross <Enter>")
    until_said(tab, shown, 2)
    assert min(shown._state("")["best"]) >= 0
    assert tab.tab.locator("#first-steps").is_hidden()
    assert tab.tab.locator("#save").is_enabled()
    assert not tab.tab.locator("#exports").evaluate("one => one.inert")


@pytest.mark.browser
def test_while_the_program_learns_the_page_counts_and_keys_can_be_read(
    browser: Any, served: Session, tmp_path: Path
) -> None:
    _, shown, _ = served
    half = threading.Event()
    terminal: list[tuple[str, int]] = []

    @contextmanager
    def on_terminal(title: str, total: int) -> Iterator[Any]:
        yield lambda pieces: terminal.append((title, pieces))

    def learn(stage: Any) -> ww.Labelling:
        with stage("learning features", 4000) as advance:
            advance(500)
            advance(500)
            half.wait(60)
        return shown.session

    learning = LabelPage(learn, "slides", tmp_path / "classifier.safetensors", on_terminal)
    with PageServer(learning.answer, act=learning.act) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            tab = browser.new_page()
            tab.goto(server.url)
            tab.locator("#stage", has_text="1 of 1 · learning features").wait_for()
            assert terminal[-1] == ("learning features", 500)
            assert tab.locator("#source").inner_text() == "slides"
            for button in ("#save", "#undo", "#start-tour"):
                assert tab.locator(button).is_disabled(), button
            assert tab.locator("#exchange").evaluate("one => one.inert")
            tab.keyboard.press("?")
            assert tab.locator("#keys").is_visible()
            tab.keyboard.press("Escape")
            assert tab.locator("#keys").is_hidden()
            half.set()
            tab.locator("body[aria-busy=false]").wait_for()
            assert tab.locator("#source").inner_text() == "slides:"
            assert tab.locator("#start-tour").is_enabled()
            tab.keyboard.press("?")
            assert tab.locator("#keys").is_visible()
            tab.close()
        finally:
            half.set()
            server.shutdown()


@pytest.mark.browser
def test_the_classifier_is_saved_by_a_key(tab: Opened, served: Session) -> None:
    made, shown, _ = served
    label_truly(tab, served, 3)
    made.classifier.unlink(missing_ok=True)
    press(tab, "<Control+s>")
    tab.tab.locator("#message", has_text="Saved").wait_for()
    command = f"whatwhere classify new/ {made.classifier} --out new_sorted"
    assert tab.text("#message").endswith(f"To classify new pictures with it: {command}")
    assert ww.load_classifier(made.classifier).classes == tuple(shown.session.classes)


# Many pictures ----------------------------------------------------------------------------------


MANY = 3000


@pytest.fixture
def many(tmp_path: Path) -> LabelPage:
    """The page of many grey pictures, some sheets of them."""
    generator = np.random.default_rng(0)
    images = ww.data.load(generator.integers(0, 256, (MANY, 4, 4), dtype=np.uint8))
    rows = generator.normal(size=(MANY, 3)).astype(np.float32)
    return LabelPage(lambda _: GivenRows(images, rows), "many", tmp_path / "classifier")


@pytest.mark.browser
def test_the_grid_draws_what_is_seen_alone(browser: Any, many: LabelPage) -> None:
    with serving(many) as server, Opened(browser, server.url) as opened:
        opened.tab.locator("#show-grid").click()
        cells = opened.tab.locator("#grid .cell")
        assert 20 < cells.count() < 300
        opened.tab.locator("#grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
        last = opened.tab.locator(f'#grid .cell[data-row="{MANY - 1}"]')
        last.wait_for()
        assert cells.count() < 300
        assert opened.tab.locator('#grid .cell[data-row="0"]').count() == 0
        picture = last.locator(".small-picture")
        opened.until(lambda: "blob:" in picture.evaluate("one => one.style.backgroundImage"))
        order = [int(cell.get_attribute("data-row")) for cell in cells.all()]
        assert order == sorted(order), "keys go from one to the next"


@pytest.mark.browser
def test_a_map_of_many_pictures_has_the_colours_of_their_classes(
    browser: Any, many: LabelPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sheets are fetched one at a time, so that a label never waits for more than one."""
    at_once: list[int] = []
    active: set[int] = set()
    many.thread.join()
    make = many.pictures.sheet

    def sheet(number: int) -> bytes:
        at_once.append(1 + len(active))
        active.add(number)
        try:
            return make(number)
        finally:
            active.discard(number)

    monkeypatch.setattr(many.pictures, "sheet", sheet)
    with serving(many) as server, Opened(browser, server.url) as opened:
        opened.until(lambda: len(at_once) == -(-MANY // 256))
        for count, name in enumerate(("one", "two"), start=1):
            press(opened, f"{name} <Enter>")
            until_said(opened, many, count)
        opened.next_frame()
        drawn = opened.pixels("#map")
        opaque = drawn[drawn[..., 3] == 255][:, :3]
        for colour in ((0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00)):
            assert (opaque == colour).all(1).mean() > 0.02
        assert (np.ptp(opaque, axis=1) == 0).mean() > 0.2, "pictures are grey"
        assert max(at_once) == 1
        for edge in (drawn[:2], drawn[-2:], drawn[:, :2], drawn[:, -2:]):
            assert (edge[..., 3] == 0).all(), "nothing is cut off at an edge"
        opened.tab.locator("#filter").select_option("said")
        opened.next_frame()
        pale = opened.pixels("#map")[..., 3]
        assert (pale == 255).sum() < 0.05 * (drawn[..., 3] == 255).sum(), "the others are pale"


def test_small_pictures_wait_for_labels() -> None:
    labels_first = LabelsFirst()
    done: list[str] = []

    def draw() -> None:
        labels_first.wait()
        done.append("small pictures")

    with labels_first.labelling():
        thread = threading.Thread(target=draw)
        thread.start()
        thread.join(0.1)
        done.append("label")
    thread.join()
    labels_first.wait()
    assert done == ["label", "small pictures"]


# Tabs, folders, names ---------------------------------------------------------------------------


@pytest.mark.browser
def test_reload_and_two_tabs(tab: Opened, browser: Any, served: Session) -> None:
    _, shown, server = served
    name_class(tab, HOSTILE)
    until_said(tab, shown, 1)
    tab.tab.reload()
    tab.settle()
    assert tab.text("#counts").startswith("1 of")
    assert HOSTILE in tab.text("#classes"), "a name stays text"
    with Opened(browser, server.url) as other:
        name_class(other, "second")
        until_said(other, shown, 2)
        tab.until(lambda: tab.text("#counts").startswith("2 of"))
        assert "second" in tab.text("#classes")
        tab.tab.locator("#undo").click()
        other.until(lambda: other.text("#counts").startswith("1 of"))
        assert other.text("#counts").startswith("1 of")


@pytest.mark.browser
def test_a_folder_that_changes_keeps_its_labels(tab: Opened, served: Session) -> None:
    made, shown, _ = served
    row = chosen_row(tab)
    file = made.pictures / shown.session.names[row]
    content = file.read_bytes()
    status = file.stat()
    try:
        file.unlink()
        Image.new("L", (10, 10)).save(made.pictures / "new.png")
        name_class(tab, "upright")
        until_said(tab, shown, 1)
        assert shown.session.said == {row: "upright"}
        assert b"failed" in shown.answer(f"picture/{row}").body
        name_class(tab, "lying")
        until_said(tab, shown, 2)
    finally:
        file.write_bytes(content)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        (made.pictures / "new.png").unlink()
    tab.errors.clear()


def test_what_other_pages_or_damaged_requests_send_changes_nothing(served: Session) -> None:
    _, shown, _ = served
    before = dict(shown.session.said)
    for sent in (None, [], 3, "x"):
        assert shown.act("label", sent) is None
    wrong = ((None, "a"), ([10**9], "a"), (["x"], "a"), ([0], 3), ([0], " "), ([[1]], "a"))
    names = ("a\rb", "a\x1b", "\ud800", "x" * 131_073)
    for rows, name in (*wrong, ([True], "a"), ([1.0], "a"), *(([0], name) for name in names)):
        sent = {"rows": rows, "name": name}
        assert b"failed" in shown.act("label", sent).body
    assert b"failed" in shown.act("import", {"name": "x.csv", "text": 3}).body
    assert shown.act("other", {}) is None
    assert shown.session.said == before
    paths = ("sheet/99", "picture/99", "why/x", "picture/-1", "../labels.csv", "picture/")
    for path in (*paths, "error/x", "error/", f"picture/{'9' * 5000}", "picture/²"):
        assert shown.answer(path) is None


def test_tabs_that_close_and_hostile_headers_leave_no_traceback(
    served: tuple[Served, LabelPage, PageServer], capfd: pytest.CaptureFixture[str]
) -> None:
    _, _, server = served
    host = f"127.0.0.1:{server.server_port}"
    start = f"Host: {host}\r\nOrigin: http://{host}\r\nContent-Type: application/json\r\n"
    requests = [
        f"GET /{server.token}/ HTTP/1.1\r\n{start}\r\n",
        f"GET /{server.token}/error/x HTTP/1.1\r\n{start}\r\n",
        f"POST /{server.token}/label HTTP/1.1\r\n{start}Content-Length: {'9' * 5000}\r\n\r\n",
        f"POST /{server.token}/label HTTP/1.1\r\n{start}Content-Length: 5000\r\n\r\n"
        + '{"rows": ['
        + "9" * 4500,
        f"POST /{server.token}/label HTTP/1.1\r\n{start}Content-Length: 40\r\n\r\n{{",
    ]
    for request in requests * 5:
        with socket.create_connection(("127.0.0.1", server.server_port)) as tab:
            tab.sendall(request.encode())
            # closed with a reset, so that the answer cannot be sent
            tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with urllib.request.urlopen(server.url) as answer:
        answer.read()  # requests are accepted in turn: those before are
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join()
    assert "Traceback" not in capfd.readouterr().err


def test_a_foreign_classifier_is_not_replaced(
    served: tuple[Served, LabelPage, PageServer],
) -> None:
    _, shown, _ = served
    shown.session.label({0: "a", 5: "b"})
    try:
        shown.classifier.write_text("mine")
        assert b"is not a classifier" in shown.act("save", {}).body
        assert shown.classifier.read_text() == "mine"
        shown.classifier.unlink()
        for _ in range(2):
            assert b"saved" in shown.act("save", {}).body
    finally:
        shown.classifier.unlink(missing_ok=True)
        shown.session.undo()


def test_the_page_may_ask_its_own_server_alone() -> None:
    text = page(HOSTILE)
    assert "connect-src 'self'" in text
    assert "default-src 'none'" in text
    assert HOSTILE not in text
    assert text.count("<script") == 2


def test_the_command_serves_the_page_until_it_is_ended(
    served: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, _ = served

    def end(self: PageServer) -> None:
        raise KeyboardInterrupt

    opened: list[str] = []
    monkeypatch.setattr(PageServer, "serve_forever", end)
    monkeypatch.setattr("webbrowser.open", opened.append)
    shown: list[LabelPage] = []

    def show(*given: Any) -> LabelPage:
        shown.append(LabelPage(*given))
        return shown[0]

    monkeypatch.setattr("whatwhere.labelling.page.LabelPage", show)
    out = tmp_path / "labels.csv"
    plain = ("--set", "engine=reference")
    with pytest.warns(SkippedFiles):
        output = tiny.whatwhere("label", made.pictures, made.run, "--out", out, *plain)
    assert opened[0] in output
    wait_for_threads(shown[0])


def wait_for_threads(shown: LabelPage) -> None:
    """Wait until no thread of a page works: each sets the filters of warnings, which all threads
    share, so that a test next to it might miss a warning."""
    shown.thread.join()
    for thread in threading.enumerate():
        if thread.name == "behind":
            thread.join()
    assert shown.session is not None, shown.waiting
    with shown.lock:
        shown.follower.settle()
        assert shown.follower.is_settled


def test_the_command_takes_labels_from_elsewhere_and_exports_without_a_page(
    served: Session, tmp_path: Path
) -> None:
    made, shown, _ = served
    names = shown.session.names
    foreign = tmp_path / "theirs.csv"
    foreign.write_text(f"label;filename\nleft;/their/{names[1]}\nright;{names[2]}\n")
    out = tmp_path / "labels.csv"
    plain = ("--set", "engine=reference", "--out", out)
    for form in ("all.json", "all.csv", "folders"):
        with pytest.warns(SkippedFiles):
            printed = tiny.whatwhere(
                "label",
                made.pictures,
                made.run,
                "--labels-from",
                foreign,
                "--export",
                tmp_path / form,
                "--links",
                *plain,
            )
        assert f"the classes of {COUNT} pictures" in printed
    assert read_labels(out) == {names[1]: "left", names[2]: "right"}
    assert len(json.loads((tmp_path / "all.json").read_text())) == COUNT
    links = list((tmp_path / "folders").glob("*/*"))
    assert len(links) == COUNT
    assert all(link.is_symlink() for link in links)


# First-time users -------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_tour_has_five_steps(tab: Opened) -> None:
    tab.tab.locator("#start-tour").click()
    for stop in range(1, 6):
        assert tab.text("#tour-count") == f"{stop} of 5"
        assert tab.tab.locator(".toured").count() == 1
        press(tab, "<Enter>")
    assert tab.tab.locator("#tour").is_hidden()


@pytest.mark.browser
def test_every_control_has_a_name_and_a_visible_focus(tab: Opened, served: Session) -> None:
    label_truly(tab, served, 2)
    unnamed = tab.tab.locator("button, input, select, canvas, img, a, summary").evaluate_all(
        "all => all.filter(one => !one.closest('[hidden], [aria-hidden=true], .cell *') &&"
        " !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length ||"
        " one.getAttribute('alt'))).filter(one => one.offsetParent !== null && "
        "!one.closest('button *')).map(one => one.outerHTML)"
    )
    assert unnamed == [], "everything has words for a screen reader"
    seen: set[str] = set()
    for _ in range(60):
        press(tab, "<Tab>")
        focused = tab.tab.evaluate(
            "() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.id || e.className, s.outlineStyle, parseFloat(s.outlineWidth)]; }"
        )
        name, style, width = focused
        seen.add(name)
        assert name in ("", "label", "import-file") or (style != "none" and width >= 2), focused
    assert {"class-name", "undo", "save", "show-keys", "filter", "map", "cell"} <= seen


@pytest.mark.browser
def test_a_phone_shows_it_all_without_scrolling_sideways(browser: Any, served: Session) -> None:
    _, shown, server = served
    take_all_back(shown)
    size = {"width": 390, "height": 844}
    with Opened(browser, server.url, viewport=size, has_touch=True, is_mobile=True) as opened:
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert opened.box("#class-name")["y"] < 844, "the picture and its name come first"
        opened.tab.locator("#tray .cell").nth(1).tap()
        assert opened.tab.locator("#tray .cell").nth(1).get_attribute("aria-pressed") == "true"
        name_class(opened, "bar")
        until_said(opened, shown, 1)
        opened.tab.locator(".look", has_text="⌕").first.tap()
        box = opened.box("#grid")
        assert 0 <= box["y"] < box["y"] + box["height"] <= 844, (
            "the magnifying glass shows the grid"
        )
        opened.tab.locator("#undo").tap()
        until_said(opened, shown, 0)
