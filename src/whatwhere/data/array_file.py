"""Arrays in files: IDX, .npy and .npz, read by rows where they are not compressed, and never unpickled.

A header is compared with the size of its file before any memory is allocated. Files are not memory-mapped: a file that
is truncated while it is mapped kills the process (SIGBUS). Reading it is an error instead, which names the file.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy_format

from whatwhere.errors import ImageError
from whatwhere.files import open_regular

CHUNK_BYTES = 1 << 18
DEFLATE_RATIO = 1032
"""The best ratio that deflate reaches: n compressed bytes hold at most 1032 n bytes."""

IN_MEMORY_LIMIT = 1 << 30
"""The most bytes of an array that is read into memory as a whole; arrays that are read by rows may have any size."""

LONGEST_HEADER = 4096
NPY_MAGIC, ZIP_MAGIC, GZIP_MAGIC = b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b"
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IDX_AXES = 4
ZIP_MEMBER = struct.Struct("<26xHH")
"""The fixed part of a zip member's header, which ends in the lengths of the name and the extra field after it."""


@dataclass(frozen=True)
class ArrayFile:
    """Values of a file from `offset` on, in C order. `array[rows]` reads these rows and nothing else."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    version: tuple[int, int]
    """Size and time of change: what shows that the file is another one."""

    def __getitem__(self, rows: Any) -> np.ndarray:
        indices = np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else np.arange(self.shape[0])[rows]
        if indices.ndim != 1:
            raise IndexError(f"rows are given as a slice, a list, a mask or a 1-D array, not as {rows!r}")
        values = np.empty((len(indices), *self.shape[1:]), self.dtype)
        breaks = np.flatnonzero(np.diff(indices) != 1) + 1
        with self._open() as file:
            for first, last in zip((0, *breaks), (*breaks, len(indices)), strict=True):
                if first < last:
                    self._read_into(file, int(indices[first]), values[first:last])
        return values

    def _open(self) -> BufferedReader:
        try:
            file = open_regular(self.path)
        except OSError as error:
            raise ImageError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        if file_version(file) != self.version:
            file.close()
            raise ImageError(f"{self.path}: changed since it was loaded; load it again when it is complete")
        return file

    def _read_into(self, file: BufferedReader, first: int, values: np.ndarray) -> None:
        """Fill `values` with successive rows."""
        file.seek(self.offset + first * values[:1].nbytes)
        if file.readinto(values.reshape(-1).view(np.uint8).data) != values.nbytes:
            raise ImageError(f"{self.path}: truncated while it was read; load it again when it is complete")


def read_array(path: Path) -> ArrayFile | np.ndarray:
    """The array in an IDX or .npy file, which may be compressed with gzip."""
    with open_regular(path) as file, _damage_named(path):
        size, compressed = file_version(file)[0], file.peek(2)[:2] == GZIP_MAGIC
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if compressed else file
        header = _Header.read(path, stream)
        if not header.shape or 0 in header.shape:
            raise ImageError(f"{path}: no values: the header gives the shape {header.shape}")
        return header.decompress(path, stream, size) if compressed else header.open(path, file, 0, size)


class Archive(Mapping[str, ArrayFile | np.ndarray]):
    """The arrays of an .npz file by name, each of them read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as (archive, _):
            self._members = {
                member.filename.removesuffix(".npy"): member
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def nbytes(self, names: Iterable[str]) -> int:
        """The bytes of these arrays, decompressed; no more than that is ever read."""
        return sum(self._members[name].file_size for name in names)

    def __getitem__(self, name: str) -> ArrayFile | np.ndarray:
        member = self._members[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ImageError(f"{self.path}: {member.filename} is neither stored nor deflated; save it with numpy.savez")
        with self._open() as (archive, file), archive.open(member) as stream:
            header = _Header.read(self.path, stream)
            if member.compress_type == zipfile.ZIP_DEFLATED:
                return header.decompress(self.path, stream, member.compress_size)
            file.seek(member.header_offset)
            name_length, extra_length = ZIP_MEMBER.unpack(file.read(ZIP_MEMBER.size))
            start = member.header_offset + ZIP_MEMBER.size + name_length + extra_length
            return header.open(self.path, file, start, member.file_size)

    @contextmanager
    def _open(self) -> Iterator[tuple[zipfile.ZipFile, BufferedReader]]:
        with open_regular(self.path) as file, _damage_named(self.path), zipfile.ZipFile(file) as archive:
            yield archive, file


class _Header(NamedTuple):
    """Values of this type and shape, `offset` bytes after the start of the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of all values: a Python integer, which no header overflows."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def read(cls, path: Path, stream: IO[bytes]) -> _Header:
        """The header that a stream begins with."""
        start = stream.read(LONGEST_HEADER)
        header = _parse_npy(path, start) if start.startswith(NPY_MAGIC) else _parse_idx(path, start)
        most = math.prod(max(1, side) for side in header.shape) * header.dtype.itemsize
        if min(header.shape, default=0) < 0 or not 0 < most <= sys.maxsize:
            raise ImageError(f"{path}: the header gives the shape {header.shape} of {header.dtype}: no array has that")
        return header

    def open(self, path: Path, file: BufferedReader, start: int, length: int) -> ArrayFile | np.ndarray:
        """The array, to be read by rows; header and values are the `length` bytes of the file from `start` on."""
        version = file_version(file)
        self._check_length(path, min(length, version[0] - start) - self.offset)
        if len(self.shape) == 1 or (self.shape and not self.fortran):
            return ArrayFile(path, self.dtype, self.shape, start + self.offset, version)
        self._check_limit(path, "stored in Fortran order, and read as a whole")
        axes = self.shape[::-1] or (1,)
        return ArrayFile(path, self.dtype, axes, start + self.offset, version)[:].T.reshape(self.shape)

    def decompress(self, path: Path, stream: IO[bytes], compressed_length: int) -> np.ndarray:
        """The array in memory, of a stream that decompresses `compressed_length` bytes."""
        if self.nbytes > DEFLATE_RATIO * compressed_length:
            raise ImageError(
                f"{path}: the header asks for more than {compressed_length:,} compressed bytes can hold: the shape "
                f"{self.shape}, {self.nbytes:,} bytes of {self.dtype}; copy or download the file again"
            )
        self._check_limit(path, "compressed, and decompressed in memory")
        stream.seek(self.offset)
        content = bytearray()  # grows with what arrives, whatever the header says
        while len(content) <= self.nbytes and (chunk := stream.read(CHUNK_BYTES)):
            content += chunk
        self._check_length(path, len(content))
        return np.ndarray(self.shape, self.dtype, content, order="F" if self.fortran else "C")

    def _check_length(self, path: Path, actual: int) -> None:
        if actual != self.nbytes:
            problem = "truncated" if actual < self.nbytes else "longer than its header says"
            raise ImageError(
                f"{path}: {problem}: the header gives the shape {self.shape}, {self.nbytes:,} bytes of "
                f"{self.dtype}, but the file has {actual:,}; copy or download it again"
            )

    def _check_limit(self, path: Path, how: str) -> None:
        if self.nbytes > IN_MEMORY_LIMIT:
            raise ImageError(
                f"{path}: an array of {self.nbytes:,} bytes, {how}, at most {IN_MEMORY_LIMIT:,} bytes; save it with "
                "numpy.save(file, numpy.ascontiguousarray(array)), so that it is read batch by batch"
            )


def _parse_npy(path: Path, start: bytes) -> _Header:
    file = io.BytesIO(start)
    try:
        version = npy_format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = npy_format.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version} of the format is for arrays with named fields")
    except Exception as error:  # the header is Python text, and numpy's reader may raise anything a parser may
        raise ImageError(f"{path}: not a valid .npy array ({error}); save it again with numpy.save") from None
    if dtype.kind in "OV":
        raise ImageError(
            f"{path}: contains Python objects or records, which are never unpickled; save pixels as uint8 or float32"
        )
    return _Header(dtype, shape, fortran, file.tell())


def _parse_idx(path: Path, start: bytes) -> _Header:
    """Two zero bytes, a type, the number of axes, their sizes (big-endian); values follow."""
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES or not 1 <= start[3] <= IDX_AXES:
        raise ImageError(
            f"{path}: not a picture, .npy, .npz or IDX file: it starts with {start[:4].hex(' ') or 'nothing'}"
        )
    axes = start[3]
    if len(start) < 4 + 4 * axes:
        raise ImageError(f"{path}: truncated inside its header; copy or download the file again")
    return _Header(np.dtype(IDX_TYPES[start[2]]), struct.unpack_from(f">{axes}I", start, 4), False, 4 + 4 * axes)


def file_version(file: BufferedReader) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Whatever gzip, zipfile and zlib may raise on damaged bytes is an ImageError that names the file."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{path}: damaged or truncated ({error}); copy or save it again") from None
