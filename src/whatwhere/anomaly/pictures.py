"""Pictures of any sizes: folders, files, arrays, tensors or lists of them, read one at a time; and a sample of them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images, load, load_groups
from whatwhere.data.pictures import Pictures
from whatwhere.errors import ImageError, printable

Source = str | Path | np.ndarray | Tensor | Images | Sequence[Any]
"""What `load` takes, or a list of pictures [H, W], [C, H, W] or [H, W, C] of any sizes; NaN is an unknown pixel."""


@dataclass(frozen=True)
class PictureList:
    """Pictures [C, H, W], read when they are asked for, and their names."""

    names: Sequence[str]
    read: Callable[[int], Tensor]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.read, range(len(self)))


def open_pictures(source: Source) -> PictureList:
    """The pictures of a source, in the order of their names or as they are given."""
    if not isinstance(source, str | Path | np.ndarray | Tensor | Images):
        listed = source
        return PictureList([str(n) for n in range(len(listed))], lambda n: one_picture(listed[n], n))
    opened = load(source, allow_nan=True) if isinstance(source, np.ndarray | Tensor) else source
    groups = [images for images, _ in load_groups(opened)]
    entries = [(images, row) for images in groups for row in range(len(images))]
    if all(isinstance(images.pixels, Pictures) for images in groups):
        entries.sort(key=lambda entry: picture_key(*entry))
    names = [picture_name(images, row) for images, row in entries]
    return PictureList(names, lambda n: entries[n][0][entries[n][1]])


def one_picture(values: Any, number: int) -> Tensor:
    """A picture [H, W], [C, H, W] or [H, W, C] of a list, as [C, H, W]."""
    shape = tuple(np.shape(values))
    if len(shape) not in (2, 3):
        raise ImageError(f"picture {number} has the shape {shape}; expected [H, W], [C, H, W] or [H, W, C]")
    return load(torch.as_tensor(values)[None], allow_nan=True)[0]


def picture_key(images: Images, row: int) -> tuple[str, int]:
    assert isinstance(images.pixels, Pictures)
    picture = images.pixels.pictures[row]
    return str(picture.file), picture.page


def picture_name(images: Images, row: int) -> str:
    return images.pixels.pictures[row].name if isinstance(images.pixels, Pictures) else printable(row)


def with_channels(picture: Tensor, channels: int) -> Tensor:
    """Grey among colour becomes colour, and colour among grey becomes grey."""
    if len(picture) == channels:
        return picture
    if channels == 1 and len(picture) == 3:
        return picture.mean(0, keepdim=True)
    if len(picture) == 1 and channels == 3:
        return picture.expand(3, -1, -1)
    raise ImageError(f"a picture of {len(picture)} channels was given; expected {channels}, as in fit")


@dataclass
class Sample:
    """A random sample of the pictures seen so far, which holds at most `limit` values, and always one picture.

    Each picture gets a random key, and those of the largest keys are kept, so that a picture's chance does not depend
    on when it came.

    seen  number of pictures
    kept  (key, number, picture), a heap
    size  number of their values
    """

    limit: int
    seed: int
    seen: int = 0
    size: int = 0
    kept: list[tuple[float, int, Tensor]] = field(default_factory=list)

    def add(self, picture: Tensor) -> None:
        key = random.Random(f"{self.seed} {self.seen}").random()
        heapq.heappush(self.kept, (key, self.seen, picture))
        self.seen += 1
        self.size += picture.numel()
        while self.size > self.limit and len(self.kept) > 1:
            self.size -= heapq.heappop(self.kept)[2].numel()

    @property
    def channels(self) -> int:
        """Of the pictures; 0 if there are none."""
        return len(self.kept[0][2]) if self.kept else 0

    @property
    def pictures(self) -> list[Tensor]:
        """The pictures that are kept, in the order in which they came."""
        return [picture for _, _, picture in sorted(self.kept, key=lambda entry: entry[1])]


@contextmanager
def workers() -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` of pictures in as many threads as PyTorch uses; few are in memory at a time.

    Within it, PyTorch computes a picture in one thread, so that results do not depend on the number of threads.
    """
    threads = torch.get_num_threads()

    def each(function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        items = zip(*arguments, strict=False)
        while some := list(islice(items, 4 * threads)):
            yield from pool.map(lambda item: function(*item), some)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield each
    finally:
        torch.set_num_threads(threads)
