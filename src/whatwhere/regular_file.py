"""Opening files that a user named: only regular files, since a pipe or a device may block or never end."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


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


def is_regular(path: Path) -> bool:
    """Whether the path leads to a regular file; False also for a name that the system does not support."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether the path leads to a folder; False also for a name that the system does not support."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _not_regular(path: str | os.PathLike[str]) -> OSError:
    kind = "A folder" if is_folder(Path(path)) else "A pipe, a socket or a device"
    return OSError(errno.EINVAL, f"{kind}, where a regular file is expected", os.fspath(path))
