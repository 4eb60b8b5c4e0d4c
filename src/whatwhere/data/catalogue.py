"""The data sets known by name, from catalogue.toml: their files with checksums, mirrors, licence and citation."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
