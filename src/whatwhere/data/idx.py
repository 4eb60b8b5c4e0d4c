"""IDX, the format of MNIST: two zero bytes, a type, the number of axes, their sizes (big-endian), the values."""

import itertools
import struct
from pathlib import Path

import numpy as np

from whatwhere.data.array_file import ArrayFile, FileVersion
from whatwhere.data.array_header import ArrayHeader
from whatwhere.data.gzip_stream import GZIP_MAGIC, gzip_chunks
from whatwhere.errors import ImageError
from whatwhere.files import open_regular, write_atomic

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 4
LONGEST_HEADER = 4 + 4 * MAX_AXES


def read(path: Path) -> ArrayFile | np.ndarray:
    """The array in an IDX file: read by rows, or decompressed in memory if the file is gzip."""
    with open_regular(path) as file:
        start, version = file.read(LONGEST_HEADER), FileVersion.of(file)
    if not start.startswith(GZIP_MAGIC):
        return parse_header(path, start).open(0, version.size, version)
    chunks = gzip_chunks(path)
    start = b""
    while len(start) < LONGEST_HEADER and (chunk := next(chunks, b"")):
        start += chunk
    return parse_header(path, start).decompress(itertools.chain([start], chunks), version.size)


def parse_header(path: Path, start: bytes) -> ArrayHeader:
    """The header of a file, given its first LONGEST_HEADER bytes or more, or all of a shorter file."""
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= MAX_AXES:
        raise ImageError(
            f"{path}: not an IDX file: it starts with {start[:4].hex(' ') or 'nothing'}, where 00 00, a type "
            f"(08, 09, 0b, 0c, 0d or 0e) and a number of axes (01 to {MAX_AXES:02}) are expected"
        )
    axes = start[3]
    offset = 4 + 4 * axes
    if len(start) < offset:
        raise ImageError(f"{path}: truncated inside its header; copy or download the file again")
    shape = struct.unpack_from(f">{axes}I", start, 4)
    return ArrayHeader(path, np.dtype(TYPES[start[2]]), shape, offset)


def write(path: Path, values: np.ndarray) -> None:
    """Write an array as an IDX file, not compressed."""
    codes = {dtype: code for code, dtype in TYPES.items()}
    code = codes.get(f">{values.dtype.kind}{values.dtype.itemsize}")
    if code is None or not 1 <= values.ndim <= MAX_AXES:
        raise ImageError(f"IDX does not support {values.dtype} values of shape {values.shape}")
    header = struct.pack(f">HBB{values.ndim}I", 0, code, values.ndim, *values.shape)
    write_atomic(path, header + values.astype(TYPES[code]).tobytes())
