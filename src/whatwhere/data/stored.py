"""An array in a file: what the header says is held against what is there before anything is allocated."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from whatwhere.errors import ImageError

DEFLATE_RATIO = 1032
"""Deflate shrinks nothing further than this, so n packed bytes cannot hold more than 1032 n."""

IN_MEMORY_LIMIT = 1 << 30
"""The most bytes a packed array may unpack to in memory; an unpacked file of any size is memory-mapped."""


@dataclass(frozen=True)
class StoredArray:
    """What a header says: values of this type and shape, `offset` bytes after the header's start."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"] = "C"

    def __post_init__(self) -> None:
        if not self.shape or min(*self.shape, self.dtype.itemsize) < 1:
            raise ImageError(f"{self.path}: no values: the header gives the shape {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of all values: a Python integer, which no header overflows."""
        return math.prod(self.shape) * self.dtype.itemsize

    def map(self, start: int, length: int) -> np.ndarray:
        """The array memory-mapped; header and values are the `length` bytes of the file from `start` on."""
        self._check_length(length - self.offset)
        return np.asarray(np.memmap(self.path, self.dtype, "r", start + self.offset, self.shape, self.order))

    def unpack(self, pieces: Iterable[bytes], packed_length: int) -> np.ndarray:
        """The array in memory, from unpacked pieces (header first) of `packed_length` bytes in the file."""
        self._check_unpacked_size(packed_length)
        content = bytearray()  # grows with what arrives, whatever the header says
        for piece in pieces:
            content += piece
            if len(content) > self.offset + self.nbytes:
                break
        self._check_length(len(content) - self.offset)
        return np.ndarray(self.shape, self.dtype, content, self.offset, order=self.order)

    def _check_length(self, found: int) -> None:
        if found != self.nbytes:
            problem = "cut short" if found < self.nbytes else "longer than its header says"
            raise ImageError(
                f"{self.path}: {problem}: the header gives the shape {self.shape}, {self.nbytes:,} bytes of "
                f"{self.dtype}, and {found:,} were found; copy or download the file again"
            )

    def _check_unpacked_size(self, packed_length: int) -> None:
        if self.nbytes > DEFLATE_RATIO * packed_length:
            raise ImageError(
                f"{self.path}: the header asks for more than {packed_length:,} packed bytes can hold: the shape "
                f"{self.shape}, {self.nbytes:,} bytes of {self.dtype}; copy or download the file again"
            )
        if self.nbytes > IN_MEMORY_LIMIT:
            raise ImageError(
                f"{self.path}: unpacks to {self.nbytes:,} bytes, and at most {IN_MEMORY_LIMIT:,} are unpacked in "
                "memory; store it unpacked, and it is memory-mapped instead"
            )
