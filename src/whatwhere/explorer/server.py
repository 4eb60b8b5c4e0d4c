"""Pages on loopback, for as long as a command runs: GET of addresses that nobody else knows, and nothing else."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Content(NamedTuple):
    """What is served at an address."""

    body: bytes
    type: str = "text/html; charset=utf-8"


class PageServer(ThreadingHTTPServer):
    """Serves what `answer` gives below `url`, an address with a random token, on this machine alone.

    answer  path below the token ('' is the page) → its content, or None where there is nothing; called in a thread of
            the request
    port    0 takes a free one
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[str], Content | None], port: int = 0) -> None:
        self.answer = answer
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), PageHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"


class PageHandler(BaseHTTPRequestHandler):
    """Other methods have no handler, so that `http.server` answers them with 501."""

    server: PageServer
    server_version, sys_version = "whatwhere", ""

    def do_GET(self) -> None:
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            self.send_error(403, "Unknown host")  # another site's name that was pointed at this machine
            return
        token, slash, path = self.path.removeprefix("/").partition("/")
        known = bool(slash) and hmac.compare_digest(token.encode(), self.server.token.encode())
        content = self.server.answer(path) if known else None
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
