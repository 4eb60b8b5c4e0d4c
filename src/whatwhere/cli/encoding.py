"""Inference on groups of images, each of one size, written to a file of codes as it proceeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.cli.encode import EncodeOptions
from whatwhere.data import Images
from whatwhere.data.codes_writer import CodesWriter
from whatwhere.data.npz_writer import open_npz
from whatwhere.data.pictures import picture_names
from whatwhere.data.windows import PictureWindows
from whatwhere.inference import infer
from whatwhere.inference.checks import in_model_units
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.inference.tiled import TILE, infer_tiled
from whatwhere.latents import SparseLatents
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import Recipe

LARGE_PICTURE = 1 << 20  # pixels; a larger one is inferred in tiles
BATCH_PIXELS = 1 << 22
Array = np.ndarray[Any, Any]
Group = tuple[Images, Images | None]  # images of one size, and their masks
Advance = Callable[[int], None]


class Encoder:
    """Infers images with the settings of a recipe and writes their codes."""

    def __init__(
        self, recipe: Recipe, model: DeconvNet, groups: Sequence[Group], options: EncodeOptions, engine: str = "auto"
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
        count = sum(len(images) for images, _ in self.groups)
        with open_npz(out) as npz:
            writer = CodesWriter(npz, where=self.options.where)
            for images, masks in self.groups:
                if self._tiles_of(images) > 1:
                    for code in self._tiled_codes(images, masks, advance):
                        writer.add(code, images.shape)
                    continue
                for solution in self._solutions(images, masks):
                    for code in self.model.at(*images.shape[1:]).sparse(solution.latents, where=self.options.where):
                        writer.add(code, images.shape)
                    if len(writer) == len(solution.features):  # the first batch: is there room for all?
                        npz.expect(count / len(writer))
                    advance(len(solution.features))
            return writer.finish(**self._descriptions())

    def _solutions(self, images: Images, masks: Images | None) -> Iterator[Solution]:
        """Batches of as many images as the recipe says, fewer of large ones."""
        size, spec = self.recipe.batch_size, self.recipe.inference
        if not spec.per_batch:  # then a batch has no influence on its images
            size = min(size, max(torch.get_num_threads(), BATCH_PIXELS // (images.shape[1] * images.shape[2])))
        for rows in images.batches(size):
            v, M = images[rows].to(self.model.device), None if masks is None else masks[rows]
            solution = infer(self.model, v, spec, self.recipe.plan, mask=M, engine=self.engine, batch_size=len(v))
            self.engine_used = solution.engine
            yield solution

    def _tiles_of(self, images: Images) -> int:
        """The number of tiles of each image; 1: it is inferred as a whole."""
        _, height, width = images.shape
        tile = self.options.tile
        if tile == 0 or (tile is None and height * width <= LARGE_PICTURE):
            return 1
        return len(TileGrid.of(self.model.spec, height, width, tile or TILE, self.options.overlap))

    def _tiled_codes(self, images: Images, masks: Images | None, advance: Advance) -> Iterator[SparseLatents]:
        """One picture after the other, each in tiles."""
        for row in range(len(images)):
            solution = infer_tiled(
                self.model,
                PictureWindows(images, row),
                self.recipe.inference,
                self.recipe.plan,
                mask=None if masks is None else PictureWindows(masks, row),
                tile=self.options.tile or TILE,
                overlap=self.options.overlap,
                engine=self.engine,
                progress=advance,
            )
            self.engine_used = solution.engine
            yield solution.latents

    def _descriptions(self) -> dict[str, Array]:
        """Labels of the images and names of their files, where all have them."""
        labels = [images.labels for images, _ in self.groups]
        names = [picture_names(images.pixels) for images, _ in self.groups]
        arrays: dict[str, Array] = {}
        if all(part is not None for part in labels):
            arrays["labels"] = np.concatenate([part for part in labels if part is not None])
        if all(part is not None for part in names):
            arrays["names"] = np.array([name for part in names for name in part or ()])
        return arrays
