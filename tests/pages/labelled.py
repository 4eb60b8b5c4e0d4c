"""A labelling session with its page and a server, on a folder of pictures that tests share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from pages.opened import Opened
from whatwhere.data.pictures import SkippedFiles
from whatwhere.html.server import PageServer
from whatwhere.labelling.page import LabelPage
from whatwhere.spec.execution import TrainingOptions

HOSTILE = "<img src=x onerror=alert(1)>"
COUNT = 40
NAMES = ("upright", "lying", "cross")
LARGER = 9  # how much larger the files are than what the model sees


class Served:
    """A folder of pictures, and sessions on it."""

    def __init__(self, folder: Path, count: int = COUNT) -> None:
        self.folder = folder
        self.pictures = folder / "pictures"
        self.file = folder / "labels.csv"
        self.classifier = folder / "classifier.safetensors"
        self.pictures.mkdir(parents=True)
        images, self.labels = tiny.bars(count, seed=3)
        for i, image in enumerate(images):
            name = f"{i:02d}.png" if i else f"{HOSTILE.replace('/', '')}.png"
            shades = (255 * image.clip(0, 1)).astype(np.uint8)
            Image.fromarray(shades).save(self.pictures / name)
        (self.pictures / "notes.txt").write_text("no picture")
        (self.pictures / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
        self.run = tiny.make(folder / "run")

    def page(self) -> LabelPage:
        """The page of a new session."""
        with pytest.warns(SkippedFiles):
            images = ww.data.load(self.pictures)

        def make(stage: Any) -> ww.Labelling:
            return ww.Labelling(
                images,
                run=self.run,
                labels=self.file,
                invariant_to=ww.Distortions(copies=2),
                options=TrainingOptions(engine="reference", device="cpu"),
                stage=stage,
            )

        return LabelPage(make, images.name, self.classifier)

    def truth(self, row: int) -> str:
        """The right name of a picture."""
        return NAMES[self.labels[row]]


class GivenRows(ww.Labelling):
    """A session of pictures whose descriptors are given."""

    def __init__(
        self, images: ww.data.Images, rows: np.ndarray, labels: Path | None = None
    ) -> None:
        super().__init__(rows, labels=labels)
        self.images = images


@contextmanager
def serving(shown: LabelPage) -> Iterator[PageServer]:
    """A server of a page whose session is ready."""
    with PageServer(shown.answer, act=shown.act) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        shown.thread.join()
        assert shown.session is not None, shown.waiting
        yield server
        server.shutdown()
        thread.join()


def until_said(opened: Opened, shown: LabelPage, count: int) -> None:
    """Wait until so many pictures have a label, on the server and on the page."""
    opened.until(
        lambda: (
            shown.session is not None
            and len(shown.session.said) == count
            and opened.text("#counts").startswith(f"{count} of")
        )
    )
    assert shown.session is not None
    assert len(shown.session.said) == count
    opened.settle()


def take_all_back(shown: LabelPage) -> None:
    """Take all labels of a page back, and wait until everything follows."""
    assert shown.session is not None
    while shown.session.labels.history:
        shown.act("undo", {})
    with shown.lock:
        shown.follower.settle()


def settle_letters(opened: Opened) -> None:
    """Wait until a letter has turned out to be alone, a shortcut, and what it does is done."""
    opened.tab.locator("body:not([data-letter-waits])").wait_for()
    opened.settle()


def press(opened: Opened, keys: str) -> None:
    """Press keys as they are written in the list of a walk: words are typed, names of keys
    pressed."""
    for word in keys.split():
        if word.startswith("<"):
            opened.tab.keyboard.press(word.strip("<>"))
        else:
            opened.tab.keyboard.type(word)
