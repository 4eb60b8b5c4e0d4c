"""Command lines as they were typed before: each answers with the line to type now."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whatwhere.errors import command as command_line

Values = Mapping[str, str]  # what a line gives for the arguments, by name


@dataclass(frozen=True)
class Grammar:
    """What a command is called, and which of its options take values.

    Parameters
    ----------
    command
        the words that call it
    takes
        options that a value follows
    """

    command: Sequence[str]
    takes: frozenset[str]


class OldForm(Protocol):
    """A form of a command line that is not valid any more."""

    def new_line(self, words: Sequence[str], grammar: Grammar) -> str | None:
        """Write the line to type now; None if the words are not in the old form.

        Parameters
        ----------
        words
            of the line, without the names of the program and the command
        grammar
            of the command
        """


def split_option(word: str) -> list[str]:
    """Split --option=value into its two words."""
    name, equals, value = word.partition("=")
    return [name, value] if equals and name.startswith("--") else [word]


@dataclass(frozen=True)
class Moved:
    """An option of a command that is a command of its own now.

    Parameters
    ----------
    option
        the option
    command
        the name of the new command
    becomes
        the option of the new command that takes its value; None if it has no value
    """

    option: str
    command: str
    becomes: str | None = None

    def new_line(self, words: Sequence[str], grammar: Grammar) -> str | None:
        """Put the name of the new command and of its option in place of the old ones."""
        given = [part for word in words for part in split_option(word)]
        if self.option not in given:
            return None
        if self.becomes is not None and self.becomes in given:
            at = given.index(self.becomes)
            del given[at : at + 2]
        new = [self.becomes if word == self.option else word for word in given]
        return command_line("whatwhere", self.command, *(word for word in new if word is not None))


@dataclass(frozen=True)
class Reordered:
    """Arguments that stood in another order, or that are options now.

    Parameters
    ----------
    was
        the names of the arguments, in the order in which they stood
    now
        the names in the order of today; a name with dashes is an option
    is_old
        says whether a line with these values is in the old order; a line that gives an option of
        `now` never is
    was_option
        an option that is an argument now
    """

    was: str
    now: str
    is_old: Callable[[Values], bool] = lambda values: True
    was_option: str | None = None

    def new_line(self, words: Sequence[str], grammar: Grammar) -> str | None:
        """Put the arguments in the order of today."""
        arguments, options = _sort(words, grammar.takes | {self.was_option})
        values = dict(zip(self.was.split(), arguments, strict=False))
        if len(arguments) != len(self.was.split()) or set(self.now.split()) & set(options):
            return None
        if not self.is_old(values):
            return None
        if self.was_option in options:
            at = options.index(self.was_option)
            values[self.was_option.strip("-")] = options[at + 1]
            del options[at : at + 2]
        new = []
        for name in self.now.split():
            if name.strip("-") in values:
                new += [name] * name.startswith("--") + [values[name.strip("-")]]
        return command_line("whatwhere", *grammar.command, *new, *options)


@dataclass(frozen=True)
class WithoutPictures:
    """A model alone, of a command that took the pictures that the model had learned from."""

    def new_line(self, words: Sequence[str], grammar: Grammar) -> str | None:
        """Put a word for the pictures before the model."""
        arguments, options = _sort(words, grammar.takes)
        if len(arguments) != 1 or not is_model(arguments[0]):
            return None
        return command_line("whatwhere", *grammar.command, "PICTURES", *arguments, *options)


def _sort(words: Sequence[str], takes: frozenset[str | None]) -> tuple[list[str], list[str]]:
    """Sort the words of a line into arguments and options with their values."""
    arguments: list[str] = []
    options: list[str] = []
    rest = [part for word in words for part in split_option(word)]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            arguments.append(word)
            continue
        options.append(word)
        if word in takes and rest:
            options.append(rest.pop(0))
    return arguments, options


def model_first(pictures: str = "images", model: str = "run") -> Reordered:
    """Make the old form of a command that took its model before the pictures."""
    return Reordered(
        was=f"{model} {pictures}",
        now=f"{pictures} {model}",
        is_old=lambda values: is_model(values[model]) and not is_model(values[pictures]),
    )


def is_model(name: str) -> bool:
    """Say whether a name or a path leads to a run, a model, a classifier or a detector."""
    path = Path(name)
    if os.path.isdir(path):
        return os.path.isfile(path / "recipe.toml")
    if os.path.isfile(path):
        with path.open("rb") as file:
            return file.read(9)[8:] == b"{"  # safetensors: the length of its header, the header
    from whatwhere.data.models import names

    return name in names()
