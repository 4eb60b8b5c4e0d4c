"""Find the pictures that are older than what they were drawn from.

    python docs/pictures.py                 # what to draw again, and by which command
    python docs/pictures.py drawn reset …   # after drawing these and looking at them

`pictures.toml` has the commands and the sources; `pictures.json` the sums of sources and pictures
when they were drawn last.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
SUMS = DOCS / "pictures.json"


@dataclass(frozen=True)
class Drawing:
    """Pictures that one command draws.

    pictures  relative to docs
    sources   files and folders that they are drawn from, relative to the repository
    """

    name: str
    command: str
    pictures: tuple[str, ...]
    sources: tuple[str, ...]

    def sum(self) -> str:
        """The checksum of sources and pictures: it changes if either does without the other."""
        every = [DOCS.parent / source for source in self.sources]
        every += [DOCS / picture for picture in self.pictures]
        digest = hashlib.sha256()
        for path in every:
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()[:16]


def drawings() -> list[Drawing]:
    table = tomllib.loads((DOCS / "pictures.toml").read_text(encoding="utf-8"))
    return [
        Drawing(name, each["command"], tuple(each["pictures"]), tuple(each["sources"]))
        for name, each in table.items()
    ]


def stale() -> list[Drawing]:
    """The drawings whose sources or pictures changed since they were recorded."""
    known = json.loads(SUMS.read_text(encoding="utf-8"))
    return [each for each in drawings() if known.get(each.name) != each.sum()]


def record(names: list[str]) -> None:
    """Record that these drawings are as their sources are."""
    known = json.loads(SUMS.read_text(encoding="utf-8")) if SUMS.is_file() else {}
    every = {each.name: each for each in drawings()}
    known |= {name: every[name].sum() for name in names}
    SUMS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> str | None:
    """Record, or return what to draw again."""
    if arguments[:1] == ["drawn"]:
        record(arguments[1:])
        return None
    texts = [
        f"{', '.join(each.pictures)}: older than {', '.join(each.sources)}. Run `{each.command}`,"
        f" look at them, then `python docs/pictures.py drawn {each.name}`."
        for each in stale()
    ]
    return "\n".join(texts) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
