"""The data sets known by name, from catalogue.toml: their files with checksums, mirrors, licence and citation.

A file appears in the cache complete and verified, or not at all. It comes from a folder of the user or from a mirror.
"""

import gzip
import hashlib
import os
import sys
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from whatwhere.errors import ImageError, did_you_mean
from whatwhere.files import is_regular, new_folder, open_atomic, open_regular

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class File:
    """A file of the cache: `sha256` and `size` are of exactly these bytes.

    A file whose name ends in .gz is stored compressed; any other is stored decompressed, whoever compressed it.
    """

    name: str
    sha256: str
    size: int

    @property
    def compressed(self) -> bool:
        return self.name.endswith(".gz")

    @property
    def download_name(self) -> str:
        """Its name on the mirrors, which all serve gzip files."""
        return self.name if self.compressed else f"{self.name}.gz"


@dataclass(frozen=True)
class Entry:
    """A data set or a model that is known by name.

    title       what it is, in a sentence
    files       of a data set the images and the labels for training, then those for testing; of a model its one file
    facts       what else is known of it: licence, citation, …
    mirrors     addresses that the files are downloaded from; none: they are part of the package
    embedded    the folder of the files, if they are part of the package
    cache_name  of the folder in the cache; default: the name
    card        of a model: all that is known of it, in Markdown
    """

    name: str
    title: str
    files: tuple[File, ...]
    facts: Mapping[str, str]
    mirrors: tuple[str, ...] = ()
    embedded: Path | None = None
    cache_name: str = ""
    card: str = ""

    @classmethod
    def of(cls, name: str, table: dict[str, Any]) -> "Entry":
        """The data set that a table of catalogue.toml describes."""
        files = tuple(File(**table[split][kind]) for split in ("train", "test") for kind in ("images", "labels"))
        mirrors, facts = tuple(table["mirrors"]), {key: table[key] for key in ("licence", "citation")}
        return cls(name, table["title"], files, facts, mirrors, None if mirrors else FOLDER / name)

    @property
    def how_to_get(self) -> str:
        """The command that downloads it."""
        return f"whatwhere info {self.name} --download"


CATALOGUE = {
    name: Entry.of(name, table) for name, table in tomllib.loads((FOLDER / "catalogue.toml").read_text("utf-8")).items()
}


def checksums(name: str) -> list[str]:
    """The SHA-256 sums of the files of a data set, which identify its images and labels.

    name  of a data set (`digits`, `mnist`, `fashion-mnist`, `kmnist`)

    >>> len(ww.data.checksums("mnist"))    # images and labels, to train and to test
    4
    """
    return [file.sha256 for file in find(name).files]


def find(name: str) -> Entry:
    """The data set of this name."""
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise ImageError(f"no data set is called {name!r}; the known ones are {known}{did_you_mean(name, CATALOGUE)}")
    return CATALOGUE[name]


CHUNK_BYTES = 1 << 18
TIMEOUT = 30
"""Seconds without an answer after which the next mirror is tried."""


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


def folder_of(entry: Entry) -> Path:
    """The folder of a data set's files."""
    return entry.embedded or cache_folder() / (entry.cache_name or entry.name)


def missing_files(entry: Entry) -> list[File]:
    """The files of a data set that are not in its folder with the right size."""
    folder = folder_of(entry)
    return [f for f in entry.files if not is_regular(folder / f.name) or (folder / f.name).stat().st_size != f.size]


def verify(entry: Entry, file: File) -> FileStatus:
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


def verified_path(entry: Entry, file: File) -> Path:
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


def download(entry: Entry, source: Path | None = None, progress: Callable[[int], Any] = lambda files: None) -> None:
    """Bring the files of a data set that are missing or damaged into the cache; from `source` only, if it is given.

    progress  called after every file
    """
    if source is not None and not source.is_dir():
        raise ImageError(f"{source}: not a folder; give one that contains {_names(entry.files)}")
    wanted = [file for file in entry.files if verify(entry, file) is not FileStatus.VERIFIED]
    if entry.embedded and wanted:
        raise ImageError(f"{entry.name}: {_names(wanted)} damaged or missing; install whatwhere again")
    local = {file: path for file in wanted if (path := _local_copy(entry, file, source))}
    if source and len(local) < len(wanted):
        raise ImageError(f"{source}: does not contain {_names(file for file in wanted if file not in local)}")
    for file in wanted:
        if file in local:
            add(entry, file, local[file])
        else:
            _fetch(entry, file)
        progress(1)


def add(entry: Entry, file: File, source: Path) -> None:
    """Verify a file, compressed or not, and store it in the cache, where it appears only when it is complete."""
    folder, digest, size = folder_of(entry), hashlib.sha256(), 0
    wrong = f"{source}: not {file.name} of {entry.name}"
    try:
        with open_regular(source) as raw, new_folder(folder), open_atomic(folder / file.name) as target:
            is_gzip = raw.peek(2)[:2] == b"\x1f\x8b"
            stream: Any = gzip.GzipFile(fileobj=raw) if is_gzip and not file.compressed else raw
            while chunk := stream.read(CHUNK_BYTES):
                size += len(chunk)
                if size > file.size:
                    raise ImageError(f"{wrong}: it has more than {file.size:,} bytes")
                digest.update(chunk)
                target.write(chunk)
            if digest.hexdigest() != file.sha256:
                raise ImageError(f"{wrong}, or damaged: its sha256 is {digest.hexdigest()}, expected {file.sha256}")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ImageError(f"{wrong}, or damaged ({error}); copy or download it again") from None
    except OSError as error:
        raise ImageError(
            f"{source} could not be stored in {folder} ({error}); set WHATWHERE_DATA to another folder for the cache"
        ) from None


def _local_copy(entry: Entry, file: File, source: Path | None) -> Path | None:
    """The file in the source, compressed or not; without a source, a compressed copy in the cache itself."""
    folder = source or folder_of(entry)
    names = {file.name, file.download_name} if source else {file.download_name} - {file.name}
    return next((folder / name for name in sorted(names) if is_regular(folder / name)), None)


def _fetch(entry: Entry, file: File) -> None:
    """Download a file from the first mirror that serves all of it."""
    failures = []
    for mirror in entry.mirrors:
        url = mirror + file.download_name
        with tempfile.TemporaryDirectory() as folder:
            fetched = Path(folder) / file.download_name
            try:
                _save(url, fetched, file.size)
                add(entry, file, fetched)
                return
            except (OSError, HTTPException, ImageError) as error:
                failures.append(f"  {url}: {error}")
    raise ImageError(
        f"{entry.name}: {file.download_name} could not be downloaded:\n" + "\n".join(failures) + "\n"
        f"Without a network, put {_names(entry.files)} into {folder_of(entry)} and run "
        f"`{entry.how_to_get}` again"
    )


def _save(url: str, path: Path, size: int) -> None:
    """Download a file that holds `size` bytes, compressed or not; it does not grow beyond what those can need."""
    limit = size + size // 1000 + 4096
    with urlopen(Request(url, headers={"User-Agent": "whatwhere"}), timeout=TIMEOUT) as answer, path.open("xb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            if file.tell() + len(chunk) > limit:
                raise ImageError(f"more than {limit:,} bytes arrived")
            file.write(chunk)


def _names(files: Iterable[File]) -> str:
    return ", ".join(file.download_name for file in files)
