"""MATLAB's .mat files of version 5 (options -v6 and -v7): the arrays of real numbers in them.

Files may come from strangers, and SciPy's reader ends the process for some damaged ones. This one
reads no more than the file has, and raises a ValueError for what it does not understand.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

_HEADER = 128  # bytes
_MATRIX = 14
_COMPRESSED = 15
_NUMBERS = {  # MATLAB's types of data
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_CLASSES = {  # its classes of arrays of numbers, which may be stored in a smaller type
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
_COMPLEX = 0x800  # flag of an array


def read_arrays(file: BinaryIO, most: int = 1 << 30) -> dict[str, np.ndarray]:
    """Return the arrays of real numbers by their names; arrays of other kinds are left out.

    Parameters
    ----------
    most
        bytes of a compressed array
    """
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(file.read(_HEADER)[124:])
    if order is None:
        raise ValueError("it is not of version 5, 6 or 7")
    arrays: dict[str, np.ndarray] = {}
    for kind, data in _elements(file.read(), order):
        if kind == _COMPRESSED:
            kind, data = next(_elements(_inflated(data, most), order), (0, b""))
        if kind == _MATRIX and (found := _array(data, order)) is not None:
            arrays[found[0]] = found[1]
    return arrays


def _inflated(data: bytes, most: int) -> bytes:
    """Decompress an element of at most this many bytes."""
    inflate = zlib.decompressobj()
    content = inflate.decompress(data, most)
    if inflate.unconsumed_tail:
        raise ValueError(f"a compressed array has more than {most:,} bytes")
    return content


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Give the type and the data of each element."""
    at = 0
    number = np.dtype(f"{order}u4")
    while len(content) - at >= 8:
        kind, size = (int(one) for one in np.frombuffer(content, number, 2, at))
        first, following = at + 8, at + 8 + size
        if is_small := kind >> 16 > 0:  # up to four bytes lie within the tag
            kind, size = kind & 0xFFFF, kind >> 16
            first, following = at + 4, at + 8
        elif kind != _COMPRESSED:
            following += -size % 8
        if size > (4 if is_small else len(content) - first):
            raise ValueError("it ends early")
        yield kind, content[first : first + size]
        at = following


def _array(content: bytes, order: str) -> tuple[str, np.ndarray] | None:
    """Return the name and the values of an array of real numbers; None for another array."""
    parts = list(_elements(content, order))
    if len(parts) < 4 or parts[0][0] != 6 or len(parts[0][1]) < 8 or parts[1][0] != 5:
        return None
    flags = int(np.frombuffer(parts[0][1], f"{order}u4", 1)[0])
    kind, data = parts[3]
    if flags & _COMPLEX or flags & 0xFF not in _CLASSES or kind not in _NUMBERS:
        return None
    shape = [int(size) for size in np.frombuffer(parts[1][1], f"{order}i4")]
    values = np.frombuffer(data, order + _NUMBERS[kind])
    if min(shape, default=-1) < 0 or np.prod(shape, dtype=object) != len(values):
        raise ValueError(f"an array has {len(values):,} values for the shape {shape}")
    name = parts[2][1].decode("latin-1")
    return name, values.astype(_CLASSES[flags & 0xFF]).reshape(shape, order="F")
