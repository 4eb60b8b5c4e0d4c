"""Arrays that stay in their files: indexing reads only the requested part.

Such an array is neither in memory nor memory-mapped. A memory map would end the process (SIGBUS) if
another program made the file shorter; here, a changed file raises an error.
"""

import math
import os
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from whatwhere.errors import ChangedFile, Unreadable
from whatwhere.files import FileStamp, open_regular


@dataclass(frozen=True)
class StoredArray:
    """An array in a file. `array[...]` reads a part of it. The index of the first axis is a list of
    rows or a slice; the index of every other axis is a number or a slice without a step.

    Parameters
    ----------
    path
        the file
    stamp
        the state of the file when it was opened
    offset
        number of bytes before the first value
    dtype
        type of the values
    shape
        entries of each axis
    strides
        bytes from one entry of each axis to the next
    """

    path: Path
    stamp: FileStamp
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of_map(cls, path: Path, values: np.memmap) -> "StoredArray":
        """Return the array that a library has mapped from a file; the map is not used any more."""
        return cls(
            path,
            FileStamp.of(os.stat(path)),
            values.offset,
            values.dtype,
            values.shape,
            values.strides,
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def T(self) -> "StoredArray":
        return self.transpose(*reversed(range(self.ndim)))

    def transpose(self, *axes: int) -> "StoredArray":
        """Return the same values with their axes in this order; nothing is read."""
        shape = tuple(self.shape[axis] for axis in axes)
        strides = tuple(self.strides[axis] for axis in axes)
        return replace(self, shape=shape, strides=strides)

    def with_new_axis(self, axis: int) -> "StoredArray":
        """Return the same values with one more axis, of one entry; nothing is read."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        strides = (*self.strides[:axis], 0, *self.strides[axis:])
        return replace(self, shape=shape, strides=strides)

    def row(self, number: int) -> "StoredArray":
        """Return one entry of the first axis; nothing is read."""
        offset = self.offset + number * self.strides[0]
        return replace(self, offset=offset, shape=self.shape[1:], strides=self.strides[1:])

    def __getitem__(self, index: object) -> np.ndarray:
        index = index if isinstance(index, tuple) else (index,)
        rows, others = index[0], index[1:]
        if not isinstance(rows, int | np.integer | slice):
            numbers = np.arange(len(self))[rows]
            parts = [self[(int(row), *others)] for row in numbers]
            return np.stack(parts, dtype=self.dtype) if parts else self[(slice(0, 0), *others)]
        index += (slice(None),) * (self.ndim - len(index))
        ranges = [
            _range(part, size, axis)
            for axis, (part, size) in enumerate(zip(index, self.shape, strict=True))
        ]
        values = self._read(ranges)
        # an axis that a number names has one entry left
        return values[tuple(slice(None) if isinstance(part, slice) else 0 for part in index)]

    def _read(self, ranges: list[range]) -> np.ndarray:
        """Return the values of these ranges of the axes."""
        order = sorted(range(self.ndim), key=lambda axis: -self.strides[axis])
        shape = tuple(len(ranges[axis]) for axis in order)
        values = np.empty(shape, self.dtype)
        if values.size:
            self._fill(values, [ranges[axis] for axis in order], order)
        back = np.argsort(order)
        return values.transpose(back)

    def _fill(self, values: np.ndarray, ranges: list[range], order: list[int]) -> None:
        """Read into `values`, whose axes have the order of the file, run by run."""
        outer = self._axes_outside_runs(ranges, order)
        start = self.offset
        for axis, chosen in zip(order, ranges, strict=True):
            start += chosen.start * self.strides[axis]
        run_bytes = math.prod(values.shape[outer:]) * self.dtype.itemsize
        content = values.reshape(-1).view(np.uint8)
        with self._open() as file:
            self._check(os.fstat(file.fileno()))
            for number, place in enumerate(np.ndindex(values.shape[:outer])):
                at = start
                for axis, entry in zip(order[:outer], place, strict=True):
                    at += entry * self.strides[axis]
                run = content[number * run_bytes : (number + 1) * run_bytes]
                file.seek(at)
                if file.readinto(run.data) < run_bytes:
                    raise self._changed()
            self._check(os.fstat(file.fileno()))

    def _axes_outside_runs(self, ranges: list[range], order: list[int]) -> int:
        """Return how many of the axes, in the order of the file, lie outside what can be read at
        once: a range of one axis, with all of the axes inside it."""
        expected = self.dtype.itemsize
        for place in reversed(range(len(order))):
            axis = order[place]
            if self.shape[axis] > 1 and self.strides[axis] != expected:
                return place + 1
            if len(ranges[place]) < self.shape[axis]:
                return place
            expected *= self.shape[axis]
        return 0

    def _open(self) -> BufferedReader:
        try:
            return open_regular(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreadable(self.path, reason, "Load it again.") from None

    def _check(self, status: os.stat_result) -> None:
        if FileStamp.of(status) != self.stamp:
            raise self._changed()

    def _changed(self) -> ChangedFile:
        return ChangedFile(self.path)


AnyArray = np.ndarray | StoredArray


def with_new_axis(values: AnyArray, axis: int) -> AnyArray:
    """Return an array with one more axis, of one entry; nothing is read or copied."""
    if isinstance(values, StoredArray):
        return values.with_new_axis(axis)
    return np.expand_dims(values, axis)


def _range(part: slice | SupportsIndex, size: int, axis: int) -> range:
    """Return the entries of an axis that a number or a slice names."""
    if isinstance(part, slice):
        chosen = range(*part.indices(size))
        if chosen.step != 1:
            raise IndexError(f"a step of {chosen.step}; expected a slice without a step")
        return chosen
    number = int(part)
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {size}")
    number %= size
    return range(number, number + 1)
