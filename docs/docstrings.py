"""Docstrings for the site: tables as lists, examples as code. `whatwhere.spec.docstrings` reads
them."""

from __future__ import annotations

import inspect
import re

from whatwhere.spec.docstrings import split, table

RESULTS = ("returns", "yields")


def as_restructured_text(text: str, thing: object = None) -> str:
    """A docstring for Sphinx: tables as lists, indented blocks and examples as code, signs of
    markup escaped."""
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
    parts[::2] = [
        re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([*|\\])", r"\\\1", part)) for part in parts[::2]
    ]
    return "`".join(parts)
