"""Inference on groups of images, each of one size, for a file of codes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.cli.command import Settings
from whatwhere.data import Images
from whatwhere.data.arrays import write_npz
from whatwhere.data.codes import CodesWriter
from whatwhere.data.images import PictureWindows
from whatwhere.data.pictures import picture_names
from whatwhere.engines.threads import workers
from whatwhere.files import disk_errors, open_atomic
from whatwhere.inference import infer
from whatwhere.inference.target import in_model_units
from whatwhere.inference.tiled import TILE, TileGrid, infer_tiled
from whatwhere.latents import SparseLatents
from whatwhere.learning import TrainedRun
from whatwhere.model import DeconvNet
from whatwhere.model.events import join_events
from whatwhere.progress import Stage
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution
from whatwhere.spec.tasks import Distortions, EncodeOptions
from whatwhere.tasks.classification.picture_classifier import describe_pictures
from whatwhere.tasks.events import iter_events

LARGE_PICTURE = 1 << 20  # pixels; a larger one is inferred in tiles
BATCH_PIXELS = 1 << 22
Array = np.ndarray[Any, Any]
Group = tuple[Images, Images | None]  # images of one size, and their masks
Batch = tuple[Images, Images | None, slice]  # images of one size, their masks, and which of them
Advance = Callable[[int], None]


def write_events(
    path: Path,
    recipe: Recipe,
    model: DeconvNet,
    signals: Images,
    options: EncodeOptions,
    engine: str = "auto",
) -> int:
    """Write the events of signals as a table; returns their number. Those of one layer are written
    tile by tile."""
    found = iter_events(
        model, signals, recipe.inference, recipe.plan, threshold=options.threshold, engine=engine
    )
    tables = found if model.spec.depth == 1 else [join_events(list(found))]
    count = 0
    with disk_errors(f"writing {path}", "make room, or choose another place with --events"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            for number, table in enumerate(tables):
                table.to_csv(file, header=number == 0)
                count += len(table)
    return count


def write_descriptors(
    out: Path, run: TrainedRun, images: Images, settings: Settings, stage: Stage
) -> list[int]:
    """Write the descriptors of images, in the metric that the run keeps, with names and labels;
    returns their shape."""
    how, options = settings.of(Distortions), settings.of(Execution)
    rows = describe_pictures(images, run, how, options, None, stage)[1].numpy()
    found = {"descriptors": rows, "names": picture_names(images.pixels), "labels": images.labels}
    write_npz(out, {name: np.asarray(value) for name, value in found.items() if value is not None})
    return list(rows.shape)


class Encoder:
    """Infers images with the settings of a recipe and writes their codes."""

    def __init__(
        self,
        recipe: Recipe,
        model: DeconvNet,
        groups: Sequence[Group],
        options: EncodeOptions,
        engine: str = "auto",
    ) -> None:
        self.recipe, self.model, self.options, self.engine = recipe, model, options, engine
        self.groups = [(in_model_units(model.spec, images), masks) for images, masks in groups]
        self.engine_used = ""

    @property
    def pieces(self) -> int:
        """The number of pieces that progress is counted in: images, or tiles of large ones."""
        return sum(len(images) * self._tiles_of(images) for images, _ in self.groups)

    def write(self, out: Path, advance: Advance) -> dict[str, list[int]]:
        """Write all codes; returns the shapes of the arrays in the file."""
        writer = CodesWriter(where=self.options.where)
        with self._map() as each:
            for images, codes in each(partial(self._codes, advance), self._batches()):
                for code in codes:
                    writer.add(code, images.shape)
        return writer.save(out, **self._descriptions())

    def _map(self) -> AbstractContextManager[Callable[..., Iterator[Any]]]:
        """`map` for batches: several pictures of sizes of their own at the same time, each in one
        thread."""
        small = self.model.device.type == "cpu" and all(
            self._tiles_of(images) == 1 for images, _ in self.groups
        )
        return workers() if small and len(self.groups) > 1 else nullcontext(map)

    def _batches(self) -> Iterator[Batch]:
        """Batches of as many images as the recipe says, fewer of large ones; pictures in tiles one
        by one."""
        for images, masks in self.groups:
            size = 1 if self._tiles_of(images) > 1 else self.recipe.batch_size
            if not self.recipe.inference.per_batch:  # then a batch has no influence on its images
                size = min(
                    size,
                    max(
                        torch.get_num_threads(), BATCH_PIXELS // (images.shape[1] * images.shape[2])
                    ),
                )
            for rows in images.batches(size):
                yield images, masks, rows

    def _codes(self, advance: Advance, batch: Batch) -> tuple[Images, list[SparseLatents]]:
        """The images of a batch, and their codes."""
        (images, masks, rows), spec, plan, options = (
            batch,
            self.recipe.inference,
            self.recipe.plan,
            self.options,
        )
        if self._tiles_of(images) > 1:
            picture = PictureWindows(images, rows.start)
            mask = None if masks is None else PictureWindows(masks, rows.start)
            size: Any = {"tile": options.tile or TILE, "overlap": options.overlap}
            tiled = infer_tiled(
                self.model,
                picture,
                spec,
                plan,
                mask=mask,
                engine=self.engine,
                progress=advance,
                **size,
            )
            self.engine_used = tiled.engine
            return images, [tiled.latents]
        v, M = images[rows].to(self.model.device), None if masks is None else masks[rows]
        solution = infer(self.model, v, spec, plan, mask=M, engine=self.engine, batch_size=len(v))
        self.engine_used = solution.engine
        advance(len(v))
        return images, list(
            self.model.at(*images.shape[1:]).sparse(solution.latents, where=options.where)
        )

    def _tiles_of(self, images: Images) -> int:
        """The number of tiles of each image; 1: it is inferred as a whole."""
        _, height, width = images.shape
        tile = self.options.tile
        if tile == 0 or (tile is None and height * width <= LARGE_PICTURE):
            return 1
        return len(
            TileGrid.of(self.model.spec, height, width, tile or TILE, self.options.overlap).tiles
        )

    def _descriptions(self) -> dict[str, Array]:
        """Labels of the images and names of their files, where all have them."""
        labels = [images.labels for images, _ in self.groups]
        names = [picture_names(images.pixels) for images, _ in self.groups]
        found: dict[str, list[Any]] = {"labels": labels, "names": names}
        return {
            name: np.concatenate(parts)
            for name, parts in found.items()
            if all(part is not None for part in parts)
        }
