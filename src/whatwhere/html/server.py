"""Pages on loopback, for as long as a command runs, at addresses that nobody else knows.

A page is read with GET. One that also changes something gets POST with JSON from itself alone;
without `act`, POST has no answer.
"""

import hmac
import json
import secrets
import sys
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LONGEST = 1 << 26  # bytes of what a page may send: a table of labels to import
MOST_DIGITS = 9  # of a number in an address or in a header


class Content(NamedTuple):
    """The content that is served at an address."""

    body: bytes
    type: str = "text/html; charset=utf-8"


Answer = Callable[[str], Content | None]
Act = Callable[[str, Any], Content | None]


def is_number(text: str) -> bool:
    """Whether a text is a whole number ≥ 0 of a size that a page may ask for."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


class PageServer(ThreadingHTTPServer):
    """Serves what `answer` returns below `url`, an address with a random token, on this machine
    alone.

    answer  path below the token ('' is the page) → its content, or None where there is nothing;
            called in a thread of the request
    act     path and what the page sent, as JSON → the content of the answer, or None; None: nothing
            can be sent
    port    0 takes a free one
    """

    daemon_threads = True

    def __init__(self, answer: Answer, act: Act | None = None, port: int = 0) -> None:
        self.answer = answer
        self.act = act
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), PageHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a tab that is closed before it has read everything."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def show(self, words: str = "Press Ctrl-C to stop.", browser: bool = True) -> None:
        """Print the address, open it in a browser, and serve until Ctrl-C."""
        print(f"{self.url}\n{words}", flush=True)
        if browser:
            webbrowser.open(self.url)
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            print()


class PageHandler(BaseHTTPRequestHandler):
    """Other methods have no handler, so that `http.server` answers them with 501."""

    server: PageServer
    server_version = "whatwhere"
    sys_version = ""

    def do_GET(self) -> None:
        path = self._path()
        if path is not None:
            self._send(self.server.answer(path))

    def do_POST(self) -> None:
        act = self.server.act
        path = self._path()
        if act is None:
            self.send_error(501, "Unsupported method ('POST')")
        elif path is not None:
            own = f"http://127.0.0.1:{self.server.server_port}"
            length = self.headers.get("Content-Length", "")
            if (
                self.headers.get("Origin") != own
                or self.headers.get("Content-Type") != "application/json"
            ):
                # a form of another site has neither
                self.send_error(403, "Only the page itself may send requests")
            elif not is_number(length) or int(length) > LONGEST:
                self.send_error(413, "Request too long")
            else:
                try:
                    value = json.loads(self.rfile.read(int(length)))
                except (ValueError, RecursionError):
                    self.send_error(400, "Expected JSON")
                else:
                    self._send(act(path, value))

    def _path(self) -> str | None:
        """The path below the token; None, and an error is sent, for another host or token."""
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            # another site's name that was pointed at this machine
            self.send_error(403, "Unknown host")
            return None
        token, slash, path = self.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404, "Not found")
            return None
        return path

    def _send(self, content: Content | None) -> None:
        if content is None:
            self.send_error(404, "Not found")
            return
        self.send_response(200)
        self.send_header("Content-Type", content.type)
        self.send_header("Content-Length", str(len(content.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content.body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: an address holds the token."""
