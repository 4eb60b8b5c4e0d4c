"""Where images come from: any sized source, read in any order, or an iterable of batches, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images, Signals, load, load_for_training
from whatwhere.data.signals import training_windows
from whatwhere.errors import ImageError
from whatwhere.inference.checks import ImageSource
from whatwhere.model import DeconvNet
from whatwhere.spec import ModelSpec

FINGERPRINT_BATCH = 1000


class StreamError(ImageError):
    """A stream ended early, or gave something that the model cannot explain.

    model  with the last good filters; in a run folder they are in the checkpoint too
    """

    model: DeconvNet | None = None


@dataclass(frozen=True)
class SizedStream:
    """A sized source, from its first image on; after the last one the first follows again.

    order  of its images, if another than theirs; the source is then read by arrays of rows
    """

    images: ImageSource
    order: np.ndarray | None = None

    @property
    def size(self) -> int:
        return len(self.images)

    def read(self, start: int, stop: int) -> Tensor:
        size, parts = len(self.images), []
        while start < stop:
            first = start % size
            last = min(first + stop - start, size)
            rows: Any = slice(first, last) if self.order is None else self.order[first:last]
            parts.append(self.images[rows])
            start += last - first
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def shuffled(self) -> SizedStream:
        """The same images in a random order, always the same; images that can be read by slices alone keep theirs."""
        if not isinstance(self.images, Tensor | Images):
            return self
        return replace(self, order=np.random.default_rng(0).permutation(len(self.images)))

    def first_images(self) -> Tensor:
        return self.images[slice(0, 1)]

    def fingerprint(self) -> str:
        """What distinguishes these images from others: their own fingerprint, or a hash of all values."""
        own: Any = getattr(self.images, "fingerprint", None)
        return own if isinstance(own, str) else fingerprint(self.images)


class IterableStream:
    """An iterable of batches [n, C, H, W] of any sizes, or of tuples that begin with one, such as a DataLoader yields.

    It is read forwards only; what lies before `start` is skipped, so a run is resumed with the stream it began with.
    A DataLoader whose data set has a length starts again after its end.

    length  of the data set, if it is known
    """

    size = None

    def __init__(self, batches: Iterable[Any]) -> None:
        dataset: Any = getattr(batches, "dataset", None)
        self.length = len(dataset) if hasattr(dataset, "__len__") else None
        self._source, self._batches = batches, iter(batches)
        self._next = 0  # the number in the stream of the first image in `_waiting`
        self._waiting: list[Tensor] = []

    def read(self, start: int, stop: int) -> Tensor:
        while self._end < stop:
            self._pull(stop)
            while self._waiting and self._next + len(self._waiting[0]) <= start:
                self._next += len(self._waiting.pop(0))
        images = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        rest = images[stop - self._next :]
        images, self._waiting, self._next = images[start - self._next : stop - self._next], [rest], stop
        return images

    def first_images(self) -> Tensor:
        """The first images, at least one, without taking them from the stream; only before the first `read`."""
        if not self._waiting:
            self._pull(1)
        return self._waiting[0]

    def fingerprint(self) -> str:
        """What distinguishes this stream from others: its first images."""
        return f"stream {fingerprint(self.first_images())}"

    @property
    def _end(self) -> int:
        return self._next + sum(map(len, self._waiting))

    def _pull(self, wanted: int) -> None:
        given: Any = next(self._batches, _END)
        if given is _END and self.length and self._end:
            self._batches = iter(self._source)
            given = next(self._batches, _END)
        if given is _END:
            raise StreamError(
                f"the stream ended after {self._end:,} images; expected {wanted:,} or more (give image_count=N of "
                "images for each layer, or a stream that does not end)"
            )
        images = given[0] if isinstance(given, tuple | list) and given else given
        images = torch.as_tensor(images) if isinstance(images, np.ndarray) else images
        if not isinstance(images, Tensor) or images.ndim != 4 or len(images) == 0:
            is_tensor = isinstance(images, Tensor)
            shape = f"a tensor of shape {list(images.shape)}" if is_tensor else f"a {type(images).__name__}"
            raise StreamError(
                f"the stream gave {shape} after {self._end:,} images; expected batches of images [n, C, H, W], n ≥ 1"
            )
        if self._waiting and images.shape[1:] != self._waiting[0].shape[1:]:
            raise StreamError(
                f"the stream gave images of shape {list(images.shape[1:])} after {self._end:,} images; expected "
                f"{list(self._waiting[0].shape[1:])}, as before"
            )
        self._waiting.append(images)


_END = object()
ImageStream = SizedStream | IterableStream


def open_images(images: Any, spec: ModelSpec | None) -> ImageStream:
    """What `train` was given: a path or name, an array, `Images`, a tensor, an iterable; in the units of a model."""
    signals = spec is not None and spec.for_signals
    if isinstance(images, str | Path):
        images = load_for_training(images, signals=signals)[0]
    elif isinstance(images, np.ndarray) or (signals and isinstance(images, Tensor) and images.ndim < 4):
        images = load(images, signals=signals and images.ndim < 4, allow_nan=signals)
    if isinstance(images, Signals):
        images = training_windows(images).as_images()
    sliceable = hasattr(images, "__len__") and hasattr(images, "__getitem__") and not isinstance(images, list | tuple)
    if not sliceable:
        return IterableStream(images)
    if len(images) == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    if spec is not None and isinstance(images, Images):
        images = images.with_white(spec.input.white)
    return SizedStream(images)


def fingerprint(images: ImageSource) -> str:
    """A hash of all values."""
    digest = hashlib.sha256()
    for start in range(0, len(images), FINGERPRINT_BATCH):
        values = images[slice(start, min(start + FINGERPRINT_BATCH, len(images)))].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()
