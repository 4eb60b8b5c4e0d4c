"""Writing an .npz file whose arrays arrive piece by piece: one piece in memory at a time."""

from __future__ import annotations

import errno
import math
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from whatwhere.files import disk_errors, new_folder, open_atomic, reserve

Array = np.ndarray[Any, Any]


class GrowingArray:
    """The values of an array in a temporary file, to which more are appended."""

    def __init__(self, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.row_shape = path, dtype, row_shape
        self.file = open(path, "w+b")  # noqa: SIM115  (closed by open_npz)
        self.nbytes = 0

    @property
    def count(self) -> int:
        """The rows so far."""
        return self.nbytes // (math.prod(self.row_shape) * self.dtype.itemsize)

    def append(self, rows: Array) -> None:
        if rows.shape[1:] != self.row_shape or rows.dtype != self.dtype:
            raise ValueError(f"{self.path.name}: rows {rows.shape} of {rows.dtype}, expected {self.row_shape}")
        self.file.write(np.ascontiguousarray(rows).data)
        self.nbytes += rows.nbytes

    def write(self, first: int, rows: Array) -> None:
        """Put rows at a place; what lies between the end and this place follows later."""
        end = (first + len(rows)) * math.prod(self.row_shape) * self.dtype.itemsize
        self.file.seek(end - rows.nbytes)
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.nbytes = max(self.nbytes, end)
        self.file.seek(self.nbytes)

    def finish(self) -> None:
        """Bring everything to the file, and cut off what was reserved and not needed."""
        self.file.flush()
        self.file.truncate(self.nbytes)


class NpzWriter:
    """The arrays of an .npz file that is being written; `open_npz` makes it.

    shapes  of arrays that are not rows of one shape: they are written flat, and get their shape at the end
    """

    def __init__(self, folder: Path, target: BinaryIO) -> None:
        self._folder, self._target = folder, target
        self._growing: dict[str, GrowingArray] = {}
        self._complete: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def append(self, name: str, rows: Array) -> None:
        """Append rows to an array, which begins with the first of them."""
        self.array(name, rows.dtype, rows.shape[1:]).append(rows)

    def array(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...] = ()) -> GrowingArray:
        """The array of this name, begun if it is new."""
        if name not in self._growing:
            self._growing[name] = GrowingArray(self._folder / f"{name}.npy", dtype, row_shape)
        return self._growing[name]

    def put(self, name: str, values: Array) -> None:
        """An array that is complete."""
        self._complete[name] = values

    def expect(self, factor: float) -> None:
        """Reserve space for `factor` times what was appended so far, so that a full disk is an error now."""
        for array in self._growing.values():
            array.file.flush()
            reserve(array.file, int(factor * array.nbytes) or 1)
        reserve(self._target, int(factor * sum(array.nbytes for array in self._growing.values())) or 1)

    def finish(self) -> dict[str, list[int]]:
        """Write all arrays into one archive, not compressed; returns their shapes."""
        shapes = {name: self.shapes.get(name, (a.count, *a.row_shape)) for name, a in self._growing.items()}
        self._target.seek(0)
        with zipfile.ZipFile(self._target, "w", zipfile.ZIP_STORED) as archive:
            for name, array in self._growing.items():
                array.finish()
                if array.nbytes != math.prod(shapes[name]) * array.dtype.itemsize:
                    raise ValueError(f"{name}: {array.nbytes:,} bytes were written, expected the shape {shapes[name]}")
                header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, {**header, "shape": shapes[name]})
                    array.file.seek(0)
                    shutil.copyfileobj(array.file, member, 1 << 20)
            for name, values in self._complete.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        self._target.truncate()
        return {name: list(shape) for name, shape in shapes.items()} | {
            name: list(values.shape) for name, values in self._complete.items()
        }

    def close(self) -> None:
        for array in self._growing.values():
            array.file.close()


@contextmanager
def open_npz(path: Path) -> Iterator[NpzWriter]:
    """A new .npz file. `finish` has to be the last call in the block; then `path` appears, complete.

    The arrays grow as files in a temporary folder next to `path`. `path` appears complete or not at all, and an error
    or an interruption leaves no temporary file behind.
    """
    with disk_errors(f"writing {path}", "make room, or choose another folder"), new_folder(path.parent):
        with suppress(FileNotFoundError):  # an impossible name is an error now, and not after the work
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise IsADirectoryError(errno.EISDIR, "A folder has this name", str(path))
        with (
            tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:40]}-") as folder,
            open_atomic(path) as target,
        ):
            writer = NpzWriter(Path(folder), target)
            try:
                yield writer
            finally:
                writer.close()


def write_npz(
    path: Path, count: int, batches: Iterable[Mapping[str, Array]], others: Mapping[str, Array]
) -> dict[str, list[int]]:
    """Write arrays of `count` rows that arrive in batches, and other arrays that are complete; returns their shapes.

    Space is reserved at the first batch, so that a full disk is an error at the start.
    """
    with open_npz(path) as writer:
        for name, values in others.items():
            writer.put(name, values)
        rows_so_far = 0
        for batch in batches:
            for name, rows in batch.items():
                writer.append(name, rows)
            size = len(next(iter(batch.values())))
            if rows_so_far == 0:
                writer.expect(count / max(size, 1))
                writer.shapes = {name: (count, *rows.shape[1:]) for name, rows in batch.items()}
            rows_so_far += size
        return writer.finish()
