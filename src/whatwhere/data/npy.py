"""NumPy's .npy and .npz files, memory-mapped where they are not compressed and never unpickled."""

import io
import itertools
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from whatwhere.data.stored import StoredArray
from whatwhere.data.unpack import PIECE
from whatwhere.errors import ImageError

LONGEST_HEADER = 4096
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<26xHH")
"""The fixed head of a zip member, which ends in the lengths of the name and the extra field that follow it."""


def read_npy(path: Path) -> np.ndarray:
    """The array in an .npy file, memory-mapped."""
    with path.open("rb") as file:
        return parse_header(path, file.read(LONGEST_HEADER)).map(0, path.stat().st_size)


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _opened(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def read_npz(path: Path, name: str) -> np.ndarray:
    """One array of an .npz file: memory-mapped, or unpacked in memory where it is compressed."""
    with _opened(path) as archive:
        return _read_member(path, archive, archive.getinfo(f"{name}.npy"))


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except ImageError:
        raise
    except Exception as error:  # whatever zipfile may raise on damaged bytes
        raise ImageError(f"{path}: not a sound .npz file ({error}); copy or save it again") from None


def parse_header(path: Path, start: bytes) -> StoredArray:
    """The header at the start of an .npy file, of which `start` is LONGEST_HEADER bytes, or all there are."""
    file = io.BytesIO(start)
    try:
        version = npy_format.read_magic(file)
        if version == (1, 0):
            shape, fortran_order, dtype = npy_format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran_order, dtype = npy_format.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version} of the format is for arrays with named fields")
    except Exception as error:  # the header is Python text, and numpy's reader may raise anything a parser may
        raise ImageError(f"{path}: not a sound .npy array ({error}); save it again with numpy.save") from None
    if dtype.hasobject:
        raise ImageError(
            f"{path}: holds Python objects, which are never unpickled; save the pixels as uint8 or float32"
        )
    return StoredArray(path, dtype, shape, file.tell(), "F" if fortran_order else "C")


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ImageError(f"{path}: {member.filename} is neither stored nor deflated; save it with numpy.savez")
    with archive.open(member) as file:
        start = file.read(LONGEST_HEADER)
        stored = parse_header(path, start)
        if member.compress_type == zipfile.ZIP_STORED:
            return stored.map(_first_byte(path, member), member.file_size)
        return stored.unpack(itertools.chain([start], _pieces(file)), member.compress_size)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _first_byte(path: Path, member: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin in the archive."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name_length, extra_length = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    return member.header_offset + LOCAL_HEADER.size + name_length + extra_length
