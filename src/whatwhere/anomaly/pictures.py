"""Pictures of any sizes: folders, files, arrays, tensors or lists of them, read one at a time; and
a sample of them."""

import hashlib
import heapq
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images, Signals, is_folder, load, load_groups
from whatwhere.data.arrays import is_one_picture
from whatwhere.data.cells import cell_pixels, is_cell
from whatwhere.data.images import AllPictures
from whatwhere.data.pictures import Picture, Pictures
from whatwhere.errors import ImageError, plural
from whatwhere.spec.execution import ALL, Shard

SMALL = 96  # pixels: the side of smaller squares, which are searched at their full resolution


@dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """Memory that `fit` needs, as measured.

    Parameters
    ----------
    large
        bytes for each value of a picture
    small
        the same for small pictures, which are searched at their full resolution
    """

    large: int = 64
    small: int = 384


_MEMORY = MemorySpec()


@dataclass(frozen=True)
class PictureList:
    """Pictures [C, H, W], read when they are asked for, and their names.

    Parameters
    ----------
    all_pictures
        the pictures of all shards, if these are the pictures of a shard
    """

    names: Sequence[str]
    read: Callable[[int], Tensor]
    all_pictures: AllPictures | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.read, range(len(self)))


Unopened = str | Path | np.ndarray | Tensor | Images | Sequence[Any]
Source = Unopened | PictureList
"""What `load` takes, or a list of pictures of any sizes: arrays [H, W], [C, H, W] or [H, W, C], PIL
pictures, paths. NaN is an unknown pixel. Signals, which have height 1, are `load(…, signals=True)`.
"""


def open_pictures(source: Source, shard: Shard = ALL, mask: Unopened | None = None) -> PictureList:
    """Return the pictures of a source, in the order of their names or as they are given.

    Parameters
    ----------
    shard
        only this part of them; no other file of a folder is opened
    mask
        the region of interest: a picture, a folder or an array [1 or N, H, W], one for all pictures
        or one for each, white (1) where pixels count. "alpha": transparent pixels do not count
    """
    if isinstance(source, PictureList):
        return source
    if shard.is_all or is_folder(source):
        return _open_all(source, shard, mask)
    listed = _open_all(source, ALL, mask)  # the names are numbers among all arrays
    name = os.path.basename(source) if isinstance(source, str | Path) else "pictures"
    own = some_of(listed, shard.rows_of_pictures(len(listed)))
    return replace(own, all_pictures=AllPictures.of(len(listed), [name]))


def some_of(source: PictureList, rows: Sequence[int]) -> PictureList:
    """These pictures of a list of pictures."""
    return PictureList([source.names[row] for row in rows], lambda n: source.read(rows[n]))


def together(sources: Sequence[PictureList]) -> PictureList:
    """Return the pictures of several lists as one."""
    places = [(source, row) for source in sources for row in range(len(source))]

    def read(number: int) -> Tensor:
        source, row = places[number]
        return source.read(row)

    return PictureList([name for source in sources for name in source.names], read)


def _open_all(source: Unopened, shard: Shard, mask: Unopened | None) -> PictureList:
    """Return the pictures of a source; of a folder, those of a shard."""
    if is_cell(source):
        source = [source]
    if not isinstance(source, str | Path | np.ndarray | Tensor | Images):
        if mask is not None:
            raise ImageError(
                "A mask needs a folder or an array of pictures. In a list, mark pixels that do not"
                " count with NaN."
            )
        listed = source
        paths = len(source) > 0 and isinstance(source[0], str | Path)
        names = [str(one) for one in (listed if paths else range(len(listed)))]
        return PictureList(names, lambda n: _one_picture(listed[n], n))
    entries: list[Entry] = []
    if isinstance(source, np.ndarray | Tensor) and is_one_picture(source.shape):
        source = source[None]
    if isinstance(source, np.ndarray) and not source.flags.writeable:
        source = source.copy()  # PyTorch warns of arrays that it could write into
    groups = load_groups(source, "nan" if mask is None else mask, shard=shard)
    for images, weights in groups:
        pictures = images.as_images() if isinstance(images, Signals) else images
        entries += [Entry(pictures, row, weights) for row in range(len(pictures))]
    if all(entry.file is not None for entry in entries):
        entries.sort(key=Entry.place)
    names = [entry.name for entry in entries]
    return PictureList(names, lambda n: entries[n].read(), groups[0][0].all_pictures)


class Entry(NamedTuple):
    """One picture: a row of images, and of their masks if there are any."""

    images: Images
    row: int
    masks: Images | None = None

    def read(self) -> Tensor:
        """Return the picture, with NaN where its mask is black."""
        picture = self.images[self.row]
        if self.masks is None:
            return picture
        return torch.where(self.masks[self.row] > 0.5, picture, torch.nan)

    @property
    def file(self) -> Picture | None:
        """The file of the picture; None for an array."""
        pixels = self.images.pixels
        return pixels.pictures[self.row] if isinstance(pixels, Pictures) else None

    @property
    def name(self) -> str:
        return str(self.row) if self.file is None else self.file.name

    def place(self) -> tuple[str, int]:
        """Return the sort key of files: their paths, then their pages."""
        assert self.file is not None
        return str(self.file.file), self.file.page


def _one_picture(values: object, number: int) -> Tensor:
    """Return a picture of a list as [C, H, W]: an array [H, W], [C, H, W] or [H, W, C], a PIL
    picture, or the path of a file."""
    if isinstance(values, str | Path):
        return load(values)[0]
    if is_cell(values):
        values = cell_pixels(values)
    if not isinstance(values, np.ndarray | Tensor | list):
        kind = type(values).__name__
        raise ImageError(
            f"Picture {number} is a {kind}; expected an array, a tensor, a PIL picture or a path."
        )
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()  # PyTorch warns of arrays that it could write into
    shape = tuple(np.shape(values))
    if len(shape) not in (2, 3):
        raise ImageError(
            f"Picture {number} has the shape {shape}; expected [H, W], [C, H, W] or [H, W, C]."
        )
    return load(torch.as_tensor(values)[None], allow_nan=True)[0]


def with_channels(picture: Tensor, channels: int) -> Tensor:
    """Grey among colour becomes colour, and colour among grey becomes grey."""
    if len(picture) == channels:
        return picture
    if channels == 1 and len(picture) == 3:
        return picture.mean(0, keepdim=True)
    if len(picture) == 1 and channels == 3:
        return picture.expand(3, -1, -1)
    raise ImageError(
        f"Got a picture of {plural(len(picture), 'channel')}; expected {channels}, as in fit."
    )


def fingerprint(picture: Tensor) -> bytes:
    """Make a hash of the pixels of a picture, and of its shape."""
    pixels = picture.contiguous().numpy().tobytes()
    return hashlib.sha256(f"{tuple(picture.shape)}".encode() + pixels).digest()


def is_large(picture: Tensor) -> bool:
    """Tell whether a picture [C, H, W] is too large to be searched at its full resolution; signals
    never are."""
    return picture.shape[1] > 1 and picture[0].numel() >= SMALL**2


def _memory_of(picture: Tensor) -> int:
    """Return bytes that `fit` needs for a normal picture, with the detector's own features."""
    return picture.numel() * (_MEMORY.large if is_large(picture) else _MEMORY.small)


@dataclass
class Sample:
    """A random sample of the pictures seen so far, for which `fit` needs at most `limit` bytes, but
    always at least one picture.

    Each picture gets a random key, and the pictures with the largest keys are kept, so that a
    picture's chance does not depend on when it came.

    Parameters
    ----------
    seen
        number of pictures
    feature_bytes
        bytes that `fit` needs for each value of a picture, with the features that a user gives
    kept
        (key, number, picture), a heap
    names
        of the pictures that are kept, by their numbers
    size
        bytes that `fit` needs for them
    """

    limit: int
    seed: int
    seen: int = 0
    feature_bytes: int = 0
    size: int = 0
    kept: list[tuple[float, int, Tensor]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, picture: Tensor, name: str) -> None:
        self.keep(self.seen, picture, name)
        self.seen += 1

    def keep(self, number: int, picture: Tensor, name: str) -> None:
        key = random.Random(f"{self.seed} {number}").random()
        heapq.heappush(self.kept, (key, number, picture))
        self.names[number] = name
        self.size += self.cost(picture)
        while self.size > self.limit and len(self.kept) > 1:
            _, dropped, without = heapq.heappop(self.kept)
            self.size -= self.cost(without)
            del self.names[dropped]

    def cost(self, picture: Tensor) -> int:
        """Return bytes that `fit` needs for a picture."""
        return max(_memory_of(picture), self.feature_bytes * picture.numel())

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number, _ in self.kept)

    @property
    def channels(self) -> int:
        return len(self.kept[0][2]) if self.kept else 0

    @property
    def pictures(self) -> list[Tensor]:
        """The pictures that are kept, in the same order."""
        return [picture for _, _, picture in sorted(self.kept, key=lambda entry: entry[1])]
