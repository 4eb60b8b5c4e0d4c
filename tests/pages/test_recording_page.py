"""The page of a recording in Chromium: go to events, accept and reject them, save the table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww
from pages.opened import Opened
from raising import raises
from tiny_run import whatwhere
from whatwhere.model.events import Events
from whatwhere.signals.page import (
    PageSettings,
    RecordingTooLong,
    SeveralSignals,
    recording_page,
)

pytestmark = pytest.mark.browser
TIMES = [100.0, 240.0, 250.25, 400.0]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four events without noise; the second and the third overlap."""
    model, signals, events = recorded()
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(recording_page(model, signals, events))
    return file


def recorded() -> tuple[ww.DeconvNet, ww.data.Signals, Events]:
    wave = np.hanning(33)
    wave /= np.linalg.norm(wave)
    x = np.zeros(600)
    for at in TIMES:
        x += 3 * np.interp(np.arange(600), np.arange(33) - 16 + at, wave, 0, 0)
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=1, length=33))
    model = model.with_filters(1, torch.tensor(wave)[None, None, None].to(model.filters[0]))
    rows = [
        (0, 1, 0, at, at / 100, 3.0, 1, 0, 1.0, 200 < at < 300, 0.0, -1, at, at / 100)
        for at in TIMES
    ]
    signals = ww.data.load(x[None, None].astype(np.float32), signals=True, rate=100)
    assert isinstance(signals, ww.data.Signals)
    return model, signals, Events.of(rows)


def residual(opened: Opened) -> float:
    """The darkest row of grey pixels is flat where the events explain everything: the number of
    pixels of the residual's colour on the canvas."""
    return float(
        opened.tab.locator("#plot").evaluate(
            """canvas => {
                const {width, height} = canvas;
                const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
                let low = height, high = 0;
                for (let i = 0; i < pixels.length; i += 4) {
                    if ([0, 1, 2].some(k => pixels[i + k] !== 0x8c)) continue;
                    const y = Math.floor(i / 4 / width);
                    low = Math.min(low, y); high = Math.max(high, y);
                }
                return high - low;
            }"""
        )
    )


def test_events_are_rejected_by_key_and_the_table_is_saved(browser: Any, page: Path) -> None:
    with Opened(browser, page.as_uri(), viewport={"width": 900, "height": 600}) as opened:
        keys = opened.tab.keyboard
        status = opened.tab.locator("#chosen")
        flat = residual(opened)
        assert flat < 4, "the events explain the recording"
        keys.press("d")
        assert "Event 2" in status.inner_text()
        keys.press("d")
        assert "Event 3" in status.inner_text()
        keys.press("r")
        keys.press("0")
        assert "3 of 4" in status.inner_text()
        assert residual(opened) > 30, "what the rejected event explained is left"
        keys.press("u")
        assert residual(opened) == flat
        keys.press("n")
        keys.press("r")
        with opened.tab.expect_download() as download:
            opened.tab.locator("#save").click()
        lines = Path(download.value.path()).read_text().splitlines()
        names = lines[0].split(",")
        samples = [float(line.split(",")[names.index("sample")]) for line in lines[1:]]
        assert samples == TIMES[:3]


def test_the_wheel_zooms_and_a_click_chooses(browser: Any, page: Path) -> None:
    with Opened(browser, page.as_uri(), viewport={"width": 900, "height": 600}) as opened:
        plot = opened.tab.locator("#plot").bounding_box()
        width = plot["width"] - 66
        opened.tab.mouse.click(plot["x"] + 56 + width * TIMES[3] / 600, plot["y"] + 30)
        assert "Event 4 at 4.00 s" in opened.tab.locator("#chosen").inner_text()
        before = opened.tab.locator("#plot").screenshot()
        opened.tab.mouse.wheel(0, -300)
        assert opened.tab.locator("#plot").screenshot() != before


def test_a_recording_that_is_too_long_for_a_page() -> None:
    model, signals, events = recorded()
    with pytest.raises(RecordingTooLong) as raised:
        recording_page(model, signals, events, PageSettings(most=500))
    assert (raised.value.values, raised.value.most) == (600, 500)


def test_several_signals_have_no_page(tmp_path: Path) -> None:
    """A page shows one, and would save the events of one. The command says so before the work."""
    np.save(tmp_path / "three.npy", np.zeros((3, 1, 300), np.float32))
    ww.save(ww.DeconvNet(ww.ModelSpec.signals(2, 16)), tmp_path / "model.safetensors")
    words = ("--rate", 1000, "--out", tmp_path / "e.csv", "--page", tmp_path / "e.html")
    with raises(SeveralSignals, count=3):
        whatwhere("events", tmp_path / "three.npy", tmp_path / "model.safetensors", *words)
    assert not (tmp_path / "e.csv").exists()
