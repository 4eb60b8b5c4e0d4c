"""One page on loopback, for as long as a command runs: GET of one address that nobody else knows, and nothing else."""

from __future__ import annotations

import hmac
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PageServer(ThreadingHTTPServer):
    """Serves one page at `url`, an address with a random token; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, page: str, port: int = 0) -> None:
        self.page = page.encode("utf-8")
        self.path = f"/{secrets.token_urlsafe(24)}/"
        super().__init__(("127.0.0.1", port), PageHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.path}"


class PageHandler(BaseHTTPRequestHandler):
    """Other methods have no handler, so that `http.server` answers them with 501."""

    server: PageServer
    server_version, sys_version = "whatwhere", ""

    def do_GET(self) -> None:
        if self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            self.send_error(403, "Unknown host")  # another site's name that was pointed at this machine
        elif not hmac.compare_digest(self.path.encode(), self.server.path.encode()):
            self.send_error(404, "Not found")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(self.server.page)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: an address holds the token."""
