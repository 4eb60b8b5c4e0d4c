"""Arrays in files, IDX, .npy and .npz, and arrays as images: supported types and shapes, the axis
of the channels.

Large files that are not compressed stay on disk (`StoredArray`), so that only the used parts are
read. Nothing is unpickled.
"""

import codecs
import gzip
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from whatwhere.data.limits import limits
from whatwhere.data.stored_array import AnyArray, StoredArray, with_new_axis
from whatwhere.errors import ImageError, InvalidImages, plural, printable, warn
from whatwhere.files import disk_errors, new_folder, open_atomic, open_regular, readable, untrusted

NPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK\x03\x04"
_GZIP_MAGIC = b"\x1f\x8b"
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
REMEDY = "copy, download or save it again"


def read_array(path: Path, largest: int | None = None) -> AnyArray:
    """Return the array of an .npy or IDX file; a gzipped IDX file is decompressed into memory.

    Parameters
    ----------
    largest
        number of bytes up to which a file is read into memory; None means the limit in force
    """
    largest = limits().in_memory if largest is None else largest
    with open_regular(path) as file, readable(path, "array file", REMEDY, ImageError):
        start = file.peek(len(NPY_MAGIC))
        if start.startswith(NPY_MAGIC):
            size = os.fstat(file.fileno()).st_size
            dtype, shape = _read_npy_header(file)
            _check_length(shape, dtype, size - file.tell(), empty=True)
            file.seek(0)
            if size <= largest:
                return np.asarray(np.load(file, allow_pickle=False))
            return StoredArray.of_map(path, np.load(path, mmap_mode="r", allow_pickle=False))
        if not start.startswith(_GZIP_MAGIC):
            dtype, shape = _read_idx_header(file)
            _check_length(shape, dtype, os.fstat(file.fileno()).st_size - file.tell())
            if os.fstat(file.fileno()).st_size > largest:
                return StoredArray.of_map(path, np.memmap(file, dtype, "r", file.tell(), shape))
            return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=file))
        dtype, shape = _read_idx_header(stream)
        content = bytearray()
        length = math.prod(shape) * dtype.itemsize
        _check_decompressed(length)
        # in chunks, so that memory grows only with what the file really holds
        while len(content) <= length and (chunk := stream.read(1 << 18)):
            content += chunk
        _check_length(shape, dtype, len(content))
        return np.ndarray(shape, dtype, content)


def _read_idx_header(stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...]]:
    """Return two zero bytes, a type, the number of axes, their sizes (big-endian); values
    follow."""
    start = stream.read(4)
    if (
        len(start) < 4
        or start[:2] != b"\0\0"
        or start[2] not in _IDX_TYPES
        or not 1 <= start[3] <= 4  # axes
    ):
        raise ValueError(
            f"it is not a picture, .npy, .npz or IDX file (first bytes: {start.hex(' ') or 'none'})"
        )
    return np.dtype(_IDX_TYPES[start[2]]), struct.unpack(f">{start[3]}I", stream.read(4 * start[3]))


def _read_npy_header(stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...]]:
    """Read the type and the shape of an .npy file; its values follow in the stream."""
    with untrusted():  # a header is an expression of Python
        version = npy.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = npy.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = npy.read_array_header_2_0(stream)
        else:
            raise ValueError(f"its format is version {version} of .npy; expected 1.0 or 2.0")
    if dtype.hasobject:
        raise ValueError("it holds Python objects; expected numbers")
    return dtype, shape


def _check_length(
    shape: tuple[int, ...], dtype: np.dtype, length: int, *, empty: bool = False
) -> None:
    """Raise a ValueError unless a file has as many bytes as its header says.

    Parameters
    ----------
    empty
        whether an array without values is right
    """
    expected = math.prod(shape) * dtype.itemsize
    if length != expected or not (length or empty):
        raise ValueError(
            f"its header gives the shape {shape} ({expected:,} bytes of {dtype}), but the file has"
            f" {length:,} bytes of values"
        )


def _check_decompressed(length: int) -> None:
    most = limits().decompressed
    if length > most:
        raise ValueError(f"it decompresses to {length:,} bytes; expected at most {most:,}")


@contextmanager
def open_npz(path: Path, kind: str = ".npz file", remedy: str = REMEDY) -> Iterator[NpzFile]:
    """Open the arrays of an .npz file by name; each is read into memory when it is asked for."""
    damage = readable(path, kind, remedy, ImageError)
    with damage, open_regular(path) as file, ExitStack() as opened:
        if not file.peek(len(_ZIP_MAGIC)).startswith(_ZIP_MAGIC):
            raise ValueError("it is not an archive of NumPy")
        with untrusted():
            archive = opened.enter_context(np.load(file, allow_pickle=False))
        check_members(archive)
        yield archive


def check_members(archive: NpzFile) -> None:
    """Raise a ValueError if the compressed arrays of an archive are larger than the limit, or if an
    array is not as long as its header says."""
    assert archive.zip is not None, "it is open"
    members = archive.zip.infolist()
    _check_decompressed(sum(member.file_size for member in members if member.compress_type))
    for member in members:
        with untrusted():
            stream = archive.zip.open(member)
        with stream:
            if not stream.read(len(NPY_MAGIC)).startswith(NPY_MAGIC):
                continue  # no array
            stream.seek(0)
            dtype, shape = _read_npy_header(stream)
            _check_length(shape, dtype, member.file_size - stream.tell(), empty=True)


Channels = Literal["first", "last"]


def read_file(path: Path, largest: int | None = None) -> tuple[AnyArray, np.ndarray | None]:
    """Return the images of a file and, from an .npz, its labels; the first bytes show what kind of
    file it is.

    Parameters
    ----------
    largest
        as in `read_array`
    """
    with open_regular(path) as file:
        start = file.read(512)
    if _is_text(start):
        raise InvalidImages(
            f"{printable(path)}, a text",
            "images (a picture, .npy, .npz or IDX) or a recording (.wav, .csv, .edf or .npy)",
            "Rename a table of numbers to .csv.",
        )
    if not start.startswith(_ZIP_MAGIC):
        return read_array(path, largest), None
    with open_npz(path) as archive:
        for name in ("images", "signals"):
            if name in archive:
                return np.asarray(archive[name]), archive.get("labels")
        if len(archive) == 1:
            return np.asarray(archive[archive.files[0]]), None
        names = ", ".join(sorted(archive)[:9]) or "no arrays"
    expected = "one array, or `images` (or `signals`) and `labels`"
    raise InvalidImages(f"{path} with {names}", expected)


def _is_text(start: bytes) -> bool:
    """Tell whether a file that begins like this is text: letters, digits and marks, and lines."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)  # it may end inside a letter
    except UnicodeDecodeError:
        return False
    return len(text) > 0 and all(char.isprintable() or char in "\r\n\t" for char in text)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file, complete or not at all, and its folder."""
    values: Any = dict(arrays)
    doing = f"writing {path}"
    remedy = "free some disk space, or choose another folder"
    with disk_errors(doing, remedy), new_folder(path.parent), open_atomic(path) as file:
        np.savez(file, **values)


def as_array(values: object) -> np.ndarray:
    """Return a tensor, an array, a list of arrays of one shape or a sequence of numbers as an
    array."""
    if isinstance(values, list | tuple) and any(hasattr(one, "shape") for one in values):
        shapes = {tuple(np.shape(one)) for one in values}
        if len(shapes) > 1:
            given = f"arrays of {len(shapes)} shapes, such as {list(min(shapes))}"
            raise InvalidImages(given, "pictures of one shape", "Load a folder, or scale them.")
        values = [as_array(one) for one in values]
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    return np.asarray(values)


def check_dtype(dtype: np.dtype, name: str) -> None:
    """Raise an ImageError for values that are neither pixels nor samples."""
    if dtype.kind not in "buif" or (dtype.kind in "ui" and dtype.itemsize > 2):
        raise InvalidImages(
            f"{name}, values of type {dtype}",
            "bool, uint8, uint16, int8, int16 or floats",
            "Scale it to floats from 0 to 1, such as array / array.max().",
        )


class AmbiguousChannels(UserWarning):
    """An array whose second or fourth axis may hold the channels; the second is taken.

    Attributes
    ----------
    name
        the array
    shape
        its shape
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        super().__init__(
            f"{name} has the shape {shape}; reading axis 1 as the {shape[1]} channels. If axis 3"
            " holds the channels, move it to axis 1, or set channels='last' in Python."
        )


class UnclearAxes(ImageError):
    """An array whose shape does not show what its axes are.

    Attributes
    ----------
    shape
        its shape
    """

    def __init__(self, shape: tuple[int, ...], message: str) -> None:
        self.shape = shape
        super().__init__(message)


def is_one_picture(shape: Sequence[int]) -> bool:
    """Tell whether an array of this shape is one picture: [H, W], or [H, W, 3] of colour."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] == 3 and min(shape[:2]) > 3)


def has_colours_last(shape: Sequence[int]) -> bool:
    """Tell whether an array of this shape is pictures [N, H, W, 3]."""
    return len(shape) == 4 and shape[3] == 3 and min(shape[1:3]) > 3


def as_pixels(values: AnyArray, name: str, channels: Channels | None = None) -> AnyArray:
    """Return raw pixels [N, C, H, W] of values [N, H, W], [N, C, H, W] or [N, H, W, C], or of one
    picture [H, W] or [H, W, 3]; not copied."""
    if is_one_picture(values.shape) and not _is_like_a_recording(values.shape):
        values = with_new_axis(values, 0)
    shape = values.shape
    if len(shape) not in (3, 4) or 0 in shape:
        raise UnclearAxes(shape, _shape_words(shape, name))
    if len(shape) == 3:
        return with_new_axis(values, 1)
    if (channels or channel_axis(shape, name)) == "first":
        return values
    return values.transpose(0, 3, 1, 2)


def _shape_words(shape: tuple[int, ...], name: str) -> str:
    """Return the error message for values that do not have the axes of images; it begins with what
    they look like."""
    images = "[H, W], [H, W, 3], [N, H, W], [N, C, H, W] or [N, H, W, C]"
    if not _is_like_a_recording(shape):
        return f"{name} has the shape {shape}; expected {images}."
    rate = "Give its samples per second: --rate RATE (in Python: signals=True, rate=RATE)."
    channels = 1 if len(shape) == 1 else min(shape)
    looks = f"looks like a recording of {plural(channels, 'channel')}"
    return f"{name} {looks}: its shape is {shape}. {rate} Images are {images}."


def _is_like_a_recording(shape: tuple[int, ...]) -> bool:
    """Tell whether an array of this shape is a recording [T], [C, T] or [T, C] rather than a
    picture, which is not so long."""
    if 0 in shape or len(shape) not in (1, 2):
        return False
    return len(shape) == 1 or max(shape) >= 50 * min(shape)


def channel_axis(shape: tuple[int, ...], name: str) -> Channels:
    """Tell whether the second or the last axis of [N, a, b, c] values holds the channels: the one
    with at most 4 entries, if only one of them has so few.

    If both have so few, it is the second, and a warning says so. If neither has, it is the one that
    is the shortest of the three axes; if neither is, an error asks the user.
    """
    _, a, b, c = shape
    most_channels = 4  # colour and alpha
    first_is_short = a <= most_channels
    last_is_short = c <= most_channels
    if first_is_short and last_is_short and (a > 1 or c == 1) and b > 1:
        warn(AmbiguousChannels(name, shape))
    if first_is_short:
        return "first"
    if last_is_short:
        return "last"
    if a < min(b, c) or c < min(a, b):
        return "first" if a < c else "last"
    raise UnclearAxes(
        shape,
        f"{name}: the shape {shape} does not show which axis holds the channels; expected fewer"
        " channels than rows and columns. In Python, set channels='first' or 'last'.",
    )


def as_labels(stored: AnyArray, name: str) -> np.ndarray:
    """Return labels as int64 [N]."""
    values = stored[:]
    if len(values.shape) != 1 or values.dtype.kind not in "iu":
        given = f"{name}, labels of shape {values.shape} and type {values.dtype}"
        raise InvalidImages(given, "one integer per image")
    if values.dtype.kind == "u" and values.max(initial=0) > np.iinfo(np.int64).max:
        most = np.iinfo(np.int64).max
        raise InvalidImages(f"{name} with the label {values.max()}", f"labels up to {most} (int64)")
    return values.astype(np.int64)
