"""`whatwhere explore`: the page as a file, by a run, a model file or the included model, and the
served page."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import tiny_run as tiny
from tiny_run import whatwhere
from whatwhere import models
from whatwhere.app import app, explore
from whatwhere.errors import RunError, SpecError
from whatwhere.html import server
from whatwhere.labelling.session import Labelling
from whatwhere.learning import TrainingOptions, train


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
    whatwhere("explore", model, hostile, "--out", out, "--set", "engine=reference", "--quiet")
    page = out.read_text(encoding="utf-8")
    assert carried(out)["name"] == '"><img src=x onerror=alert(1)>'
    assert "<img" not in page
    assert page.count("<script") == 3


def test_a_damaged_model_raises_an_error_and_writes_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(models.path("mnist").read_bytes()[:1000] + b"</script>")
    with pytest.raises(RunError, match="not a usable model file"):
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
    with pytest.raises(RunError, match=r"page\.html failed: No space left on device"):
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
        with pytest.raises(OSError, match="in use"):
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
        tmp_path / "bars.npy",
        "--out",
        tmp_path / "page.html",
        *("--set", "engine=reference"),
    )
    data = carried(tmp_path / "page.html")
    assert data["name"] == "run"
    assert data["settings"]["lambda"] == recipe.learning[-1].inference.lam
    assert (data["height"], data["width"]) == (10, 10)


def test_label_scales_pictures_to_the_given_size_and_then_as_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, size in (("a", (12, 30)), ("b", (40, 50)), ("c", (20, 20))):
        Image.effect_noise(size, 80).save(folder / f"{name}.png")
    out = tmp_path / "labels.csv"
    with pytest.warns(UserWarning, match="like the smallest") as caught:
        assert explore.read_to_label(str(folder), None, out, None).shape == (1, 12, 12)
    assert str(caught[0].message).endswith(
        "12 pixels are few, which costs accuracy. Stop (Ctrl-C) and run again with --size 64 and"
        " another --out, or leave out the smallest picture."
    )
    squares = explore.read_to_label(str(folder), None, out, 16)
    assert squares.shape == (1, 16, 16)

    on_cpu = TrainingOptions(engine="reference", device="cpu")
    train(squares, tiny.recipe(), tmp_path / "labels.run", options=on_cpu)
    with pytest.warns(UserWarning, match="16 pixels, like the pictures that the run learned from"):
        assert explore.read_to_label(str(folder), None, out, None).shape == (1, 16, 16)
    with pytest.warns(UserWarning, match="like the pictures that the run learned from"):
        session = Labelling(folder, labels=out, options=on_cpu)
    assert session.images is not None
    assert session.images.shape == (1, 16, 16)

    with pytest.raises(SpecError, match=r"learned from squares of 16 pixels\. For --size 20"):
        whatwhere("label", folder, "--size", "20", "--out", out)
    with pytest.raises(SpecError, match="--size scales pictures"):
        explore.read_to_label("digits", None, tmp_path / "others.csv", 16)


@pytest.mark.parametrize("others", [0, 2])
def test_an_export_counts_the_imported_labels_and_estimates_the_error(
    others: int, tmp_path: Path
) -> None:
    run = tiny.make(tmp_path / "run")
    folder = tmp_path / "pictures"
    folder.mkdir()
    images, labels = tiny.bars(40, seed=3)
    for number, image in enumerate(images):
        Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save(folder / f"{number}.png")
    lines = [f"{number}.png,kind {labels[number]}" for number in range(8)]
    lines += [f"{number}.png,kind 0" for number in range(100, 100 + others)]
    few = tmp_path / "few.csv"
    few.write_text("\n".join(["file,class", *lines]))
    arguments = ["label", folder, run, "--labels-from", few, "--out", tmp_path / "labels.csv"]
    arguments += ["--export", tmp_path / "classes.csv", "--set", "engine=reference"]
    arguments += ["--set", "device=cpu", "--set", "copies=2"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    counted = [str(one.message) for one in caught if "Imported" in str(one.message)]
    if others:
        assert counted == ["Imported 8 of 10 labels; no picture is called '100.png' or '101.png'."]
        assert "Imported" not in result.stderr
    else:
        assert counted == []
        assert "Imported 8 labels." in result.stderr.splitlines()
    assert "classes.csv: the classes of 40 pictures" in result.stdout
    assert re.search(r"^About \d+\.\d % of the predicted classes are wrong", result.stdout, re.M)


def test_a_missing_folder_to_label_is_an_error_before_scikit_learn_is_imported() -> None:
    code = (
        "import sys; from whatwhere.app import main\n"
        "try: main()\n"
        "except SystemExit: print('sklearn' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "label", "no-such-folder"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Cannot find no-such-folder" in done.stderr
    assert done.stdout.strip() == "False"
