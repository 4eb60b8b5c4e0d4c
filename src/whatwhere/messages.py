"""Command lines in messages, quoted so that they can be pasted into a shell."""

from __future__ import annotations

import os
import shlex

from whatwhere.errors import printable


def command(*words: str | os.PathLike[str]) -> str:
    """A command line that can be pasted; it has no control characters, whatever the names in it."""
    return " ".join(map(_quoted, words))


def _quoted(word: str | os.PathLike[str]) -> str:
    text = os.fspath(word)
    if printable(text) == text:
        return shlex.quote(text)
    escaped = "".join(char if printable(char) == char and char not in "'\\" else _octal(char) for char in text)
    return f"$'{escaped}'"  # understood by bash, zsh and ksh


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
