"""Files that appear complete or not at all, regular files only, and disk errors in plain words.

A pipe or a device that a user names may block or never end, so it is not opened. One function,
`claim`, decides what may be overwritten. A folder of results has a record of what the
program wrote into it.
"""

import csv
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import struct
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from whatwhere.errors import (
    ImageError,
    RunError,
    SpecError,
    UnknownFormat,
    UnusableFile,
    UnusableImageFile,
    UnusableRecipe,
    UnusableRunFile,
    WhatwhereError,
    as_clause,
    printable,
    sentence,
)

RECORD = ".whatwhere.json"
"""The record in a folder of results: what the program knows about the files that it wrote there."""

_RECORD_FORMAT = "whatwhere results 1"

LEFTOVER = re.compile(r"\..{0,40}-[0-9a-f]{16}\.part", re.DOTALL)
"""Names of temporary files. Only a process that was killed leaves one behind."""


class CannotWrite(RunError):
    """A file that is not written, because that would destroy something.

    Attributes
    ----------
    path
        the file
    reason
        "exists", "read" by the same command, "folder", or "twice" among the results
    """

    def __init__(self, path: str | os.PathLike[str], reason: str, message: str) -> None:
        self.path = os.fspath(path)
        self.reason = reason
        super().__init__(message)


class DiskError(RunError):
    """An error of the operating system, such as a full disk or a read-only folder.

    Attributes
    ----------
    reason
        what the system says
    path
        the file, if the system names one
    remedy
        what to do, as a clause
    """

    def __init__(self, doing: str, error: OSError, remedy: str) -> None:
        self.reason = error.strerror or str(error)
        self.path = error.filename
        self.remedy = remedy
        where = f" ({error.filename})" if error.filename else ""
        problem = sentence(f"{doing} failed: {self.reason}{where}")
        super().__init__(f"{problem} {sentence(remedy)}")


class Busy(RunError):
    """A folder that another process holds.

    Attributes
    ----------
    path
        the folder
    """

    def __init__(self, path: str | os.PathLike[str], message: str) -> None:
        self.path = os.fspath(path)
        super().__init__(message)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a new file to write. When the block ends, its content replaces `path` in one step.

    If the block raises, or is interrupted, `path` keeps its old content and the temporary file is
    removed. A process that is killed leaves it behind; `claim` removes it the next time.
    """
    file, temporary = _open_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows renames no open file; elsewhere it is locked to the end
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def _open_temporary(path: Path) -> tuple[BinaryIO, Path]:
    """Open a new file beside `path` and lock it, so that nobody takes it for a leftover."""
    while True:
        temporary = path.with_name(f"{_leftover_stem(path)}{secrets.token_hex(8)}.part")
        file = open(temporary, "x+b")  # noqa: SIM115
        try:
            _lock(file.fileno())
            if temporary.exists():
                return file, temporary
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks, where no leftovers are removed
            return file, temporary
        except BaseException:
            file.close()
            temporary.unlink(missing_ok=True)
            raise
        file.close()  # another process found it before it was locked, and removes it


def write_atomic(path: Path, content: bytes) -> None:
    """Replace the content of a file in one step: a reader gets either the old content or the new
    one, complete."""
    with open_atomic(path) as file:
        file.write(content)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes. Call it only while no other process writes to
    the folder."""
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _leftover_stem(path: Path) -> str:
    """Return the first characters of the names of the temporary files of a file."""
    return f".{path.name[:40]}-"


def remove_dead_leftovers(paths: list[Path], results: Path | None = None) -> None:
    """Remove temporary files that killed processes left of these files, and any that they left in
    these folders if those are of results. Living processes lock theirs."""
    stems: dict[Path, set[str]] = {} if results is None else {results: set()}
    for path in paths:
        stems.setdefault(path.parent, set()).add(_leftover_stem(path))
    for folder, own in stems.items():
        with suppress(OSError):  # a folder that does not exist yet has none
            for entry in list(os.scandir(folder)):
                if not LEFTOVER.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                if results is not None or entry.name[: -len("0123456789abcdef.part")] in own:
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(path: Path) -> None:
    """Remove a temporary file unless a process writes it."""
    with suppress(OSError), open(path, "rb") as file:
        _lock(file.fileno())  # raises OSError if another one has it
        path.unlink()


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; if the block raises, remove those folders that it created
    and that are empty."""
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
    with _opened(folder) as handle:
        if handle is not None:
            os.fsync(handle)


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """Open a folder itself; None where that is not permitted, as on Windows."""
    handle = None
    with suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ModuleNotFoundError:  # Windows, where folders have no locks

    def _lock(handle: int) -> None:
        """Raise an OSError, as on a file system without locks."""
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
else:

    def _lock(handle: int) -> None:
        """Lock an open file or folder; raise a BlockingIOError if another process holds it."""
        flock(handle, LOCK_EX | LOCK_NB)


@contextmanager
def locked(folder: Path, busy: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder. It ends with the process, however the process ends. On Windows,
    and on file systems without locks, nothing is held.

    Parameters
    ----------
    busy
        the message of the error if another process holds it
    patience
        seconds to wait for that process
    """
    end = time.monotonic() + patience
    with _opened(folder) as handle:
        while handle is not None:
            try:
                _lock(handle)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Busy(folder, busy) from None
                time.sleep(0.01)
            except OSError:  # a file system without such locks
                break
        yield


@contextmanager
def disk_errors(doing: str, remedy: str) -> Iterator[None]:
    """Turn an error of the operating system (disk full, folder read-only, …) into a `DiskError`
    that says what to do."""
    try:
        yield
    except OSError as error:
        raise DiskError(doing, error, remedy) from error


_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    csv.Error,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    WhatwhereError,
)
"""What our readers raise on damaged bytes, with the standard library. Whatever else a library
raises becomes a ValueError in `untrusted`; anything else is a bug, and crashes."""

_UNUSABLE: Mapping[type[WhatwhereError], type[UnusableFile]] = {
    RunError: UnusableRunFile,
    ImageError: UnusableImageFile,
    SpecError: UnusableRecipe,
}


@contextmanager
def readable(
    path: Path, kind: str, remedy: str, error_kind: type[WhatwhereError] = RunError
) -> Iterator[None]:
    """Turn errors that make a file unusable into one that has the file, the problem and what to do
    as fields.

    Parameters
    ----------
    error_kind
        RunError, ImageError or SpecError: errors of this kind pass, and others become an
        `UnusableFile` of this kind
    """
    try:
        yield
    except error_kind:
        raise
    except _DAMAGED as error:
        reason = as_clause(error) or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"{error} is missing"
        raise _UNUSABLE[error_kind](path, kind, reason, remedy) from error


@contextmanager
def untrusted() -> Iterator[None]:
    """Turn whatever the block raises into a ValueError: around a library's decoder, or around code
    that takes apart values whose types nobody has checked. Keep the block small, because a bug in
    it looks like a damaged file."""
    try:
        yield
    except _DAMAGED:
        raise
    except MemoryError as error:
        raise ValueError(f"it needs more memory than there is ({as_clause(error)})") from error
    except Exception as error:
        raise ValueError(as_clause(error) or type(error).__name__) from error


T = TypeVar("T")


def checked(value: object, kind: type[T], name: str) -> T:
    """Return a value of a file if it has the expected type; otherwise raise a ValueError.

    Parameters
    ----------
    name
        what the file calls the value
    """
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ValueError(f"{name} is {type(value).__name__}; expected {kind.__name__}")


class FileStamp(NamedTuple):
    """The size of a file, and when it was written, which show whether somebody else wrote it."""

    size: int
    written_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        return cls(status.st_size, status.st_mtime_ns)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading. Raises OSError, without waiting, if it is a folder, a pipe, a
    socket or a device."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"it is {kind}; expected a regular file", os.fspath(path))
    return open(path, "rb")


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file. Raises OSError if it has more than `limit` bytes."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"The file has more than {limit:,} bytes", os.fspath(path))
    return content


def write_json(path: Path, form: str, fields: Mapping[str, object]) -> None:
    """Write fields as a JSON file that names its format, complete or not at all.

    Parameters
    ----------
    form
        the name and the number of the format, such as "whatwhere part 1"
    """
    write_atomic(path, (json.dumps({"format": form, **fields}, indent=1) + "\n").encode())


FileFields: TypeAlias = dict[str, Any]
"""What a file holds, which may be anything: it is taken apart within `untrusted`."""


@contextmanager
def json_fields(path: Path, form: str, kind: str, remedy: str) -> Iterator[FileFields]:
    """Give the fields that `write_json` wrote to a block that takes them apart. Whatever else the
    file holds, such as another format or fields that the block cannot use, raises a RunError that
    names the file.

    Parameters
    ----------
    kind, remedy
        as for `readable`
    """
    with readable(path, kind, remedy):
        content = read_regular(path, 1 << 26)  # bytes
        with untrusted():  # such as a million brackets
            fields: FileFields = checked(json.loads(content), dict, "its content")
        check_format(fields.pop("format", None), form)
        with untrusted():
            yield fields


# What may be overwritten


@dataclass(frozen=True)
class Result:
    """What the program knows about a file that it wrote into a folder of results.

    Parameters
    ----------
    sha256
        checksums that the file may have: the one before the last write, if the program made that,
        too, and the one after it. A write may have been interrupted between the two
    """

    sha256: tuple[str, ...]

    def wrote(self, path: Path) -> bool:
        """Tell whether the program wrote what the file contains now."""
        return file_checksum(path) in self.sha256


def check_format(given: object, expected: str) -> None:
    """Raise an error for a file of another format than this version reads and writes."""
    if given != expected:
        raise UnknownFormat(given, expected)


def read_results(folder: Path) -> dict[str, Result]:
    """Return the files that the program wrote into a folder, by their paths from there."""
    record = folder / RECORD
    if not os.path.lexists(record):
        return {}
    with json_fields(record, _RECORD_FORMAT, "record of results", "remove it") as content:
        entries: dict[str, object] = checked(content["files"], dict, "files")
        return {name: _result(entry) for name, entry in entries.items()}


def _result(entry: object) -> Result:
    known = checked(checked(entry, dict, "an entry")["sha256"], list, "sha256")
    return Result(tuple(map(str, known)))


def _write_results(folder: Path, results: Mapping[str, Result]) -> None:
    """Replace the record of a folder, which is created if it does not exist."""
    entries = {name: {"sha256": results[name].sha256} for name in sorted(results)}
    with disk_errors(f"writing {folder / RECORD}", "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RECORD, _RECORD_FORMAT, {"files": entries})


def write_result(folder: Path, path: Path, content: bytes, remedy: str) -> None:
    """Write a file of a folder of results, complete or not at all, and record its checksum.

    The record comes first. Whenever the process ends, the file has a checksum of the record if the
    program wrote it. So a file that somebody else puts there is never taken for a result.
    """
    name = os.path.relpath(path, folder)
    with disk_errors(f"writing {path}", remedy):
        folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        busy = f"Another process is writing to {folder}. Wait for it, or choose another folder."
        with locked(folder, busy, 10.0):  # seconds
            results = read_results(folder)
            before = results.get(name)
            current = (file_checksum(path),) if os.path.isfile(path) else ()
            if before is None or not current or not before.wrote(path):
                current = ()
            new = hashlib.sha256(content).hexdigest()
            _write_results(folder, results | {name: Result((*current, new))})
            write_atomic(path, content)


def file_checksum(path: Path) -> str:
    """Compute sha256 of the content of a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def claim(
    outputs: Iterable[Path],
    inputs: Iterable[Path] = (),
    *,
    folder: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Raise a RunError, before anything is written, unless all of these files may be written.

    The rules of every command: each result has a separate file; an input is never overwritten;
    other files that exist are replaced only with `overwrite`, or if the program wrote them into the
    same folder of results before. Temporary files that a killed process left of them, or in their
    folder of results, are removed.

    Parameters
    ----------
    outputs
        the files to write
    inputs
        the files that are read; a folder stands for the files in it and in its sub-folders, except
        `folder`
    folder
        folder of results; None for files at places of their own
    overwrite
        also replace existing files
    """
    paths = list(outputs)
    check_distinct(paths)
    existing = [path for path in paths if os.path.lexists(path)]
    _check_replaceable(existing, _files(inputs, folder))
    _check_folders({path.parent for path in paths})
    results = read_results(folder) if folder is not None else {}
    others = [path for path in existing if not _is_own(path, folder, results)]
    if others and not overwrite:
        more = f" (and {len(others) - 1:,} more)" if len(others) > 1 else ""
        # Only a folder of results has a record of who wrote what.
        origin = ", and this command did not write it" if folder is not None else ""
        raise CannotWrite(
            others[0],
            "exists",
            f"{printable(others[0])} exists already{more}{origin}. Choose another path, or replace"
            " it with --overwrite (in Python: overwrite=True).",
        )
    remove_dead_leftovers(paths, folder)


def input_files(*sources: str | Path | None) -> list[Path]:
    """Return what a command or a method reads as paths. Of a run these are its own files and its
    checkpoint, because its other folders may hold results."""
    read: list[Path] = []
    for source in sources:
        if source is None:
            continue
        path = Path(source)
        if path.is_dir() and (path / "model.safetensors").exists():
            read += [*(file for file in path.iterdir() if not file.is_dir()), path / "checkpoint"]
        else:
            read.append(path)
    return read


def check_distinct(paths: Sequence[Path]) -> None:
    """Raise a RunError where two results have the same file, however it is called."""
    folders = {folder: os.path.realpath(folder) for folder in {path.parent for path in paths}}
    files = Counter((folders[path.parent], path.name) for path in paths)
    doubled = [path for path in paths if files[folders[path.parent], path.name] > 1]
    if doubled:
        raise CannotWrite(
            doubled[0],
            "twice",
            f"Two results would have the same name, {printable(doubled[0])}. Choose another path,"
            " or rename one of their sources.",
        )


def _check_replaceable(existing: list[Path], inputs: Iterable[Path]) -> None:
    """Raise a RunError for what is never replaced: a file that is read, or a folder."""
    sources = {_identity(file) for file in inputs if os.path.isfile(file)}
    for path in existing:
        if os.path.isfile(path) and _identity(path) in sources:
            raise CannotWrite(
                path,
                "read",
                f"Cannot write to {printable(path)}: this command reads it. Choose another path.",
            )
        if os.path.isdir(path):
            raise CannotWrite(
                path,
                "folder",
                f"Cannot write to {printable(path)}: it is a folder. Choose another name for the"
                " file.",
            )


def _check_folders(folders: Iterable[Path]) -> None:
    """Raise a RunError for a folder that cannot be written or created."""
    for folder in sorted(folders):
        with disk_errors(f"writing to {folder}", "choose another folder"):
            place = folder.absolute()
            while True:
                with suppress(FileNotFoundError):
                    mode = os.stat(place).st_mode
                    break
                place = place.parent
            problem = 0
            if not stat.S_ISDIR(mode):
                problem = errno.ENOTDIR
            elif not os.access(place, os.W_OK | os.X_OK):
                problem = errno.EACCES
            if problem:
                raise OSError(problem, os.strerror(problem), os.fspath(place))


def _is_own(path: Path, folder: Path | None, results: Mapping[str, Result]) -> bool:
    """Tell whether the program wrote a file that exists into this folder of results."""
    if folder is None or os.path.isdir(path):
        return False
    result = results.get(os.path.relpath(path, folder))
    if result is None:
        return False
    return not os.path.exists(path) or result.wrote(path)


def _files(inputs: Iterable[Path], results: Path | None) -> Iterator[Path]:
    """Yield the files of all inputs, those in folders and their sub-folders as well, except a
    sub-folder of results."""
    left_out = None if results is None else results.resolve()
    for path in inputs:
        if not os.path.isdir(path):
            yield path
            continue
        is_inside = left_out is not None and path.resolve() in left_out.parents
        for file in path.rglob("*"):
            if not is_inside or left_out not in file.resolve().parents:
                yield file


def _identity(path: Path) -> tuple[int, int]:
    """Return an identity that is the same for all names of one file."""
    status = os.stat(path)
    return status.st_dev, status.st_ino
