"""How much is read at once, and what is too large to be read, so that a file cannot fill memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ReadLimits:
    """The largest sizes of what is read.

    Parameters
    ----------
    decompressed
        bytes that are decompressed into memory; uncompressed files may have any size
    in_memory
        bytes up to which an array file is read into memory; larger ones are read part by part
    batch
        bytes of raw pixels that are read at a time
    picture_pixels
        pixels of one picture (8192 × 8192, more than most cameras have); a larger one is rejected
        before it is decoded
    pages
        pages of one file
    page_values
        values in one page of a TIFF, in all its channels
    """

    decompressed: int = 1 << 30
    in_memory: int = 1 << 28
    batch: int = 1 << 26
    picture_pixels: int = 1 << 26
    pages: int = 10_000
    page_values: int = 1 << 27


_USUAL = ReadLimits()
_CURRENT: ContextVar[ReadLimits] = ContextVar("read limits", default=_USUAL)


def limits() -> ReadLimits:
    """Return the limits in force."""
    return _CURRENT.get()


@contextmanager
def limited(**changes: int) -> Iterator[None]:
    """Read with other limits, by the names of `ReadLimits`, within a block of this thread."""
    token = _CURRENT.set(replace(_CURRENT.get(), **changes))
    try:
        yield
    finally:
        _CURRENT.reset(token)
