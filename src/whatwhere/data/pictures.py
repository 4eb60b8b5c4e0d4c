"""One picture file as raw pixels: PNG, JPEG, BMP, TIFF or WebP."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.errors import ImageError, MissingExtra
from whatwhere.files import open_regular

FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
MAGICS = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*", b"RIFF")
"""How files of these formats begin."""

LARGEST_PICTURE = 1 << 24
"""Pixels of one picture (4096 × 4096); a larger one is rejected before it is decoded."""

PLAIN_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
ALPHA_MODES = {"LA": "LA", "La": "LA", "PA": "RGBA", "P": "RGBA", "RGB": "RGBA", "L": "LA", "RGBA": "RGBA"}
"""What Pillow's kinds of picture are read as: grey or colour, without and with transparency."""

DEEP_MODES = {"I;16": np.uint16, "I;16L": np.uint16, "I;16B": np.uint16, "I;16N": np.uint16, "F": np.float32}
"""Grey pictures of more than 8 bits, and the type of their pixels."""


def decode(file: Path) -> np.ndarray:
    """The pixels of one picture, [C, H, W]: uint8; uint16 or float32 where the file has such grey values.

    Transparent pixels are blended with black, the ground of the model: colour · alpha.
    """
    return _open(file, _read)


def decode_known(file: Path) -> np.ndarray:
    """Which pixels of one picture are known, bool [1, H, W]: all but those of alpha 0."""
    return _open(file, _read_known)


def _open(file: Path, read: Callable[[Any], np.ndarray]) -> np.ndarray:
    """What `read` returns for the picture in a file, [H, W] or [H, W, C], as [C, H, W]."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtra("Pillow", "data", "reading pictures") from None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(file) as stream, Image.open(stream, formats=FORMATS) as picture:
                _check_header(file, picture)
                ImageOps.exif_transpose(picture, in_place=True)  # upright, as a camera was held
                pixels = read(picture)
    except ImageError:
        raise
    except Exception as error:  # whatever a decoder may raise on damaged bytes
        raise ImageError(f"{file}: not a valid PNG, JPEG, BMP, TIFF or WebP picture ({error})") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _read(picture: Any) -> np.ndarray:
    """The pixels [H, W] or [H, W, C] of an open picture."""
    if picture.mode in DEEP_MODES:
        return np.asarray(picture).astype(DEEP_MODES[picture.mode])
    if picture.mode in PLAIN_MODES and not picture.has_transparency_data:
        return np.asarray(picture.convert(PLAIN_MODES[picture.mode]))
    values = np.asarray(picture.convert(ALPHA_MODES[picture.mode])).astype(np.uint16)
    colour, alpha = values[..., :-1], values[..., -1:]
    blended = ((colour * alpha + 127) // 255).astype(np.uint8)
    return blended[..., 0] if blended.shape[-1] == 1 else blended


def _read_known(picture: Any) -> np.ndarray:
    """Whether each pixel [H, W] of an open picture has an alpha above 0."""
    if picture.mode in DEEP_MODES or not picture.has_transparency_data:
        return np.ones((picture.height, picture.width), bool)
    known: np.ndarray = np.asarray(picture.convert(ALPHA_MODES[picture.mode]))[..., -1] > 0
    return known


def _check_header(file: Path, picture: Any) -> None:
    """Reject a picture by its header, before its pixels are decompressed."""
    if picture.width * picture.height > LARGEST_PICTURE:
        raise ImageError(
            f"{file}: {picture.width} × {picture.height}, more than {LARGEST_PICTURE:,} pixels; make it smaller"
        )
    if picture.mode not in PLAIN_MODES | ALPHA_MODES | DEEP_MODES:
        raise ImageError(f"{file}: a picture of kind {picture.mode}; save it as grey or RGB")
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        raise ImageError(f"{file}: {frames} frames or pages; save each as a picture of its own")


def describe(shape: tuple[int, ...], dtype: np.dtype) -> str:
    """Size and kind of a picture in words."""
    channels, height, width = shape
    return f"{width} × {height}, {'grey' if channels == 1 else 'colour'}, {dtype}"
