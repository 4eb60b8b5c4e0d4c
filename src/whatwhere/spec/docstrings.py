"""Reading docstrings, for the command line and for the reference: a setting is described once,
where it is defined.

A docstring is a summary, prose, and tables of names, one line each:

    name, other   what they are; a line that is indented further
                  continues the one before

Two spaces (or ` : `) separate a name from its text. `returns` and `yields` stand in the same
tables. Blocks that are indented by four or more are shown as they are. `>>>` begins an example in
Python, `$` one in a shell.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: {2,}| : )(\S.*)$")
_UNDERLINE = re.compile(r"^-{4,}$")


@dataclass(frozen=True)
class _Docstring:
    """The parts of a docstring: `prose` without tables and examples, `entries` the text of every
    name in a table, `shell` the examples in a shell."""

    summary: str
    prose: str = ""
    entries: dict[str, str] = field(default_factory=dict)
    example: bool = False
    shell: tuple[str, ...] = ()


def docstring(documented: type | Callable[..., object]) -> _Docstring:
    """Read the docstring of a class or a function, also where Python leaves docstrings out
    (`python -OO`)."""
    if sys.flags.optimize < 2:
        return parse(documented.__doc__)
    file = sys.modules[documented.__module__].__file__
    return parse(_docstrings_in(str(file)).get(documented.__qualname__))


@cache
def _docstrings_in(file: str) -> dict[str, str | None]:
    """Read the docstrings of the classes and functions of a module from its source, by name."""
    body = ast.parse(Path(file).read_text(encoding="utf-8")).body
    documented = (ast.ClassDef, ast.FunctionDef)
    return {node.name: ast.get_docstring(node) for node in body if isinstance(node, documented)}


def parse(text: str | None) -> _Docstring:
    """Read the text of a docstring."""
    blocks = list(split(inspect.cleandoc(text or "")))
    entries: dict[str, str] = {}
    prose = []
    shell: list[str] = []
    for i, block in enumerate(blocks):
        rows = table(block) if i else None
        for names, description in rows or ():
            entries |= dict.fromkeys(names, description)
        if all(line.startswith("$ ") for line in block):
            shell += [line.removeprefix("$ ") for line in block]
        elif rows is None and not _is_example(block):
            prose.append(" ".join(map(str.strip, block)))
    summary = " ".join(blocks[0]) if blocks else ""
    example = any(map(_is_example, blocks))
    return _Docstring(summary, "\n\n".join(prose), entries, example, tuple(shell))


def _is_example(block: list[str]) -> bool:
    """Tell whether a block has lines of Python's prompt."""
    return any(line.lstrip().startswith(">>>") for line in block)


def split(text: str) -> Iterator[list[str]]:
    """Split lines into blocks; empty lines separate them, and so does a heading with its
    underline."""
    block: list[str] = []
    for line in text.splitlines():
        if line.strip() and not _UNDERLINE.match(line):
            block.append(line)
            continue
        if _UNDERLINE.match(line) and block:
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
    """Return the rows of a table as (names, text); None if the block is not a table."""
    rows: list[tuple[list[str], str]] = []
    for line in block:
        entry = _ENTRY.match(line)
        if entry:
            rows.append((entry[1].split(", "), entry[2]))
        elif rows and line.startswith("  "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            return None
    return rows or None
