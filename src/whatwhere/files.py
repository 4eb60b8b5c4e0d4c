"""Files that appear complete or not at all, regular files only, and disk errors in plain words.

A pipe or a device that a user names may block or never end, so it is not opened. What may be overwritten is decided by
one function, `claim_outputs`.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from whatwhere.errors import RunError, WhatwhereError, printable

RECORD = ".whatwhere.json"
"""In a folder of results: the names of the files that the program wrote into it."""

LARGEST_RECORD = 1 << 26
LEFTOVER = re.compile(r"\..{0,40}-[0-9a-f]{16}\.part", re.DOTALL)
"""Names of temporary files. Only a process that was killed leaves one behind."""


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """A new file to write. When the block ends, its content replaces `path` in one step.

    If the block raises, or is interrupted, `path` keeps its old content and the temporary file is removed. The
    temporary file lies in the same folder under a random name and is never opened through an existing name, so that a
    symbolic link planted there is not followed.
    """
    temporary = path.with_name(f".{path.name[:40]}-{secrets.token_hex(8)}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace the content of a file in one step: a reader gets either the old content or the new one, complete."""
    with open_atomic(path) as file:
        file.write(content)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes. Call it only while no other process writes to the folder."""
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; if the block raises, remove again those that it created and that are empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, so that a rename survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, busy: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which goes with the process, however that ends.

    busy      the message of the RunError if another process holds it
    patience  seconds to wait for that process
    """
    handle, end = os.open(folder, os.O_RDONLY), time.monotonic() + patience
    try:
        while not _take_lock(handle):
            if time.monotonic() >= end:
                raise RunError(busy)
            time.sleep(0.01)
        if _identity(folder) != _identity(handle):  # its last holder has just removed it
            raise RunError(busy)
        yield
    finally:
        os.close(handle)


def _take_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        pass
    return True


@contextmanager
def disk_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turn an error of the operating system (disk full, folder read-only, …) into a `RunError` that says what to do."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise RunError(f"{doing} failed: {error.strerror or error}{where}; {remedy}") from error


@contextmanager
def readable(path: Path, kind: str, remedy: str, error_kind: type[WhatwhereError] = RunError) -> Iterator[None]:
    """Whatever makes a file unusable is an error that names the file, what is wrong and what to do."""
    try:
        yield
    except error_kind:
        raise
    except Exception as error:  # whatever a reader may raise on damaged bytes
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise error_kind(f"{path} is not a usable {kind}: {reason[:500]} ({remedy})") from error


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading. Raises OSError, without waiting, if it is a folder, a pipe, a socket or a device."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: some devices react to being opened
        raise _not_regular(path)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced in the meantime
        os.close(handle)
        raise _not_regular(path)
    return os.fdopen(handle, "rb")


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """The content of a regular file. Raises OSError if it has more than `limit` bytes."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"The file has more than {limit:,} bytes", os.fspath(path))
    return content


def read_json(path: Path, limit: int) -> Any:
    """The value in a JSON file of at most `limit` bytes; a RunError that names the file, whatever it holds."""
    try:
        return parse_json(read_regular(path, limit))
    except OSError as error:
        raise RunError(f"{printable(path)} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(f"{printable(path)} is damaged: {error}; remove it, or restore it") from None


def parse_json(content: bytes) -> Any:
    """The value of a JSON text; a ValueError for everything else, which does not quote the text."""
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("not JSON (nested too deeply)") from None
    except UnicodeDecodeError:
        raise ValueError("not JSON (not UTF-8)") from None
    except ValueError as error:  # its message may hold the text
        raise ValueError(f"not JSON ({getattr(error, 'msg', 'a number with too many digits')})") from None


def claim_outputs(
    outputs: Iterable[Path], inputs: Iterable[Path] = (), *, folder: Path | None = None, overwrite: bool = False
) -> None:
    """Raise a RunError, before anything is written, unless all of these files may be written.

    The rule of every command: each result has a file of its own; nothing is ever written onto an input; other files
    that exist are replaced only with `overwrite`, or if the program wrote them into the same folder of results before.

    outputs    the files to write
    inputs     the files that are read; a folder stands for the files in it and in its sub-folders
    folder     of results, which is created and gets a record of its files; None for files at places of their own
    overwrite  replace existing files, too
    """
    paths = list(outputs)
    doubled = [path for path, count in Counter(paths).items() if count > 1]
    if doubled:
        raise RunError(f"two results would be written to {printable(doubled[0])}; rename one of their sources")
    sources = {key for path in inputs for file in _files_of(path) if (key := _identity(file))}
    existing = [path for path in paths if os.path.lexists(path)]
    for path in existing:
        if _identity(path) in sources:
            raise RunError(f"{printable(path)} is read by this command, so it is not written to; choose another place")
        if is_folder(path):
            raise RunError(f"{printable(path)} is a folder, where a file is to be written; choose another name")
    own = _recorded(folder) if folder is not None else set()
    others = [path for path in existing if folder is None or os.path.relpath(path, folder) not in own]
    if others and not overwrite:
        more = f" (and {len(others) - 1:,} more)" if len(others) > 1 else ""
        raise RunError(
            f"{printable(others[0])} exists already{more} and is not a result that can be made again here; choose "
            "another place, or replace it with --overwrite"
        )
    if folder is not None:
        names = sorted(own | {os.path.relpath(path, folder) for path in paths})
        with disk_errors(f"writing {folder / RECORD}", "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / RECORD, json.dumps({"files": names}, indent=1).encode())


def _recorded(folder: Path) -> set[str]:
    """The files that the program wrote into a folder of results."""
    if not os.path.lexists(folder / RECORD):
        return set()
    content = read_json(folder / RECORD, LARGEST_RECORD)
    names = content.get("files") if isinstance(content, dict) else None
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _files_of(path: Path) -> Iterator[Path]:
    if not is_folder(path):
        yield path
        return
    for entry in path.iterdir():
        yield from (entry.iterdir() if is_folder(entry) else (entry,))


def _identity(path: Path | int) -> tuple[int, int] | None:
    """What is the same for two names of one file."""
    status = _status(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _status(path: Path | int) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def is_regular(path: Path) -> bool:
    """Whether the path leads to a regular file; False also for a name that the system does not support."""
    return (status := _status(path)) is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: Path) -> bool:
    """Whether the path leads to a folder; False also for a name that the system does not support."""
    return (status := _status(path)) is not None and stat.S_ISDIR(status.st_mode)


def _not_regular(path: str | os.PathLike[str]) -> OSError:
    kind = "A folder" if is_folder(Path(path)) else "A pipe, a socket or a device"
    return OSError(errno.EINVAL, f"{kind}, where a regular file is expected", os.fspath(path))
