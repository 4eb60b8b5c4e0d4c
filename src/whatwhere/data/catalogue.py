"""The data sets known by name, from catalogue.toml: their files with checksums, mirrors, licence
and citation.

A file appears in the cache complete and verified, or not at all. It comes from a folder of the user
or from a mirror.
"""

import gzip
import hashlib
import os
import sys
import tomllib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Literal
from urllib.request import Request, urlopen

from whatwhere.errors import ImageError, NoSuchImages, UnknownDataset
from whatwhere.files import FileFields, new_folder, open_atomic

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class File:
    """A file of the cache, with the checksum and the size of exactly its bytes.

    A file whose name ends in .gz is stored compressed; any other is stored decompressed, even if
    its source is compressed.
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

    Parameters
    ----------
    title
        what it is, in a sentence
    files
        for a data set: images and labels for training, then those for testing; for a model: its one
        file
    facts
        what else is known about it: licence, citation, …
    mirrors
        addresses that the files are downloaded from; none: they are part of the package
    embedded
        the folder of the files, if they are part of the package
    card
        for a model: all that is known about it, in Markdown
    """

    name: str
    title: str
    files: tuple[File, ...]
    facts: Mapping[str, str]
    mirrors: tuple[str, ...] = ()
    embedded: Path | None = None
    card: str = ""

    @classmethod
    def of(cls, name: str, table: FileFields) -> "Entry":
        """Return the data set that a table of catalogue.toml describes."""
        files = tuple(
            File(**table[split][kind])
            for split in ("train", "test")
            for kind in ("images", "labels")
        )
        mirrors = tuple(table["mirrors"])
        facts = {key: table[key] for key in ("licence", "citation")}
        return cls(name, table["title"], files, facts, mirrors, None if mirrors else FOLDER / name)

    @property
    def how_to_get(self) -> str:
        """The command that downloads it."""
        return f"whatwhere download {self.name}"


CATALOGUE = {
    name: Entry.of(name, table)
    for name, table in tomllib.loads((FOLDER / "catalogue.toml").read_text("utf-8")).items()
}


def checksums(name: str) -> list[str]:
    """Return the SHA-256 sums of the files of a data set, which identify its images and labels.

    Parameters
    ----------
    name
        name of a data set (`digits`, `mnist`, `fashion-mnist`, `kmnist`)

    Examples
    --------
    >>> len(ww.data.checksums("mnist"))    # images and labels, to train and to test
    4
    """
    return [file.sha256 for file in find(name).files]


def find(name: str) -> Entry:
    """Return the data set of this name."""
    if name not in CATALOGUE:
        raise UnknownDataset("data set", name, CATALOGUE)
    return CATALOGUE[name]


class WrongChecksum(ImageError):
    """A file of a data set that is damaged or missing, or another file.

    Attributes
    ----------
    name
        the file
    expected
        the file that it should be, if that has another name
    """

    def __init__(self, name: str, remedy: str, expected: str = "") -> None:
        self.name = name
        self.expected = expected
        other = f"not {expected}, or it is " if expected else ""
        super().__init__(f"{name} is {other}damaged: its checksum is wrong. {remedy}")


class NotStored(ImageError):
    """A file of a data set that cannot be stored in the cache.

    Attributes
    ----------
    name
        the file
    folder
        the cache
    reason
        why, as a clause
    """

    def __init__(self, name: str, folder: Path, reason: str) -> None:
        self.name = name
        self.folder = folder
        self.reason = reason
        super().__init__(
            f"Cannot store {name} in {folder}: {reason}. Copy or download it again, or set"
            " WHATWHERE_DATA to another folder for the cache."
        )


class NotDownloaded(ImageError):
    """A file of a data set that no server has.

    Attributes
    ----------
    name
        the file
    """

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


def cache_folder() -> Path:
    """Return WHATWHERE_DATA if it is set, otherwise the program's own folder in the user's
    cache."""
    if chosen := os.environ.get("WHATWHERE_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "whatwhere"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatwhere"


def folder_of(entry: Entry) -> Path:
    """Return the folder of a data set's files."""
    return entry.embedded or cache_folder() / entry.name


def missing_files(entry: Entry) -> list[File]:
    """Return the files of a data set that are not in its folder with the right size."""
    paths = {file: folder_of(entry) / file.name for file in entry.files}
    return [
        file
        for file, path in paths.items()
        if not path.is_file() or path.stat().st_size != file.size
    ]


def verify(entry: Entry, file: File) -> Literal["verified", "missing", "damaged"]:
    """Read a file of the cache and compare its checksum."""
    path = folder_of(entry) / file.name
    if not path.is_file():
        return "missing"
    with path.open("rb") as stream:
        return (
            "verified"
            if hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
            else "damaged"
        )


def verified_path(entry: Entry, file: File) -> Path:
    """Return the path of a file of the cache, after its checksum is verified."""
    path = folder_of(entry) / file.name
    if verify(entry, file) != "verified":
        remedy = "Install whatwhere again." if entry.embedded else f"Run `{entry.how_to_get}`."
        raise WrongChecksum(str(path), remedy)
    return path


def download(
    entry: Entry, source: Path | None = None, progress: Callable[[int], object] = lambda files: None
) -> None:
    """Put the missing or damaged files of a data set into the cache.

    Parameters
    ----------
    source
        a folder to take them from, compressed or not; None: the mirrors
    progress
        called after every file
    """
    wanted = [file for file in entry.files if verify(entry, file) != "verified"]
    if entry.embedded and wanted:
        raise WrongChecksum(f"{wanted[0].name} of {entry.name}", "Install whatwhere again.")
    for file in wanted:
        if source is None:
            _fetch(entry, file)
        else:
            paths = [
                source / name
                for name in (file.name, file.download_name)
                if (source / name).is_file()
            ]
            if not paths:
                raise NoSuchImages(
                    f"{file.download_name} in",
                    source,
                    remedy="Copy the file there, or give another folder with --from.",
                )
            with paths[0].open("rb") as stream:
                store(entry, file, stream, str(paths[0]))
        progress(1)


def _fetch(entry: Entry, file: File) -> None:
    """Download a file from the first mirror that serves all of it."""
    failures = []
    for mirror in entry.mirrors:
        url = mirror + file.download_name
        try:
            request = Request(url, headers={"User-Agent": "whatwhere"})
            with urlopen(request, timeout=30) as answer:  # seconds, then the next mirror
                store(entry, file, answer, url)
            return
        except (OSError, HTTPException, ImageError) as error:
            failures.append(f"  {url}: {error}")
    names = ", ".join(file.download_name for file in entry.files)
    raise NotDownloaded(
        file.download_name,
        f"Cannot download {file.download_name} of {entry.name}:\n" + "\n".join(failures) + "\n"
        f"Without a network, copy {names} to a folder and run `{entry.how_to_get} --from FOLDER`.",
    )


def store(entry: Entry, file: File, source: IO[bytes], name: str) -> None:
    """Verify a file, which is gzip-compressed if its name says so, and store it in the cache,
    complete or not at all."""
    folder = folder_of(entry)
    digest = hashlib.sha256()
    size = 0
    stream: IO[bytes] | gzip.GzipFile = (
        gzip.GzipFile(fileobj=source) if name.endswith(".gz") and not file.compressed else source
    )
    try:
        with new_folder(folder), open_atomic(folder / file.name) as target:
            while size <= file.size and (chunk := stream.read(1 << 18)):
                size += len(chunk)
                digest.update(chunk)
                target.write(chunk)
            if digest.hexdigest() != file.sha256:
                raise WrongChecksum(name, "Download it again.", f"{file.name} of {entry.name}")
    except (OSError, EOFError, zlib.error) as error:
        raise NotStored(name, folder, str(error)) from None


def absolute_source(source: str | Path) -> str:
    """Return the name of a data set as it is, and a path in full, as a run records them."""
    is_name = isinstance(source, str) and source.partition(":")[0] in CATALOGUE
    return str(source) if is_name else str(Path(source).absolute())
