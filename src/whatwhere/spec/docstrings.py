"""Reading docstrings, for the command line and for the reference: a setting is described once,
where it is defined.

A docstring has the style of NumPy: a summary, prose, and sections with an underline, whose entries
are names and, indented below, what they are:

    Parameters
    ----------
    name, other
        what they are

    Returns
    -------
    type
        what it is

Types of parameters are annotations, so the sections do not repeat them. A short table may also
have a name and its text on one line, with two spaces (or ` : `) between them. Blocks that are
indented by four or more are shown as they are. `>>>` begins an example in Python, `$` one in a
shell.
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
_NAMES = re.compile(r"^\*{0,2}\w+(?:, \*{0,2}\w+)*$")
_UNDERLINE = re.compile(r"^-{4,}$")
_TABLES = ("Parameters", "Examples")
_RESULTS = ("Returns", "Yields")


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
    section = ""  # whose lines follow
    for line in text.splitlines():
        if line.strip() and not _UNDERLINE.match(line):
            block.append(line)
            continue
        if _UNDERLINE.match(line) and block:
            *before, heading = block
            if before:
                yield before
            section = heading
            block = [f"{heading}:"] if heading not in (*_TABLES, *_RESULTS) else []
        elif section in _RESULTS:
            block[:1] = [section.lower()]  # in place of the type
        if not _UNDERLINE.match(line):
            section = ""
        if block:
            yield block
        block = []
    if section in _RESULTS:
        block[:1] = [section.lower()]
    if block:
        yield block


def table(block: list[str]) -> list[tuple[list[str], str]] | None:
    """Return the rows of a table as (names, text); None if the block is not a table."""
    rows: list[tuple[list[str], str]] = []
    for line, below in zip(block, [*block[1:], ""], strict=True):
        entry = _ENTRY.match(line)
        if entry:
            rows.append((entry[1].split(", "), entry[2]))
        elif _NAMES.match(line) and below.startswith("    "):
            rows.append((line.split(", "), ""))
        elif rows and line.startswith("  "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}".strip())
        else:
            return None
    return rows or None
