"""Inference on groups of images, each of one size, for a file of codes."""

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch

from whatwhere.codes.files import join_blocks, made_of
from whatwhere.codes.kept_blocks import KeptBlocks, check_name
from whatwhere.codes.rows import block_arrays, code_rows
from whatwhere.codes.settings import EncodeOptions
from whatwhere.codes.small_codes import CodeRows
from whatwhere.data import Images
from whatwhere.data.images import AllPictures, PictureWindows
from whatwhere.data.mixed import Group
from whatwhere.data.parts import PartRecord, read_record, text_checksum
from whatwhere.data.pictures import Pictures, picture_names
from whatwhere.data.stored_array import StoredArray
from whatwhere.engines.cpu.first_use import connected_weights
from whatwhere.engines.threads import Map, workers
from whatwhere.errors import RunError
from whatwhere.files import disk_errors, new_folder
from whatwhere.inference import infer
from whatwhere.inference.target import in_model_units
from whatwhere.inference.tiled import TILING, TileGrid, infer_tiled
from whatwhere.latents import SparseLatents
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe
from whatwhere.spec.execution import ALL, Shard

Array = np.ndarray
Advance = Callable[[int], None]


class Batch(NamedTuple):
    """Images that are inferred together: a group, its masks, which of them, and all names."""

    images: Images
    masks: Images | None
    rows: slice
    names: Sequence[str] | None

    @property
    def length(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def labels(self) -> Array | None:
        return None if self.images.labels is None else self.images.labels[self.rows]

    @property
    def picture_names(self) -> Array | None:
        return None if self.names is None else np.asarray(self.names[self.rows])


class _Done(NamedTuple):
    """How much a stopped command has done: images, and pieces of progress."""

    images: int
    pieces: int


class Encoder:
    """Infers images with the settings of a recipe and writes their codes, block by block.

    When the command is stopped, complete blocks and the finished batches of the current block stay.
    The same command continues after them.

    Parameters
    ----------
    groups
        the images of the shard, or all
    shard
        which part of all images they are
    """

    def __init__(
        self,
        recipe: Recipe,
        model: DeconvNet,
        groups: Sequence[Group],
        options: EncodeOptions,
        engine: str = "auto",
        shard: Shard = ALL,
    ) -> None:
        self.recipe = recipe
        self.model = model
        self.options = options
        self.engine = engine
        self.shard = shard
        self.groups: list[Group] = [
            (in_model_units(model.spec, images), masks) for images, masks in groups
        ]
        self.engine_used = ""
        self.blocks = list(self._plan())

    @property
    def images(self) -> int:
        """How many images are encoded."""
        return sum(len(images) for images, _ in self.groups)

    @property
    def pieces(self) -> int:
        """The number of pieces that progress is counted in: images, or tiles of large ones."""
        return sum(len(images) * self._tiles_of(images) for images, _ in self.groups)

    def done(self, out: Path) -> _Done:
        """Return what a stopped command has left of this work."""
        kept = KeptBlocks(out, self._identity)
        if not kept.continues:
            return _Done(0, 0)
        batches: list[Batch] = []
        for number, block in enumerate(self.blocks):
            complete = kept.has_block(number)
            batches += block if complete else block[: len(kept.batches(number))]
        images = sum(batch.length for batch in batches)
        return _Done(images, sum(self._pieces_of(batch) for batch in batches))

    def has_written(self, out: Path) -> bool:
        """Tell whether a file has the codes of these images, with this model and these settings."""
        same_settings = read_record(out).settings == self.record.settings
        return same_settings and made_of(out) == self._images_checksum

    def write(self, out: Path, advance: Advance) -> None:
        """Write all codes, continuing what a stopped command left.

        Parameters
        ----------
        advance
            called with the number of pieces just done
        """
        kept = KeptBlocks(out, self._identity)
        with ExitStack() as opened:
            with disk_errors(
                f"writing {out}", "free some disk space, or choose another path with --out"
            ):
                opened.enter_context(new_folder(out.parent))
                check_name(out)
                opened.enter_context(kept.opened())
            each = opened.enter_context(self._map())
            with _finishing(self.options.limits.finishing) as finish:
                for number, block in enumerate(self.blocks):
                    if not kept.has_block(number):
                        parts = self._infer_block(kept, number, block, each, advance)
                        finish(partial(self._finish_block, kept, number, block, *parts))
            counts = [sum(batch.length for batch in block) for block in self.blocks]
            blocks = [kept.block(number) for number in range(len(counts))]
            join_blocks(out, blocks, counts, self.record, self._images_checksum)

    def _infer_block(
        self,
        kept: KeptBlocks,
        number: int,
        block: list[Batch],
        each: Callable[..., Iterator[CodeRows]],
        advance: Advance,
    ) -> tuple[list[CodeRows], int]:
        """Infer a block, after the batches of it that a stopped command left; return its batches,
        and how many of them are stored. Batches are stored from time to time, and when this command
        is stopped."""
        parts = kept.batches(number)
        saved = len(parts)
        saved_at = time.monotonic()
        try:
            for rows in each(partial(self._codes, advance), block[saved:]):
                parts.append(rows)
                if time.monotonic() - saved_at >= self.options.limits.save_seconds:
                    kept.keep_batches(number, saved, parts[saved:])
                    saved = len(parts)
                    saved_at = time.monotonic()
        except BaseException:
            with suppress(RunError):  # a full disk does not hide why the work stopped
                kept.keep_batches(number, saved, parts[saved:])
            raise
        return parts, saved

    def _finish_block(
        self,
        kept: KeptBlocks,
        number: int,
        block: list[Batch],
        parts: list[CodeRows],
        saved: int,
    ) -> None:
        """Compress and store a block; store its batches if that fails."""
        try:
            kept.write_block(number, self._arrays(block, parts), compress=not self.options.exact)
        except BaseException:
            if not kept.block(number).exists():
                with suppress(RunError):  # a full disk does not hide why the work stopped
                    kept.keep_batches(number, saved, parts[saved:])
            raise

    def _map(self) -> AbstractContextManager[Map]:
        """Yield `map` for batches: pictures of different sizes at the same time, each in one
        thread."""
        return workers() if self._in_threads else nullcontext(cast(Map, map))

    @property
    def _in_threads(self) -> bool:
        """Whether each batch is inferred in one thread, next to others."""
        small = all(self._tiles_of(images) == 1 for images, _ in self.groups)
        return small and self._on_cpu and len(self.groups) > 1

    @property
    def _on_cpu(self) -> bool:
        return self.model.device.type == "cpu"

    def _plan(self) -> Iterator[list[Batch]]:
        """Yield batches in blocks of about as many images as the limits say, fewer of large
        ones."""
        limits = self.options.limits
        block: list[Batch] = []
        images = 0
        pixels = 0
        for batch in self._batches():
            block.append(batch)
            images += batch.length
            pixels += batch.length * math.prod(batch.images.shape)
            if images >= limits.block_images or pixels >= limits.block_pixels:
                yield block
                block = []
                images = 0
                pixels = 0
        if block:
            yield block

    def _batches(self) -> Iterator[Batch]:
        """Yield batches of as many images as the recipe says, or fewer if images are large or need
        many steps; pictures that are cut into tiles come one by one."""
        for images, masks in self.groups:
            size = 1 if self._tiles_of(images) > 1 else self.recipe.batch_size
            if not self.recipe.inference.per_batch:  # then an image does not depend on its batch
                size = min(size, self._most_images(images.shape[1] * images.shape[2]))
            names = picture_names(images.pixels)
            for rows in images.batches(size):
                yield Batch(images, masks, rows, names)

    def _most_images(self, pixels: int) -> int:
        """Return how many images of this size fit into memory and, on CPUs, into the time of a
        batch; at least one for each thread."""
        threads = 1 if self._in_threads else torch.get_num_threads()
        most = self.options.limits.batch_pixels // pixels
        if self._on_cpu:
            weights = connected_weights(self.model, self.model.spec.depth)
            phases = max(1, len(self.recipe.plan))
            work = weights * pixels * self.recipe.inference.steps * phases
            most = min(most, int(threads * self.options.limits.batch_work / work))
        return max(threads, most)

    def _codes(self, advance: Advance, batch: Batch) -> CodeRows:
        """Return the codes of a batch."""
        if self._tiles_of(batch.images) > 1:
            return self._tiled_codes(advance, batch)
        images, masks, rows, _ = batch
        v = images[rows].to(self.model.device)
        mask = None if masks is None else masks[rows]
        solution = infer(
            self.model,
            v,
            self.recipe.inference,
            self.recipe.plan,
            mask=mask,
            engine=self.engine,
            batch_size=len(v),
        )
        self.engine_used = solution.engine
        advance(len(v))
        options = self.options
        return code_rows(
            self.model, solution.latents, images.shape, where=options.where, exact=options.exact
        )

    def _tiled_codes(self, advance: Advance, batch: Batch) -> CodeRows:
        """Return the code of one large picture."""
        images, masks, rows, _ = batch
        tiled = infer_tiled(
            self.model,
            PictureWindows(images, rows.start),
            self.recipe.inference,
            self.recipe.plan,
            mask=None if masks is None else PictureWindows(masks, rows.start),
            engine=self.engine,
            progress=advance,
            tile=self.options.tile or TILING.tile,
            overlap=self.options.overlap,
        )
        self.engine_used = tiled.engine
        code = tiled.latents
        if not self.options.where:
            code = SparseLatents(code.features, ())
        return CodeRows.of_sparse(code, images.shape)

    def _arrays(self, block: list[Batch], parts: list[CodeRows]) -> dict[str, Array]:
        """Return the arrays of a block, with labels and names where all of its images have them."""
        more: dict[str, Array] = {}
        labels = [batch.labels for batch in block]
        names = [batch.picture_names for batch in block]
        for name, given in (("labels", labels), ("names", names)):
            present = [values for values in given if values is not None]
            if len(present) == len(block):
                more[name] = np.concatenate(present)
        return block_arrays(self.model, parts, exact=self.options.exact, more=more)

    def _pieces_of(self, batch: Batch) -> int:
        return batch.length * self._tiles_of(batch.images)

    def _tiles_of(self, images: Images) -> int:
        """Return the number of tiles of each image; 1 if it is inferred as a whole."""
        _, height, width = images.shape
        tile = self.options.tile
        if tile == 0 or (tile is None and height * width <= self.options.limits.large_picture):
            return 1
        return len(
            TileGrid.of(
                self.model.spec, height, width, tile or TILING.tile, self.options.overlap
            ).tiles
        )

    @cached_property
    def record(self) -> PartRecord:
        """What the codes are made from, which all parts of a command have in common."""
        return record_of(self.recipe, self.model, self.options, self.groups[0][0].all_pictures)

    @cached_property
    def _images_checksum(self) -> str:
        """A checksum of all images, their masks and their labels."""
        digest = hashlib.sha256()
        for images in chain.from_iterable(self.groups):
            if images is None:  # no masks
                digest.update(b"none")
                continue
            digest.update(f"{images.name} {images.pixels.shape} {images.pixels.dtype}".encode())
            digest.update(_pixels_checksum(images).encode())
            if images.labels is not None:
                digest.update(np.ascontiguousarray(images.labels).tobytes())
        return digest.hexdigest()

    @cached_property
    def _identity(self) -> str:
        """What blocks of a stopped command must have in common with this one: images, model,
        settings."""
        counts = [batch.length for block in self.blocks for batch in block]
        facts = (
            f"{self.record.settings} {self._images_checksum} {self.shard} {counts} {self.engine}"
        )
        return text_checksum(facts)


@contextmanager
def _finishing(most: int) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yield a function that does work in a thread while the next work begins, and raises the error
    of earlier work. It waits while `most` are not done, so that few blocks are in memory. The
    context ends when all are done.

    A GPU infers pictures faster than one thread compresses their codes.
    """
    waiting: deque[Future[None]] = deque()

    def finish(work: Callable[[], None]) -> None:
        while waiting and (len(waiting) >= most or waiting[0].done()):
            waiting.popleft().result()
        waiting.append(pool.submit(work))

    with ThreadPoolExecutor(most, thread_name_prefix="whatwhere-codes") as pool:
        yield finish
        for work in waiting:
            work.result()


def _pixels_checksum(images: Images) -> str:
    """Identify pixels: those in files by the stamps of the files, and those in memory by their
    values."""
    pixels = images.pixels
    if isinstance(pixels, Pictures):
        return " ".join(f"{picture.name} {picture.stamp}" for picture in pixels.pictures)
    if isinstance(pixels, StoredArray):
        return f"{pixels.stamp} {pixels.offset} {pixels.shape} {pixels.strides}"
    return images.fingerprint


def record_of(
    recipe: Recipe,
    model: DeconvNet,
    options: EncodeOptions,
    all_pictures: AllPictures | None = None,
) -> PartRecord:
    """Return the record of codes: the model, the settings that change codes, and the pictures of
    all shards. It is the same for all shards and engines, because all engines give the same
    codes."""
    codes = (options.where, options.exact, options.tile, options.overlap)
    settings = (recipe.inference, recipe.plan, codes)
    return PartRecord(model.checksum, text_checksum(f"{model.checksum} {settings}"), all_pictures)
