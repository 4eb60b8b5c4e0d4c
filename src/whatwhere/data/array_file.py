"""An array in a file that is read by rows.

Not memory-mapped: a file that is truncated while it is mapped kills the process (SIGBUS). Reading it is an error
instead, which names the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from whatwhere.errors import ImageError
from whatwhere.files import open_regular

CHUNK_BYTES = 1 << 24


class FileVersion(NamedTuple):
    """What shows that a file was changed."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, file: BufferedReader) -> FileVersion:
        status = os.fstat(file.fileno())
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class ArrayFile:
    """Values of a file from `offset` on. `array[rows]` reads these rows and nothing else, in C or Fortran order."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]
    version: FileVersion

    def __getitem__(self, rows: Any) -> np.ndarray:
        indices = np.arange(self.shape[0])[rows]
        if indices.ndim != 1:
            raise IndexError(f"rows are given as a slice, a list, a mask or a 1-D array, not as {rows!r}")
        breaks = np.flatnonzero(np.diff(indices) != 1) + 1
        read = self._read_rows if self.order == "C" else self._read_columns
        with self._open() as file:
            values = np.empty((len(indices), *self.shape[1:]), self.dtype)
            for first, last in zip((0, *breaks), (*breaks, len(indices)), strict=True):
                if first < last:
                    values[first:last] = read(file, int(indices[first]), int(last - first))
        return values

    def chunks(self) -> Iterator[np.ndarray]:
        """All values once, in the order of the file, whatever the order of the axes is."""
        total, size = math.prod(self.shape), max(1, CHUNK_BYTES // self.dtype.itemsize)
        with self._open() as file:
            for first in range(0, total, size):
                yield self._read(file, first, min(size, total - first))

    def read_pieces(self, starts: Sequence[int], count: int) -> np.ndarray:
        """`count` values from each of these places on, as they lie in the file: [pieces, count]."""
        with self._open() as file:
            return np.stack([self._read(file, first, count) for first in starts])

    def _open(self) -> BufferedReader:
        try:
            file = open_regular(self.path)
        except OSError as error:
            raise ImageError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        if FileVersion.of(file) != self.version:
            file.close()
            raise ImageError(f"{self.path}: changed since it was loaded; load it again when it is complete")
        return file

    def _read_rows(self, file: BufferedReader, first: int, count: int) -> np.ndarray:
        row_values = math.prod(self.shape[1:])
        return self._read(file, first * row_values, count * row_values).reshape(count, *self.shape[1:])

    def _read_columns(self, file: BufferedReader, first: int, count: int) -> np.ndarray:
        """In Fortran order the values of one pixel in all images lie together."""
        total, pixels = self.shape[0], math.prod(self.shape[1:])
        if count == total:
            columns = self._read(file, 0, total * pixels)
        else:
            columns = np.concatenate([self._read(file, pixel * total + first, count) for pixel in range(pixels)])
        return columns.reshape(*self.shape[:0:-1], count).T

    def _read(self, file: BufferedReader, first: int, count: int) -> np.ndarray:
        """`count` values from the `first` on, as they lie in the file."""
        values = np.empty(count, self.dtype)
        file.seek(self.offset + first * self.dtype.itemsize)
        if file.readinto(values.view(np.uint8).data) != values.nbytes:
            raise ImageError(f"{self.path}: truncated while it was read; load it again when it is complete")
        return values
