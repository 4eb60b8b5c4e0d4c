"""What commands write: `claim` before the work, `write` after it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.files import claim_outputs, disk_errors, is_folder, write_atomic

if TYPE_CHECKING:
    from torch import Tensor


def claim(
    outputs: Iterable[Path], *read: str | Path | None, folder: Path | None = None, overwrite: bool = False
) -> None:
    """Raise an error, before anything is written, unless all of these files may be written (`files.claim_outputs`).

    read    what the command reads: runs, models, images by name or path; the figures of a run are its results
    folder  of results, if the outputs are in one
    """
    inputs = [file for source in read if source is not None for file in _files(Path(source))]
    claim_outputs(outputs, inputs, folder=folder, overwrite=overwrite)


def write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all, and its folders."""
    with disk_errors(f"writing {path}", "make room, or choose another place with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def _files(source: Path) -> Iterable[Path]:
    """A source; of a run its own files and its checkpoint, since results may lie in other folders of it."""
    if is_folder(source) and (source / "model.safetensors").exists():
        return [*(path for path in source.iterdir() if not is_folder(path)), source / "checkpoint"]
    return [source]


def png(pixels: Tensor) -> bytes:
    """Bytes [H, W] or [H, W, 3] as a PNG file, in grey or RGB."""
    height, width = pixels.shape[:2]
    rows = pixels.cpu().contiguous().numpy().reshape(height, -1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))  # 0: a row without a filter
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
