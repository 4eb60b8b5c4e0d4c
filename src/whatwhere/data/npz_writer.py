"""Writing an .npz file whose arrays arrive row by row: only the rows at hand are in memory."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from whatwhere.files import disk_errors, new_folder, open_atomic, reserve

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class _GrowingArray:
    """An array whose rows are in a temporary file."""

    file: BinaryIO
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    rows: int = 0

    @property
    def nbytes(self) -> int:
        return self.rows * math.prod(self.row_shape) * self.dtype.itemsize


class NpzWriter:
    """The arrays of an .npz file that is being written; `open_npz` makes it."""

    def __init__(self, open_temporary: Callable[[], BinaryIO], target: BinaryIO) -> None:
        self._open_temporary, self._target = open_temporary, target
        self._arrays: dict[str, _GrowingArray] = {}

    def append(self, name: str, rows: Array) -> None:
        """Append rows to an array, which begins with the first of them."""
        if name not in self._arrays:
            self._arrays[name] = _GrowingArray(self._open_temporary(), rows.dtype, rows.shape[1:])
        array = self._arrays[name]
        if rows.shape[1:] != array.row_shape or rows.dtype != array.dtype:
            raise ValueError(f"rows {rows.shape} of {rows.dtype}, expected {array.row_shape} of {array.dtype}")
        array.file.write(np.ascontiguousarray(rows).data)
        array.rows += len(rows)

    def expect(self, factor: float) -> None:
        """Reserve space for `factor` times what was appended so far, so that a full disk is an error now."""
        sizes = {array: int(factor * array.nbytes) or 1 for array in self._arrays.values()}
        for array, size in sizes.items():
            array.file.flush()
            reserve(array.file, size)
        reserve(self._target, sum(sizes.values()) or 1)

    def finish(self, **complete: Array) -> dict[str, list[int]]:
        """Write what was appended and arrays that are complete into one archive; returns the shapes of all."""
        shapes = {name: [array.rows, *array.row_shape] for name, array in self._arrays.items()}
        with zipfile.ZipFile(self._target, "w", zipfile.ZIP_STORED) as archive:
            for name, array in self._arrays.items():
                array.file.truncate(array.nbytes)  # what was reserved and not needed
                array.file.seek(0)
                header = {"descr": array.dtype.str, "fortran_order": False, "shape": tuple(shapes[name])}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    shutil.copyfileobj(array.file, member, 1 << 20)
            for name, values in complete.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        self._target.truncate()
        return shapes | {name: list(values.shape) for name, values in complete.items()}


@contextmanager
def open_npz(path: Path) -> Iterator[NpzWriter]:
    """A new .npz file. `finish` has to be the last call in the block; then `path` appears, complete.

    The arrays grow in temporary files next to `path`, which have no names where the system can do that. `path` appears
    complete or not at all, and an error or an interruption leaves no temporary file behind.
    """
    with disk_errors(f"writing {path}", "make room, or choose another folder"), new_folder(path.parent):
        with suppress(FileNotFoundError):  # an impossible name is an error now, and not after the work
            os.lstat(path)
        with ExitStack() as closing, open_atomic(path) as target:
            yield NpzWriter(lambda: closing.enter_context(tempfile.TemporaryFile(dir=path.parent)), target)
