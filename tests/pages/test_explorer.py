"""The page as one file: what it carries, how large it is, and that nothing in it can become
script."""

import base64
import gzip
import html.parser
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import html5lib
import numpy as np
import pytest
import torch

from pages.conftest import CODE_STEPS, HOSTILE, hostile_digits
from raising import Containing, raises
from whatwhere import models
from whatwhere.data import load
from whatwhere.errors import InvalidImages, InvalidSetting
from whatwhere.explorer.page import Explorer, choose_examples, pack_codes, pack_examples
from whatwhere.explorer.settings import ExplorerSettings
from whatwhere.html import ASSETS, bundle
from whatwhere.html.server import Content, PageServer
from whatwhere.model import DeconvNet
from whatwhere.model import load as load_model
from whatwhere.spec import LayerSpec, ModelSpec, Recipe


def carried(page: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    return data


class Scripts(html.parser.HTMLParser):
    """What an HTML parser takes for elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


def test_a_label_cannot_put_script_into_the_page(page: str) -> None:
    data = carried(page)
    assert data["name"] == HOSTILE
    assert data["examples"]["classes"][3] == f"{HOSTILE}3"
    assert HOSTILE not in page
    assert Scripts(page).tags.count("script") == 3
    assert "img" not in Scripts(page).tags


def test_the_page_is_well_formed_and_loads_nothing(page: str) -> None:
    parser = html5lib.HTMLParser(strict=False)
    parser.parse(page)
    assert [error for _, error, _ in parser.errors] == []
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_paper_model_with_2000_examples_takes_at_most_3_mb(page: str) -> None:
    """Measured without inference: a page's code and images as they are, codes of 60 features an
    image, random ones."""
    images = load("digits", split="test")
    packed = carried(page)["examples"]
    chance = np.random.default_rng(0)
    codes = base64.b64encode(gzip.compress(chance.bytes(2000 * (8 + 60 * 3)), 9))
    pixels = base64.b64encode(
        gzip.compress((255 * images[:2000].numpy()).astype(np.uint8).tobytes(), 9)
    )
    whole = (
        len(page) - len(packed["images"]) - len("".join(packed["codes"])) + len(pixels) + len(codes)
    )
    assert whole < 3e6


def test_examples_come_back_as_they_were() -> None:
    images = hostile_digits()
    packed = pack_examples(images)
    pixels = np.frombuffer(gzip.decompress(base64.b64decode(packed["images"])), np.uint8)
    np.testing.assert_array_equal(pixels.reshape(30, 1, 28, 28), images.pixels[np.arange(30)])
    assert packed["labels"] == [int(label) for label in images.labels]  # type: ignore[union-attr]


def unpack_codes(packed: str, count: int, length: int) -> np.ndarray:
    """The codes of a part, [count, length]."""
    content = gzip.decompress(base64.b64decode(packed))
    counts, largest = (
        np.frombuffer(content, "<u4", count),
        np.frombuffer(content, "<f4", count, 4 * count),
    )
    total = int(counts.sum())
    places = np.frombuffer(content, "<u4", total, 8 * count).astype(int)
    values = np.frombuffer(content, np.uint8, total, 8 * count + 4 * total)
    assert len(content) == 8 * count + 5 * total
    found, rows = np.zeros((count, length)), np.repeat(np.arange(count), counts)
    found[rows, places] = values / 255 * largest[rows]
    return found


def test_codes_come_back_to_half_a_level_of_the_largest() -> None:
    chance = torch.Generator().manual_seed(0)
    p = torch.rand(7, 4, 3, 5, generator=chance) * (torch.rand(7, 4, 3, 5, generator=chance) < 0.2)
    p[3] = 0
    found = unpack_codes(pack_codes(p), 7, 60)
    assert np.abs(found - p.flatten(1).numpy()).max() <= 0.5 / 255 * float(p.max()) + 1e-6


def test_codes_that_follow_the_page_are_those_that_it_carries() -> None:
    """In parts, the last of which is smaller; the served page may ask its own server for them, and
    nobody else."""
    model, images = (
        DeconvNet(ModelSpec(layers=(LayerSpec(maps=3),))),
        load(np.full((53, 8, 8), 99, np.uint8)),
    )
    recipe = Recipe(model=model.spec, learning=Recipe.paper().learning[:1])
    explorer = Explorer(
        model, recipe, images, name="x", engine="reference", settings=ExplorerSettings(code_steps=2)
    )
    whole, served = explorer.export(), explorer.page(served=True)
    assert (carried(served)["examples"]["parts"], carried(served)["examples"]["codes"]) == (2, [])
    assert carried(whole)["examples"]["codes"] == [explorer.codes(0), explorer.codes(1)]
    for codes, count in zip(carried(whole)["examples"]["codes"], (50, 3), strict=True):
        unpack_codes(codes, count, 3 * 6 * 6)  # as long as codes of so many images are
    assert "connect-src 'self'" in served
    assert "connect-src 'none'" in whole


def test_examples_are_spread_over_the_set_and_large_images_are_fewer() -> None:
    digits = load("digits", split="test")
    assert choose_examples(digits, ExplorerSettings(examples=4)).tolist() == [0, 500, 1000, 1500]
    photos = load(np.zeros((10, 3, 600, 700), np.uint8))
    assert len(choose_examples(photos, ExplorerSettings(examples=10))) == 1


def test_models_and_images_that_the_page_cannot_show_raise_an_error() -> None:
    with raises(InvalidImages, expected="1, as the model explains"):
        Explorer(
            load_model(models.path("mnist")),
            Recipe.paper(),
            load(np.zeros((2, 3, 28, 28), np.uint8)),
            name="x",
        )
    for change, problem in (
        ({"pool_maps": 2}, "layers.1.pool_maps = 2 (it supports 1)"),
        ({"filter_size": (1, 5)}, "layers.1.filter_size = (1, 5) (it supports a square)"),
        ({"pool_size": (1, 2)}, "layers.1.pool_size = (1, 2) (it supports a square)"),
    ):
        model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=4, **change),)))
        recipe = Recipe(model=model.spec, learning=Recipe.paper().learning[:1])
        with raises(InvalidSetting, given=Containing(problem)):
            Explorer(model, recipe, load(np.zeros((2, 8, 8), np.uint8)), name="x")


def test_the_codes_are_inferred_with_the_settings_of_training(page: str) -> None:
    data, training = carried(page), Recipe.paper().learning[-1].inference
    assert data["settings"]["lambda"] == training.lam
    assert data["settings"]["alpha"] == training.penalty.alpha
    assert data["examples"]["steps"] == CODE_STEPS
    assert data["testSettings"] == {"lambda": 5.0, "alpha": 1.0, "steps": 50, "poolingStep": 3.0}


def test_a_bundle_has_every_module_once_after_those_it_imports() -> None:
    script = bundle(ASSETS, "main")
    assert script.count("function step(") == 1
    assert (
        script.index("function correlate(")
        < script.index("function descend(")
        < script.index("class Session ")
    )
    for entry in ("main", "label", "worker"):
        assert not re.search(r"^\s*(?:import|export)\b", bundle(ASSETS, entry), re.MULTILINE), (
            "import names as they are"
        )


# The server: pages on loopback only, for whoever has the token. One that only shows, and one that
# also gets POST


def answer(path: str) -> Content | None:
    """A page, and something below it."""
    return {"": Content("<p>ä</p>".encode()), "codes/1": Content(b"one", "text/plain")}.get(path)


def act(path: str, sent: Any) -> Content | None:
    """Something that can be done."""
    return Content(f"did {sent['what']}".encode(), "text/plain") if path == "do" else None


@pytest.fixture(scope="module", params=[None, act], ids=["explorer", "labelling"])
def server(request: pytest.FixtureRequest) -> Iterator[PageServer]:
    with PageServer(answer, act=request.param) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(
        method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def test_the_page_is_served_to_whoever_has_the_token(server: PageServer) -> None:
    assert ask(server, f"/{server.token}/") == (200, "<p>ä</p>".encode())
    assert ask(server, f"/{server.token}/codes/1") == (200, b"one")
    assert server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/../../etc/passwd", "/%2e%2e/", "//", "/favicon.ico"]
)
def test_every_other_path_is_not_found(server: PageServer, path: str) -> None:
    status, content = ask(server, path)
    assert status == 404
    assert "ä".encode() not in content


def test_a_wrong_address_shows_a_page_of_ours(server: PageServer) -> None:
    for path in ("/", f"/{server.token}/none"):
        _, content = ask(server, path)
        assert b"the whole address that the terminal shows" in content
        assert b"Error response" not in content, "the page of http.server"


def test_a_fault_of_the_program_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(path: str) -> Content | None:
        raise ZeroDivisionError(path)

    with PageServer(fail) as failing:
        thread = threading.Thread(target=failing.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        status, content = ask(failing, f"/{failing.token}/x")
        failing.shutdown()
        thread.join()
    assert status == 500
    assert b"The program failed" in content
    assert "ZeroDivisionError: x" in capfd.readouterr().err


def test_paths_and_tokens_that_are_nearly_right_are_not_found(server: PageServer) -> None:
    for near in ("x", "?a", "codes/", "codes/1/", "codes/1?a", "../", "codes/../"):
        assert ask(server, f"/{server.token}/{near}")[0] == 404
    for wrong in (server.token, server.token[:-1], f"{server.token}x", ""):
        assert ask(server, f"/{wrong}")[0] == 404
    for wrong in (server.token[:-1], f"{server.token}x", "", "x"):
        assert ask(server, f"/{wrong}/codes/1")[0] == 404


def post(
    server: PageServer, path: str, body: str = '{"what": "it"}', **changed: str
) -> tuple[int, bytes]:
    own = f"http://127.0.0.1:{server.server_port}"
    return ask(
        server, path, "POST", body, **{"Origin": own, "Content_Type": "application/json"} | changed
    )


def test_post_is_for_the_page_itself(server: PageServer) -> None:
    path = f"/{server.token}/do"
    if server.act is None:
        assert post(server, path)[0] == 501
        return
    assert post(server, path) == (200, b"did it")
    assert post(server, f"/{server.token}/other")[0] == 404
    assert post(server, "/x/do")[0] == 404
    assert post(server, path, Host="evil.example")[0] == 403
    assert post(server, path, Origin="https://evil.example")[0] == 403
    assert post(server, path, Origin="null")[0] == 403
    assert ask(server, path, "POST", "{}", Content_Type="application/json")[0] == 403, (
        "without an origin"
    )
    assert post(server, path, Content_Type="text/plain")[0] == 403, (
        "what a form of another site can send"
    )
    assert post(server, path, "not JSON")[0] == 400
    assert post(server, path, Content_Length=str(1 << 30))[0] == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_not_answered(server: PageServer, method: str) -> None:
    assert ask(server, f"/{server.token}/", method)[0] == 501


def test_another_host_name_is_forbidden(server: PageServer) -> None:
    """A site whose name was pointed at 127.0.0.1 gets nothing."""
    assert ask(server, f"/{server.token}/", Host="evil.example")[0] == 403
    assert ask(server, f"/{server.token}/", Host=f"localhost:{server.server_port}")[0] == 403


def test_it_listens_on_loopback_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    own = socket.gethostbyname(socket.gethostname())
    if not own.startswith("127."):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((own, server.server_port), timeout=2)


def test_every_server_has_another_long_token() -> None:
    with PageServer(answer) as one, PageServer(answer) as other:
        assert one.token != other.token
        assert len(one.token) >= 32


def test_nothing_about_the_request_is_logged(
    server: PageServer, capfd: pytest.CaptureFixture[str]
) -> None:
    ask(server, f"/{server.token}/")
    ask(server, "/nothing")
    assert capfd.readouterr() == ("", "")
