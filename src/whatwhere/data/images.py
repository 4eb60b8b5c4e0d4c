"""Images: pixels that are read and scaled batch by batch, and labels if there are any."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Protocol, Self

import numpy as np
import torch

from whatwhere.data.limits import limits
from whatwhere.data.stored_array import StoredArray
from whatwhere.errors import (
    BeyondRange,
    ImageError,
    InvalidImages,
    InvalidSetting,
    NotFinite,
    plural,
    warn,
)
from whatwhere.html import notebook_strip

Rows = int | slice | Sequence[int] | np.ndarray | torch.Tensor
SCALES = {"b1": 1, "u1": 255, "u2": 65535, "i1": 128, "i2": 32768}
"""The divisor of integers: unsigned ones become values in [0, 1], signed ones in [-1, 1)."""


class CountsDiffer(ImageError):
    """Another number of labels than of images.

    Attributes
    ----------
    name
        what has both
    images
        the number of images
    labels
        the number of labels
    """

    def __init__(self, name: str, images: int, labels: int) -> None:
        self.name = name
        self.images = images
        self.labels = labels
        super().__init__(
            f"{name} has {plural(images, 'image')} and {plural(labels, 'label')}; expected one"
            " label per image."
        )


class Pixels(Protocol):
    """Raw values [N, C, H, W], read by rows: an array, which may be stored in a file, or
    `LazyPixels`."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __getitem__(self, rows: Rows, /) -> np.ndarray: ...


@dataclass(frozen=True)
class LazyPixels:
    """Pixels that `read` returns for row numbers, int64 [n], when they are needed."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[np.ndarray], np.ndarray]

    def __getitem__(self, rows: Rows) -> np.ndarray:
        chosen = np.arange(self.shape[0])[rows]
        return self.read(chosen) if len(chosen) else np.empty((0, *self.shape[1:]), self.dtype)

    def of_rows(self, rows: np.ndarray) -> LazyPixels:
        """Return the pixels of these rows."""
        read = partial(_read_chosen, self, rows)
        return replace(self, shape=(len(rows), *self.shape[1:]), read=read)


@dataclass(frozen=True)
class AllPictures:
    """All pictures of a source; a shard reads some of them.

    Parameters
    ----------
    count
        their number; of a folder, the number of files
    names
        a checksum of the list of their names
    """

    count: int
    names: str

    @classmethod
    def of(cls, count: int, names: Iterable[str]) -> AllPictures:
        """Return the record of pictures with these names, in their order."""
        digest = hashlib.sha256()
        for name in names:
            digest.update(os.fsencode(name) + b"\0")
        return cls(count, digest.hexdigest())


@dataclass(frozen=True, eq=False)
class Images:
    """Images as the model expects them: `images[rows]` is a float32 tensor [n, C, H, W], which is
    read when it is needed.

    Parameters
    ----------
    pixels
        raw values, read by rows: [N, C, H, W] of any supported type
    labels
        int64 [N], or None
    name
        the source of the images
    classes
        the names of the labels 0, 1, 2, …, if the source gives them
    allow_nan
        whether NaN marks an unknown pixel; otherwise it is an error
    white
        what the brightest value of an integer type becomes, usually 1
    brightest
        the integer that is white; None for the largest of the type
    deep_white
        the value of white in the source's 16-bit pixels, which a run records; None if it has none
    all_pictures
        the pictures of all shards, if these are the images of a shard
    source
        where they were loaded from: the name of a data set or a full path, which a run records;
        None for arrays

    Examples
    --------
    >>> images = ww.data.load("digits")
    >>> images
    Images('digits/train', 5,000 of 1×28×28, labelled)
    >>> images[:3].shape, images.labels[:3], images.shape, len(images)
    (torch.Size([3, 1, 28, 28]), array([5, 0, 4]), (1, 28, 28), 5000)
    """

    pixels: Pixels
    labels: np.ndarray | None
    name: str
    classes: tuple[str, ...] | None = None
    allow_nan: bool = False
    white: float = 1.0
    brightest: int | None = None
    deep_white: int | None = None
    all_pictures: AllPictures | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self):
            raise CountsDiffer(self.name, len(self), len(self.labels))

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def __getitem__(self, rows: Rows) -> torch.Tensor:
        """Return the images of these rows, [n, C, H, W]; of a single row, [C, H, W]."""
        if isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        if isinstance(rows, torch.Tensor):
            rows = rows.cpu().numpy()
        elif isinstance(rows, tuple):  # an array would take it for one index per axis
            rows = list(rows)
        return torch.from_numpy(self.scale(self.pixels[rows]))

    def __getitems__(self, rows: Sequence[int]) -> list[object]:
        """Return the items of a batch of PyTorch's `DataLoader`: (image, label), or the image
        alone.

        >>> digits = ww.data.load("digits")
        >>> x, y = next(iter(torch.utils.data.DataLoader(digits, batch_size=8)))
        >>> x.shape, y
        (torch.Size([8, 1, 28, 28]), tensor([5, 0, 4, 1, 9, 2, 1, 3]))
        """
        images = self[np.array(rows)]
        if self.labels is None:
            return list(images)
        return list(zip(images, self.labels[np.array(rows)].tolist(), strict=True))

    def _repr_html_(self) -> str:
        """Show the first images in a notebook, under the line of `repr`."""
        return notebook_strip(repr(self), list(self[:12]))

    def __repr__(self) -> str:
        labelled = "unlabelled" if self.labels is None else "labelled"
        sizes = "×".join(map(str, self[:0].shape[1:]))
        return f"{type(self).__name__}({self.name!r}, {len(self):,} of {sizes}, {labelled})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """Compute sha256 of the raw pixels, their type and shape: the same for the same images in
        any kind of file."""
        dtype = self.pixels.dtype.newbyteorder("<")
        digest = hashlib.sha256(f"{dtype.str} {self.pixels.shape}".encode())
        for part in self.parts():
            digest.update(np.ascontiguousarray(part, dtype).data)
        return digest.hexdigest()

    def parts(self) -> Iterator[np.ndarray]:
        """Yield all raw pixels in their order, in parts of at most about 64 MB."""
        values = limits().batch // self.pixels.dtype.itemsize
        if math.prod(self.shape) <= values:
            yield from (self.pixels[rows] for rows in self.batches())
            return
        C, H, W = self.shape
        for row in range(len(self)):
            picture = picture_of(self.pixels, row)
            for c, h, w in product(range(C), range(H), range(0, W, values)):
                yield picture[c : c + 1, h : h + 1, w : w + values]

    def batches(self, size: int | None = None) -> Iterator[slice]:
        """Yield the rows of successive batches of `size` images; by default batches of about 64
        MB."""
        image_bytes = math.prod(self.shape) * self.pixels.dtype.itemsize
        size = size or max(1, limits().batch // image_bytes)
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def with_white(self, white: float) -> Self:
        """Return the same images in the units of a model (`InputSpec.white`); floats are used as
        they are."""
        return self if white == self.white else replace(self, white=white)

    def with_channels(self, channels: int) -> Images:
        """Return the same images for a model with this many channels: grey ones are repeated,
        colours become their brightness."""
        if channels == self.shape[0]:
            return self
        if 1 not in (channels, self.shape[0]):
            given = f"{self.name}, images of {self.shape[0]} channels"
            raise InvalidImages(given, f"{channels} channels, or 1 (grey)")
        N, _, H, W = self.pixels.shape
        read = partial(_read_channels, self.pixels, channels)
        pixels = replace(_lazy(self.pixels), shape=(N, channels, H, W), read=read)
        return replace(self, pixels=pixels)

    def subset(self, rows: Sequence[int] | np.ndarray, name: str | None = None) -> Images:
        """Return these rows as `Images` of their own, still read only when they are used."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        labels = None if self.labels is None else self.labels[chosen]
        some = _lazy(self.pixels).of_rows(chosen)
        return replace(self, pixels=some, labels=labels, name=name or self.name)

    def scale(self, raw: np.ndarray) -> np.ndarray:
        """Return raw pixels as float32: integers divided by what is white, times `white`; floats
        unchanged."""
        if raw.dtype.kind == "f":
            check_finite(raw, self.name, self.allow_nan)
            return np.array(raw, np.float32)
        divisor = np.float32((self.brightest or brightest_of(raw.dtype)) / self.white)
        return np.divide(raw, divisor, dtype=np.float32)


@dataclass(frozen=True)
class PictureWindows:
    """`picture[:, rows, columns]` are pixels [C, h, w] of one of the images, scaled to float32."""

    images: Images
    row: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.images.shape

    def __getitem__(self, window: tuple[slice, slice, slice]) -> torch.Tensor:
        return torch.from_numpy(self.images.scale(self._pixels[window]))

    @cached_property
    def _pixels(self) -> Windows:
        """The picture with its own type of pixels."""
        return picture_of(self.images.pixels, self.row)


class Windows(Protocol):
    """One picture [C, H, W] that is read in parts."""

    def __getitem__(self, window: tuple[slice, slice, slice], /) -> np.ndarray: ...


def picture_of(pixels: Pixels, row: int) -> Windows:
    """Return one of the pictures: a view of an array, a part of an array file, or a decoded picture
    file."""
    return pixels.row(row) if isinstance(pixels, StoredArray) else pixels[row : row + 1][0]


def _lazy(pixels: Pixels) -> LazyPixels:
    """Return pixels that are read when they are needed; pixels of pictures stay pictures, with
    their names."""
    if isinstance(pixels, LazyPixels):
        return pixels
    return LazyPixels(pixels.shape, pixels.dtype, partial(_read_rows, pixels))


def _read_rows(pixels: Pixels, rows: np.ndarray) -> np.ndarray:
    return pixels[rows]


def _read_chosen(pixels: Pixels, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return pixels[chosen[rows]]


def _read_channels(pixels: Pixels, channels: int, rows: np.ndarray) -> np.ndarray:
    values = pixels[rows]
    grey = values.mean(axis=1, keepdims=True).astype(values.dtype) if channels == 1 else values
    return np.repeat(grey, channels, axis=1)


def brightest_of(dtype: np.dtype) -> int:
    """Return what integers of this type are divided by."""
    return SCALES[dtype.kind + str(dtype.itemsize)]


def white_used(largest: int, name: str) -> int:
    """Return the white of 16-bit pixels up to `largest`, with a warning where they use 10 or 12
    bits only."""
    # Sensors store 10 or 12 bits in 16. (14 bits cannot be told from a dark picture with 16.)
    for bits in (10, 12):
        if 0 < largest < 2**bits:
            white = 2**bits - 1
            warn(FewBits(name, bits, white))
            return white
    return brightest_of(np.dtype(np.uint16))


class FewBits(UserWarning):
    """Pixels of 16 bits of which a camera used fewer.

    Attributes
    ----------
    name
        the images
    bits
        how many it used
    white
        the value that is taken for white
    """

    def __init__(self, name: str, bits: int, white: int) -> None:
        self.name = name
        self.bits = bits
        self.white = white
        super().__init__(
            f"{name} has 16-bit pixels that use only {bits} bits. Using {white} as white."
        )


def check_finite(raw: np.ndarray, name: str, allow_nan: bool = False) -> tuple[float, float]:
    """Return the range of floats, including 0; raises an error if a value is infinite, too large
    for float32 or (by default) NaN."""
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(raw) if allow_nan else True
        low = raw.min(initial=0, where=known)
        high = raw.max(initial=0, where=known)
    largest = np.finfo(np.float32).max
    if np.isnan(low):
        remedy = "If NaN marks unknown values, set allow_nan=True (--mask nan)."
        raise NotFinite(f"the values of {name}", remedy)
    if not (low >= -largest and high <= largest):
        raise BeyondRange(
            f"The values of {name} exceed the range of float32",
            {"from": low, "to": high},
            "Replace or remove the values that are too large.",
        )
    return float(low), float(high)


def few_labels(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Choose the rows of `count` labelled images, the same number from every class, in ascending
    order.

    With the same seed, the rows of a smaller count are among the rows of a larger one.

    Parameters
    ----------
    labels
        labels of all images, [N]
    count
        total number of labels, a multiple of the number of classes
    seed
        seed of the random choice

    Returns
    -------
    np.ndarray
        row numbers, [count]

    Examples
    --------
    >>> digits = ww.data.load("digits")
    >>> rows = ww.data.few_labels(digits.labels, 30, seed=0)
    >>> np.bincount(digits.labels[rows])
    array([3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """
    classes = np.unique(labels)
    each, remainder = divmod(count, len(classes))
    if each < 1 or remainder:
        expected = f"a multiple of {len(classes)}, the number of classes"
        raise InvalidSetting({"labels": count}, expected)
    generator = np.random.default_rng(seed)
    chosen = []
    for label in classes:
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) < each:
            expected = f"fewer: class {label} has only {plural(len(rows), 'image')}"
            raise InvalidSetting({"labels": count, "labels per class": each}, expected)
        chosen.append(rows[:each])
    return np.sort(np.concatenate(chosen))
