"""Folders of pictures; sub-folders, if there are any, are the labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.data.images import Images
from whatwhere.data.pictures import SUFFIXES, decode, decode_known, describe
from whatwhere.errors import ImageError, printable


@dataclass(frozen=True)
class Pictures:
    """Raw pixels [N, C, H, W] of picture files, decoded when they are read."""

    files: tuple[Path, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    decode: Callable[[Path], np.ndarray] = decode

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = np.arange(len(self.files))[rows]
        pixels = [self._decode(self.files[row]) for row in np.atleast_1d(chosen)]
        return np.stack(pixels) if pixels else np.empty((0, *self.shape[1:]), self.dtype)

    def _decode(self, file: Path) -> np.ndarray:
        pixels = self.decode(file)
        if pixels.shape != self.shape[1:] or pixels.dtype != self.dtype:
            raise ImageError(
                f"{file}: {describe(pixels.shape, pixels.dtype)}, but {self.files[0].name} is "
                f"{describe(self.shape[1:], self.dtype)}; all pictures must be of one size and kind "
                "(`whatwhere.data.load_by_size` groups them)"
            )
        return pixels


def load_folder(folder: Path) -> Images:
    """The pictures of a folder in the order of their names; labels number the sub-folders in the same order."""
    files, classes = _find_pictures(folder)
    first = decode(files[0])
    images = _as_images(files, (first.shape, first.dtype), classes, _name(folder))
    for row in range(len(images)):  # all of them once, so that a bad one is an error now
        images.pixels[row]
    return images


def picture_files(folder: Path) -> list[Path]:
    """The picture files of a folder itself, by name; there must be one."""
    return _find_pictures(folder)[0]


def load_folder_by_size(folder: Path) -> list[Images]:
    """The pictures of a folder as one `Images` for each size and kind, those of most pictures first."""
    files, classes = _find_pictures(folder)
    groups: dict[tuple[tuple[int, ...], np.dtype], list[Path]] = {}
    for file in files:
        pixels = decode(file)
        groups.setdefault((pixels.shape, pixels.dtype), []).append(file)
    if len(groups) == 1:
        return [_as_images(files, next(iter(groups)), classes, _name(folder))]
    return [
        _as_images(group, kind, classes, f"{_name(folder)} ({describe(*kind)})")
        for kind, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def load_picture(file: Path) -> Images:
    """One picture."""
    pixels = decode(file)
    return Images(pixels[None], None, printable(file))


def load_alpha(path: Path) -> Images:
    """The mask of a picture or of a folder of pictures: 0 where pixels are transparent (alpha 0), 1 elsewhere."""
    return alpha_of(_find_pictures(path)[0] if path.is_dir() else [path], _name(path))


def alpha_of(files: Sequence[Path], name: str) -> Images:
    """The masks of these pictures, by their alpha."""
    shape = decode_known(files[0]).shape
    return Images(Pictures(tuple(files), (len(files), *shape), np.dtype(bool), decode_known), None, f"alpha of {name}")


def file_names(images: Images) -> list[str] | None:
    """The files of pictures from a folder, with their sub-folder if that is their label; None for other images."""
    if not isinstance(images.pixels, Pictures):
        return None
    return [
        printable(f"{file.parent.name}/{file.name}" if images.classes else file.name) for file in images.pixels.files
    ]


def _as_images(
    files: Sequence[Path], kind: tuple[tuple[int, ...], np.dtype], classes: Sequence[str], name: str
) -> Images:
    """Pictures of one kind."""
    shape, dtype = kind
    pixels = Pictures(tuple(files), (len(files), *shape), dtype)
    if not classes:
        return Images(pixels, None, name)
    labels = np.array([classes.index(file.parent.name) for file in files], np.int64)
    return Images(pixels, labels, name, tuple(map(printable, classes)))


def _name(folder: Path) -> str:
    return printable(folder.name or folder.absolute().name)


def _find_pictures(folder: Path) -> tuple[list[Path], list[str]]:
    """The pictures in the order of their names, and the names of the sub-folders that label them."""
    files, labelled_files = _pictures(folder), _pictures_of_subfolders(folder)
    if not files and not labelled_files:
        raise ImageError(f"{folder}: no pictures; expected {', '.join(SUFFIXES)} files in it or in its sub-folders")
    if files and labelled_files:
        raise ImageError(
            f"{folder}: pictures at different depths ({files[0].name} and {labelled_files[0].relative_to(folder)}); "
            "expected pictures in the folder itself, or one sub-folder of pictures for each label"
        )
    return files or labelled_files, sorted({file.parent.name for file in labelled_files})


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
