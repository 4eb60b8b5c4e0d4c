"""The server: one page, GET only, on loopback only, for whoever has the token."""

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from whatwhere.explorer.server import PageServer


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer("<p>ä</p>") as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def test_the_page_is_served_to_whoever_has_the_token(server: PageServer) -> None:
    assert ask(server, server.path) == (200, "<p>ä</p>".encode())
    assert server.url == f"http://127.0.0.1:{server.server_port}{server.path}"


@pytest.mark.parametrize("path", ["/", "/index.html", "/../../etc/passwd", "/%2e%2e/", "//", "/favicon.ico"])
def test_every_other_path_is_not_found(server: PageServer, path: str) -> None:
    status, content = ask(server, path)
    assert status == 404
    assert "ä".encode() not in content
    assert ask(server, server.path + "x")[0] == 404
    assert ask(server, server.path[:-1])[0] == 404
    assert ask(server, server.path + "?a")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_not_answered(server: PageServer, method: str) -> None:
    assert ask(server, server.path, method)[0] == 501


def test_another_host_name_is_forbidden(server: PageServer) -> None:
    """A site whose name was pointed at 127.0.0.1 gets nothing."""
    assert ask(server, server.path, Host="evil.example")[0] == 403
    assert ask(server, server.path, Host=f"localhost:{server.server_port}")[0] == 403


def test_it_listens_on_loopback_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    own = socket.gethostbyname(socket.gethostname())
    if not own.startswith("127."):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((own, server.server_port), timeout=2)


def test_every_server_has_another_long_token() -> None:
    with PageServer("") as one, PageServer("") as other:
        assert one.path != other.path
        assert len(one.path) >= 32


def test_nothing_about_the_request_is_logged(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    ask(server, server.path)
    ask(server, "/nothing")
    assert capfd.readouterr() == ("", "")
