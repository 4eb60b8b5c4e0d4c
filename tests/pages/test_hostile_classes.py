"""Names of classes that try to become markup, to turn the line around or to break the layout: the
labelling page shows each as text, keeps it in the file, and reads it back."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages.labelled import GivenRows, serving, until_said
from pages.opened import Opened
from whatwhere.data import Images
from whatwhere.labelling.label_tables import read_labels
from whatwhere.labelling.page import LabelPage

NAMES = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    """" ' & &amp; %s {{ 7 * 7 }} ${window.hacked=1}""",
    "שלום עולם",
    "🦆👩‍🚀 é é",
    "=cmd|' /C calc'!A0",
    "w" * 200,
)


@pytest.mark.browser
def test_hostile_names_of_classes_stay_text(browser: Any, tmp_path: Path) -> None:
    count = len(NAMES) + 3
    pictures = np.random.default_rng(0).random((count, 1, 8, 8)).astype(np.float32)
    file = tmp_path / "labels.csv"

    def make(stage: object) -> GivenRows:
        rows = np.eye(count, dtype=np.float32)
        return GivenRows(Images(pictures, None, "ten"), rows, labels=file)

    shown = LabelPage(make, "ten", tmp_path / "classifier.safetensors")
    with serving(shown) as server, Opened(browser, server.url) as opened:
        for number, name in enumerate(NAMES, start=1):
            opened.tab.locator("#class-name").fill(name)
            opened.tab.locator("#class-name").press("Enter")
            until_said(opened, shown, number)
        said = set(shown.session.said.values())
        assert said == set(NAMES)
        shows = opened.tab.locator(".class-row").all_text_contents()
        for name in NAMES:
            assert any(name in row for row in shows), f"{name[:40]} is not on the page"
        # typed: the field takes no more than a table holds
        opened.tab.locator("#class-name").focus()
        opened.tab.keyboard.insert_text("x" * 300)
        opened.tab.locator("#class-name").press("Enter")
        until_said(opened, shown, len(NAMES) + 1)
        opened.reopen()
        width = opened.tab.evaluate("document.documentElement.scrollWidth")
        assert width <= 1280, "a long name does not widen the page"
        assert opened.tab.evaluate("window.hacked") is None
        known = {*NAMES, "x" * 200}
        assert set(read_labels(file).values()) == known
        table = csv.reader(io.StringIO(file.read_text(encoding="utf-8")))
        assert {row[1] for row in table} >= known
        opened.check()
