"""The models known by name. Everything about one is on its card, NAME.md in this folder: a title, a figure, a table.

A model of at most 1 MB ships with the package. A larger one has a row `mirror` on its card and is downloaded like the
files of a data set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from whatwhere.data.catalogue import File
from whatwhere.errors import RunError, did_you_mean

FOLDER = Path(__file__).parent
ROW = re.compile(r"^\| (?P<key>[^|]+?) \| (?P<value>.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class ModelEntry:
    """A model known by name: its card, and its file as the cache sees it."""

    name: str
    card: str

    cache_name = "models"

    @cached_property
    def facts(self) -> dict[str, str]:
        """The rows of the card's table, without the marks of Markdown."""
        return {row["key"]: row["value"].replace("`", "") for row in ROW.finditer(self.card) if row["key"] != "---"}

    @property
    def title(self) -> str:
        """What the model is, in a sentence: the first paragraph of the card."""
        return self.card.split("\n\n")[1].replace("\n", " ")

    @property
    def files(self) -> tuple[File, ...]:
        """Its one file: name, checksum and size are those on the card."""
        name, size = re.fullmatch(r"([\w.-]+), ([\d,]+) bytes", self.facts["file"]).groups()  # type: ignore[union-attr]
        return (File(name, self.facts["sha256"], int(size.replace(",", ""))),)

    @property
    def mirrors(self) -> tuple[str, ...]:
        """Where a large model is downloaded from, gzipped."""
        return (self.facts["mirror"],) if "mirror" in self.facts else ()

    @property
    def embedded(self) -> Path | None:
        """The folder of its file if it ships with the package."""
        return None if self.mirrors else FOLDER

    @property
    def how_to_get(self) -> str:
        """The command that downloads it."""
        return f"whatwhere get {self.name}"


def names() -> tuple[str, ...]:
    """The models that are known by name.

    >>> ww.models.names()
    ('digits-demo', 'fashion', 'mnist', 'photographs')
    """
    return tuple(sorted(card.stem for card in FOLDER.glob("*.md")))


def find(name: str) -> ModelEntry:
    """The model of this name."""
    if name not in names():
        raise RunError(
            f"{name!r} was given as a model; the models known by name are {', '.join(names())}"
            f"{did_you_mean(name, names())}"
        )
    return ModelEntry(name, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
