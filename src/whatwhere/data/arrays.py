"""Arrays in files, IDX, .npy and .npz, and arrays as images: supported types and shapes, the axis of the channels.

Files are read by rows where they are not compressed, and never unpickled. A header is compared with the size of its
file before any memory is allocated. Files are not memory-mapped: a file that is truncated while it is mapped kills the
process (SIGBUS). Reading it is an error instead, which names the file.
"""

import gzip
import io
import math
import os
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.lib import format as npy_format

from whatwhere.data.images import Pixels
from whatwhere.errors import ImageError
from whatwhere.files import disk_errors, new_folder, open_atomic, open_regular

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
    def read(cls, path: Path, stream: IO[bytes]) -> "_Header":
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


Channels = Literal["first", "last"]
FEW_CHANNELS = 4
"""An axis with at most as many entries is taken for the channels: grey, grey and alpha, colour, colour and alpha."""


def read_file(path: Path) -> tuple[Pixels, Pixels | None]:
    """The images of a file and, from an .npz, its labels; the first bytes show what kind of file it is."""
    with open_regular(path) as file:
        start = file.read(len(ZIP_MAGIC))
    if start != ZIP_MAGIC:
        return read_array(path), None
    archive = Archive(path)
    for name in ("images", "signals"):
        if name in archive:
            return archive[name], archive.get("labels")
    if len(archive) == 1:
        return archive[next(iter(archive))], None
    names = ", ".join(sorted(archive)[:9]) or "no arrays"
    raise ImageError(f"{path}: contains {names}; expected one array, or `images` (or `signals`) and `labels`")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file, complete or not at all, and its folder."""
    values: Any = dict(arrays)
    doing, remedy = f"writing {path}", "make room, or choose another folder"
    with disk_errors(doing, remedy), new_folder(path.parent), open_atomic(path) as file:
        np.savez(file, **values)


def as_array(values: Any) -> np.ndarray:
    """A tensor, an array or a sequence of numbers as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    return np.asarray(values)


@dataclass(frozen=True)
class ChannelsFirst:
    """Rows of [N, H, W] or [N, H, W, C] values as [N, C, H, W]."""

    values: Pixels
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        values = self.values[rows]
        return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)


def as_pixels(values: Pixels, name: str, channels: Channels | None = None) -> Pixels:
    """Raw pixels [N, C, H, W] of values [N, H, W], [N, C, H, W] or [N, H, W, C]; not copied."""
    dtype, shape = values.dtype, values.shape
    if dtype.kind not in "buif" or (dtype.kind in "ui" and dtype.itemsize > 2):
        raise ImageError(
            f"{name}: pixels of type {dtype}; expected bool, uint8, uint16, int8 or int16, which are scaled, or "
            "floats, which are used as they are; convert the array, for instance with array.astype('uint8')"
        )
    if len(shape) not in (3, 4) or 0 in shape:
        one = "; one picture is array[None]" if len(shape) == 2 else ""
        signals = "; recordings are read with signals=True (train: --recipe signals)" if len(shape) in (1, 2) else ""
        raise ImageError(
            f"{name}: an array of shape {shape}; expected [N, H, W], [N, C, H, W] or [N, H, W, C]{one}{signals}"
        )
    if len(shape) == 3:
        return ChannelsFirst(values, (shape[0], 1, *shape[1:]))
    if (channels or channel_axis(shape, name)) == "first":
        return values
    return ChannelsFirst(values, (shape[0], shape[3], *shape[1:3]))


def channel_axis(shape: tuple[int, ...], name: str) -> Channels:
    """Which axis of [N, a, b, c] values holds the channels: the one of at most 4 entries, where only one is.

    Where both are, it is the second axis, and a warning says so. Where neither is, it is the second or the last if it
    is the shortest of the three, and otherwise an error: it has to be stated.
    """
    _, a, b, c = shape
    if a <= FEW_CHANNELS or c <= FEW_CHANNELS:
        if a <= FEW_CHANNELS and c <= FEW_CHANNELS and (a > 1 or c == 1) and b > 1:
            warnings.warn(
                f"{name}: in an array of shape {shape}, axis 1 was taken for the {a} channels; if "
                "axis 3 holds them, move it to axis 1 (in Python, channels='last' does)",
                stacklevel=5,  # the caller of `load`
            )
        return "first" if a <= FEW_CHANNELS else "last"
    if a < min(b, c) or c < min(a, b):
        return "first" if a < c else "last"
    raise ImageError(
        f"{name}: an array of shape {shape} does not show which axis holds the channels; "
        "expected fewer channels than rows and columns (in Python, channels='first' or 'last' says where they are)"
    )


def as_labels(values: Pixels, name: str) -> np.ndarray:
    """Labels as int64 [N]."""
    if len(values.shape) != 1 or values.dtype.kind not in "iu":
        raise ImageError(
            f"{name}: labels of shape {values.shape} and type {values.dtype}; expected one integer per image"
        )
    labels = values[:]
    if labels.dtype.kind == "u" and labels.max(initial=0) > np.iinfo(np.int64).max:
        raise ImageError(f"{name}: the label {labels.max()} is larger than int64 holds, {np.iinfo(np.int64).max}")
    return labels.astype(np.int64)
