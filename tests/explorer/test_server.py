"""The server: pages on loopback only, for whoever has the token. One that only shows, and one that also gets POST."""

import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from whatwhere.explorer.server import Content, PageServer


def answer(path: str) -> Content | None:
    """A page, and something below it."""
    return {"": Content("<p>ä</p>".encode()), "codes/1": Content(b"one", "text/plain")}.get(path)


def act(path: str, sent: Any) -> Content | None:
    """Something that can be done."""
    return Content(f"did {sent['what']}".encode(), "text/plain") if path == "do" else None


@pytest.fixture(params=[None, act], ids=["explorer", "labelling"])
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
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def test_the_page_is_served_to_whoever_has_the_token(server: PageServer) -> None:
    assert ask(server, f"/{server.token}/") == (200, "<p>ä</p>".encode())
    assert ask(server, f"/{server.token}/codes/1") == (200, b"one")
    assert server.url == f"http://127.0.0.1:{server.server_port}/{server.token}/"


@pytest.mark.parametrize("path", ["/", "/index.html", "/../../etc/passwd", "/%2e%2e/", "//", "/favicon.ico"])
def test_every_other_path_is_not_found(server: PageServer, path: str) -> None:
    status, content = ask(server, path)
    assert status == 404
    assert "ä".encode() not in content
    for near in ("x", "?a", "codes/", "codes/1/", "codes/1?a", "../", "codes/../"):
        assert ask(server, f"/{server.token}/{near}")[0] == 404
    for wrong in (server.token, server.token[:-1], f"{server.token}x", ""):
        assert ask(server, f"/{wrong}")[0] == 404
    for wrong in (server.token[:-1], f"{server.token}x", "", "x"):
        assert ask(server, f"/{wrong}/codes/1")[0] == 404


def post(server: PageServer, path: str, body: str = '{"what": "it"}', **changed: str) -> tuple[int, bytes]:
    own = f"http://127.0.0.1:{server.server_port}"
    return ask(server, path, "POST", body, **{"Origin": own, "Content_Type": "application/json"} | changed)


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
    assert ask(server, path, "POST", "{}", Content_Type="application/json")[0] == 403, "without an origin"
    assert post(server, path, Content_Type="text/plain")[0] == 403, "what a form of another site can send"
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


def test_nothing_about_the_request_is_logged(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    ask(server, f"/{server.token}/")
    ask(server, "/nothing")
    assert capfd.readouterr() == ("", "")
