"""Writing an .npz file whose arrays arrive batch by batch: one batch in memory at a time."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from whatwhere.atomic import disk_errors, new_folder, open_atomic, reserve

Array = np.ndarray[Any, Any]


def write_npz(
    path: Path, count: int, batches: Iterable[Mapping[str, Array]], others: Mapping[str, Array]
) -> dict[str, list[int]]:
    """Write arrays of `count` rows that arrive in batches, and other arrays that are complete; returns their shapes.

    The arrays grow as files in a temporary folder next to `path`. Space for them and for the result is reserved at the
    first batch, so that a full disk is an error at the start. `path` appears complete or not at all, and an error or
    an interruption leaves no temporary file behind.
    """
    with disk_errors(f"writing {path}", "make room, or choose another folder"), new_folder(path.parent):
        with suppress(FileNotFoundError):  # an impossible name is an error now, and not after the work
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise IsADirectoryError(errno.EISDIR, "A folder has this name", str(path))
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:40]}-") as folder:
            arrays: dict[str, _GrowingArray] = {}
            try:
                with open_atomic(path) as target:
                    for batch in batches:
                        if not arrays:
                            arrays = {
                                name: _GrowingArray(Path(folder) / f"{name}.npy", count, rows)
                                for name, rows in batch.items()
                            }
                            reserve(target, sum(array.nbytes for array in arrays.values()))
                        for name, rows in batch.items():
                            arrays[name].append(rows)
                    _join(target, arrays, others)
            finally:
                for array in arrays.values():
                    array.file.close()
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    return shapes | {name: list(array.shape) for name, array in others.items()}


def _join(target: BinaryIO, arrays: Mapping[str, _GrowingArray], others: Mapping[str, Array]) -> None:
    """Write all arrays into one archive, not compressed."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            array.finish()
            archive.write(array.path, f"{name}.npy")
        for name, values in others.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    target.truncate()


class _GrowingArray:
    """An .npy file of a known number of rows, written in order."""

    def __init__(self, path: Path, count: int, rows: Array) -> None:
        self.path, self.shape, self.dtype = path, (count, *rows.shape[1:]), rows.dtype
        self.file = open(path, "w+b")  # noqa: SIM115  (closed by write_npz)
        descr = np.lib.format.dtype_to_descr(rows.dtype)
        np.lib.format.write_array_header_1_0(self.file, {"descr": descr, "fortran_order": False, "shape": self.shape})
        self.nbytes = self.file.tell() + rows.itemsize * int(np.prod(self.shape, dtype=object))
        reserve(self.file, self.nbytes)

    def append(self, rows: Array) -> None:
        if rows.shape[1:] != self.shape[1:] or rows.dtype != self.dtype:
            raise ValueError(f"{self.path.name}: rows {rows.shape} of {rows.dtype}, expected {self.shape[1:]}")
        self.file.write(np.ascontiguousarray(rows).data)

    def finish(self) -> None:
        """Bring everything to the file, and check that every row has arrived."""
        self.file.flush()
        if self.file.tell() != self.nbytes or os.path.getsize(self.path) != self.nbytes:
            raise ValueError(f"{self.path.name}: {self.file.tell():,} bytes were written, expected {self.nbytes:,}")
