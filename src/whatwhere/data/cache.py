"""Where the files of named sets are kept, and how a file gets there: whole and verified, or not at all."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from whatwhere.data.catalogue import Entry, File
from whatwhere.data.unpack import as_it_is, unpacked
from whatwhere.errors import ImageError


class State(StrEnum):
    """How a file of the cache was found."""

    VERIFIED = "verified"
    MISSING = "missing"
    DAMAGED = "damaged"


def cache_folder() -> Path:
    """WHATWHERE_DATA where it is set, otherwise the program's own folder in the user's cache."""
    if chosen := os.environ.get("WHATWHERE_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "whatwhere" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "whatwhere"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatwhere"


def folder_of(entry: Entry) -> Path:
    """The folder of a set's files."""
    return entry.embedded or cache_folder() / entry.name


def missing_files(entry: Entry) -> list[File]:
    """The files of a set that are not in its folder with the right size."""
    folder = folder_of(entry)
    return [f for f in entry.files if not (folder / f.name).is_file() or (folder / f.name).stat().st_size != f.size]


def verify(entry: Entry, file: File) -> State:
    """Read a kept file again and compare its checksum."""
    path = folder_of(entry) / file.name
    if not path.is_file():
        return State.MISSING
    if path.stat().st_size != file.size:
        return State.DAMAGED
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    return State.VERIFIED if found == file.sha256 else State.DAMAGED


def keep(entry: Entry, file: File, source: Path) -> None:
    """Verify a file, packed or not, and keep it under its name, which it gets only when whole."""
    folder = folder_of(entry)
    try:
        pieces = as_it_is(source) if file.packed else unpacked(source)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch:
            partial = Path(scratch) / file.name
            with partial.open("wb") as stream:
                stream.writelines(_verified(entry, file, source, pieces))
                os.fsync(stream.fileno())
            os.replace(partial, folder / file.name)
    except OSError as error:
        raise ImageError(
            f"{source} could not be kept in {folder} ({error}); WHATWHERE_DATA names another folder for the cache"
        ) from None


def _verified(entry: Entry, file: File, source: Path, pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The same pieces, refused at their end, or as soon as there are too many, if they are not the file."""
    digest = hashlib.sha256()
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > file.size:
            raise ImageError(f"{source}: not {file.name} of {entry.name}: it holds more than {file.size:,} bytes")
        digest.update(piece)
        yield piece
    if digest.hexdigest() != file.sha256:
        raise ImageError(
            f"{source}: not {file.name} of {entry.name}, or damaged: its sha256 is {digest.hexdigest()}, and "
            f"{file.sha256} is expected"
        )
