"""The labelling page under kill -9: a label that was answered is in the file, whenever the process
ends."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import tiny_training
from pages.labelled import GivenRows
from whatwhere.data import Images
from whatwhere.html.server import PageServer
from whatwhere.labelling.label_tables import read_labels
from whatwhere.labelling.page import LabelPage

COUNT = 12


def serve(folder: Path, address: Path) -> None:
    """Serve the page of a session whose labels are in a file of the folder."""
    chance = np.random.default_rng(0)
    images = Images(chance.random((COUNT, 1, 8, 8)).astype(np.float32), None, "twelve")

    def make(stage: object) -> GivenRows:
        rows = np.eye(COUNT, dtype=np.float32)
        return GivenRows(images, rows, labels=folder / "labels.csv")

    shown = LabelPage(make, "twelve", folder / "classifier.safetensors")
    shown.thread.join()
    with PageServer(shown.answer, act=shown.act) as server:
        address.with_suffix(".new").write_text(server.url)
        address.with_suffix(".new").rename(address)
        server.serve_forever(poll_interval=0.02)


def say(url: str, row: int, name: str) -> dict[str, object]:
    """Send a label as the page does; the answer."""
    origin = "/".join(url.split("/")[:3])
    request = urllib.request.Request(
        f"{url.rstrip('/')}/label",
        data=json.dumps({"rows": [row], "name": name}).encode(),
        headers={"Content-Type": "application/json", "Origin": origin},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal on this system")
def test_every_label_that_was_answered_survives_kill_9(tmp_path: Path) -> None:
    said: dict[str, str] = {}
    for session in range(3):
        address = tmp_path / f"address{session}"
        process = tiny_training.process(serve, tmp_path, address)
        while not address.exists():
            assert process.is_alive(), "the page could not be served"
            process.join(0.02)
        for row in range(4 * session, 4 * session + 4):
            answer = say(address.read_text(), row, f"class {row % 2}")
            assert "failed" not in answer
            said[str(row)] = f"class {row % 2}"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert read_labels(tmp_path / "labels.csv") == said
