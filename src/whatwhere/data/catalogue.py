"""The data sets known by name, from catalogue.toml: their files with checksums, mirrors, licence and citation."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whatwhere.errors import ImageError, did_you_mean

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
class Split:
    """The files of a split: images and labels."""

    images: File
    labels: File


class FileSet(Protocol):
    """What the cache and downloads need: files under one name, in the package or on mirrors."""

    @property
    def name(self) -> str: ...
    @property
    def cache_name(self) -> str: ...
    @property
    def files(self) -> tuple[File, ...]: ...
    @property
    def mirrors(self) -> tuple[str, ...]: ...
    @property
    def embedded(self) -> Path | None: ...
    @property
    def how_to_get(self) -> str: ...


@dataclass(frozen=True)
class Entry:
    """A data set with a training and a test split."""

    name: str
    title: str
    train: Split
    test: Split
    licence: str
    citation: str
    mirrors: tuple[str, ...] = ()
    embedded: Path | None = None
    """The folder of the files, if they are part of the package."""

    @classmethod
    def of(cls, name: str, table: dict[str, Any]) -> "Entry":
        """The entry that a table of catalogue.toml describes."""
        train, test = (
            Split(*(File(**table[split][kind]) for kind in ("images", "labels"))) for split in ("train", "test")
        )
        title, licence, citation, mirrors = (table[key] for key in ("title", "licence", "citation", "mirrors"))
        return cls(name, title, train, test, licence, citation, tuple(mirrors), None if mirrors else FOLDER / name)

    @property
    def cache_name(self) -> str:
        """The name of its folder in the cache."""
        return self.name

    @property
    def how_to_get(self) -> str:
        """The command that downloads it."""
        return f"whatwhere get {self.name}"

    @property
    def facts(self) -> dict[str, str]:
        """What is known of it besides its files."""
        return {"licence": self.licence, "citation": self.citation}

    @property
    def files(self) -> tuple[File, ...]:
        return (self.train.images, self.train.labels, self.test.images, self.test.labels)


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
