"""The images of a training in fixed batches, and the latents that belong to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import load, load_for_training
from whatwhere.inference.target import Target, make_target
from whatwhere.latents import Latents
from whatwhere.learning import distributed
from whatwhere.learning.storage import LatentStore
from whatwhere.model import DeconvNet
from whatwhere.spec import InputSpec


def as_image_source(images: ImageSource | np.ndarray | str | Path) -> ImageSource:
    """What `train` was given: an array through `data.load`, a path or name through `data.load_for_training`."""
    if isinstance(images, str | Path):
        return load_for_training(images)[0]
    return load(images) if isinstance(images, np.ndarray) else images


class ImageSource(Protocol):
    """Anything that gives images [n, C, H, W] for a slice: a tensor, or a data set that reads lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice, /) -> Tensor: ...


@dataclass(frozen=True)
class SignalSource:
    """Images after the model's input stage, computed when they are read."""

    model: DeconvNet
    images: ImageSource
    masks: ImageSource | None

    def __len__(self) -> int:
        return len(self.images)

    def target(self, rows: slice) -> Target:
        return make_target(self.model, self.images[rows], None if self.masks is None else self.masks[rows])

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.target(rows).v


@dataclass(frozen=True)
class MaskSource:
    """The masks that belong to a `SignalSource`."""

    signals: SignalSource

    def __len__(self) -> int:
        return len(self.signals)

    def __getitem__(self, rows: slice, /) -> Tensor:
        target = self.signals.target(rows)
        return torch.ones_like(target.v) if target.mask is None else target.mask.expand_as(target.v)


def as_signals(
    model: DeconvNet, images: ImageSource, masks: ImageSource | None, batches: Sequence[slice]
) -> tuple[ImageSource, ImageSource | None]:
    """What the model explains, and its masks; raises if it cannot explain the images, before anything is written.

    Images that need no input stage and have no unknown pixels are returned as they are.
    """
    signals, unknown = SignalSource(model, images, masks), False
    for batch in batches[distributed.rank() :: distributed.world_size()]:
        unknown |= signals.target(batch).mask is not None
    if distributed.all_reduce_sum(torch.tensor([float(unknown)])) > 0:
        return signals, MaskSource(signals)
    return (images if model.spec.input == InputSpec() else signals), None


@dataclass(frozen=True)
class TrainingData:
    """What stays the same through a run. Batch i belongs to process i modulo their number, from start to end.

    images   what the model explains, after its input stage
    masks    the weights of its pixels; None if all count the same
    """

    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore
    masks: ImageSource | None = None

    @property
    def batches_per_round(self) -> int:
        """Batches that are inferred at the same time: one by each process."""
        return distributed.world_size()

    @property
    def stored_dtype(self) -> torch.dtype:
        return self.store.stored_dtype

    def first_image(self) -> Tensor:
        """One image, for checks before anything is done."""
        return self.images[slice(0, 1)].to(self.store.device, self.store.dtype)

    def batch_count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self.batches)

    def local_batches(self) -> range:
        """The batches of this process."""
        return range(distributed.rank(), len(self.batches), distributed.world_size())

    def read_images(self, batch: int) -> Tensor:
        return self.images[self.batches[batch]].to(self.store.device, self.store.dtype)

    def read_mask(self, batch: int) -> Tensor | None:
        return None if self.masks is None else self.masks[self.batches[batch]].to(self.store.device, self.store.dtype)

    def stored(self) -> Iterator[tuple[Tensor, Latents, Tensor | None]]:
        """Images, latents and masks of every batch of this process."""
        for batch in self.local_batches():
            yield self.read_images(batch), self.store.read(batch), self.read_mask(batch)


def split_batches(images: int, batch_size: int) -> list[slice]:
    """All images in batches of this size; the last one holds the rest."""
    return [slice(start, min(start + batch_size, images)) for start in range(0, images, batch_size)]


def image_fingerprint(images: ImageSource, batches: Sequence[slice]) -> str:
    """What distinguishes these images from others: their own fingerprint if they have one, or a hash of all values."""
    own: Any = getattr(images, "fingerprint", None)
    if isinstance(own, str):
        return own
    digest = hashlib.sha256()
    for batch in batches:
        values = images[batch].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()
