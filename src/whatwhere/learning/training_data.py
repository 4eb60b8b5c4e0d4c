"""The images of a training in batches: fixed ones with the latents that belong to them, or those of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.errors import WhatwhereError
from whatwhere.inference.checks import ImageSource
from whatwhere.inference.target import Target, make_target
from whatwhere.latents import Latents
from whatwhere.learning import distributed
from whatwhere.learning.image_stream import ImageStream, StreamError
from whatwhere.learning.latent_store import LatentStore
from whatwhere.model import DeconvNet
from whatwhere.spec import InputSpec, Recipe
from whatwhere.spec.checks import require, require_count

BATCHES_PER_EPOCH = 100


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

    model    whose device and dtype the images get
    images   what the model explains, after its input stage
    masks    the weights of its pixels; None if all count the same
    """

    model: DeconvNet
    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore
    masks: ImageSource | None = None

    @property
    def batches_per_round(self) -> int:
        """Batches that are inferred at the same time: one by each process."""
        return distributed.world_size()

    def first_image(self) -> Tensor:
        """One image, for checks before anything is done."""
        return self.images[slice(0, 1)].to(self.model.device, self.model.dtype)

    def batch_count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self.batches)

    def local_batches(self) -> range:
        """The batches of this process."""
        return range(distributed.rank(), len(self.batches), distributed.world_size())

    def read_images(self, batch: int) -> Tensor:
        return self.images[self.batches[batch]].to(self.model.device, self.model.dtype)

    def read_mask(self, batch: int) -> Tensor | None:
        return None if self.masks is None else self.masks[self.batches[batch]].to(self.model.device, self.model.dtype)

    def on_device(self) -> TrainingData:
        """The same with all images in the memory of the device, where the latents are."""
        every = range(len(self.batches))
        masks = (
            None
            if self.masks is None
            else torch.cat([self.masks[self.batches[b]].to(self.model.device) for b in every])
        )
        return replace(self, images=torch.cat([self.read_images(b) for b in every]), masks=masks)

    def stored(self) -> Iterator[tuple[Tensor, Latents, Tensor | None]]:
        """Images, latents and masks of every batch of this process."""
        for batch in self.local_batches():
            yield self.read_images(batch), self.store.read(batch), self.read_mask(batch)


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
        start, stop = (before + self.count * b // self._batches for b in (batch, batch + 1))
        return start, stop


def split_batches(images: int, batch_size: int) -> list[slice]:
    """All images in batches of this size; the last one holds the rest."""
    return [slice(start, min(start + batch_size, images)) for start in range(0, images, batch_size)]


def stream_recipe(recipe: Recipe, images: ImageStream, image_count: int | None, mask: object = None) -> Recipe:
    """The recipe with the epochs that a stream of `image_count` images for each layer is cut into."""
    streaming, once = recipe.learning[0].streams, images.size is None
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


def open_stream(recipe: Recipe, images: ImageStream, image_count: int | None, model: DeconvNet) -> StreamData:
    """The batches of a run by this recipe (see `stream_recipe`)."""
    count = image_count or images.size
    assert count is not None, "stream_recipe raises"
    processes, smallest = distributed.world_size(), count // -(-count // recipe.batch_size)
    require(
        smallest >= processes,
        f"batches of {smallest} images with {processes} processes",
        "at least one image for each process (a larger batch_size, or fewer processes)",
    )
    for learning in recipe.learning:
        require(
            processes == 1 or not learning.inference.per_batch,
            f"step.per = 'batch' with update = 'batch' and {processes} processes",
            "step.per = 'image': every process infers a share of the batch and does not see the others",
        )
    epochs = max(learning.epochs for learning in recipe.learning)
    return StreamData(images, model, count, epochs, recipe.batch_size, passes=image_count is None)


def images_per_epoch(recipe: Recipe, images: ImageStream, image_count: int | None) -> int:
    """How many images an epoch has, on the average."""
    if image_count is None:
        assert images.size is not None, "stream_recipe raises"
        return images.size
    return -(-image_count // max(1, recipe.learning[0].epochs))
