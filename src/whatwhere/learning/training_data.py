"""The images of a training in batches: fixed ones with the latents that belong to them, or those of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from whatwhere.errors import WhatwhereError
from whatwhere.inference.checks import ImageSource
from whatwhere.inference.target import Target, make_target
from whatwhere.latents import Latents
from whatwhere.learning.image_stream import ImageStream, SizedStream, StreamError
from whatwhere.learning.latent_store import LatentStore
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryBatch, Recipe
from whatwhere.spec.checks import require, require_count

BATCHES_PER_EPOCH = 100


@dataclass(frozen=True)
class TrainingData:
    """What stays the same through a run.

    model    whose input stage, device and dtype the images get
    masks    the weights of the pixels; None if all that are not NaN count the same
    targets  of all batches, where they are kept in memory; None computes each when it is read
    """

    model: DeconvNet
    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore
    masks: ImageSource | None = None
    targets: Sequence[Target] | None = None

    def checked(self, *, keep: bool) -> TrainingData:
        """The same once the model can explain all images, else an error; with `keep` in the memory of the device."""
        targets = []
        for batch in range(len(self.batches)):
            target = self.read(batch)
            if keep:
                targets.append(target)
        return replace(self, targets=targets) if keep else self

    def batch_count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self.batches)

    def read(self, batch: int) -> Target:
        """What the model explains of a batch, on its device."""
        if self.targets is not None:
            return self.targets[batch]
        rows = self.batches[batch]
        return make_target(self.model, self.images[rows], None if self.masks is None else self.masks[rows])

    def stored(self) -> Iterator[tuple[Tensor, Latents, Tensor | None]]:
        """Images, latents and masks of every batch."""
        for batch in range(len(self.batches)):
            target = self.read(batch)
            yield target.v, self.store.read(batch), target.mask

    def first_image(self) -> Tensor:
        """One image, for checks before anything is done."""
        return self.read(0).v[:1]


@dataclass(frozen=True)
class StreamData:
    """The batches of a run: each layer's `count` images, in epochs.

    passes  True: the source is sized and every epoch is one pass over it
    masks   in the order of a sized source; None if all pixels that are not NaN count the same
    """

    stream: ImageStream
    model: DeconvNet
    count: int
    epochs: int
    batch_size: int
    passes: bool = False
    masks: SizedStream | None = None

    def first_image(self) -> Tensor:
        """One image, for checks before anything is done."""
        return self._target(self.stream.first_images()[:1], None, 0).v

    def batch_count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        if self.passes:
            return self._batches
        return self._batches * epoch // self.epochs - self._batches * (epoch - 1) // self.epochs

    def read(self, layer: int, epoch: int, batch: int) -> Target:
        """What the model explains of a batch, on its device."""
        start, stop = self.rows(layer, epoch, batch)
        masks = None if self.masks is None else self.masks.read(start, stop)
        return self._target(self.stream.read(start, stop), masks, start)

    def rows(self, layer: int, epoch: int, batch: int) -> tuple[int, int]:
        """Where in the stream the images of a batch begin and end."""
        before = 0
        if not self.passes:
            before, batch = (layer - 1) * self.count, self._batches * (epoch - 1) // self.epochs + batch
        start, stop = (before + self.count * b // self._batches for b in (batch, batch + 1))
        return start, stop

    def _target(self, images: Tensor, masks: Tensor | None, start: int) -> Target:
        """What the model explains: checked images after its input stage."""
        try:
            return make_target(self.model, images, masks)
        except WhatwhereError as error:
            raise StreamError(f"images {start + 1:,} to {start + len(images):,} of the stream: {error}") from error

    @property
    def _batches(self) -> int:
        return -(-self.count // self.batch_size)


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
    require(mask is None or not once, "a mask with an iterable of batches", "a tensor or a data set, or NaN in batches")
    if image_count is None:
        return recipe
    require_count("image_count", image_count)
    require(streaming, f"image_count = {image_count} with update = 'epoch'", "update = 'batch', or no image_count")
    epochs = max(1, round(image_count / recipe.batch_size / BATCHES_PER_EPOCH))
    learning = (replace(layer, epochs=min(1, layer.epochs) * epochs) for layer in recipe.learning)
    return replace(recipe, learning=tuple(learning))


def open_stream(
    recipe: Recipe, images: ImageStream, image_count: int | None, model: DeconvNet, mask: ImageSource | None = None
) -> StreamData:
    """The batches of a run by this recipe (see `stream_recipe`)."""
    count = image_count or images.size
    assert count is not None, "stream_recipe raises"
    epochs = max(learning.epochs for learning in recipe.learning)
    update = recipe.learning[0].update
    if isinstance(images, SizedStream) and isinstance(update, EveryBatch) and update.shuffle:
        images = images.shuffled()
    masks = None if mask is None else SizedStream(mask, images.order if isinstance(images, SizedStream) else None)
    return StreamData(images, model, count, epochs, recipe.batch_size, passes=image_count is None, masks=masks)


def images_per_epoch(recipe: Recipe, images: ImageStream, image_count: int | None) -> int:
    """How many images an epoch has, on the average."""
    if image_count is None:
        assert images.size is not None, "stream_recipe raises"
        return images.size
    return -(-image_count // max(1, recipe.learning[0].epochs))
