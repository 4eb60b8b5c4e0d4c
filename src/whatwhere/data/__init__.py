"""Images: the included digits, MNIST and its relatives, arrays, files and folders, all through
`load`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from whatwhere.data import arrays, catalogue, cells, mixed
from whatwhere.data.catalogue import checksums
from whatwhere.data.formats import is_recording_file, recordings, signals_class
from whatwhere.data.images import AllPictures, Images, Pixels, check_finite, few_labels, white_used
from whatwhere.data.mixed import NOT_RECORDED, Group, MixedPictures, Recorded, match_mask
from whatwhere.data.parts import find_parts
from whatwhere.data.pictures import folder_content, is_picture
from whatwhere.data.stored_array import AnyArray
from whatwhere.errors import (
    InvalidImages,
    NoSuchImages,
    UnexpectedArgument,
    UnknownDataset,
    Unreadable,
    did_you_mean,
    one_or,
    plural,
    printable,
    warn,
)
from whatwhere.spec.execution import ALL, Shard

if TYPE_CHECKING:
    from whatwhere.signals.recording import Signals as Signals

__all__ = [
    "Images",
    "Signals",
    "checksums",
    "few_labels",
    "find_parts",
    "load",
    "load_for_training",
    "load_groups",
]


def __getattr__(name: str) -> object:
    """Return `Signals`, loaded on first use."""
    if name == "Signals":
        return signals_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Source = (
    str
    | Path
    | Sequence[object]
    | np.ndarray
    | torch.Tensor
    | Images
    | cells.OpenPicture
    | cells.Table
)
"""What `load` reads. A table is such as a Hugging Face `Dataset`, whose package is not needed."""


def load(
    source: Source,
    labels: object = None,
    *,
    split: str | None = None,
    channels: arrays.Channels | None = None,
    allow_nan: bool = False,
    size: int | None = None,
    recorded: Recorded = NOT_RECORDED,
    signals: bool = False,
    rate: float | None = None,
    shard: Shard = ALL,
) -> Images:
    """Load images from a name, a file, a folder or an array, or signals from a .wav, .csv, .npy or
    .npz file or an array.

    Pictures and float pixels are read once completely, so that errors in them appear before a run
    begins.

    Parameters
    ----------
    source
        the name of a data set (`digits`, `mnist`, `fashion-mnist`, `kmnist`; `digits:test` for its
        test images); the path of an IDX, .npy or .npz file, of a picture or of a folder of
        pictures; a picture of Pillow; an array or tensor, [H, W] or [H, W, 3] of one picture, [N,
        H, W], [N, C, H, W] or [N, H, W, C] of several; a list of paths, of Pillow's pictures or of
        arrays; or a Hugging Face `Dataset` with its labels. If a file or folder has the name of a
        data set, give it as `./digits` or as a `Path`. `Images` are returned as they are
    labels
        labels for files and arrays without any: an array [N], or the path of an IDX or .npy file
    split
        'train' (the default) or 'test', only for data sets known by name
    channels
        'first' or 'last', for arrays whose shape does not show it
    allow_nan
        whether NaN in float arrays marks unknown pixels, which `infer` and `train` ignore;
        otherwise NaN is an error. In signals NaN always marks unknown samples
    size
        only for pictures: all become squares of this side, scaled and cut at the centre. None:
        pictures of one size are kept whole, others become squares of 64 pixels or the smallest
        side, with a warning
    recorded
        what a run recorded: the side of those squares, and the value of white in 16-bit pixels
    signals
        whether arrays [T], [C, T] or [N, C, T] are signals, to be read as `Signals`. Files named
        .wav, .csv (a row for each sample, a column for each channel) or, with MNE, .edf always are,
        and so is MNE's `Raw`
    rate
        samples per second of signals, if the file does not give them
    shard
        only this part of the images (`--shard`); no other file of a folder is opened

    Examples
    --------
    >>> ww.data.load("digits", split="test")
    Images('digits/test', 2,000 of 1×28×28, labelled)
    >>> ww.data.load(np.zeros((5, 20, 30, 3), np.uint8), labels=np.arange(5))
    Images('array', 5 of 3×20×30, labelled)
    """
    if (table := cells.as_table(source)) is not None:
        images = cells.read_dataset(table, recorded, shard, size)
        return images if labels is None else _with_labels(replace(images, labels=None), labels)
    opened = _open(
        source,
        split=split,
        channels=channels,
        allow_nan=allow_nan,
        recorded=recorded,
        signals=signals,
        shard=shard,
    )
    if isinstance(opened, MixedPictures):
        images = _one_size(opened, size)
    else:
        images = _images_of_shard(opened, shard, source)
    if isinstance(images, signals_class()):
        images = images.with_rate(rate)
    if isinstance(source, str | Path):
        images = replace(images, source=catalogue.absolute_source(source))
    return images if labels is None else _with_labels(images, labels)


def open_folder(
    folder: str | Path, size: int | None = None, recorded: Recorded = NOT_RECORDED
) -> Images:
    """Open a folder of pictures by their headers, as `load` does, but ten times faster: only
    pictures whose header does not tell their shape are decoded. A picture that turns out to be
    damaged when it is read is black, with a warning. Large JPEG files that become squares are
    decoded at a part of their size, which moves edges by half a pixel of the square at most."""
    opened = MixedPictures.of_folder(Path(folder), recorded, ALL, decoded=False)
    return replace(_one_size(opened, size), source=catalogue.absolute_source(folder))


def load_groups(
    source: Source,
    mask: Source | None = None,
    recorded: Recorded = NOT_RECORDED,
    *,
    signals: bool = False,
    blend: bool = True,
    shard: Shard = ALL,
) -> list[Group]:
    """Load images and their masks, if there are any. Pictures of several sizes are kept whole, in a
    group for each size.

    A mask is a weight ≥ 0 for every pixel (0: unknown), as `infer` and `train` take it.

    Parameters
    ----------
    source
        as in `load`; an array is [N, H, W], [N, C, H, W] or [N, H, W, C]
    mask
        a picture, a folder or an array as `load` takes it, [1 or N, 1 or C, H, W], one for all
        images or one for each: white (1) is known and black (0) unknown. 'alpha': transparent
        pixels of the pictures are unknown. 'nan': NaN in floats is unknown
    recorded
        as in `load`
    signals
        as in `load`; NaN in signals is unknown
    blend
        blend transparent pixels with black; otherwise colours stay as they are stored
    shard
        as in `load`

    Examples
    --------
    >>> from PIL import Image
    >>> import os; os.mkdir("pictures")
    >>> for name, size in {"a.png": (8, 8), "b.png": (9, 8), "c.png": (8, 8)}.items():
    ...     Image.new("L", size).save(f"pictures/{name}")
    >>> [len(images) for images, _ in ww.data.load_groups("pictures")]
    [2, 1]
    >>> half = np.ones((1, 28, 28), np.uint8) * 255
    >>> half[:, :14] = 0
    >>> [(images, mask)] = ww.data.load_groups("digits", half)
    >>> mask[:1].mean()
    tensor(0.5000)
    """
    special = mask if isinstance(mask, str) and mask in ("alpha", "nan") else None
    table = cells.as_table(source)
    allow_nan = signals or special == "nan" or is_recording_file(source)
    opened = (
        _open(source, allow_nan=allow_nan, recorded=recorded, signals=signals, shard=shard)
        if table is None
        else cells.read_dataset(table, recorded, shard, None)
    )
    if isinstance(opened, MixedPictures):
        groups = replace(opened, blend=blend).by_size(alpha=special == "alpha")
    elif special == "alpha":
        raise UnexpectedArgument(
            "mask",
            opened.name,
            f"mask='alpha' needs pictures with an alpha channel, but {opened.name} is not a"
            " picture.",
        )
    else:
        images = opened if table is not None else _images_of_shard(opened, shard, source)
        groups = [(images, None)]
    if mask is None or special:
        return groups
    masks = _load_masks(mask, shard)
    if not shard.is_all:
        _check_number(masks, groups[0][0])
    return [(images, match_mask(masks, images)) for images, _ in groups]


def _load_masks(mask: Source, shard: Shard) -> Images:
    """Return the masks of the images of a shard; a single mask applies to the images of all
    shards."""
    if not shard.is_all and is_folder(mask):
        has_one = len(folder_content(Path(mask)).pictures) == 1  # type: ignore[arg-type]
        return load(mask, shard=ALL if has_one else shard)
    masks = load(mask)
    return masks if len(masks) == 1 else _images_of_shard(masks, shard, mask)


def _check_number(masks: Images, images: Images) -> None:
    """Raise an ImageError unless the masks of all shards are one, or as many as the pictures of all
    shards. Otherwise a shard would take masks of other pictures."""
    assert images.all_pictures is not None
    pictures = images.all_pictures.count
    number = 1 if masks.all_pictures is None else masks.all_pictures.count
    if number not in (1, pictures):
        count = plural(pictures, "picture")
        given = f"{masks.name}, {plural(number, 'mask')} for {count} in all shards"
        raise InvalidImages(given, one_or(pictures))


class NameOfTwo(UserWarning):
    """A name of a data set that is also a path here; the data set is taken.

    Attributes
    ----------
    name
        the name
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name!r} is both a data set and a path here. Using the data set; write"
            f" './{name}' for the path."
        )


class SeveralSizesCropped(UserWarning):
    """Pictures of several sizes, of which training takes crops.

    Attributes
    ----------
    source
        the pictures
    sizes
        the number of their sizes
    crops
        the crops
    """

    def __init__(self, source: str, sizes: int, crops: Images) -> None:
        self.source = source
        self.sizes = sizes
        self.crops = crops
        super().__init__(
            f"{source} has pictures of {sizes} sizes. Training uses {crops.name}. Set"
            " crop=SIZE (--crop SIZE) for crops of another size."
        )


class LargeFloats(UserWarning):
    """Floats that are probably bytes.

    Attributes
    ----------
    name
        the images
    largest
        their largest value
    """

    def __init__(self, name: str, largest: float) -> None:
        self.name = name
        self.largest = largest
        super().__init__(
            f"{name} has floats up to {largest:g}. whatwhere takes floats as they are, and the"
            " paper's settings expect values in [0, 1]. Divide by 255, or give bytes as uint8."
        )


def is_folder(source: object) -> bool:
    """Tell whether a source is a folder of pictures."""
    if isinstance(source, str) and source.partition(":")[0] in catalogue.CATALOGUE:
        return False
    return isinstance(source, str | Path) and os.path.isdir(source)


def _images_of_shard(images: Images, shard: Shard, source: Source) -> Images:
    """Return the images of a shard."""
    rows = shard.rows_of_pictures(len(images))
    if shard.is_all:
        return images
    # the name of a file without its folder, which may have another name on another machine
    is_file = isinstance(source, str | Path) and os.path.isfile(source)
    name = os.path.basename(source) if is_file else images.name  # type: ignore[arg-type]
    all_pictures = AllPictures.of(len(images), [name])
    return replace(images.subset(list(rows)), all_pictures=all_pictures)


def load_for_training(
    source: Source,
    mask: Source | None = None,
    *,
    crop: int | None = None,
    seed: int = 0,
    signals: bool = False,
) -> tuple[Images, Images | None]:
    """Load images of one size, and their masks if there are any: the images of the source, or crops
    of its pictures.

    Signals stay whole, or are cut into windows if `crop` is given; unknown samples are NaN.

    Parameters
    ----------
    source
        pictures as `load` takes them, [N, C, H, W] if they are an array
    mask
        as in `load_groups`, [1 or N, 1 or C, H, W]
    crop
        side of the crops, in pixels. None takes whole pictures if they have one size; otherwise it
        takes crops and reports them in a warning. For signals, it is the length of the windows
    seed
        seed of the random places
    signals
        as in `load`

    Examples
    --------
    >>> images, mask = ww.data.load_for_training(np.zeros((2, 1, 40, 40), np.uint8), crop=16)
    >>> images.shape, mask
    ((1, 16, 16), None)
    """
    groups = load_groups(source, mask, signals=signals)
    if isinstance(opened := groups[0][0], signals_class()):
        if mask not in (None, "nan"):
            problem = "Signals do not take a mask. Mark unknown samples with NaN instead."
            raise UnexpectedArgument("mask", opened.name, problem)
        windows = opened if crop is None else opened.windows(crop)
        return _with_source((windows, None), source)
    if crop is None and len(groups) == 1:
        return _with_source(groups[0], source)
    crops = mixed.random_crops(groups, crop, None, seed)
    if crop is None:
        warn(SeveralSizesCropped(str(source), len(groups), crops[0]))
    return _with_source(crops, source)


def _with_source(group: Group, source: Source) -> Group:
    """Record where the images of a group were loaded from."""
    images, mask = group
    if isinstance(source, str | Path):
        images = replace(images, source=catalogue.absolute_source(source))
    return images, mask


def _open(
    source: Source,
    *,
    split: str | None = None,
    channels: arrays.Channels | None = None,
    allow_nan: bool = False,
    recorded: Recorded,
    signals: bool = False,
    shard: Shard = ALL,
) -> MixedPictures | Images:
    """Return the pictures of a shard, of any sizes; or all images of one size, or signals."""
    if isinstance(source, str):
        name, _, part = source.partition(":")
        if name in catalogue.CATALOGUE:
            return _load_named(catalogue.find(name), part or split or "train")
    if split is not None:
        raise UnexpectedArgument(
            "split",
            printable(source),
            f"Only named data sets ({', '.join(catalogue.CATALOGUE)}) have splits. Leave `split`"
            " out.",
        )
    if isinstance(source, Images):
        return source
    if (recording := recordings().of_object(source)) is not None:
        return recording
    if isinstance(source, str | Path):
        name = printable(source)
        opened = _open_path(source, recorded, signals, shard)
        if isinstance(opened, MixedPictures | Images):
            return opened
        values, own_labels = opened
    elif cells.is_list_of_paths(source):
        return MixedPictures.of_files(source, recorded, shard)
    else:
        name = "array"
        values = arrays.as_array(source)
        own_labels = None
    if signals:
        images: Images = recordings().of_values(values, name)
    else:
        arrays.check_dtype(values.dtype, name)
        images = _from_pixels(arrays.as_pixels(values, name, channels), name, allow_nan, recorded)
    return images if own_labels is None else _with_labels(images, own_labels)


def _load_named(entry: catalogue.Entry, split: str) -> Images:
    if os.path.exists(entry.name):
        warn(NameOfTwo(entry.name))
    if split not in ("train", "test"):
        raise UnknownDataset(f"split of {entry.name}", split, ["train", "test"])
    if missing := catalogue.missing_files(entry):
        raise NoSuchImages(
            f"{', '.join(file.name for file in missing)} of {entry.name} in",
            catalogue.folder_of(entry),
            remedy=f"Run `{entry.how_to_get}` (with `--from FOLDER` if you have the files), or set"
            f" WHATWHERE_DATA to the folder that contains {entry.name}/.",
        )
    name = f"{entry.name}/{split}"
    files = entry.files[:2] if split == "train" else entry.files[2:]
    pixels, labels = (arrays.read_array(catalogue.verified_path(entry, file)) for file in files)
    return Images(arrays.as_pixels(pixels, name), arrays.as_labels(labels, name), name)


def _open_path(
    source: str | Path, recorded: Recorded, signals: bool, shard: Shard
) -> MixedPictures | Signals | tuple[AnyArray, np.ndarray | None]:
    """Return the pictures of a shard of a file or of a folder; a recording; or the values of an
    array file, and its labels. Recordings of any size are read part by part."""
    if source == "":
        raise InvalidImages("an empty path", "a file, a folder or the name of a data set")
    path = Path(source)
    try:
        if os.path.isdir(path):
            return MixedPictures.of_folder(path, recorded, shard)
        if is_recording_file(path):
            return recordings().read(path, printable(path))
        if is_picture(path):
            return MixedPictures.of_file(path, recorded, shard)
        return arrays.read_file(path, largest=0 if signals else None)
    except FileNotFoundError:
        if path.suffix or path.parent != Path() or isinstance(source, Path):  # not a name
            raise NoSuchImages("", printable(path), remedy="Check the path.") from None
        names = ", ".join(catalogue.CATALOGUE)
        meant = did_you_mean(path.name, catalogue.CATALOGUE)
        reason = f"it is neither a file, nor a folder, nor the name of a data set ({names})"
        raise NoSuchImages("", path, reason, meant.strip()) from None
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None


def _one_size(pictures: MixedPictures, size: int | None) -> Images:
    """Return pictures of one size as they are; pictures of several sizes, or all if a size is
    given, as squares."""
    if size is None and len(pictures.sizes) == 1:
        return pictures.by_size()[0][0]
    squares = pictures.same_size(size or pictures.recorded.side)
    if size is None:
        warn(mixed.PicturesBecomeSquares(pictures, squares.shape[1]))
    return squares


def _from_pixels(pixels: Pixels, name: str, allow_nan: bool, recorded: Recorded) -> Images:
    images = Images(pixels, None, name, allow_nan=allow_nan)
    batches = images.parts()
    if pixels.dtype.kind == "f":
        lows, highs = zip(*(check_finite(batch, name, allow_nan) for batch in batches), strict=True)
        if min(lows) >= 0 and max(highs) > 2:  # probably bytes that were not scaled
            warn(LargeFloats(name, max(highs)))
    elif pixels.dtype == np.uint16:
        white = recorded.white or white_used(int(max(batch.max() for batch in batches)), name)
        return replace(images, brightest=white, deep_white=white)
    return images


def _with_labels(images: Images, labels: object) -> Images:
    if images.labels is not None:
        problem = f"{images.name} has its own labels. Leave `labels` out."
        raise UnexpectedArgument("labels", images.name, problem)
    if isinstance(labels, str | Path):
        file = Path(labels)
        try:
            labels, _ = arrays.read_file(file)
        except OSError as error:
            reason = error.strerror or str(error)
            remedy = "Expected an IDX or .npy file of labels."
            raise Unreadable(file, reason, remedy) from None
    return replace(images, labels=arrays.as_labels(arrays.as_array(labels), images.name))
