"""A mirror on this machine, for tests of downloads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Mirror(ThreadingHTTPServer):
    """A mirror on this machine: `answers` are the files it serves, `asked` what it was asked for."""

    answers: dict[str, bytes]
    asked: list[str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.answers:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.answers[name])))
        self.end_headers()
        self.wfile.write(self.server.answers[name])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answers: dict[str, bytes]) -> Iterator[Mirror]:
    """A mirror that serves these files."""
    server = Mirror(("127.0.0.1", 0), Handler)
    server.answers, server.asked = answers, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
