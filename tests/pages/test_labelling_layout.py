"""The layout of the labelling page in Chromium: controls stay where they are, whole pictures are
visible, and a phone has the classes within reach."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import whatwhere as ww
from pages.labelled import GivenRows, press, serving, take_all_back, until_said
from pages.opened import Opened
from whatwhere.data.mixed import PicturesBecomeSquares
from whatwhere.html.server import PageServer
from whatwhere.labelling.page import LabelPage

COUNT = 60
SIZES = ((30, 57), (200, 60), (64, 64))  # width and height
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
LONG = "a rather long"
LOADED = "(picture) => picture.complete && picture.naturalWidth > 0"

Session = tuple[LabelPage, PageServer]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A page of pictures of several sizes."""
    folder = tmp_path_factory.mktemp("sizes")
    pictures = folder / "pictures"
    pictures.mkdir()
    generator = np.random.default_rng(0)
    for number in range(COUNT):
        width, height = SIZES[number % len(SIZES)]
        noise = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(pictures / f"{number:02d}.png")
    with pytest.warns(PicturesBecomeSquares):
        images = ww.data.load(pictures)
    rows = generator.normal(size=(COUNT, 3)).astype(np.float32)
    shown = LabelPage(lambda _: GivenRows(images, rows), "sizes", folder / "classifier")
    with serving(shown) as server:
        yield shown, server


@pytest.fixture
def session(served: Session) -> Session:
    """The page with two classes and without other labels."""
    shown, _ = served
    assert shown.session is not None
    take_all_back(shown)
    shown.session.label({0: "one", 1: LONG})
    shown.revision += 1
    return served


def places(opened: Opened, selectors: tuple[str, ...]) -> list[float]:
    """Where the tops of elements are on the page, however far it is scrolled."""
    opened.next_frame()
    script = "(one) => one.getBoundingClientRect().top + scrollY"
    return [opened.tab.locator(selector).evaluate(script) for selector in selectors]


def choose(opened: Opened, number: int) -> None:
    opened.tab.locator("#tray .cell").nth(number).click()
    opened.until(lambda: opened.tab.locator("#picture").evaluate(LOADED))


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE, {"width": 1120, "height": 700}])
def test_controls_stay_where_they_are(
    browser: Any, session: Session, viewport: dict[str, int]
) -> None:
    _, server = session
    with Opened(browser, server.url, viewport=viewport) as opened:
        controls = ("#class-name", "#classes", "#view")
        before = places(opened, controls)
        for number in (1, 2, 3, 4):
            choose(opened, number)
            assert places(opened, controls) == before, "another picture"
        press(opened, "<Escape>")
        assert opened.text("#chosen") == "No picture is chosen."
        assert places(opened, controls) == before, "no picture"
        choose(opened, 0)
        opened.tab.locator("#class-name").press_sequentially("a r")
        assert opened.text("#completion") == f"Tab completes: {LONG}"
        assert places(opened, controls) == before, "a completion"
        press(opened, "<Escape>")
        opened.tab.locator("#show-grid").click()
        assert places(opened, controls) == before, "the grid"
        opened.tab.locator("#filter").select_option("said")
        assert places(opened, controls) == before, "some pictures"
        opened.tab.locator("#filter").select_option("all")
        opened.tab.locator("#exchange summary").click()
        opened.tab.locator("#import-file").set_input_files(
            {"name": "x.csv", "mimeType": "text/csv", "buffer": b"file,class\nother.png,a\n"}
        )
        opened.tab.locator("#message", has_text="has no label for these pictures").wait_for()
        assert places(opened, controls) == before, "a message"


@pytest.mark.browser
def test_taking_out_pictures_does_not_move_the_grid(browser: Any, session: Session) -> None:
    _, server = session
    for viewport in (DESKTOP, PHONE):
        with Opened(browser, server.url, viewport=viewport) as opened:
            for name in ("one", LONG):
                opened.tab.get_by_label(f"Look through the pictures of {name},").click()
                before = places(opened, ("#view",))
                for number in (0, 1):
                    opened.tab.locator("#grid .cell:not(.said)").nth(number).click()
                assert opened.text("#taken-out") == "2 taken out"
                assert places(opened, ("#view",)) == before


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_the_large_picture_is_whole_and_its_size_is_known(
    browser: Any, session: Session, viewport: dict[str, int]
) -> None:
    _, server = session
    seen = set()
    with Opened(browser, server.url, viewport=viewport) as opened:
        for number in range(1, 7):
            choose(opened, number)
            row = int(opened.tab.locator("#picture").get_attribute("data-row"))
            width, height = SIZES[row % len(SIZES)]
            seen.add((width, height))
            assert opened.text("#chosen-size") == f"{width} × {height} pixels"
            press(opened, "z")
            opened.tab.locator("#large").wait_for()
            assert opened.text("#large-words").endswith(f"({width} × {height} pixels)")
            opened.until(lambda: opened.tab.locator("#large-picture").evaluate(LOADED))
            frame = opened.box("#large-frame")
            picture = opened.box("#large-picture")
            assert picture["y"] >= frame["y"]
            assert picture["y"] + picture["height"] <= frame["y"] + frame["height"]
            assert picture["x"] + picture["width"] <= frame["x"] + frame["width"]
            press(opened, "<Escape>")
    assert (30, 57) in seen


@pytest.mark.browser
def test_the_outline_of_every_step_of_the_tour_is_whole(browser: Any, session: Session) -> None:
    _, server = session
    with Opened(browser, server.url, viewport=DESKTOP) as opened:
        accent = (0x00, 0x72, 0xB2)
        opened.tab.locator("#start-tour").click()
        for _ in range(4):  # the card of the tour covers the panel of the fifth
            opened.next_frame()
            box = opened.box(".toured")
            clip = {name: round(value) for name, value in box.items()}
            shot = Image.open(io.BytesIO(opened.tab.screenshot(clip=clip))).convert("RGB")
            is_accent = (np.asarray(shot) == accent).all(2)
            # the largest part of a line near each edge; corners are round
            edges = {
                "top": is_accent[:4].mean(1).max(),
                "bottom": is_accent[-4:].mean(1).max(),
                "left": is_accent[:, :4].mean(0).max(),
                "right": is_accent[:, -4:].mean(0).max(),
            }
            assert min(edges.values()) > 0.7, edges
            press(opened, "<Enter>")


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900, 1120, 1280])
def test_cells_and_controls_above_the_grid_are_not_cut_in_two(
    browser: Any, session: Session, width: int
) -> None:
    _, server = session
    with Opened(browser, server.url, viewport={"width": width, "height": 844}) as opened:
        opened.tab.locator("#show-grid").click()
        for side in (12, 44, 62, 80):  # one of them fills the width
            opened.tab.locator("#size").fill(str(side))
            opened.next_frame()
            right = "all => Math.max(...all.map((one) => one.getBoundingClientRect().right))"
            cells = opened.tab.locator("#grid .cell").evaluate_all(right)
            inside = opened.box("#grid-all")
            assert cells <= inside["x"] + inside["width"]
        for control in ("size", "filter"):
            words = opened.box(f"label[for={control}]")
            slider = opened.box(f"#{control}")
            assert words["y"] < slider["y"] + slider["height"] / 2 < words["y"] + words["height"]


@pytest.mark.browser
def test_a_phone_has_the_classes_within_reach_of_the_grid(browser: Any, session: Session) -> None:
    shown, server = session
    with Opened(browser, server.url, viewport=PHONE, has_touch=True, is_mobile=True) as opened:
        bar = opened.tab.locator("#reach")
        assert bar.is_hidden(), "the panel with the classes is in sight"
        opened.tab.locator("#show-grid").tap()
        opened.tab.locator("#all-panel").evaluate("one => one.scrollIntoView()")
        opened.tab.locator("#grid .cell").nth(4).tap()
        bar.wait_for()
        box = opened.box("#reach")
        assert box["y"] + box["height"] <= PHONE["height"]
        assert opened.text("#reach-words").startswith(opened.text("#chosen")[:5])
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        opened.tab.get_by_role("button", name="one", exact=True).tap()
        until_said(opened, shown, 3)
        assert shown.session is not None
        assert shown.session.said[4] == "one"
        strip = opened.tab.locator("#like")
        strip.wait_for()
        both = opened.box("#like"), opened.box("#reach")
        assert both[0]["y"] + both[0]["height"] <= both[1]["y"] + 1, "above the classes"
        press(opened, "<Escape>")
        assert strip.is_hidden()
        press(opened, "<Escape>")
        assert bar.is_hidden(), "no picture is chosen"
        opened.tab.locator("#grid .cell").nth(5).tap()
        opened.tab.locator("#reach-name").tap()
        opened.tab.keyboard.type("two")
        press(opened, "<Enter>")
        until_said(opened, shown, 4)
        assert shown.session.said[5] == "two"
    with Opened(browser, server.url, viewport=DESKTOP) as opened:
        assert opened.tab.locator("#reach").is_hidden()


@pytest.mark.browser
def test_twelve_classes_leave_everything_for_a_label_in_sight(
    browser: Any, session: Session
) -> None:
    shown, server = session
    assert shown.session is not None
    shown.session.label({row: f"class {row}" for row in range(2, 14)})
    shown.behind_words = "3 of 4 · describing the pictures · about 120 min left"
    shown.revision += 1
    size = {"width": 1280, "height": 720}
    with Opened(browser, server.url, viewport=size) as opened:
        opened.next_frame()
        needed = ("#picture", "#class-name", "#give", "#not-sure", "#clear", "#completion")
        boxes = {one: opened.box(one) for one in (*needed, ".none-row .class")}
        for name, box in boxes.items():
            assert box["y"] >= 0, name
            assert box["y"] + box["height"] <= 720, name
        assert boxes["#picture"]["height"] <= 0.3 * 720
        behind, menu = opened.box("#behind"), opened.box("#undo")
        assert opened.text("#behind") == shown.behind_words
        assert behind["x"] + behind["width"] <= menu["x"], "the time that is left is seen whole"
        panel = opened.box("#classes-panel")
        none = boxes[".none-row .class"]
        assert none["y"] + none["height"] <= panel["y"] + panel["height"]
        seen = [
            box
            for one in opened.tab.locator(".class-row").all()
            if (box := one.bounding_box()) and box["y"] + box["height"] <= none["y"] + 1
        ]
        assert len(seen) >= 4, "the others scroll"
        assert opened.tab.locator("#classes").evaluate("one => one.scrollHeight > one.clientHeight")
    shown.session.undo()
