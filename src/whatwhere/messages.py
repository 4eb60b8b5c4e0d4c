"""Names of files in messages: without control characters, and quoted in commands so that they can be pasted."""

from __future__ import annotations

import os
import shlex


def printable(name: str | os.PathLike[str]) -> str:
    """A name as a message shows it: control characters are escaped, so that it cannot change the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in os.fspath(name))


def command(*words: str | os.PathLike[str]) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(map(_quoted, words))


def _quoted(word: str | os.PathLike[str]) -> str:
    text = os.fspath(word)
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(c if c.isprintable() and c not in "'\\" else _octal(c) for c in text)
    return f"$'{escaped}'"  # understood by bash, zsh and ksh


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
