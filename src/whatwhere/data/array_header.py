"""What the header of an array file says, checked against the file before any memory is allocated."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from whatwhere.data.array_file import ArrayFile, FileVersion
from whatwhere.errors import ImageError

DEFLATE_RATIO = 1032
"""The best ratio that deflate reaches: n compressed bytes hold at most 1032 n bytes."""

IN_MEMORY_LIMIT = 1 << 30
"""The most bytes of a compressed array, which is decompressed in memory; uncompressed files may have any size."""


@dataclass(frozen=True)
class ArrayHeader:
    """Values of this type and shape, `offset` bytes after the start of the header."""

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

    def open(self, start: int, length: int, version: FileVersion) -> ArrayFile:
        """The array, to be read by rows; header and values are the `length` bytes of the file from `start` on."""
        self._check_length(min(length, version.size - start) - self.offset)
        return ArrayFile(self.path, self.dtype, self.shape, start + self.offset, self.order, version)

    def decompress(self, chunks: Iterable[bytes], compressed_length: int) -> np.ndarray:
        """The array in memory, from decompressed chunks (header first) of `compressed_length` bytes in the file."""
        self._check_decompressed_size(compressed_length)
        content = bytearray()  # grows with what arrives, whatever the header says
        for chunk in chunks:
            content += chunk
            if len(content) > self.offset + self.nbytes:
                break
        self._check_length(len(content) - self.offset)
        return np.ndarray(self.shape, self.dtype, content, self.offset, order=self.order)

    def _check_length(self, actual: int) -> None:
        if actual != self.nbytes:
            problem = "truncated" if actual < self.nbytes else "longer than its header says"
            raise ImageError(
                f"{self.path}: {problem}: the header gives the shape {self.shape}, {self.nbytes:,} bytes of "
                f"{self.dtype}, but the file has {actual:,}; copy or download it again"
            )

    def _check_decompressed_size(self, compressed_length: int) -> None:
        if self.nbytes > DEFLATE_RATIO * compressed_length:
            raise ImageError(
                f"{self.path}: the header asks for more than {compressed_length:,} compressed bytes can hold: the "
                f"shape {self.shape}, {self.nbytes:,} bytes of {self.dtype}; copy or download the file again"
            )
        if self.nbytes > IN_MEMORY_LIMIT:
            raise ImageError(
                f"{self.path}: decompresses to {self.nbytes:,} bytes, and at most {IN_MEMORY_LIMIT:,} are decompressed "
                "in memory; store it uncompressed, so that it is read batch by batch"
            )
