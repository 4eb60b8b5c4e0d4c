"""A folder of PNG and JPEG pictures of one size, grey or colour; sub-folders, where there are any, are the labels."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.data.images import Images
from whatwhere.errors import ImageError, MissingExtra

SUFFIXES = (".png", ".jpg", ".jpeg")
LARGEST_PICTURE = 1 << 24
"""Pixels of one picture (4096 × 4096); a larger one is refused before it is decoded."""

MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
"""Pillow's kinds of picture, and what each is read as: grey or colour. Others would lose something on the way."""


@dataclass(frozen=True)
class Pictures:
    """Raw pixels [N, C, H, W] of picture files, decoded when asked for."""

    files: tuple[Path, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8)

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = np.arange(len(self.files))[rows]
        pixels = [self._decode(self.files[row]) for row in np.atleast_1d(chosen)]
        return np.stack(pixels) if pixels else np.empty((0, *self.shape[1:]), self.dtype)

    def _decode(self, file: Path) -> np.ndarray:
        pixels = decode(file)
        if pixels.shape != self.shape[1:]:
            raise ImageError(
                f"{file}: {_describe(pixels.shape)}, but {self.files[0].name} is {_describe(self.shape[1:])}; "
                "all pictures must have one size and be all grey or all colour"
            )
        return pixels


def load_folder(folder: Path) -> Images:
    """The pictures of a folder in the order of their names; labels number the sub-folders in the same order."""
    files = sorted(
        file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    )
    if not files:
        raise ImageError(f"{folder}: no pictures; PNG or JPEG files are expected in it or in its sub-folders")
    depths = {len(file.relative_to(folder).parts) for file in files}
    if depths not in ({1}, {2}):
        raise ImageError(
            f"{folder}: pictures at different or greater depths; expected are pictures in the folder itself, "
            "or one sub-folder of pictures for each label"
        )
    pixels = Pictures(tuple(files), (len(files), *decode(files[0]).shape))
    if depths == {1}:
        return Images(pixels, None, folder.name)
    classes = sorted({file.parent.name for file in files})
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.array([numbers[file.parent.name] for file in files], np.int64)
    return Images(pixels, labels, folder.name, tuple(classes))


def decode(file: Path) -> np.ndarray:
    """The pixels of one picture, uint8 [C, H, W]."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "data", "reading PNG and JPEG pictures") from None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=("PNG", "JPEG")) as picture:
                _check_header(file, picture)
                pixels = np.asarray(picture.convert(MODES[picture.mode]))
    except ImageError:
        raise
    except Exception as error:  # whatever a decoder may raise on damaged bytes
        raise ImageError(f"{file}: not a sound PNG or JPEG picture ({error})") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _check_header(file: Path, picture: Any) -> None:
    """Refuse a picture by its header, before its pixels are unpacked."""
    if picture.width * picture.height > LARGEST_PICTURE:
        raise ImageError(
            f"{file}: {picture.width} × {picture.height}, more than {LARGEST_PICTURE:,} pixels; make it smaller"
        )
    if picture.mode not in MODES or "transparency" in picture.info:
        raise ImageError(
            f"{file}: a picture of kind {picture.mode} (transparent, or of more than 8 bits a channel); "
            "save it as plain grey or RGB"
        )


def _describe(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{width} × {height}, {'grey' if channels == 1 else 'colour'}"
