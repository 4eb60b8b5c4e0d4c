"""Images in: the embedded digits, MNIST and its relatives, arrays, files and folders, all through `load`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import arrays, cache, catalogue, idx
from whatwhere.data.folders import load_folder
from whatwhere.data.images import Images
from whatwhere.data.splits import few_labels, train_validation
from whatwhere.errors import ImageError

__all__ = ["Images", "few_labels", "load", "train_validation"]

Source = str | Path | np.ndarray | torch.Tensor


def load(source: Source, labels: Any = None, *, split: str | None = None) -> Images:
    """Images from a name, a file, a folder or an array.

    `source` is the name of a set (`digits`, `mnist`, `fashion-mnist`, `kmnist`); the path of an IDX, .npy or .npz
    file or of a folder of pictures; or an array or tensor [N, H, W], [N, C, H, W] or [N, H, W, C].
    `labels` may be given for files and arrays that bring none: an array, or the path of an IDX or .npy file.
    `split` is `train` (the default) or `test`, for named sets only.

    Pictures and float pixels are read once from end to end, so that a bad one is refused before a run begins.
    """
    if isinstance(source, str) and source in catalogue.CATALOGUE:
        if labels is not None:
            raise ImageError(f"{source} brings its own labels; leave `labels` out")
        return _load_named(catalogue.find(source), split or "train")
    if split is not None:
        raise ImageError(f"only named sets ({', '.join(catalogue.CATALOGUE)}) have splits; leave `split` out")
    images = _load_path(Path(source)) if isinstance(source, str | Path) else _from_array(source, "array")
    if labels is not None:
        images = _with_labels(images, labels)
    if not isinstance(images.pixels, np.ndarray) or images.pixels.dtype.kind == "f":
        for rows in images.batches():
            images[rows]
    return images


def _load_named(entry: catalogue.Entry, split: str) -> Images:
    if split not in ("train", "test"):
        raise ImageError(f"{entry.name} has the splits train and test, not {split!r}")
    if missing := cache.missing_files(entry):
        raise ImageError(
            f"{entry.name}: {', '.join(file.name for file in missing)} not in {cache.folder_of(entry)}; "
            f"run `whatwhere data get {entry.name}`, or set WHATWHERE_DATA to the folder that holds {entry.name}/"
        )
    folder = cache.folder_of(entry)
    files = entry.train if split == "train" else entry.test
    name = f"{entry.name}/{split}"
    pixels = arrays.as_pixels(idx.read(folder / files.images.name), name)
    return Images(pixels, arrays.as_labels(idx.read(folder / files.labels.name), name), name)


def _load_path(path: Path) -> Images:
    if path.is_dir():
        return load_folder(path)
    if not path.is_file():
        raise ImageError(f"{path}: neither a file or folder nor the name of a set ({', '.join(catalogue.CATALOGUE)})")
    try:
        pixels, labels = arrays.read_file(path)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from None
    images = _from_array(pixels, str(path))
    return images if labels is None else _with_labels(images, labels)


def _from_array(values: Any, name: str) -> Images:
    return Images(arrays.as_pixels(arrays.as_array(values), name), None, name)


def _with_labels(images: Images, labels: Any) -> Images:
    if images.labels is not None:
        raise ImageError(f"{images.name} brings its own labels; leave `labels` out")
    if isinstance(labels, str | Path):
        if not Path(labels).is_file():
            raise ImageError(f"{labels}: no such file; an IDX or .npy file of labels is expected")
        labels, _ = arrays.read_file(Path(labels))
    return Images(images.pixels, arrays.as_labels(arrays.as_array(labels), images.name), images.name)
