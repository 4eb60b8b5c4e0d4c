"""The page that removes noise in a browser: against the denoiser in Python, and without a request
to any other place."""

import io
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser_page import RUNTIME, make_page
from PIL import Image
from torch import Tensor

from pages.opened import needs_node, run_node
from pictures_to_restore import discs
from whatwhere.restoration import estimate_noise, load_denoiser
from whatwhere.restoration.denoiser import _value_range
from whatwhere.restoration.planes import PLANE_NOISE, from_opponent, to_opponent

PAGE = Path(__file__).parents[2] / "docs" / "browser"
QUALITY = 8


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *words: Any) -> None:
        """Leave out the line."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runtime = Path(os.environ.get("ONNXRUNTIME_WEB", RUNTIME))
    if not (runtime / "dist").is_dir():
        pytest.skip("needs onnxruntime-web (npm install --prefix docs/browser)")
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("page")
    make_page(folder, runtime, QUALITY)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def noisy_picture(colour: bool) -> np.ndarray:
    shape = (44, 61, 3) if colour else (44, 61)
    truth = discs(44, 61, 3).numpy()
    random = np.random.default_rng(0)
    truth = np.stack([truth, 0.5 * truth, 1 - truth], 2) if colour else truth
    values = 60 + 120 * truth + 20 * random.normal(size=shape)
    return np.rint(values).clip(0, 255).astype(np.uint8)


def expected(pixels: np.ndarray, sigma: float) -> Tensor:
    """What the denoiser makes of each plane, whose range is that of the picture; [C, H, W]."""
    image = torch.from_numpy(pixels).float() / 255
    colour = image.ndim == 3
    planes = to_opponent(image.permute(2, 0, 1)) if colour else image[None]
    clean = []
    for plane, factor in zip(planes, PLANE_NOISE if colour else [1.0], strict=True):
        level = factor * sigma
        black, white = _value_range(plane, level)
        unit = (plane - black) / (white - black)
        unit = load_denoiser().denoise(unit, level / (white - black), shifts=QUALITY)
        clean.append(black + (white - black) * unit)
    return from_opponent(torch.stack(clean)) if colour else torch.stack(clean)


@pytest.mark.parametrize("colour", [False, True])
def test_a_dropped_picture_is_denoised_as_in_python(
    browser: Any, address: str, tmp_path: Path, colour: bool
) -> None:
    pixels = noisy_picture(colour)
    Image.fromarray(pixels).save(tmp_path / "cells.png")
    context = browser.new_context(accept_downloads=True)
    page = context.new_page()
    requests: list[tuple[str, str]] = []
    page.on("request", lambda request: requests.append((request.method, request.url)))
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(address + "denoise.html")
    page.set_input_files("#file", tmp_path / "cells.png")
    page.wait_for_selector("#save:not([hidden])", timeout=60_000)
    level = page.eval_on_selector("#level", "element => element.textContent")
    # the level that was estimated is close to that of Python; its slider has steps of a half
    image = torch.from_numpy(pixels).double()
    sigma = estimate_noise(image.permute(2, 0, 1) if colour else image[None]).sigma
    assert float(level.split()[2]) == pytest.approx(sigma, rel=0.15)
    page.eval_on_selector(
        "#sigma", "slider => { slider.value = 20; slider.dispatchEvent(new Event('change')); }"
    )
    page.wait_for_selector("#save[hidden]", state="attached")
    page.wait_for_selector("#save:not([hidden])", timeout=60_000)
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "cells-clean.png"
    result = np.asarray(Image.open(io.BytesIO(Path(download.value.path()).read_bytes())))[..., :3]
    truth = expected(pixels, 20 / 255).clamp(0, 1).expand(3, -1, -1).permute(1, 2, 0).numpy()
    # half a step of 1/255 for bytes, and 1e-3
    assert np.abs(result / 255 - truth).max() < 0.5 / 255 + 1e-3
    assert {method for method, _ in requests} == {"GET"}
    assert all(url.startswith((address, "blob:")) for _, url in requests)
    assert not problems
    context.close()


def test_a_file_that_is_no_picture_is_named(browser: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    page = browser.new_page()
    page.goto(address + "denoise.html")
    page.set_input_files("#file", tmp_path / "notes.txt")
    page.wait_for_function("document.getElementById('status').textContent.includes('notes.txt')")
    page.close()


@needs_node
def test_the_page_transforms_and_estimates_as_python_does(tmp_path: Path) -> None:
    image = torch.rand(3, 40, 50, generator=torch.Generator().manual_seed(0))
    (tmp_path / "image.json").write_text(str([plane.flatten().tolist() for plane in image]))
    script = tmp_path / "run.mjs"
    script.write_text(
        f"import * as page from {str((PAGE / 'denoise.mjs').as_uri())!r};\n"
        "import { readFileSync } from 'node:fs';\n"
        "const planes = JSON.parse(readFileSync(process.argv[2]));\n"
        "const image = planes.map((plane) => Float32Array.from(plane));\n"
        "const opponent = page.toOpponent(image);\n"
        "const [a, b] = page.valueRange(image[0], 50, 40, 0.01);\n"
        "console.log(JSON.stringify({ opponent: opponent.map((p) => [...p]),\n"
        "  back: page.fromOpponent(opponent).map((p) => [...p]), range: [a, b],\n"
        "  sigma: page.estimateSigma(image[1].map((v) => v - 0.5), 50, 40) }));\n"
    )
    seen = run_node(script, tmp_path / "image.json")
    assert torch.tensor(seen["opponent"]).view(3, 40, 50) == pytest.approx(
        to_opponent(image), abs=1e-6
    )
    assert torch.tensor(seen["back"]).view(3, 40, 50) == pytest.approx(image, abs=1e-5)
    assert seen["range"] == pytest.approx(_value_range(image[0], 0.01), abs=1e-6)
    # uniform noise of 1 has a standard deviation of 1 / √12
    assert seen["sigma"] == pytest.approx(12**-0.5, rel=0.15)


def test_a_missing_runtime_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="npm install"):
        make_page(tmp_path / "page", tmp_path)
