"""NumPy's .npy and .npz files, read by rows where they are not compressed, and never unpickled."""

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

from whatwhere.data.array_file import ArrayFile, FileVersion
from whatwhere.data.array_header import ArrayHeader
from whatwhere.data.gzip_stream import CHUNK_BYTES
from whatwhere.errors import ImageError
from whatwhere.files import open_regular

LONGEST_HEADER = 4096
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<26xHH")
"""The fixed part of a zip member's header, which ends in the lengths of the name and the extra field after it."""


def read_npy(path: Path) -> ArrayFile:
    """The array in an .npy file, read by rows."""
    with open_regular(path) as file:
        version = FileVersion.of(file)
        return parse_header(path, file.read(LONGEST_HEADER)).open(0, version.size, version)


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _open_archive(path) as (archive, _):
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def read_npz(path: Path, name: str) -> ArrayFile | np.ndarray:
    """One array of an .npz file: read by rows, or decompressed in memory if it is compressed."""
    with _open_archive(path) as (archive, file):
        return _read_member(path, archive, archive.getinfo(f"{name}.npy"), file)


@contextmanager
def _open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, io.BufferedReader]]:
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield archive, file
    except ImageError:
        raise
    except Exception as error:  # whatever zipfile may raise on damaged bytes
        raise ImageError(f"{path}: not a valid .npz file ({error}); copy or save it again") from None


def parse_header(path: Path, start: bytes) -> ArrayHeader:
    """The header of an .npy file, given its first LONGEST_HEADER bytes, or all of a shorter file."""
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
        raise ImageError(f"{path}: not a valid .npy array ({error}); save it again with numpy.save") from None
    if dtype.hasobject:
        raise ImageError(
            f"{path}: contains Python objects, which are never unpickled; save the pixels as uint8 or float32"
        )
    return ArrayHeader(path, dtype, shape, file.tell(), "F" if fortran_order else "C")


def _read_member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: io.BufferedReader
) -> ArrayFile | np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ImageError(f"{path}: {member.filename} is neither stored nor deflated; save it with numpy.savez")
    with archive.open(member) as content:
        start = content.read(LONGEST_HEADER)
        header = parse_header(path, start)
        if member.compress_type == zipfile.ZIP_DEFLATED:
            return header.decompress(itertools.chain([start], _chunks(content)), member.compress_size)
    return header.open(_first_byte(file, member), member.file_size, FileVersion.of(file))


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _first_byte(file: io.BufferedReader, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin in the archive."""
    file.seek(member.header_offset)
    name_length, extra_length = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    return int(member.header_offset + LOCAL_HEADER.size + name_length + extra_length)
