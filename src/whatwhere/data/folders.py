"""A folder of PNG and JPEG pictures of one size, grey or colour; sub-folders, if there are any, are the labels."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.data.images import Images
from whatwhere.errors import ImageError, MissingExtra, printable
from whatwhere.regular_file import open_regular

SUFFIXES = (".png", ".jpg", ".jpeg")
LARGEST_PICTURE = 1 << 24
"""Pixels of one picture (4096 × 4096); a larger one is rejected before it is decoded."""

MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
"""Pillow's kinds of picture that are supported, and what each is read as: grey or colour."""


@dataclass(frozen=True)
class Pictures:
    """Raw pixels [N, C, H, W] of picture files, decoded when they are read."""

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
    files, labelled_files = _pictures(folder), _pictures_of_subfolders(folder)
    if not files and not labelled_files:
        raise ImageError(f"{folder}: no pictures; expected PNG or JPEG files in it or in its sub-folders")
    if files and labelled_files:
        raise ImageError(
            f"{folder}: pictures at different depths ({files[0].name} and {labelled_files[0].relative_to(folder)}); "
            "expected pictures in the folder itself, or one sub-folder of pictures for each label"
        )
    name = printable(folder.name or folder.absolute().name)
    if files:
        return Images(_open_pictures(files), None, name)
    classes = sorted({file.parent.name for file in labelled_files})
    numbers = {label: number for number, label in enumerate(classes)}
    labels = np.array([numbers[file.parent.name] for file in labelled_files], np.int64)
    return Images(_open_pictures(labelled_files), labels, name, tuple(map(printable, classes)))


def _open_pictures(files: list[Path]) -> Pictures:
    """The pictures, all of which are decoded once, so that a bad one is an error now."""
    pictures = Pictures(tuple(files), (len(files), *decode(files[0]).shape))
    for row in range(len(files)):
        pictures[row]
    return pictures


def _pictures(folder: Path) -> list[Path]:
    """The pictures in the folder itself, by name; hidden files are ignored."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not file.is_dir()
    )


def _pictures_of_subfolders(folder: Path) -> list[Path]:
    """The pictures one level down, also through symbolic links; there may be none below that."""
    pictures: list[Path] = []
    for subfolder in _subfolders(folder):
        pictures += _pictures(subfolder)
        for deeper in _subfolders(subfolder):
            if _pictures(deeper) or _subfolders(deeper):
                raise ImageError(
                    f"{deeper}: pictures or folders at too great a depth; expected pictures in the folder itself, or "
                    "one sub-folder of pictures for each label"
                )
    return pictures


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def decode(file: Path) -> np.ndarray:
    """The pixels of one picture, uint8 [C, H, W]."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "data", "reading PNG and JPEG pictures") from None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(file) as stream, Image.open(stream, formats=("PNG", "JPEG")) as picture:
                _check_header(file, picture)
                pixels = np.asarray(picture.convert(MODES[picture.mode]))
    except ImageError:
        raise
    except Exception as error:  # whatever a decoder may raise on damaged bytes
        raise ImageError(f"{file}: not a valid PNG or JPEG picture ({error})") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _check_header(file: Path, picture: Any) -> None:
    """Reject a picture by its header, before its pixels are decompressed."""
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
