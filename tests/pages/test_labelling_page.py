"""The labelling page in Chromium: labels by mouse and keyboard, undo, reload, two tabs, a folder
that changes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from pages.opened import Opened
from whatwhere.pages.labelling import LabelPage, classes_page, page
from whatwhere.pages.server import PageServer
from whatwhere.spec.execution import TrainingOptions
from whatwhere.tasks.labelling.label_tables import read_labels

HOSTILE = "<img src=x onerror=alert(1)>"
COUNT = 40


class Served:
    """A session with its page, on a folder of pictures."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pictures, self.file = folder, folder / "pictures", folder / "labels.csv"
        self.pictures.mkdir()
        images, self.labels = tiny.bars(COUNT, seed=3)
        for i, image in enumerate(images):
            name = f"{i:02d}.png" if i else f"{HOSTILE.replace('/', '')}.png"
            Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save(self.pictures / name)
        (self.pictures / "notes.txt").write_text("no picture")
        (self.pictures / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
        self.run = tiny.make(folder / "run")

    def page(self) -> LabelPage:
        with pytest.warns(UserWarning, match=r"skipped .*notes\.txt \(no picture\)"):
            images = ww.data.load(self.pictures)

        def make(stage: Any) -> ww.Labelling:
            options = TrainingOptions(engine="reference", device="cpu")
            how = ww.Distortions(copies=2)
            return ww.Labelling(
                images,
                run=self.run,
                labels=self.file,
                invariant_to=how,
                options=options,
                stage=stage,
            )

        return LabelPage(make, images.name, self.folder / "classifier.safetensors")


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Served, LabelPage, PageServer]]:
    made = Served(tmp_path_factory.mktemp("label"))
    shown = made.page()
    with PageServer(shown.answer, act=shown.act) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        shown.thread.join()
        assert shown.session is not None, shown.waiting
        yield made, shown, server
        server.shutdown()
        thread.join()


@pytest.fixture
def tab(browser: Any, served: tuple[Served, LabelPage, PageServer]) -> Iterator[Opened]:
    """A tab on a session without labels."""
    _, shown, server = served
    while shown.session.before:
        shown.session.undo()
    shown.revision += 1
    with Opened(browser, server.url) as opened:
        yield opened


def until_said(opened: Opened, shown: LabelPage, count: int) -> None:
    opened.until(
        lambda: (
            len(shown.session.said) == count and opened.text("#counts").startswith(f"{count} of")
        )
    )
    assert len(shown.session.said) == count


def name_class(opened: Opened, name: str) -> None:
    opened.tab.locator("#class-name").fill(name)
    opened.tab.locator("#class-name").press("Enter")


@pytest.mark.browser
def test_labels_by_mouse_and_undo(
    tab: Opened, served: tuple[Served, LabelPage, PageServer]
) -> None:
    made, shown, _ = served
    assert tab.text("#counts").startswith(f"0 of {COUNT} pictures")
    first = int(tab.tab.locator("#tray .cell").first.get_attribute("data-row"))
    name_class(tab, "upright")
    until_said(tab, shown, 1)
    assert shown.session.said == {first: "upright"}
    assert read_labels(made.file) == {shown.session.names[first]: "upright"}
    tab.tab.locator("#tray .cell").nth(2).click()
    name_class(tab, "lying")
    until_said(tab, shown, 2)
    assert tab.tab.locator("#classes .class").count() == 3, "two, and none of these"
    tab.tab.locator("#show-grid").click()
    tab.tab.locator("#grid .cell").nth(3).click()
    tab.tab.locator("#grid .cell").nth(6).click(modifiers=["Shift"])
    tab.tab.locator("#classes .class").first.click()
    until_said(
        tab, shown, 6 if not {3, 4, 5, 6} & set(shown.session.said) else len(shown.session.said)
    )
    assert {shown.session.said[row] for row in (3, 4, 5, 6)} == {"upright"}
    tab.tab.locator("#undo").click()
    until_said(tab, shown, 2)
    assert len(read_labels(made.file)) == 2


@pytest.mark.browser
def test_labels_by_keyboard_alone(
    tab: Opened, served: tuple[Served, LabelPage, PageServer]
) -> None:
    _, shown, _ = served
    tab.tab.locator("#class-name").focus()
    tab.tab.keyboard.type("upright")
    tab.tab.keyboard.press("Enter")
    until_said(tab, shown, 1)
    tab.tab.locator("#tray .cell").first.focus()
    tab.tab.keyboard.press("ArrowRight")
    tab.tab.keyboard.press("Space")
    tab.tab.keyboard.press("0")
    until_said(tab, shown, 2)
    assert sorted(shown.session.said.values()) == ["none of these", "upright"]
    tab.tab.locator("#map").focus()
    tab.tab.keyboard.press("ArrowRight")
    tab.tab.keyboard.press("n")
    tab.until(lambda: len(shown.session.said) == 3)
    assert "not sure" in shown.session.said.values()
    tab.tab.keyboard.press("u")
    until_said(tab, shown, 2)
    tab.tab.keyboard.press("1")
    until_said(tab, shown, 3)
    assert list(shown.session.said.values()).count("upright") == 2
    unnamed = tab.tab.locator("button, input, select, canvas, img").evaluate_all(
        "all => all.filter(one => !one.closest('[hidden], [aria-hidden=true]') &&"
        " !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length ||"
        " one.getAttribute('alt'))).map(one => one.outerHTML)"
    )
    assert unnamed == [], "everything has words for a screen reader"


@pytest.mark.browser
def test_a_lasso_chooses_many(tab: Opened, served: tuple[Served, LabelPage, PageServer]) -> None:
    _, shown, _ = served
    box = tab.box("#map")
    left, top, right, bottom = (
        box["x"] + 1,
        box["y"] + 1,
        box["x"] + box["width"] - 1,
        box["y"] + box["height"] - 1,
    )
    tab.tab.mouse.move(left, top)
    tab.tab.mouse.down()
    for place in ((right, top), (right, bottom), (left, bottom)):
        tab.tab.mouse.move(*place, steps=3)
    tab.tab.mouse.up()
    assert tab.text("#chosen").startswith(f"{COUNT} pictures")
    name_class(tab, "all")
    until_said(tab, shown, COUNT)


@pytest.mark.browser
def test_reload_two_tabs_and_why(
    tab: Opened, browser: Any, served: tuple[Served, LabelPage, PageServer]
) -> None:
    made, shown, server = served
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
    tab.tab.locator("#tray .cell").nth(1).click()
    tab.tab.locator("#why").click()
    tab.tab.locator("#reasons .reason").first.wait_for()
    assert HOSTILE in tab.text("#reasons")
    tab.tab.locator("#save").click()
    tab.until(lambda: tab.text("#message").startswith("Saved"))
    assert ww.load_classifier(made.folder / "classifier.safetensors").classes == (HOSTILE,)


@pytest.mark.browser
def test_a_folder_that_changes_meanwhile(
    tab: Opened, served: tuple[Served, LabelPage, PageServer]
) -> None:
    made, shown, _ = served
    row = shown.session.suggested_rows(1)[0]
    file, content = (path := made.pictures / shown.session.names[row]), path.read_bytes()
    file.unlink()
    (made.pictures / "new.png").write_bytes(content)
    try:
        name_class(tab, "upright")
        until_said(tab, shown, 1)
        assert shown.session.said == {row: "upright"}
        assert b"failed" in shown.answer(f"picture/{row}").body, (
            "said in words, and the page goes on"
        )
        name_class(tab, "lying")
        until_said(tab, shown, 2)
    finally:
        file.write_bytes(content)
        (made.pictures / "new.png").unlink()
    tab.errors.clear()


def test_what_other_pages_or_damaged_requests_send_changes_nothing(
    served: tuple[Served, LabelPage, PageServer],
) -> None:
    _, shown, _ = served
    before = dict(shown.session.said)
    for sent in (None, [], 3, "x"):
        assert shown.act("label", sent) is None
    for rows, name in ((None, "a"), ([10**9], "a"), (["x"], "a"), ([0], 3), ([0], " ")):
        sent = {"rows": rows, "name": name}
        assert b"failed" in shown.act("label", sent).body
    assert shown.act("other", {}) is None
    assert shown.session.said == before
    for path in ("sheet/99", "picture/99", "why/x", "picture/-1", "../labels.csv", "picture/"):
        assert shown.answer(path) is None


def test_the_page_may_ask_its_own_server_alone() -> None:
    text = page(HOSTILE)
    assert "connect-src 'self'" in text
    assert "default-src 'none'" in text
    assert HOSTILE not in text
    assert text.count("<script") == 2


def test_the_command_serves_the_page_until_it_is_ended(
    served: tuple[Served, LabelPage, PageServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, _ = served

    def end(self: PageServer) -> None:
        raise KeyboardInterrupt

    opened: list[str] = []
    monkeypatch.setattr(PageServer, "serve_forever", end)
    monkeypatch.setattr("webbrowser.open", opened.append)
    with pytest.warns(UserWarning, match="skipped"):
        output = tiny.whatwhere(
            "label",
            made.pictures,
            made.run,
            "--out",
            tmp_path / "labels.csv",
            "--set",
            "engine=reference",
        )
    assert opened[0] in output
    for thread in threading.enumerate():
        if thread.name == "labelling":
            thread.join()


def test_names_with_html_in_them_are_text_on_the_page_of_classes() -> None:
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    session.label({0: "<b>cat", 3: "dog"})
    written = classes_page(session, ww.data.load(np.zeros((12, 8, 8), np.uint8)))
    assert "<b>" not in written
    # worth labelling next, and all classes
    assert written.count("<figcaption>") == written.count("<img ") == 10 + 12
    assert "&lt;b&gt;cat, 100%" in written
