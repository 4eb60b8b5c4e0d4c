"""Images that come as a stream: any sized source, read again and again, or an iterable of batches, read once.

The stream is cut into batches of nearly equal size, whatever the pieces it comes in, and these into epochs, after which
training reports and may write a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from whatwhere.errors import ImageError, WhatwhereError
from whatwhere.learning import distributed
from whatwhere.learning.training_data import ImageSource, as_image_source, image_fingerprint, split_batches
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe
from whatwhere.spec.checks import require, require_count

BATCHES_PER_EPOCH = 100


class StreamError(ImageError):
    """A stream ended early, or gave something that the model cannot explain.

    model  with the last good filters; in a run folder they are in the checkpoint too
    """

    model: DeconvNet | None = None


_END = object()


class ImageStream(Protocol):
    """Images in a fixed order, by their number in the stream."""

    def read(self, start: int, stop: int) -> Tensor: ...

    def first_images(self) -> Tensor:
        """The first images, at least one, without taking them from the stream; only before the first `read`."""
        ...


@dataclass(frozen=True)
class SizedStream:
    """A sized source, from its first image on; after the last one the first follows again."""

    images: ImageSource

    def read(self, start: int, stop: int) -> Tensor:
        size, parts = len(self.images), []
        while start < stop:
            first = start % size
            last = min(first + stop - start, size)
            parts.append(self.images[slice(first, last)])
            start += last - first
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def first_images(self) -> Tensor:
        return self.images[slice(0, 1)]


class IterableStream:
    """An iterable of batches [n, C, H, W] of any sizes, or of tuples that begin with one, such as a DataLoader yields.

    It is read forwards only; what lies before `start` is skipped, so a run is resumed with the stream it began with.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches: Iterator[Any] = iter(batches)
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
        if not self._waiting:
            self._pull(1)
        return self._waiting[0]

    @property
    def _end(self) -> int:
        return self._next + sum(map(len, self._waiting))

    def _pull(self, wanted: int) -> None:
        given: Any = next(self._batches, _END)
        if given is _END:
            raise StreamError(
                f"the stream ended after {self._end:,} images; expected {wanted:,} or more (give image_count=N of "
                "images for each layer, or a stream that does not end)"
            )
        images = given[0] if isinstance(given, tuple | list) and given else given
        images = images if isinstance(images, Tensor) else torch.as_tensor(images) if _is_array(images) else images
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


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy"


@dataclass(frozen=True)
class StreamData:
    """The batches of a run: each layer's `count` images, in epochs. Every process takes its share of every batch.

    passes  True: the source is sized and every epoch is one pass over it
    """

    stream: ImageStream
    model: DeconvNet
    count: int
    epochs: int
    batch_size: int
    passes: bool = False

    batches_per_round = 1
    stored_dtype = torch.float32

    def first_image(self) -> Tensor:
        """One image, for checks before anything is done."""
        return self._signal(self.stream.first_images()[:1], 0)

    def batch_count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        if self.passes:
            return self._batches
        return self._batches * epoch // self.epochs - self._batches * (epoch - 1) // self.epochs

    def read_images(self, layer: int, epoch: int, batch: int) -> tuple[Tensor, int]:
        """This process's share of a batch, and how many images the whole batch has."""
        start, stop = self._range(layer, epoch, batch)
        images = self.stream.read(start, stop)
        return self._signal(images, start)[distributed.rank() :: distributed.world_size()], len(images)

    def _signal(self, images: Tensor, start: int) -> Tensor:
        """What the model explains: checked images after its input stage."""
        try:
            self.model.check_images(images)
        except WhatwhereError as error:
            raise StreamError(f"images {start + 1:,} to {start + len(images):,} of the stream: {error}") from error
        return self.model.input_stage.forward(images.to(self.model.device, self.model.dtype), None)[0]

    @property
    def _batches(self) -> int:
        return -(-self.count // self.batch_size)

    def _range(self, layer: int, epoch: int, batch: int) -> tuple[int, int]:
        if self.passes:
            before = 0
        else:
            before, batch = (layer - 1) * self.count, self._batches * (epoch - 1) // self.epochs + batch
        return tuple(before + self.count * b // self._batches for b in (batch, batch + 1))  # type: ignore[return-value]


def as_stream_or_source(images: Any) -> ImageSource | IterableStream:
    """What `train` was given: images that can be read by slices, in any order, or an iterable that is read once."""
    images = as_image_source(images)
    sliceable = hasattr(images, "__len__") and hasattr(images, "__getitem__") and not isinstance(images, list | tuple)
    return images if sliceable or isinstance(images, IterableStream) else IterableStream(images)


def first_images(images: ImageSource | IterableStream) -> Tensor:
    """The first images, at least one."""
    return images.first_images() if isinstance(images, IterableStream) else images[slice(0, 1)]


def stream_recipe(
    recipe: Recipe, images: ImageSource | IterableStream, image_count: int | None, mask: object = None
) -> Recipe:
    """The recipe with the epochs that a stream of `image_count` images for each layer is cut into."""
    streaming, once = recipe.learning[0].streams, isinstance(images, IterableStream)
    require(
        streaming or not once,
        "an iterable of batches with update = 'epoch', which stores the latents of every image,",
        "a tensor or a data set, or a recipe with learning.each.update = 'batch'",
    )
    require(image_count is not None or not once, "an iterable of batches alone", "image_count=N, images for each layer")
    require(mask is None or not streaming, "a mask with update = 'batch'", "update = 'epoch'; a stream has no masks")
    if image_count is None:
        return recipe
    require_count("image_count", image_count)
    require(streaming, f"image_count = {image_count} with update = 'epoch'", "update = 'batch', or no image_count")
    epochs = max(1, round(image_count / recipe.batch_size / BATCHES_PER_EPOCH))
    learning = (replace(layer, epochs=min(1, layer.epochs) * epochs) for layer in recipe.learning)
    return replace(recipe, learning=tuple(learning))


def open_stream(
    recipe: Recipe, images: ImageSource | IterableStream, image_count: int | None, model: DeconvNet
) -> StreamData:
    """The batches of a run by this recipe (see `stream_recipe`)."""
    stream: ImageStream = images if isinstance(images, IterableStream) else SizedStream(images)
    passes = image_count is None
    count = len(images) if image_count is None else image_count  # type: ignore[arg-type]
    epochs = max(learning.epochs for learning in recipe.learning)
    data = StreamData(stream, model, count, epochs, recipe.batch_size, passes)
    processes = distributed.world_size()
    if processes > 1:
        smallest = count // -(-count // recipe.batch_size)
        require(
            smallest >= processes,
            f"batches of {smallest} images with {processes} processes",
            "at least one image for each process (a larger batch_size, or fewer processes)",
        )
        for learning in recipe.learning:
            require(
                not learning.inference.per_batch,
                f"step.per = 'batch' with update = 'batch' and {processes} processes",
                "step.per = 'image': every process infers a share of the batch and does not see the others",
            )
    return data


def images_per_epoch(recipe: Recipe, images: ImageSource | IterableStream, image_count: int | None) -> int:
    """How many images an epoch has, on the average."""
    if image_count is None:
        return len(images)  # type: ignore[arg-type]
    return -(-image_count // max(1, recipe.learning[0].epochs))


def fingerprint(images: ImageSource | IterableStream, batch_size: int) -> str:
    """What distinguishes these images from others: of a stream that is read once, its first images."""
    if not isinstance(images, IterableStream):
        return image_fingerprint(images, split_batches(len(images), batch_size))
    first = images.first_images()
    return "stream " + image_fingerprint(first, [slice(0, len(first))])
