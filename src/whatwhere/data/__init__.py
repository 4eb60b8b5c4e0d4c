"""Images: the included digits, MNIST and its relatives, arrays, files and folders, all through `load`."""

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import arrays, cache, catalogue, idx
from whatwhere.data.array_file import ArrayFile
from whatwhere.data.crops import crop_groups
from whatwhere.data.folders import Pictures, alpha_of, load_alpha, load_folder, load_folder_by_size, load_picture
from whatwhere.data.images import Images, Pixels, check_finite
from whatwhere.data.masks import match_mask
from whatwhere.data.splits import few_labels, train_validation
from whatwhere.errors import ImageError, printable
from whatwhere.files import is_folder

__all__ = [
    "Images",
    "few_labels",
    "load",
    "load_by_size",
    "load_for_training",
    "load_with_mask",
    "random_crops",
    "train_validation",
]

LARGEST_USUAL_FLOAT = 2.0
"""Non-negative floats beyond this are probably bytes that were not scaled."""

Source = str | Path | np.ndarray | torch.Tensor | Images


def load(
    source: Source,
    labels: Any = None,
    *,
    split: str | None = None,
    channels: arrays.Channels | None = None,
    allow_nan: bool = False,
) -> Images:
    """Images from a name, a file, a folder or an array.

    Pictures and float pixels are read once completely, so that a bad one is an error before a run begins.

    source     the name of a data set (`digits`, `mnist`, `fashion-mnist`, `kmnist`); the path of an IDX, .npy or .npz
               file, of a picture or of a folder of pictures; or an array or tensor [N, H, W], [N, C, H, W] or
               [N, H, W, C]. A name comes before a file or folder of the same name, which is given as `./digits` or as a
               `Path`. `Images` are returned as they are
    labels     for files and arrays that have none: an array [N], or the path of an IDX or .npy file
    split      'train' (the default) or 'test', only for data sets known by name
    channels   'first' or 'last', for arrays whose shape does not show it
    allow_nan  NaN in float arrays marks unknown pixels, which `infer` and `train` ignore; otherwise it is an error

    >>> ww.data.load("digits", split="test")
    Images('digits/test', 2,000 of 1×28×28, labelled)
    >>> ww.data.load(np.zeros((5, 20, 30, 3), np.uint8), labels=np.arange(5))
    Images('array', 5 of 3×20×30, labelled)
    """
    if isinstance(source, str) and source in catalogue.CATALOGUE:
        if labels is not None:
            raise ImageError(f"{source} has its own labels; leave `labels` out")
        _warn_if_also_a_path(source)
        return _load_named(catalogue.find(source), split or "train")
    if split is not None:
        raise ImageError(f"only named data sets ({', '.join(catalogue.CATALOGUE)}) have splits; leave `split` out")
    if isinstance(source, Images):
        return source if labels is None else _with_labels(source, labels)
    if isinstance(source, str | Path):
        images = _load_path(source, channels, allow_nan)
    else:
        images = _from_values(arrays.as_array(source), "array", channels, allow_nan)
    return images if labels is None else _with_labels(images, labels)


def load_by_size(source: Source) -> list[Images]:
    """The same as `load`, but a folder of pictures may hold several sizes and kinds: one `Images` for each of them.

    source  as in `load`; an array is [N, H, W], [N, C, H, W] or [N, H, W, C]

    >>> from PIL import Image
    >>> import os; os.mkdir("pictures")
    >>> for name, size in {"a.png": (8, 8), "b.png": (9, 8), "c.png": (8, 8)}.items():
    ...     Image.new("L", size).save(f"pictures/{name}")
    >>> [len(images) for images in ww.data.load_by_size("pictures")]
    [2, 1]
    """
    if isinstance(source, str | Path) and source not in catalogue.CATALOGUE and is_folder(Path(source)):
        return load_folder_by_size(Path(source))
    return [load(source)]


def load_with_mask(source: Source, mask: Source | None, *, split: str | None = None) -> tuple[Images, Images | None]:
    """Images, and a weight ≥ 0 for every pixel (0: unknown) as `infer` and `train` take it; None if all count the same.

    source  as in `load`; an array is [N, H, W], [N, C, H, W] or [N, H, W, C]
    mask    a picture, a folder or an array as `load` takes it, [1 or N, 1 or C, H, W], one for all images or one for
            each: white (1) is known and black (0) unknown. 'alpha': transparent pixels of the pictures are unknown.
            'nan': NaN in floats is
    split   'train' or 'test', only for data sets known by name

    >>> half = np.ones((1, 28, 28), np.uint8) * 255
    >>> half[:, :14] = 0
    >>> images, mask = ww.data.load_with_mask("digits", half)
    >>> mask[:1].mean()
    tensor(0.5000)
    """
    if isinstance(mask, str) and mask == "nan":
        return load(source, split=split, allow_nan=True), None
    images = load(source, split=split)
    if mask is None:
        return images, None
    if not isinstance(mask, str) or mask != "alpha":
        return images, match_mask(load(mask), images)
    if not isinstance(source, str | Path) or not (is_folder(Path(source)) or arrays.is_picture(Path(source))):
        raise ImageError(f"the mask 'alpha' was given for {images.name}; only pictures have an alpha channel")
    return images, match_mask(load_alpha(Path(source)), images)


def load_groups(
    source: Source, mask: Source | None = None, *, split: str | None = None
) -> list[tuple[Images, Images | None]]:
    """The same as `load_with_mask`, for each size and kind of picture in a folder."""
    if not isinstance(source, str | Path) or source in catalogue.CATALOGUE or not is_folder(Path(source)):
        return [load_with_mask(source, mask, split=split)]
    groups = load_folder_by_size(Path(source))
    if mask is None or len(groups) == 1:
        return [(groups[0], load_with_mask(source, mask, split=split)[1])] if mask else [(g, None) for g in groups]
    if mask != "alpha":
        return [(images, match_mask(load(mask), images)) for images in groups]
    files = [images.pixels.files for images in groups if isinstance(images.pixels, Pictures)]
    return [(images, match_mask(alpha_of(f, images.name), images)) for images, f in zip(groups, files, strict=True)]


def random_crops(source: Source, size: int | None = None, count: int | None = None, *, seed: int = 0) -> Images:
    """Square crops at random places of pictures, which may be of several sizes: what to train on.

    Every picture gives a share in proportion to its area; the same seed gives the same crops.

    source  pictures as `load` takes them, [N, C, H, W] if they are an array
    size    side of a crop, in pixels; None: 64, or the smallest side of all pictures if that is less
    count   of crops; None: as many as have the area of all pictures together, at most 10,000
    seed    of the choice of places

    >>> ww.data.random_crops(np.zeros((2, 1, 40, 40), np.uint8), size=16, count=5)[:].shape
    torch.Size([5, 1, 16, 16])
    """
    return crop_groups(load_groups(source), size, count, seed)[0]


def load_for_training(
    source: Source, mask: Source | None = None, *, crop: int | None = None, seed: int = 0
) -> tuple[Images, Images | None]:
    """Images of one size, and their masks if there are any: those of the source, or crops of its pictures.

    source  pictures as `load` takes them, [N, C, H, W] if they are an array
    mask    as in `load_with_mask`, [1 or N, 1 or C, H, W]
    crop    side of the crops, in pixels; None takes none, unless the pictures are of several sizes or kinds: a warning
            says then what is taken
    seed    of the choice of places

    >>> images, mask = ww.data.load_for_training(np.zeros((2, 1, 40, 40), np.uint8), crop=16)
    >>> images.shape, mask
    ((1, 16, 16), None)
    """
    groups = load_groups(source, mask)
    if crop is None and len(groups) == 1:
        return groups[0]
    crops = crop_groups(groups, crop, None, seed)
    if crop is None:
        warnings.warn(
            f"{source} holds pictures of {len(groups)} sizes or kinds: {crops[0].name} are used (crop=SIZE, or --crop "
            "SIZE, takes others)",
            stacklevel=3,
        )
    return crops


def _warn_if_also_a_path(name: str) -> None:
    if os.path.exists(name):
        warnings.warn(f"{name!r} is the data set of this name; write './{name}' for the path", stacklevel=3)


def _load_named(entry: catalogue.Entry, split: str) -> Images:
    if split not in ("train", "test"):
        raise ImageError(f"{entry.name} has the splits train and test, not {split!r}")
    if missing := cache.missing_files(entry):
        raise ImageError(
            f"{entry.name}: {', '.join(file.name for file in missing)} not in {cache.folder_of(entry)}; "
            f"run `whatwhere data get {entry.name}`, or set WHATWHERE_DATA to the folder that contains {entry.name}/"
        )
    files = entry.train if split == "train" else entry.test
    name = f"{entry.name}/{split}"
    pixels = arrays.as_pixels(idx.read(cache.verified_path(entry, files.images)), name)
    return Images(pixels, arrays.as_labels(idx.read(cache.verified_path(entry, files.labels)), name), name)


def _load_path(source: str | Path, channels: arrays.Channels | None, allow_nan: bool) -> Images:
    if source == "":
        raise ImageError("an empty path was given; expected a file, a folder or the name of a data set")
    path = Path(source)
    try:
        if path.is_dir():
            return load_folder(path)
        if arrays.is_picture(path):
            return load_picture(path)
        pixels, labels = arrays.read_file(path)
    except FileNotFoundError:
        names = ", ".join(catalogue.CATALOGUE)
        raise ImageError(f"{path}: neither a file or folder nor the name of a data set ({names})") from None
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from None
    images = _from_values(pixels, printable(path), channels, allow_nan)
    return images if labels is None else _with_labels(images, labels)


def _from_values(values: Pixels, name: str, channels: arrays.Channels | None, allow_nan: bool) -> Images:
    pixels = arrays.as_pixels(values, name, channels)
    if pixels.dtype.kind == "f":
        chunks = values.chunks() if isinstance(values, ArrayFile) else iter((values[:],))
        lows, highs = zip(*(check_finite(chunk, name, allow_nan) for chunk in chunks), strict=True)
        if min(lows) >= 0 and max(highs) > LARGEST_USUAL_FLOAT:
            warnings.warn(
                f"{name}: floats are used as they are, here up to {max(highs):g}; the paper's settings are for values "
                "in [0, 1]: divide by 255, or give bytes as uint8",
                stacklevel=3,
            )
    return Images(pixels, None, name, allow_nan=allow_nan)


def _with_labels(images: Images, labels: Any) -> Images:
    if images.labels is not None:
        raise ImageError(f"{images.name} has its own labels; leave `labels` out")
    if isinstance(labels, str | Path):
        try:
            labels, _ = arrays.read_file(Path(labels))
        except OSError as error:
            raise ImageError(
                f"{labels}: cannot be read: {error.strerror or error}; expected an IDX or .npy file of labels"
            ) from None
    elif not isinstance(labels, ArrayFile):
        labels = arrays.as_array(labels)
    return replace(images, labels=arrays.as_labels(labels, images.name))
