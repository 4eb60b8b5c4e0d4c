"""Where the files of named data sets are stored, and how a file gets there: complete and verified, or not at all."""

import hashlib
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from whatwhere.data.catalogue import File, FileSet
from whatwhere.data.gzip_stream import raw_chunks, read_chunks
from whatwhere.errors import ImageError
from whatwhere.files import is_regular, new_folder, open_atomic, open_regular


class FileStatus(StrEnum):
    """The state of a file in the cache."""

    VERIFIED = "verified"
    MISSING = "missing"
    DAMAGED = "damaged"


def cache_folder() -> Path:
    """WHATWHERE_DATA if it is set, otherwise the program's own folder in the user's cache."""
    if chosen := os.environ.get("WHATWHERE_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "whatwhere" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "whatwhere"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatwhere"


def folder_of(entry: FileSet) -> Path:
    """The folder of a data set's files."""
    return entry.embedded or cache_folder() / entry.cache_name


def missing_files(entry: FileSet) -> list[File]:
    """The files of a data set that are not in its folder with the right size."""
    folder = folder_of(entry)
    return [f for f in entry.files if not is_regular(folder / f.name) or (folder / f.name).stat().st_size != f.size]


def verify(entry: FileSet, file: File) -> FileStatus:
    """Read a file of the cache and compare its checksum."""
    path = folder_of(entry) / file.name
    if not is_regular(path):
        return FileStatus.MISSING
    if path.stat().st_size != file.size:
        return FileStatus.DAMAGED
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileStatus.VERIFIED if digest == file.sha256 else FileStatus.DAMAGED


_VERIFIED_FILES: set[tuple[Path, int, int, str]] = set()


def verified_path(entry: FileSet, file: File) -> Path:
    """The path of a file of the cache, whose checksum is compared at its first use in this process."""
    path = folder_of(entry) / file.name
    status = path.stat()
    key = (path, status.st_ino, status.st_mtime_ns, file.sha256)
    if key not in _VERIFIED_FILES:
        if verify(entry, file) is not FileStatus.VERIFIED:
            remedy = "install whatwhere again" if entry.embedded else f"run `{entry.how_to_get}`"
            raise ImageError(f"{path}: damaged: its checksum is wrong; {remedy}")
        _VERIFIED_FILES.add(key)
    return path


def add(entry: FileSet, file: File, source: Path) -> None:
    """Verify a file, compressed or not, and store it in the cache, where it appears only when it is complete."""
    folder = folder_of(entry)
    try:
        chunks = raw_chunks(source) if file.compressed else read_chunks(source)
        with new_folder(folder), open_atomic(folder / file.name) as stream:
            stream.writelines(_verified_chunks(entry, file, source, chunks))
    except OSError as error:
        raise ImageError(
            f"{source} could not be stored in {folder} ({error}); set WHATWHERE_DATA to another folder for the cache"
        ) from None


def _verified_chunks(entry: FileSet, file: File, source: Path, chunks: Iterable[bytes]) -> Iterable[bytes]:
    """The same chunks; raises an error at their end, or as soon as there are too many, if they are not the file."""
    digest = hashlib.sha256()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > file.size:
            raise ImageError(f"{source}: not {file.name} of {entry.name}: it has more than {file.size:,} bytes")
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != file.sha256:
        raise ImageError(
            f"{source}: not {file.name} of {entry.name}, or damaged: its sha256 is {digest.hexdigest()}, expected "
            f"{file.sha256}"
        )
