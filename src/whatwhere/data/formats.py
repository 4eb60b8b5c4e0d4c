"""Formats of files that a use of the library reads and writes, such as recordings.

A module for such files offers the functions of `Format`. It is loaded on first use, so that neither
`data` nor training imports a use.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from whatwhere.data.stored_array import AnyArray

if TYPE_CHECKING:
    import numpy as np

    from whatwhere.signals.recording import Signals

_RECORDINGS = "whatwhere.signals.files"
_SIGNALS = "whatwhere.signals.recording"


class Format(Protocol):
    """A module that reads and writes recordings.

    Parameters
    ----------
    SUFFIXES
        endings of the files that hold nothing but a recording
    """

    SUFFIXES: tuple[str, ...]

    def read(self, path: Path, name: str) -> "Signals":
        """Read a file with one of the suffixes."""

    def of_values(self, values: AnyArray, name: str) -> "Signals":
        """Return signals of values [T], [C, T] or [N, C, T]."""

    def of_object(self, source: object) -> "Signals | None":
        """Return signals of an object of another library; None if it is not one of those."""

    def read_along(self, path: Path) -> list[Path]:
        """Return the other files of a recording that are read with this one, if they exist."""

    def encode(self, values: "np.ndarray", source: Path) -> bytes:
        """Return the content of a file of signals [N, C, T] in the form of `source`."""

    def holds_unknown(self, source: Path) -> bool:
        """Tell whether a file like `source` can mark samples as unknown."""


def recordings() -> Format:
    """Return the format of recordings."""
    return cast(Format, importlib.import_module(_RECORDINGS))


def signals_class() -> "type[Signals]":
    """Return the class of recordings."""
    return cast("type[Signals]", importlib.import_module(_SIGNALS).Signals)


def is_recording_file(source: object) -> bool:
    """Tell whether this is a path of a file that holds nothing but a recording."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() in recordings().SUFFIXES
