"""PNG files of colours, or of grey with alpha, in 16 bits; Pillow keeps only the upper 8.

Pillow's decoder can return either byte of every value, so a file is decoded once for each byte.
"""

import struct
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile as PillowPicture

_HIGH = {"RGB": "RGB;16B", "RGBA": "RGBA;16B"}  # what Pillow calls the upper bytes of 16-bit values
_LOW = {"RGB": "RGB;16L", "RGBA": "RGBA;16L"}  # and the lower bytes
_GREY_ALPHA = "LA;16B"  # the four bytes of a pixel are read as a pixel of an 8-bit RGBA picture
_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}  # the kind of a PNG by its channels
_WHITE = 65535


def is_deep(picture: "PillowPicture") -> bool:
    """Tell whether Pillow reduces an open picture from 16 bits to 8."""
    if picture.format != "PNG":
        return False
    return any(tile.args in (*_HIGH.values(), _GREY_ALPHA) for tile in picture.tile)


class DeepPng:
    """An open file with the names of Pillow's pictures; its pixels have 16 bits."""

    n_frames = 1
    format = "PNG"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        picture = self._opened()
        self.width, self.height = picture.size
        self._kind = str(picture.tile[0].args)
        self._transparent = picture.info.get("transparency")
        self.info = picture.info
        self.has_transparency_data = bool(picture.has_transparency_data)

    def _opened(self) -> "PillowPicture":
        from PIL import Image

        self._stream.seek(0)
        return Image.open(self._stream, formats=("PNG",))

    def _bytes(self, rawmode: str, mode: str) -> np.ndarray:
        """Decode one byte of every value, upright, [H, W, C]."""
        from PIL import ImageOps

        picture = self._opened()
        picture.tile = [tile._replace(args=rawmode) for tile in picture.tile]
        picture._mode = mode
        picture.info.pop("transparency", None)
        ImageOps.exif_transpose(picture, in_place=True)
        return np.asarray(picture).astype(np.uint16)

    @cached_property
    def _values(self) -> np.ndarray:
        """All channels, uint16 [H, W, C]."""
        if self._kind == _GREY_ALPHA:
            pairs = self._bytes("RGBA", "RGBA")
            return pairs[..., 0::2] * 256 + pairs[..., 1::2]
        mode = self._kind.partition(";")[0]
        return self._bytes(_HIGH[mode], mode) * 256 + self._bytes(_LOW[mode], mode)

    def colours(self) -> np.ndarray:
        """Return the pixels without transparency, uint16 [H, W, C]."""
        return self._values[..., :-1] if self._has_alpha else self._values

    def pixels(self) -> np.ndarray:
        """Return the pixels, uint16 [H, W, C], blended with black where they are transparent."""
        if not self.has_transparency_data:
            return self.colours()
        alpha = self._alpha_values()[..., None].astype(np.uint32)
        blended = (self.colours() * alpha + _WHITE // 2) // _WHITE
        return blended.astype(np.uint16)

    def alpha(self) -> np.ndarray:
        """Return the transparency, uint8 [H, W]."""
        return np.rint(self._alpha_values() / 257).astype(np.uint8)

    def known(self) -> np.ndarray:
        """Tell which pixels [H, W] are not completely transparent."""
        return self._alpha_values() > 0

    @property
    def _has_alpha(self) -> bool:
        return self._kind in (_GREY_ALPHA, _HIGH["RGBA"])

    def _alpha_values(self) -> np.ndarray:
        """Return the transparency, uint16 [H, W]: a channel, or a colour that is transparent."""
        if self._has_alpha:
            return self._values[..., -1]
        if self._transparent is None:
            return np.full(self._values.shape[:2], _WHITE, np.uint16)
        same = (self._values == np.array(self._transparent, np.uint16)).all(-1)
        return np.where(same, 0, _WHITE).astype(np.uint16)


def encode(
    pixels: np.ndarray,
    alpha: np.ndarray | None = None,
    icc_profile: bytes | None = None,
    dpi: tuple[float, float] | None = None,
) -> bytes:
    """Return the file of pixels, uint16 [C, H, W] with 1 or 3 channels.

    Parameters
    ----------
    alpha
        the transparency, uint8 [H, W]
    icc_profile
        the profile of the colours
    dpi
        pixels per inch, across and down
    """
    if alpha is not None:
        pixels = np.concatenate([pixels, alpha[None].astype(np.uint16) * 257])  # 65535 / 255
    channels, height, width = pixels.shape
    rows = np.ascontiguousarray(pixels.transpose(1, 2, 0)).astype(">u2").reshape(height, -1)
    unfiltered = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, _KINDS[channels], 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header)]
    if icc_profile:
        parts.append(_chunk(b"iCCP", b"icc\0\0" + zlib.compress(icc_profile)))
    if dpi:
        # dots per metre
        across, down = (round(value * 39.3701) for value in dpi)
        parts.append(_chunk(b"pHYs", struct.pack(">IIB", across, down, 1)))
    parts += [_chunk(b"IDAT", zlib.compress(unfiltered)), _chunk(b"IEND", b"")]
    return b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
