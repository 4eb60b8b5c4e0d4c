"""Files that appear whole or not at all, and errors of the disk in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whatwhere.errors import RunError


def write_atomic(path: Path, content: bytes) -> None:
    """Write aside, bring it to the disk, rename: whoever opens `path` finds the old content or the new, whole."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, so that a rename outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turn what the operating system says (disk full, folder read-only, …) into an error a person can mend."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise RunError(f"{doing} failed: {error.strerror or error}{where}; {remedy}") from error
