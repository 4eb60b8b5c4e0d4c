"""Inference on groups of images, each of one size, written to a file as it proceeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import Images
from whatwhere.data.codes_writer import CodesWriter
from whatwhere.data.npz_writer import open_npz, write_npz
from whatwhere.data.pictures import picture_names
from whatwhere.data.windows import PictureWindows
from whatwhere.errors import ImageError
from whatwhere.inference import infer
from whatwhere.inference.checks import in_model_units
from whatwhere.inference.solved_tile import SolvedTile, blended_rows
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.inference.tiled import TILE, infer_tiles
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import Recipe

LARGE_PICTURE = 1 << 20  # pixels; a larger one is inferred in tiles
BATCH_PIXELS = 1 << 22
Array = np.ndarray[Any, Any]
Advance = Callable[[int], None]


class Encoder:
    """Infers images with the settings of a recipe and writes what was asked for."""

    def __init__(
        self,
        recipe: Recipe,
        model: DeconvNet,
        groups: Sequence[tuple[Images, Images | None]],
        engine: str,
        where: bool,
        reconstruction: bool,
        tile: int | None,
        overlap: int,
    ) -> None:
        self.recipe, self.model, self.engine = recipe, model, engine
        self.groups = [(in_model_units(model.spec, images), masks) for images, masks in groups]
        self.where, self.reconstruction, self.tile, self.overlap = where, reconstruction, tile, overlap
        self.engine_used = ""

    @property
    def images(self) -> int:
        """The number of images."""
        return sum(len(images) for images, _ in self.groups)

    @property
    def pieces(self) -> int:
        """The number of pieces that progress is counted in: images, or tiles of large ones."""
        return sum(len(images) * self._tiles_of(images) for images, _ in self.groups)

    def write_dense(self, out: Path, advance: Advance) -> dict[str, list[int]]:
        """All features as one array, which needs images of one size."""
        if len(self.groups) > 1:
            raise ImageError(
                f"--dense was given for images of {len(self.groups)} sizes or kinds; expected one (leave --dense out)"
            )
        images, _ = self.groups[0]

        def batches() -> Iterator[dict[str, Array]]:
            for solution in self._solutions(*self.groups[0]):
                arrays = {"features": solution.features}
                if self.where:
                    for k, theta in enumerate(solution.latents.pooling_params, start=1):
                        arrays |= {f"mu{k}": theta.mu, f"gamma{k}": theta.gamma}
                if self.reconstruction:
                    arrays["reconstruction"] = solution.reconstruction
                yield {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
                advance(len(solution.features))

        return write_npz(out, len(images), batches(), {} if images.labels is None else {"labels": images.labels})

    def write_sparse(self, out: Path, advance: Advance) -> dict[str, list[int]]:
        """Only what is not 0 (`load_codes`)."""
        with open_npz(out) as npz:
            writer = CodesWriter(npz, where=self.where)
            for images, masks in self.groups:
                if self._tiles_of(images) > 1:
                    self._write_in_tiles(writer, images, masks, advance)
                    continue
                for solution in self._solutions(images, masks):
                    self._write(writer, solution, images.shape)
                    if len(writer) == len(solution.features):  # the first batch: is there room for all?
                        npz.expect(self.images / len(writer))
                    advance(len(solution.features))
            for name, values in self._descriptions().items():
                npz.put(name, values)
            return writer.finish()

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

    def _write(self, writer: CodesWriter, solution: Solution, shape: tuple[int, int, int]) -> None:
        codes = self.model.at(*shape[1:]).sparse(solution.latents, where=self.where)
        pictures = solution.reconstruction if self.reconstruction else [None] * len(codes)
        for code, picture in zip(codes, pictures, strict=True):
            writer.add(code, shape, picture)

    def _tiles_of(self, images: Images) -> int:
        """The number of tiles of each image; 1: it is inferred as a whole."""
        _, height, width = images.shape
        if self.tile == 0 or (self.tile is None and height * width <= LARGE_PICTURE):
            return 1
        return len(TileGrid.of(self.model.spec, height, width, self.tile or TILE, self.overlap))

    def _write_in_tiles(self, writer: CodesWriter, images: Images, masks: Images | None, advance: Advance) -> None:
        """One picture after the other, tile by tile: at most one row of tiles is in memory."""
        _, _, width = shape = images.shape
        for row in range(len(images)):
            for first, rows in blended_rows(self._solve_tiles(writer, images, masks, row, advance), width):
                if self.reconstruction:
                    window = slice(first, first + rows.shape[1]), slice(0, width)
                    writer.add_pixels("reconstruction", shape, window, rows)
            writer.end_image(shape)

    def _solve_tiles(
        self, writer: CodesWriter, images: Images, masks: Images | None, row: int, advance: Advance
    ) -> Iterator[SolvedTile]:
        """The tiles of one picture, whose codes are written on the way."""
        for solved in infer_tiles(
            self.model,
            PictureWindows(images, row),
            self.recipe.inference,
            self.recipe.plan,
            mask=None if masks is None else PictureWindows(masks, row),
            tile=self.tile or TILE,
            overlap=self.overlap,
            engine=self.engine,
        ):
            self.engine_used = solved.engine
            writer.add_part(solved.latents)
            writer.add_background(solved.latents, images.shape, solved.core)
            yield solved
            advance(1)

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
