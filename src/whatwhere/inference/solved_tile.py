"""What is taken from a tile after inference: its features, and its part of the reconstruction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whatwhere.inference.tile_grid import LayerPlaces, TileGrid
from whatwhere.latents import Latents, SparseLatents, SparseMap
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class SolvedTile:
    """One tile after inference.

    rows, columns    the pixels of the tile in the picture
    reconstruction   its part of the picture's reconstruction, [C, h, w]: the tiles of a picture are added up
    latents          the features that are taken from this tile, at their places in the picture; their background is
                     that of the pixels in `core`
    core             the pixels that are taken from this tile, rows and columns of the picture
    engine           that ran
    """

    rows: slice
    columns: slice
    reconstruction: Tensor
    latents: SparseLatents
    core: tuple[slice, slice]
    engine: str


def finish_tile(
    model: DeconvNet, grid: TileGrid, tile: tuple[int, int], latents: Latents, size: tuple[int, int], engine: str
) -> SolvedTile:
    """Cut out of a tile what is taken from it."""
    rows, columns = grid.window(tile)
    sized = model.at(grid.rows.size, grid.columns.size)
    grids = [regions.grid for regions in model.at(*size).regions]
    assert latents.p is not None
    weights = sized.weights(latents.pooling_params)
    stages = sized.descend(latents.p, weights)  # p̂_0 … p̂_l
    image = model.input_stage.inverse(stages[0], latents.background)[0]
    where = tuple(
        take_core(grid, tile, k, model, grids[k - 1], torch.cat([theta.mu, theta.gamma], 1)[0], stages[k][0])
        for k, theta in enumerate(latents.pooling_params, start=1)
    )
    top = len(latents.pooling_params)
    features = take_core(grid, tile, top, model, grids[top - 1], latents.p, latents.p[0])
    pixels = LayerPlaces(1, 0.0)
    core = slice(*grid.rows.core(tile[0], pixels, size[0])), slice(*grid.columns.core(tile[1], pixels, size[1]))
    inside = (
        slice(core[0].start - rows.start, core[0].stop - rows.start),
        slice(core[1].start - columns.start, core[1].stop - columns.start),
    )
    return SolvedTile(
        rows,
        columns,
        image * grid.weights(tile).to(image),
        SparseLatents(features, where, latents.background.map(lambda part: part[:, :, *inside])),
        core,
        engine,
    )


def take_core(
    grid: TileGrid,
    tile: tuple[int, int],
    k: int,
    model: DeconvNet,
    shape: tuple[int, int, int],
    values: Tensor,
    features: Tensor,
) -> SparseMap:
    """The values [V, B, h, w] of layer k that are taken from a tile, where its features [B, h, w] are not 0."""
    places = LayerPlaces.of(model.spec)[k]
    (top, bottom), (left, right) = (
        axis.core(i, places, count) for axis, i, count in zip((grid.rows, grid.columns), tile, shape[1:], strict=True)
    )
    y, x = grid.rows.starts[tile[0]] // places.stride, grid.columns.starts[tile[1]] // places.stride
    inside = slice(top - y, bottom - y), slice(left - x, right - x)
    return SparseMap.of(values[:, :, *inside], features[:, *inside] != 0, shape, (top, left))
