"""Files for tests of data: IDX, the simplest way, and a mirror on this machine, for downloads."""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np


class Mirror(ThreadingHTTPServer):
    """A mirror on this machine: `answers` are the files it serves, `asked` what it was
    asked for."""

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


CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write an array as an IDX file, not compressed."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    header = struct.pack(f">HBB{values.ndim}I", 0, CODES[kind], values.ndim, *values.shape)
    path.write_bytes(header + values.astype(f">{kind}").tobytes())
