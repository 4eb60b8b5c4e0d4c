"""The images of a training, from a sized source or from an iterable of batches that is read once;
and its batches, either fixed ones with their latents or batches of a stream."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images, load, load_for_training
from whatwhere.data.arrays import has_colours_last
from whatwhere.data.cells import (
    as_table,
    is_list_of_pictures,
    picture_of_sample,
    stream_images,
)
from whatwhere.errors import EmptySet, ImageError, WhatwhereError, plural
from whatwhere.inference.target import ImageSource, Target, make_target, scaled
from whatwhere.latents import Latents
from whatwhere.learning.defaults import OwnSettings
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.processes import ProcessGroup
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryBatch, ModelSpec, Recipe
from whatwhere.spec.checks import require, require_count


class StreamError(ImageError):
    """A stream ended early, or gave something that the model cannot explain.

    Parameters
    ----------
    model
        the model with the last good filters; in a run folder the checkpoint has them too
    """

    model: DeconvNet | None = None


@dataclass(frozen=True)
class SizedStream:
    """A sized source, which starts again with its first image after the last.

    Parameters
    ----------
    order
        order of its images, if it differs from theirs; the source is then read by arrays of rows
    """

    images: ImageSource
    order: np.ndarray | None = None

    def read(self, start: int, stop: int) -> Tensor:
        size = len(self.images)
        parts = []
        while start < stop:
            first = start % size
            last = min(first + stop - start, size)
            rows: Any = slice(first, last) if self.order is None else self.order[first:last]
            parts.append(self.images[rows])
            start += last - first
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def shuffled(self) -> "SizedStream":
        """Return the same images in a random order, always the same; images that can be read by
        slices alone keep theirs."""
        if not isinstance(self.images, Tensor | Images):
            return self
        return replace(self, order=np.random.default_rng(0).permutation(len(self.images)))

    def first_images(self) -> Tensor:
        return self.images[slice(0, 1)]

    def known_images(self) -> ImageSource:
        """Return the images that settings are chosen from before training: all of them, or the
        first ones of a stream."""
        return self.images

    def fingerprint(self) -> str:
        """Return a fingerprint of these images: their own, or a hash of all values."""
        own: object = getattr(self.images, "fingerprint", None)
        return own if isinstance(own, str) else fingerprint(self.images)


class IterableStream:
    """An iterable of batches [n, C, H, W] of any sizes, or of tuples that begin with one, such as a
    DataLoader yields; or of single pictures (PIL, the bytes of a file, arrays [H, W]), alone or in
    a sample, as WebDataset and Hugging Face yield them. Integers are scaled as in `infer`.

    It is read forwards only. Images before `start` are skipped, so a run must be resumed with the
    stream that it began with. A DataLoader whose data set has a length starts again after its end.

    Parameters
    ----------
    spec
        the model, if it is known
    length
        length of the data set, if it is known
    """

    def __init__(self, batches: Iterable[object], spec: ModelSpec | None = None) -> None:
        self._spec = spec
        dataset: object = getattr(batches, "dataset", None)
        self.length = len(dataset) if hasattr(dataset, "__len__") else None
        self._source = batches
        self._batches = iter(batches)
        self._next = 0  # the number in the stream of the first image in `_waiting`
        self._waiting: list[Tensor] = []

    def read(self, start: int, stop: int) -> Tensor:
        while self._end < stop:
            self._pull(stop)
            while self._waiting and self._next + len(self._waiting[0]) <= start:
                self._next += len(self._waiting.pop(0))
        images = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        wanted = images[start - self._next : stop - self._next]
        self._waiting = [images[stop - self._next :]]
        self._next = stop
        return wanted

    def first_images(self) -> Tensor:
        """Return the first images, at least one, without taking them from the stream; only before
        the first `read`."""
        if not self._waiting:
            self._pull(1)
        return self._waiting[0]

    known_images = first_images

    def fingerprint(self) -> str:
        """Return a fingerprint of this stream, from its first images."""
        return f"stream {fingerprint(self.first_images())}"

    @property
    def _end(self) -> int:
        return self._next + sum(map(len, self._waiting))

    def _pull(self, wanted: int) -> None:
        given: object = next(self._batches, _END)
        if given is _END and self.length and self._end:
            self._batches = iter(self._source)
            given = next(self._batches, _END)
        if given is _END:
            raise StreamError(
                f"The stream ended after {plural(self._end, 'image')}; expected {wanted:,} or"
                " more. Set image_count=N, the number of images for each layer, or give a stream"
                " that does not end."
            )
        images = stream_images(given, None if self._spec is None else self._spec.channels)
        if images is None or not self._is_batch(images):
            given = picture_of_sample(given)
            what = f"a {type(given).__name__}"
            if isinstance(given, Tensor | np.ndarray):
                what = f"a tensor of shape {list(given.shape)}"
            raise StreamError(
                f"The stream gave {what} after {plural(self._end, 'image')}; expected batches of"
                " images [n, C, H, W], n ≥ 1, all of one shape."
            )
        self._waiting.append(scaled(images, 1 if self._spec is None else self._spec.input.white))

    def _is_batch(self, images: Tensor) -> bool:
        """Tell whether this is a batch of images of the stream's shape."""
        if len(images) == 0:
            return False
        return not self._waiting or images.shape[1:] == self._waiting[0].shape[1:]


_END = object()
ImageStream = SizedStream | IterableStream


def open_images(images: object, spec: ModelSpec | None) -> ImageStream:
    """Return what `train` was given: a path or name, an array, `Images`, a tensor, an iterable; in
    the units of a model."""
    loaded = _load_images(images, spec)
    if isinstance(loaded, OwnSettings):
        loaded = loaded.for_training(spec)
    has_rows = hasattr(loaded, "__len__") and hasattr(loaded, "__getitem__")
    if not has_rows or isinstance(loaded, list | tuple):
        return IterableStream(loaded, spec)
    if len(loaded) == 0:
        raise EmptySet
    if spec is not None and isinstance(loaded, Images):
        loaded = loaded.with_white(spec.input.white)
    return SizedStream(loaded)


def _load_images(images: Any, spec: ModelSpec | None) -> Any:
    """Read paths, names and arrays as `Images`, or as signals for a model of signals; everything
    else as it is."""
    signals = spec is not None and spec.for_signals
    if (
        isinstance(images, str | Path)
        or as_table(images) is not None
        or is_list_of_pictures(images)
    ):
        return load_for_training(images, signals=signals)[0]
    if isinstance(images, Tensor) and images.ndim == 4 and images.is_floating_point():
        is_last = has_colours_last(images.shape) and (
            spec is None or images.shape[1] != spec.channels
        )
        return load(images, allow_nan=True) if is_last else images
    if isinstance(images, np.ndarray | Tensor):
        return load(images, signals=signals and images.ndim < 4, allow_nan=signals)
    return images


def fingerprint(images: ImageSource) -> str:
    """Return a hash of all values."""
    digest = hashlib.sha256()
    batch = 1000  # images in memory at a time; another number would give other fingerprints
    for start in range(0, len(images), batch):
        rows = slice(start, min(start + batch, len(images)))
        values = images[rows].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return digest.hexdigest()


def quick_fingerprint(images: ImageSource) -> str:
    """Return the number of images and a hash of some of them, for processes that cannot read all
    only to compare them."""
    rows = np.unique(np.linspace(0, len(images) - 1, 32).astype(int))
    digest = hashlib.sha256()
    for row in rows.tolist():
        values = images[slice(row, row + 1)].detach().cpu().contiguous()
        digest.update(f"{values.dtype} {list(values.shape)}".encode())
        digest.update(values.numpy().data)
    return f"{len(images)} {digest.hexdigest()}"


@dataclass(frozen=True)
class TrainingData:
    """The data that stays the same through a run. Batch i belongs to the process with the number i
    modulo `world_size`, which reads its images and keeps its latents.

    Parameters
    ----------
    model
        whose input stage, device and dtype the images get
    masks
        the weights of the pixels; None if all that are not NaN count the same
    targets
        targets of this process's batches, if they are kept in memory; None computes each when it is
        read
    """

    model: DeconvNet
    images: ImageSource
    batches: Sequence[slice]
    store: LatentStore
    masks: ImageSource | None = None
    targets: Mapping[int, Target] | None = None
    processes: ProcessGroup = field(default_factory=ProcessGroup)

    @property
    def batches_per_round(self) -> int:
        """How many batches are inferred at the same time: one by each process."""
        return self.processes.world_size

    @property
    def local_batches(self) -> range:
        """The batches of this process."""
        return self.processes.share(len(self.batches))

    def checked(self, *, keep: bool) -> "TrainingData":
        """Return the same data, after checking that the model can explain all images; with `keep`,
        they stay in the memory of the device."""
        targets = {}
        for batch in self.local_batches:
            target = self.read(batch)
            if keep:
                targets[batch] = target
        return replace(self, targets=targets) if keep else self

    def batch_count(self, epoch: int) -> int:
        """Return how many batches an epoch has."""
        return len(self.batches)

    def read(self, batch: int) -> Target:
        """Return what the model explains in a batch, on its device."""
        if self.targets is not None:
            return self.targets[batch]
        rows = self.batches[batch]
        masks = None if self.masks is None else self.masks[rows]
        return make_target(self.model, self.images[rows], masks)

    def stored(self) -> Iterator[tuple[Tensor, Latents, Tensor | None]]:
        """Yield images, latents and masks of every batch of this process."""
        for batch in self.local_batches:
            target = self.read(batch)
            yield target.v, self.store.read(batch), target.mask


@dataclass(frozen=True)
class StreamData:
    """The batches of a run: each layer's `count` images, in epochs. Every process takes its piece
    of every batch.

    Parameters
    ----------
    passes
        True: the source is sized and every epoch is one pass over it
    masks
        masks in the order of a sized source; None if all pixels that are not NaN count the same
    """

    stream: ImageStream
    model: DeconvNet
    count: int
    epochs: int
    batch_size: int
    passes: bool = False
    masks: SizedStream | None = None
    processes: ProcessGroup = field(default_factory=ProcessGroup)

    batches_per_round = 1  # which all processes infer together

    def batch_count(self, epoch: int) -> int:
        """Return how many batches an epoch has."""
        if self.passes:
            return self._batches
        return self._batches * epoch // self.epochs - self._batches * (epoch - 1) // self.epochs

    def read(self, layer: int, epoch: int, batch: int) -> Target:
        """Return what the model explains of this process's piece of a batch, on its device.

        A stream that ends is an error in all processes at the same batch.
        """
        if self.processes.world_size == 1:
            return self._read(*self.rows(layer, epoch, batch))
        error = None
        start, stop = self.rows(layer, epoch, batch)
        try:
            target = self._read(*self.processes.part(start, stop))
        except StreamError as own:
            error = own
        if self.processes.any(error is not None):
            where = f"Images {start + 1:,} to {stop:,} of the stream"
            raise error or StreamError(
                f"{where}: another process cannot use one of these images. See the error of that"
                " process."
            )
        return target

    def images_in(self, layer: int, epoch: int, batch: int) -> int:
        """Return how many images a batch has, over all processes."""
        start, stop = self.rows(layer, epoch, batch)
        return stop - start

    def rows(self, layer: int, epoch: int, batch: int) -> tuple[int, int]:
        """Return where in the stream the images of a batch begin and end."""
        before = 0
        if not self.passes:
            before = (layer - 1) * self.count
            batch += self._batches * (epoch - 1) // self.epochs
        start = before + self.count * batch // self._batches
        stop = before + self.count * (batch + 1) // self._batches
        return start, stop

    def _read(self, start: int, stop: int) -> Target:
        try:
            masks = None if self.masks is None else self.masks.read(start, stop)
            return make_target(self.model, self.stream.read(start, stop), masks)
        except StreamError:
            raise
        except WhatwhereError as error:  # a picture that changed, or what no model explains
            raise StreamError(f"Images {start + 1:,} to {stop:,} of the stream: {error}") from error

    @property
    def _batches(self) -> int:
        return -(-self.count // self.batch_size)


def stream_recipe(
    recipe: Recipe, images: ImageStream, image_count: int | None, mask: object = None
) -> Recipe:
    """Return the recipe with the epochs that a stream of `image_count` images for each layer is cut
    into."""
    streaming = recipe.learning[0].streams
    once = isinstance(images, IterableStream)
    require(
        streaming or not once,
        "an iterable of batches with update = 'epoch', which stores the latents of every image",
        "a tensor or a data set, or a recipe with learning.each.update = 'batch'",
    )
    require(
        image_count is not None or not once,
        "an iterable of batches without image_count",
        "image_count=N, the number of images for each layer",
    )
    require(
        mask is None or not once,
        "a mask with an iterable of batches",
        "a tensor or a data set, or NaN in batches",
    )
    if image_count is None:
        return recipe
    require_count("image_count", image_count)
    require(
        streaming,
        {"image_count": image_count, "update": "epoch"},
        "update = 'batch', or no image_count",
    )
    batches = image_count / recipe.batch_size
    epochs = max(1, round(batches / 100))  # an epoch in a stream is a report: one in 100 batches
    learning = (replace(layer, epochs=min(1, layer.epochs) * epochs) for layer in recipe.learning)
    return replace(recipe, learning=tuple(learning))


def open_stream(
    recipe: Recipe,
    images: ImageStream,
    image_count: int | None,
    model: DeconvNet,
    mask: ImageSource | None = None,
    processes: ProcessGroup | None = None,
) -> StreamData:
    """Return the batches of a run by this recipe (see `stream_recipe`)."""
    processes = processes or ProcessGroup()
    update = recipe.learning[0].update
    count = image_count or 0
    order = None
    if isinstance(images, SizedStream):
        if isinstance(update, EveryBatch) and update.shuffle:
            images = images.shuffled()
        count = image_count or len(images.images)
        order = images.order
    require_shares(recipe, count, processes)
    return StreamData(
        images,
        model,
        count,
        epochs=max(learning.epochs for learning in recipe.learning),
        batch_size=recipe.batch_size,
        passes=image_count is None,
        masks=None if mask is None else SizedStream(mask, order),
        processes=processes,
    )


def require_shares(recipe: Recipe, count: int, processes: ProcessGroup) -> None:
    """Raise a SpecError for a stream of `count` images whose batches cannot be shared out."""
    number = processes.world_size
    smallest = count // -(-count // recipe.batch_size)
    require(
        smallest >= number,
        f"batches of {plural(smallest, 'image')} with {number} processes",
        "at least one image for each process (a larger batch_size, or fewer processes)",
    )
    for learning in recipe.learning:
        require(
            number == 1 or not learning.inference.per_batch,
            f"step.per = 'batch' with update = 'batch' and {number} processes",
            "step.per = 'image', because no process sees the tenth of the batch that sets the"
            " step size",
        )
