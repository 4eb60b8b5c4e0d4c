"""IDX, the format of MNIST: two zero bytes, a type, the number of axes, their sizes (big-endian), the values."""

import itertools
import struct
from pathlib import Path

import numpy as np

from whatwhere.data.stored import StoredArray
from whatwhere.data.unpack import gunzipped, is_gzip
from whatwhere.errors import ImageError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 4
LONGEST_HEADER = 4 + 4 * MAX_AXES


def read(path: Path) -> np.ndarray:
    """The array in an IDX file: memory-mapped, or unpacked in memory where the file is gzip."""
    length = path.stat().st_size
    if not is_gzip(path):
        with path.open("rb") as file:
            return parse_header(path, file.read(LONGEST_HEADER)).map(0, length)
    pieces = gunzipped(path)
    start = b""
    while len(start) < LONGEST_HEADER and (piece := next(pieces, b"")):
        start += piece
    return parse_header(path, start).unpack(itertools.chain([start], pieces), length)


def parse_header(path: Path, start: bytes) -> StoredArray:
    """The header at the start of a file, of which `start` is LONGEST_HEADER bytes or more, or all there are."""
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= MAX_AXES:
        raise ImageError(
            f"{path}: not an IDX file: it starts with {start[:4].hex(' ') or 'nothing'}, where 00 00, a type "
            f"(08, 09, 0b, 0c, 0d or 0e) and a number of axes (01 to {MAX_AXES:02}) are expected"
        )
    axes = start[3]
    offset = 4 + 4 * axes
    if len(start) < offset:
        raise ImageError(f"{path}: cut short inside its header; copy or download the file again")
    shape = struct.unpack_from(f">{axes}I", start, 4)
    return StoredArray(path, np.dtype(TYPES[start[2]]), shape, offset)


def write(path: Path, values: np.ndarray) -> None:
    """Write an array as an IDX file, not compressed."""
    codes = {dtype: code for code, dtype in TYPES.items()}
    code = codes.get(f">{values.dtype.kind}{values.dtype.itemsize}")
    if code is None or not 1 <= values.ndim <= MAX_AXES:
        raise ImageError(f"IDX does not hold {values.dtype} values of shape {values.shape}")
    header = struct.pack(f">HBB{values.ndim}I", 0, code, values.ndim, *values.shape)
    path.write_bytes(header + values.astype(TYPES[code]).tobytes())
