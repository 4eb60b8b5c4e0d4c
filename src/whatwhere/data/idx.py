"""IDX, the format of MNIST: two zero bytes, a type, the number of axes, their sizes (big-endian), the values."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whatwhere.data.unpack import check_unpacked_size, chunks, is_gzip
from whatwhere.errors import ImageError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 4
LONGEST_HEADER = 4 + 4 * MAX_AXES


@dataclass(frozen=True)
class Header:
    """What an IDX file says it holds."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """Bytes before the first value."""
        return 4 + 4 * len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values; a Python integer, so that no header overflows it."""
        return math.prod(self.shape) * self.dtype.itemsize


def read(path: Path) -> np.ndarray:
    """The array in an IDX file: memory-mapped, or unpacked in memory where the file is gzip."""
    return _read_packed(path) if is_gzip(path) else _map_plain(path)


def parse_header(path: Path, start: bytes) -> Header:
    """The header at the start of a file; `start` is its first LONGEST_HEADER bytes, or all of a shorter file."""
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= MAX_AXES:
        raise ImageError(
            f"{path}: not an IDX file: it starts with {start[:4].hex(' ') or 'nothing'}, and 00 00, a type "
            f"(08, 09, 0b to 0e) and 1 to {MAX_AXES} axes are expected"
        )
    axes = start[3]
    if len(start) < 4 + 4 * axes:
        raise ImageError(f"{path}: cut short inside the header; copy or download the file again")
    header = Header(np.dtype(TYPES[start[2]]), struct.unpack_from(f">{axes}I", start, 4))
    if header.nbytes == 0:
        raise ImageError(f"{path}: empty: the header gives the shape {header.shape}")
    return header


def write(path: Path, values: np.ndarray) -> None:
    """Write an array as an uncompressed IDX file."""
    code = {dtype: code for code, dtype in TYPES.items()}.get(f">{values.dtype.kind}{values.dtype.itemsize}")
    if code is None or not 1 <= values.ndim <= MAX_AXES:
        raise ImageError(f"IDX cannot hold {values.dtype} values of shape {values.shape}")
    header = struct.pack(f">HBB{values.ndim}I", 0, code, values.ndim, *values.shape)
    path.write_bytes(header + values.astype(TYPES[code]).tobytes())


def _map_plain(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        header = parse_header(path, file.read(LONGEST_HEADER))
    _check_length(path, header, path.stat().st_size - header.length)
    return np.memmap(path, header.dtype, mode="r", offset=header.length, shape=header.shape)


def _read_packed(path: Path) -> np.ndarray:
    stream = chunks(path)
    start = b""
    while len(start) < LONGEST_HEADER and (more := next(stream, b"")):
        start += more
    header = parse_header(path, start)
    check_unpacked_size(path, path.stat().st_size, header.nbytes)

    values = np.empty(header.nbytes, np.uint8)
    filled = 0
    data = start[header.length :]
    while data:
        if filled + len(data) > header.nbytes:
            _check_length(path, header, filled + len(data))
        values[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
        filled += len(data)
        data = next(stream, b"")
    _check_length(path, header, filled)
    return values.view(header.dtype).reshape(header.shape)


def _check_length(path: Path, header: Header, found: int) -> None:
    if found != header.nbytes:
        problem = "cut short" if found < header.nbytes else "longer than its header says"
        raise ImageError(
            f"{path}: {problem}: the header gives the shape {header.shape}, {header.nbytes:,} bytes, "
            f"and {found:,} were found; copy or download the file again"
        )
