"""Pages on loopback, for as long as a command runs, at addresses that nobody else knows.

A page is read with GET. One that also changes something gets POST with JSON from itself alone;
without `act`, POST has no answer.
"""

import hmac
import json
import secrets
import sys
import traceback
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import NamedTuple

from whatwhere.html import render


@dataclass(frozen=True)
class _ServerSettings:
    """What a page may send.

    Parameters
    ----------
    longest
        bytes of a request: a table of labels to import may be that long
    """

    longest: int = 1 << 26


class Content(NamedTuple):
    """The content that is served at an address."""

    body: bytes
    type: str = "text/html; charset=utf-8"


Answer = Callable[[str], Content | None]
Act = Callable[[str, object], Content | None]


def is_number(text: str, most_digits: int = 9) -> bool:
    """Tell whether a text is a whole number ≥ 0 of a size that a page may ask for."""
    return text.isascii() and text.isdecimal() and len(text) <= most_digits


class PageServer(ThreadingHTTPServer):
    """Serves what `answer` returns below `url`, an address with a random token, on this machine
    alone.

    Parameters
    ----------
    answer
        path below the token ('' is the page) → its content, or None where there is nothing; called
        in a thread of the request
    act
        path and what the page sent, as JSON → the content of the answer, or None; None: nothing can
        be sent
    port
        0 takes a free one
    """

    daemon_threads = True

    def __init__(
        self,
        answer: Answer,
        act: Act | None = None,
        port: int = 0,
        settings: _ServerSettings | None = None,
    ) -> None:
        self.answer = answer
        self.act = act
        self.settings = settings or _ServerSettings()
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), _PageHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(
        self, request: "socket | tuple[bytes, socket]", client_address: object
    ) -> None:
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


class _PageHandler(BaseHTTPRequestHandler):
    """Other methods have no handler, so that `http.server` answers them with 501."""

    server: PageServer
    server_version = "whatwhere"
    sys_version = ""

    def do_GET(self) -> None:
        path = self._path()
        if path is not None:
            self._send_result(lambda: self.server.answer(path))

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
            elif not is_number(length) or int(length) > self.server.settings.longest:
                self.send_error(413, "Request too long")
            else:
                try:
                    value = json.loads(self.rfile.read(int(length)))
                except (ValueError, RecursionError):
                    self.send_error(400, "Expected JSON")
                else:
                    self._send_result(lambda: act(path, value))

    def _path(self) -> str | None:
        """Return the path below the token; None, and an error is sent, for another host or
        token."""
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            # another site's name that was pointed at this machine
            self.send_error(403, "Unknown host")
            return None
        token, slash, path = self.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404, "Not found")
            return None
        return path

    def _send_result(self, make: Callable[[], Content | None]) -> None:
        """Send what a function returns. A fault of the program is answered, too, so that the page
        can say so; the terminal shows where it is."""
        try:
            content = make()
        except Exception:
            traceback.print_exc()
            self.send_error(500, "The program failed; the terminal shows where")
            return
        if content is None:
            self.send_error(404, "Not found")
        else:
            self._send(200, content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a page of our own that says what to do, in place of the standard one."""
        words = explain or (
            "Open the whole address that the terminal shows, with the long word at its end. It"
            " changes each time the command starts."
        )
        title = f"{message or 'This request failed'} ({code})"
        self.close_connection = True
        self._send(code, Content(render("message.html", title, words=words).encode()))

    def _send(self, code: int, content: Content) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content.type)
        self.send_header("Content-Length", str(len(content.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content.body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests: an address holds the token."""
