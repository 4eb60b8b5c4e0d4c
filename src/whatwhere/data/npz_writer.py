"""Writing an .npz file whose arrays arrive piece by piece: one piece in memory at a time."""

from __future__ import annotations

import errno
import math
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from whatwhere.files import disk_errors, new_folder, open_atomic, reserve

Array = np.ndarray[Any, Any]


@dataclass
class _GrowingArray:
    """The rows of an array in a temporary file."""

    file: BinaryIO
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    nbytes: int = 0

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row_shape) * self.dtype.itemsize

    def write(self, first: int, rows: Array) -> None:
        """Put rows at a place; what lies between the end and this place follows later."""
        if rows.shape[1:] != self.row_shape or rows.dtype != self.dtype:
            raise ValueError(f"rows {rows.shape} of {rows.dtype}, expected {self.row_shape} of {self.dtype}")
        self.file.seek(first * self.row_bytes)
        self.file.write(np.ascontiguousarray(rows).data)
        self.nbytes = max(self.nbytes, first * self.row_bytes + rows.nbytes)


class NpzWriter:
    """The arrays of an .npz file that is being written; `open_npz` makes it.

    shapes  of arrays that are not rows of one shape: they are written flat, and get their shape at the end
    """

    def __init__(self, open_temporary: Any, target: BinaryIO) -> None:
        self._open_temporary, self._target = open_temporary, target
        self._arrays: dict[str, _GrowingArray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def append(self, name: str, rows: Array) -> None:
        """Append rows to an array, which begins with the first of them."""
        self.write(name, self.count(name), rows)

    def write(self, name: str, first: int, rows: Array) -> None:
        """Put rows of an array at a place; what lies between its end and this place follows later."""
        if name not in self._arrays:
            self._arrays[name] = _GrowingArray(self._open_temporary(), rows.dtype, rows.shape[1:])
        self._arrays[name].write(first, rows)

    def count(self, name: str) -> int:
        """The rows of an array so far."""
        array = self._arrays.get(name)
        return array.nbytes // array.row_bytes if array else 0

    def put(self, name: str, values: Array) -> None:
        """An array that is complete."""
        self.write(name, 0, values.reshape(-1))
        self.shapes[name] = values.shape

    def expect(self, factor: float) -> None:
        """Reserve space for `factor` times what was appended so far, so that a full disk is an error now."""
        for array in self._arrays.values():
            array.file.flush()
            reserve(array.file, int(factor * array.nbytes) or 1)
        reserve(self._target, int(factor * sum(array.nbytes for array in self._arrays.values())) or 1)

    def finish(self) -> dict[str, list[int]]:
        """Write all arrays into one archive, not compressed; returns their shapes."""
        shapes = {name: self.shapes.get(name, (self.count(name), *a.row_shape)) for name, a in self._arrays.items()}
        self._target.seek(0)
        with zipfile.ZipFile(self._target, "w", zipfile.ZIP_STORED) as archive:
            for name, array in self._arrays.items():
                if array.nbytes != math.prod(shapes[name]) * array.dtype.itemsize:
                    raise ValueError(f"{name}: {array.nbytes:,} bytes were written, expected the shape {shapes[name]}")
                array.file.truncate(array.nbytes)  # what was reserved and not needed
                array.file.seek(0)
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": shapes[name]}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    shutil.copyfileobj(array.file, member, 1 << 20)
        self._target.truncate()
        return {name: list(shape) for name, shape in shapes.items()}


@contextmanager
def open_npz(path: Path) -> Iterator[NpzWriter]:
    """A new .npz file. `finish` has to be the last call in the block; then `path` appears, complete.

    The arrays grow in temporary files next to `path`, which have no names where the system can do that. `path` appears
    complete or not at all, and an error or an interruption leaves no temporary file behind.
    """
    with disk_errors(f"writing {path}", "make room, or choose another folder"), new_folder(path.parent):
        with suppress(FileNotFoundError):  # an impossible name is an error now, and not after the work
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise IsADirectoryError(errno.EISDIR, "A folder has this name", str(path))
        with ExitStack() as closing, open_atomic(path) as target:
            yield NpzWriter(lambda: closing.enter_context(tempfile.TemporaryFile(dir=path.parent)), target)
