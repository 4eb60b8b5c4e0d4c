"""Pictures are dropped on the page, labelled, and the classifier is tried on new ones."""

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from pages.labelled import NAMES, press, until_said
from pages.opened import Opened
from whatwhere.html.server import PageServer
from whatwhere.labelling.drop import DropZone
from whatwhere.labelling.page import LabelPage
from whatwhere.spec.execution import TrainingOptions


def files(count: int) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Pictures as a browser uploads them, and their true classes."""
    images, labels = tiny.bars(count, seed=3)
    made = []
    for number, image in enumerate(images):
        file = io.BytesIO()
        Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save(file, "PNG")
        made.append(
            {"name": f"{number:02d}.png", "mimeType": "image/png", "buffer": file.getvalue()}
        )
    return made, labels


@pytest.mark.browser
def test_dropped_pictures_are_labelled_and_the_classifier_is_tried(
    browser: Any, tmp_path: Path
) -> None:
    run = tiny.make(tmp_path / "run")
    pictures, labels = files(30)

    def open_page(folder: Path) -> LabelPage:
        images = ww.data.load(folder)
        options = TrainingOptions(engine="reference", device="cpu")
        how = ww.Distortions(copies=2)
        return LabelPage(
            lambda _: ww.Labelling(images, run=run, invariant_to=how, options=options),
            images.name,
            tmp_path / "classifier.safetensors",
        )

    zone = DropZone(tmp_path / "dropped", open_page)
    with PageServer(zone.answer, act=zone.act) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Opened(browser, server.url) as opened:
            opened.tab.locator("#drop").wait_for()
            opened.tab.locator("#drop-files").set_input_files(pictures[:1])
            opened.tab.locator("#message", has_text="expected at least two").wait_for()
            opened.tab.locator("#drop-files").set_input_files(pictures)
            opened.tab.locator("#labelling").wait_for()
            opened.settle()
            assert opened.text("#source") == "dropped:"
            assert zone.page is not None
            for count in range(1, 13):
                row = int(opened.tab.locator("#picture").get_attribute("data-row"))
                press(opened, f"{NAMES[labels[row]]} <Enter>")
                until_said(opened, zone.page, count)
            press(opened, "<Control+s>")
            opened.tab.locator("#try-open").click()
            new, truth = files(33)
            opened.tab.locator("#try-files").set_input_files(new[30:])
            opened.tab.locator(".tried").nth(2).wait_for()
            found = opened.tab.locator(".tried b").all_inner_texts()[::-1]
            assert found == [NAMES[label] for label in truth[30:]]
            opened.tab.locator("#try-files").set_input_files(
                [{"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"}]
            )
            opened.tab.locator("#try-note:not(:empty)").wait_for()
            press(opened, "<Escape>")
            assert opened.tab.locator("#try").is_hidden()
        server.shutdown()
