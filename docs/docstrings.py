"""Docstrings as the source writes them, read for the site and for the test that every public name is documented.

A docstring is a summary, prose, and tables of parameters, one line each:

    name, other   what they are; a line that is indented further
                  continues the one before

Two spaces (or ` : `) separate a name from its text. `returns` and `yields` stand in the same tables. Blocks that are
indented by four or more are shown as they are, and `>>>` begins an example.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: {2,}| : )(\S.*)$")
UNDERLINE = re.compile(r"^-{4,}$")
RESULTS = ("returns", "yields")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring: `entries` holds the text of every name in its tables."""

    summary: str
    entries: dict[str, str] = field(default_factory=dict)
    example: bool = False


def parse(text: str | None) -> Docstring:
    """Read a docstring."""
    blocks = list(split(inspect.cleandoc(text or "")))
    entries: dict[str, str] = {}
    for block in blocks[1:]:
        for names, description in table(block) or ():
            entries |= dict.fromkeys(names, description)
    summary = " ".join(blocks[0]) if blocks else ""
    return Docstring(summary, entries, any(line.lstrip().startswith(">>>") for block in blocks for line in block))


def split(text: str) -> Iterator[list[str]]:
    """Blocks of lines; empty lines separate them, and so does a heading with its underline."""
    block: list[str] = []
    for line in text.splitlines():
        if line.strip() and not UNDERLINE.match(line):
            block.append(line)
            continue
        if UNDERLINE.match(line) and block:
            *before, heading = block
            if before:
                yield before
            block = [f"{heading}:"] if heading not in ("Parameters", "Examples") else []
        if block:
            yield block
        block = []
    if block:
        yield block


def table(block: list[str]) -> list[tuple[list[str], str]] | None:
    """The rows of a table as (names, text); None if the block is none."""
    rows: list[tuple[list[str], str]] = []
    for line in block:
        entry = ENTRY.match(line)
        if entry:
            rows.append((entry[1].split(", "), entry[2]))
        elif rows and line.startswith("  "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            return None
    return rows or None


def as_restructured_text(text: str, thing: object = None) -> str:
    """A docstring for Sphinx: tables as lists, indented blocks and examples as code, signs of markup escaped."""
    parts = []
    for block in split(inspect.cleandoc(text)):
        rows = table(block)
        if block[0].startswith(">>>"):
            parts.append(["**Example**", "", *block])
        elif rows is not None:
            parts += [_list(rows)]
        elif all(line.startswith("    ") for line in block):
            parts.append(["::", "", *block])
        else:
            parts.append([_escape(line.strip()) for line in block])
    return "\n".join("\n".join([*part, ""]) for part in parts)


def _list(rows: list[tuple[list[str], str]]) -> list[str]:
    lines: list[str] = []
    for names, text in rows:
        shown = ", ".join("Returns" if name in RESULTS else f"``{name}``" for name in names)
        lines += [shown, f"    {_escape(text)}"]
    return lines


def _escape(line: str) -> str:
    """Escape what reStructuredText would take for markup, outside of `names`."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([*|\\])", r"\\\1", part)) for part in parts[::2]]
    return "`".join(parts)
