"""The images of a training in fixed batches, and the latents that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from whatwhere import distributed
from whatwhere.data import load
from whatwhere.latents import Latents
from whatwhere.storage import LatentStore


def as_image_source(images: ImageSource | np.ndarray | str | Path) -> ImageSource:
    """What `train` was given: an array, a path or a name through `data.load`, everything else as it is."""
    return load(images) if isinstance(images, np.ndarray | str | Path) else images


class ImageSource(Protocol):
    """Anything that gives images [n, C, H, W] for a slice: a tensor, or a data set that reads lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice, /) -> Tensor: ...


@dataclass(frozen=True)
class TrainingData:
    """What stays the same through a run. Batch i belongs to process i modulo their number, from start to end."""

    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore

    def local_batches(self) -> range:
        """The batches of this process."""
        return range(distributed.rank(), len(self.batches), distributed.world_size())

    def read_images(self, batch: int) -> Tensor:
        return self.images[self.batches[batch]].to(self.store.device, self.store.dtype)

    def stored(self) -> Iterator[tuple[Tensor, Latents]]:
        """Images and latents of every batch of this process."""
        for batch in self.local_batches():
            yield self.read_images(batch), self.store.read(batch)


def split_batches(images: int, batch_size: int) -> list[slice]:
    """All images in batches of this size; the last one holds the rest."""
    return [slice(start, min(start + batch_size, images)) for start in range(0, images, batch_size)]
