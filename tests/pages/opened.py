"""The page in a browser, with everything that must not happen recorded: errors, requests to any
host; and in Node."""

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere.html import ASSETS

STEPS = 10  # of inference, so that tests need not wait
PATIENCE = 60  # seconds to wait for what a page does, however busy the machine is
# The explorer waits a moment before it writes the address and draws what is less urgent.
FAST_TIMERS = """
    const setTimer = window.setTimeout;
    window.setTimeout = (action, delay, ...rest) => setTimer(action, delay / 5, ...rest);
"""
# Reports of a worker wait while `reportsToPass` is 0, so that a test sees the middle of inference.
HELD_REPORTS = """
    const waiting = [];
    let toPass = Infinity;
    const passReports = () => {
        for (; toPass > 0 && waiting.length; toPass -= 1) waiting.shift()();
    };
    Object.defineProperty(window, "reportsToPass", {
        set: (count) => { toPass = count; passReports(); },
    });
    window.Worker = class extends window.Worker {
        set onmessage(receive) {
            super.onmessage = (event) => { waiting.push(() => receive(event)); passReports(); };
        }
    };
"""
# Text is a hundred times faster to hand over than a list of numbers.
CANVAS_BYTES = """canvas => {
    const {width, height} = canvas;
    const bytes = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192)
        text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return [width, height, btoa(text)];
}"""


class Opened:
    """One tab with the page. Nothing is evaluated as a string in the page, which its policy
    forbids. A report has no script, so there is nothing to wait for."""

    def __init__(
        self,
        browser: Any,
        url: str,
        fragment: str = "",
        *,
        report: bool = False,
        fast_timers: bool = False,
        held_reports: bool = False,
        **context: Any,
    ) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 720}, **context}
        )
        if fast_timers:
            self.context.add_init_script(FAST_TIMERS)
        if held_reports:
            self.context.add_init_script(HELD_REPORTS)
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(1000 * PATIENCE)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.tab.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.url, self.followed = url, 0
        self.address_opened = f"{url}#{fragment or f'steps={STEPS}'}"
        self.tab.goto(self.address_opened)
        if not report:
            self.settle()

    def reopen(self) -> None:
        """Open the page again: nothing is left of what was done in the tab."""
        self.tab.goto("about:blank")
        self.tab.goto(self.address_opened)
        self.settle()

    def follow(self, fragment: str = "") -> None:
        """Follow a link inside the page: everything is inferred again, and what was changed is
        forgotten."""
        self.followed += 1  # another address each time, which the page follows
        self.settle()
        self.tab.evaluate(
            "hash => { document.body.setAttribute('aria-busy', 'true'); location.hash = hash; }",
            f"steps={STEPS}&{fragment}&followed={self.followed}",
        )
        self.settle()

    def settle(self) -> None:
        """Wait until inference has ended, and the pictures and the address show its end."""
        self.tab.locator("body[aria-busy=false]").wait_for()

    def next_frame(self) -> None:
        """Wait until the page has drawn what changed just now."""
        self.settle()
        self.tab.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the page does in the background; what comes of it is for the test
        to hold."""
        end = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < end:
            self.tab.wait_for_timeout(50)

    def number(self, selector: str) -> float:
        return float(self.text(selector))

    def text(self, selector: str) -> str:
        """What an element says once the page has settled: the next frame draws what a click
        changes, not the click."""
        self.settle()
        return str(self.tab.locator(selector).inner_text())

    def pixels(self, selector: str) -> np.ndarray:
        """A canvas as it is drawn once the page has settled: [height, width, 4]."""
        self.settle()
        width, height, text = self.tab.locator(selector).evaluate(CANVAS_BYTES)
        values = np.frombuffer(base64.b64decode(text), np.uint8)
        return values.reshape(height, width, 4).astype(int)

    def address(self) -> dict[str, str]:
        """The state in the address, once it has been written."""
        self.settle()
        fragment = self.tab.evaluate("location.hash").lstrip("#")
        return dict(part.split("=", 1) for part in fragment.split("&") if "=" in part)

    def box(self, selector: str) -> dict[str, float]:
        found: dict[str, float] = self.tab.locator(selector).bounding_box()
        return found

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 8) -> None:
        self.tab.mouse.move(*start)
        self.tab.mouse.down()
        self.tab.mouse.move(*end, steps=steps)
        self.tab.mouse.up()

    def check(self) -> None:
        """Hold that nothing went wrong, and nothing was asked of any host but the page's own
        server."""
        errors, requests = self.errors[:], self.requests[:]
        self.errors.clear()
        self.requests.clear()
        assert errors == []
        assert [
            url
            for url in requests
            if not re.match(r"(file|blob|data):", url) and not url.startswith(self.url)
        ] == []

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.context.close()
        if kind is None:
            self.check()


PAGE = ASSETS
PAGE_MJS = Path(__file__).with_name("page.mjs")  # runs parts of the page in Node
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="needs Node, which is not installed"
)


def run_node(script: Path, *arguments: object) -> Any:
    """What a script prints, read as JSON."""
    command = ["node", str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
