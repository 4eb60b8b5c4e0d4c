"""The program `whatwhere` in processes of its own, which tests kill and start again."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import tiny_training
from whatwhere import app  # noqa: F401, so that processes need not import it
from whatwhere.__main__ import main


class Ending(NamedTuple):
    """A signal that a program gets when a file is about to appear: the end of the file's name."""

    number: int
    file: str


def start(
    words: Sequence[object],
    errors: Path,
    *,
    constants: Mapping[str, Any] | None = None,
    ending: Ending | None = None,
) -> Any:
    """Start `whatwhere` as a user does, in a process that is forked from one that has imported
    torch already.

    words      of the command line
    errors     the file that gets what it prints and its errors
    constants  of the package that have another value in this process, by their full names
    ending     when it gets a signal
    """
    text = [str(word) for word in words]
    return tiny_training.process(run, text, errors, dict(constants or {}), ending)


def run(words: list[str], errors: Path, constants: dict[str, Any], ending: Ending | None) -> None:
    """What the process does."""
    torch.set_num_threads(1)
    with open(errors, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(import_module(module), constant, value)
    if ending is not None:
        signal_at(ending)
    sys.argv = ["whatwhere", *words]
    main()


def fail_without(package: str, words: list[str]) -> None:
    """Run a command whose error must come before a package is imported."""
    assert package not in sys.modules
    sys.argv = ["whatwhere", *words]
    with pytest.raises(SystemExit):
        main()
    assert package not in sys.modules


def signal_at(ending: Ending) -> None:
    """Send this process a signal when the file is about to appear."""
    replace = os.replace

    def replace_after_signal(source: Any, target: Any) -> None:
        if str(target).endswith(ending.file):
            signal.raise_signal(ending.number)
        replace(source, target)

    os.replace = replace_after_signal
