"""What the header of a picture tells without decoding it: its shape, and whether its file is
complete. A folder of thousands of pictures is opened by headers in a second or two."""

import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from whatwhere.data.limits import limits
from whatwhere.errors import ImageError
from whatwhere.files import FileStamp, open_regular, readable, untrusted

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_COLOURS = {0: 1, 2: 3, 3: 3, 4: 1, 6: 3}  # channels without alpha, by the type of colours
_PNG_OTHER = (b"eXIf", b"acTL")  # turned as a camera was held; animated
_JPEG = b"\xff\xd8\xff"
_JPEG_END = b"\xff\xd9"
_JPEG_CHANNELS = {"L": 1, "RGB": 3, "CMYK": 3}
_ORIENTATION = 274  # the tag for how a camera was held
_LYING = (5, 6, 7, 8)  # its values that swap height and width


def header_shape(file: Path) -> tuple[tuple[int, int, int], FileStamp] | None:
    """Return the shape [C, H, W] of the one picture of 8 bits in a PNG or JPEG file whose end is
    there, and the stamp of the file. None for all others: only decoding tells."""
    try:
        with (
            readable(file, "picture", "decode it", ImageError),
            untrusted(),
            open_regular(file) as stream,
        ):
            begin = stream.read(26)
            if begin.startswith(_PNG):
                shape = _png_shape(begin, stream)
            elif begin.startswith(_JPEG):
                shape = _jpeg_shape(stream)
            else:
                shape = None
            if shape is None or not 0 < shape[1] * shape[2] <= limits().picture_pixels:
                return None
            return shape, FileStamp.of(os.fstat(stream.fileno()))
    except ImageError:  # whatever is wrong with it, decoding says it better
        return None


HEADER_DTYPE = np.dtype(np.uint8)
"""The type of the pixels of pictures whose shape the header tells."""


def _png_shape(begin: bytes, stream: BinaryIO) -> tuple[int, int, int] | None:
    """Walk over the chunks of a PNG file to its end."""
    width, height, depth, colours = struct.unpack(">IIBB", begin[16:26])
    if depth > 8 or colours not in _PNG_COLOURS:
        return None
    place = len(_PNG)
    for _ in range(100_000):  # a file of more chunks is left to decoding
        stream.seek(place)
        chunk = stream.read(8)
        if len(chunk) < 8 or chunk[4:] in _PNG_OTHER:
            return None
        if chunk[4:] == b"IEND":
            is_whole = len(stream.read(4)) == 4
            return (_PNG_COLOURS[colours], height, width) if is_whole else None
        place += 12 + int.from_bytes(chunk[:4], "big")
    return None


def _jpeg_shape(stream: BinaryIO) -> tuple[int, int, int] | None:
    """Read the header of a JPEG file, which must end with its marker."""
    from PIL import Image

    stream.seek(-len(_JPEG_END), os.SEEK_END)
    if stream.read() != _JPEG_END:
        return None
    stream.seek(0)
    picture = Image.open(stream, formats=("JPEG",))
    if picture.format != "JPEG" or picture.mode not in _JPEG_CHANNELS:
        return None
    width, height = picture.size
    if "exif" in picture.info and picture.getexif().get(_ORIENTATION) in _LYING:
        width, height = height, width
    return _JPEG_CHANNELS[picture.mode], height, width
