"""`whatwhere explore`: the page as a file, by a run, a model file or the included model, and the
served page."""

import errno
import json
import os
import re
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
from raising import raises
from tiny_run import whatwhere
from whatwhere import models
from whatwhere.errors import UnusableRunFile
from whatwhere.explorer import command as explore
from whatwhere.files import DiskError
from whatwhere.html import server


def carried(path: Path) -> dict[str, Any]:
    page = path.read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    return data


def test_the_included_model_is_explored_without_a_run(tmp_path: Path) -> None:
    whatwhere(
        "explore",
        "--out",
        tmp_path / "new" / "page.html",
        "--examples",
        "3",
        "--set",
        "engine=reference",
        "--quiet",
    )
    data = carried(tmp_path / "new" / "page.html")
    assert data["name"] == "mnist"
    assert data["examples"]["count"] == 3
    assert [layer["maps"] for layer in data["model"]["layers"]] == [16, 48]


def test_a_hostile_file_name_stays_text(tmp_path: Path) -> None:
    """A model file and a folder of pictures whose names try to become markup."""
    hostile = tmp_path / "<script>alert(1)<"
    hostile.mkdir()
    model = hostile / '"><img src=x onerror=alert(1)>.safetensors'
    model.write_bytes(models.path("mnist").read_bytes())
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(hostile / "a.png")
    out = tmp_path / "page.html"
    whatwhere(
        "explore", model, "--images", hostile, "--out", out, "--set", "engine=reference", "--quiet"
    )
    page = out.read_text(encoding="utf-8")
    assert carried(out)["name"] == '"><img src=x onerror=alert(1)>'
    assert "<img" not in page
    assert page.count("<script") == 3


def test_a_damaged_model_raises_an_error_and_writes_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(models.path("mnist").read_bytes()[:1000] + b"</script>")
    with raises(UnusableRunFile, kind="model file"):
        whatwhere("explore", broken, "--out", tmp_path / "page.html", "--quiet")
    assert not (tmp_path / "page.html").exists()


def test_a_full_disk_is_an_error_that_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        # as the system reports it: without a name
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    options = (
        "--out",
        tmp_path / "page.html",
        "--examples",
        "1",
        "--set",
        "engine=reference",
        "--quiet",
    )
    with raises(DiskError, reason=os.strerror(errno.ENOSPC)):
        whatwhere("explore", *options)
    assert list(tmp_path.iterdir()) == []


class Page:
    """What is served of an explorer, with codes that say how often they were inferred."""

    parts, inferred = 2, 0

    def page(self, *, served: bool) -> str:
        return f"<p>served: {served}</p>"

    def codes(self, part: int) -> str:
        self.inferred += 1
        return f"codes of part {part}, {self.inferred}"


def test_the_page_and_the_codes_of_its_examples_are_served_until_it_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[bytes] = []

    def open_browser(url: str) -> None:
        def visit() -> None:
            for path in ("", "codes/1", "codes/0", "codes/1"):
                with urllib.request.urlopen(url + path, timeout=60) as answer:
                    seen.append(answer.read())
            served.shutdown()

        threading.Thread(target=visit).start()

    monkeypatch.setattr("webbrowser.open", open_browser)
    with server.PageServer(explore.answers(Page())) as served:  # type: ignore[arg-type]
        served.show()
    first = b"codes of part 1, 1"
    assert seen == [b"<p>served: True</p>", first, b"codes of part 0, 2", first]
    assert "http://127.0.0.1:" in capsys.readouterr().out


def test_the_page_is_served_at_the_port_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    monkeypatch.setattr(
        server.PageServer, "show", lambda served, **_: ports.append(served.server_port)
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        with raises(OSError, errno=errno.EADDRINUSE):
            whatwhere("explore", "--port", port, "--examples", "1")
    whatwhere("explore", "--port", port, "--examples", "1")
    assert ports == [port]


def test_a_run_is_explored_with_its_own_recipe(tmp_path: Path) -> None:
    from whatwhere.model import DeconvNet, save
    from whatwhere.spec.toml import to_toml

    run, recipe = tmp_path / "run", tiny.recipe()
    run.mkdir()
    save(DeconvNet(recipe.model), run / "model.safetensors")
    (run / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    np.save(tmp_path / "bars.npy", tiny.bars(6)[0])
    whatwhere(
        "explore",
        run,
        "--images",
        tmp_path / "bars.npy",
        "--out",
        tmp_path / "page.html",
        *("--set", "engine=reference"),
    )
    data = carried(tmp_path / "page.html")
    assert data["name"] == "run"
    assert data["settings"]["lambda"] == recipe.learning[-1].inference.lam
    assert (data["height"], data["width"]) == (10, 10)


def test_the_page_names_what_the_model_learned_from(tmp_path: Path) -> None:
    assert explore.learned_from(Path("mnist")) == "MNIST"
    assert explore.learned_from(tiny.make(tmp_path / "run")) == "", "an array has no name"
    file = tmp_path / "model.safetensors"
    file.write_bytes(models.path("mnist").read_bytes())
    assert explore.learned_from(file) == ""
