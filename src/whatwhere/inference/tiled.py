"""Inference on one large picture: in tiles with overlap, many at a time, in memory that does not
grow with the picture.

A feature is influenced by what is near it, less and less with distance, so a tile that reaches far
enough beyond the features that are taken from it gives the same result as the whole picture.
docs/howto/large_pictures.md says how far that is, and for which settings the two are equal.

All tiles have one size, so that they can be inferred in batches. They begin at multiples of the
strides of all layers, so that the pooling regions of a tile are regions of the picture, and the
last one ends with the picture. Between two neighbours there is a cut in the middle of what they
share: features are taken from the tile on their side of it, and the reconstructions blend into each
other on a short ramp across it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines import resolve
from whatwhere.engines.convergence import unfinished_changes, warn_unconverged
from whatwhere.errors import InvalidSetting, WrongShape, one_or, plural
from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.inference.checks import check_filters
from whatwhere.inference.infer import run_plan
from whatwhere.inference.target import Target, make_target, one_image
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.sized import LayerPlaces
from whatwhere.spec import InferenceSpec, ModelSpec, Phase
from whatwhere.spec.checks import require, require_count
from whatwhere.spec.recipe import joint


@dataclass(frozen=True)
class Tiling:
    """How a picture is cut into tiles, and how many are inferred together.

    Parameters
    ----------
    tile
        side of a tile in pixels, overlap included
    overlap
        pixels that neighbouring tiles share, at least
    ramp_share
        the ramp between two tiles is the overlap divided by this: short, since tiles are less exact
        towards their borders
    gpu_batch
        tiles that a GPU infers together; a CPU infers one in each thread
    engine_sample
        tiles, spread over the picture, from which the engine is chosen
    """

    tile: int = 256
    overlap: int = 64
    ramp_share: int = 8
    gpu_batch: int = 16
    engine_sample: int = 8


TILING = Tiling()


# Where tiles are ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TileAxis:
    """The tiles along rows or columns: their size, where each begins, and the cuts between them
    (in pixels)."""

    length: int
    size: int
    starts: tuple[int, ...]
    cuts: tuple[int, ...]
    ramp: int

    @classmethod
    def split(cls, length: int, tile: int, overlap: int, stride: int) -> TileAxis:
        """Return the fewest tiles of at most `tile` pixels such that each shares at least `overlap`
        pixels with the next."""
        if length <= tile:
            return cls(length, length, (0,), (), 0)
        size = tile - (tile - length) % stride  # so that the last tile ends with the picture
        step = (size - overlap) // stride
        if step < 1:
            raise InvalidSetting(
                {"tile": tile, "overlap": overlap},
                f"a tile of at least {overlap + 2 * stride} pixels (the overlap plus twice the"
                " stride of all layers), or a smaller overlap",
            )
        room = (length - size) // stride
        count = -(-room // step) + 1
        starts = tuple(room * i // (count - 1) * stride for i in range(count))
        cuts = tuple((left + size + right) // 2 for left, right in pairwise(starts))
        narrowest = min((right - left for left, right in pairwise(cuts)), default=size)
        return cls(length, size, starts, cuts, min(overlap // TILING.ramp_share, narrowest))

    def core(self, tile: int, places: LayerPlaces, count: int) -> tuple[int, int]:
        """Return the features of a layer (or the pixels) that are taken from a tile, as a range
        among the `count` of the picture."""
        first = 0 if tile == 0 else places.first_from(self.cuts[tile - 1])
        last = count if tile == len(self.starts) - 1 else places.first_from(self.cuts[tile])
        return first, last

    def weights(self, tile: int) -> Tensor:
        """Return the share of a tile in the reconstruction of its pixels, float64 [size]; all
        tiles' shares add up to 1."""
        place = self.starts[tile] + torch.arange(self.size, dtype=torch.float64) + 0.5

        def rise(cut: int) -> Tensor:
            """Rise from 0 before a cut to 1 after it."""
            if self.ramp == 0:
                return (place > cut).double()
            return ((place - cut) / self.ramp + 0.5).clamp(0, 1)

        share = torch.ones_like(place)
        if tile > 0:
            share = rise(self.cuts[tile - 1])
        if tile < len(self.cuts):
            share = share * (1 - rise(self.cuts[tile]))
        return share


class Window(NamedTuple):
    """A rectangle: its rows and columns."""

    rows: slice
    columns: slice


class Core(NamedTuple):
    """What is taken from a tile: the same rectangle in the picture, and in the tile."""

    in_picture: Window
    in_tile: Window


class TilePlace(NamedTuple):
    """The number of a tile along rows and along columns."""

    row: int
    column: int


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a picture, row by row.

    Parameters
    ----------
    row_places
        places of the features of every layer along rows
    column_places
        along columns
    """

    rows: TileAxis
    columns: TileAxis
    row_places: tuple[LayerPlaces, ...]
    column_places: tuple[LayerPlaces, ...]

    @classmethod
    def of(cls, spec: ModelSpec, height: int, width: int, tile: int, overlap: int) -> TileGrid:
        """Cut tiles of at most tile × tile pixels with at least `overlap` pixels in common with
        each neighbour."""
        require_count("tile", tile)
        require_count("overlap", overlap, least=0)
        row_places = LayerPlaces.of(spec, 0)
        column_places = LayerPlaces.of(spec, 1)
        rows = TileAxis.split(height, tile, overlap, row_places[-1].stride)
        columns = TileAxis.split(width, tile, overlap, column_places[-1].stride)
        return cls(rows, columns, row_places, column_places)

    @property
    def tiles(self) -> list[TilePlace]:
        """All tiles, row by row."""
        rows = range(len(self.rows.starts))
        columns = range(len(self.columns.starts))
        return [TilePlace(row, column) for row in rows for column in columns]

    def window(self, tile: TilePlace) -> Window:
        """Return the pixels of a tile in the picture."""
        top = self.rows.starts[tile.row]
        left = self.columns.starts[tile.column]
        return Window(slice(top, top + self.rows.size), slice(left, left + self.columns.size))

    def core(self, tile: TilePlace, layer: int, rows: int, columns: int) -> Core:
        """Return what is taken from a tile, of a layer with this many rows and columns in the
        picture."""
        top, bottom = self.rows.core(tile.row, self.row_places[layer], rows)
        left, right = self.columns.core(tile.column, self.column_places[layer], columns)
        y = self.rows.starts[tile.row] // self.row_places[layer].stride
        x = self.columns.starts[tile.column] // self.column_places[layer].stride
        return Core(
            in_picture=Window(slice(top, bottom), slice(left, right)),
            in_tile=Window(slice(top - y, bottom - y), slice(left - x, right - x)),
        )

    def weights(self, tile: TilePlace) -> Tensor:
        """Return the share of a tile in the reconstruction of each of its pixels, float64 [h,
        w]."""
        return self.rows.weights(tile.row)[:, None] * self.columns.weights(tile.column)


# Inference tile by tile ---------------------------------------------------------------------------


class Picture(Protocol):
    """One picture [C, H, W] that is read in windows: a tensor, an array, or an object that reads a
    file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, window: tuple[slice, slice, slice], /) -> Tensor | np.ndarray: ...


@dataclass(frozen=True)
class InferredTile:
    """What inference found in one tile.

    Parameters
    ----------
    place
        which tile it is
    window
        its pixels in the picture
    core
        the pixels that are taken from it
    latents
        latents of the whole tile
    engine
        the engine that ran
    target
        what the model explained: the tile after the input stage
    """

    place: TilePlace
    window: Window
    core: Core
    latents: Latents
    engine: str
    target: Target


@dataclass(frozen=True)
class SolvedTile:
    """One tile after inference, as a part of the picture.

    Parameters
    ----------
    rows, columns
        the pixels of the tile in the picture
    reconstruction
        its part of the picture's reconstruction, [C, h, w]: the tiles of a picture are added up
    latents
        the features that are taken from this tile, at their places in the picture; their background
        belongs to the pixels in `core`
    core
        the pixels that are taken from this tile, rows and columns of the picture
    engine
        the engine that ran
    """

    rows: slice
    columns: slice
    reconstruction: Tensor
    latents: SparseLatents
    core: Window
    engine: str


@dataclass(frozen=True)
class TiledSolution:
    """The outcome of `infer_tiled`.

    Parameters
    ----------
    latents
        features and pooling variables of the whole picture; `latents.dense()` is what `infer`
        returns
    reconstruction
        [C, H, W]
    engine
        the engine that ran
    tiles
        the number of tiles
    """

    latents: SparseLatents
    reconstruction: Tensor
    engine: str
    tiles: int


def infer_tiled(
    model: DeconvNet,
    picture: Picture,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Picture | None = None,
    tile: int = TILING.tile,
    overlap: int = TILING.overlap,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> TiledSolution:
    """Infer what and where of one picture [C, H, W] in tiles, which are blended without seams.

    With step=Fixed(), codes and reconstruction are as from `infer` on the whole picture, up to the
    influence of pixels beyond the overlap. With other steps, each tile has its own step sizes,
    restarts and end, as a separate image does. The results are then equal as far as both have
    converged.

    Parameters
    ----------
    model
        the model, on the device where inference is to run
    picture
        one picture as `infer` takes it; or floats in an object with a shape (C, H, W) and
        `picture[:, rows, columns]`, such as a file that is read in windows
    spec, plan
        as in `infer`
    mask
        a weight ≥ 0 for every pixel, [1 or C, H, W]; 0 marks unknown pixels, as NaN in the picture
        does
    tile
        side of a tile in pixels, overlap included; a picture that is not larger is one tile
    overlap
        the smallest number of pixels that neighbouring tiles share
    engine
        as in `infer`
    progress
        called after every tile with the number 1

    If no known pixel is within reach of the input stage's low-pass, the low-pass is the mean of the
    tile, not of the picture. The reconstruction and the sparse codes are collected in memory;
    `infer_tiles` yields them tile by tile.

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=4),)))
    >>> few = ww.InferenceSpec(steps=2)
    >>> solution = ww.infer_tiled(model, torch.rand(1, 40, 56), few, tile=32, overlap=8)
    >>> solution.reconstruction.shape
    torch.Size([1, 40, 56])
    """
    picture = _one_picture(model, picture)
    whole = None
    background = Background()
    parts = []
    name = ""
    size = picture.shape[1:]
    tiles = infer_tiles(
        model, picture, spec, plan, mask=mask, tile=tile, overlap=overlap, engine=engine
    )
    for solved in tiles:
        if whole is None:
            whole = solved.reconstruction.new_zeros(len(solved.reconstruction), *size)
            background = solved.latents.background.map(
                lambda part: part.new_zeros(1, part.shape[1], *size)
            )
        whole[:, solved.rows, solved.columns] += solved.reconstruction
        own = solved.latents.background
        for entire, part in zip(background.tensors(), own.tensors(), strict=True):
            entire[:, :, *solved.core] = part
        parts.append(solved.latents)
        name = solved.engine
        if progress is not None:
            progress(1)
    assert whole is not None
    latents = replace(SparseLatents.cat(parts), background=background)
    return TiledSolution(latents, whole, name, len(parts))


def infer_tiles(
    model: DeconvNet,
    picture: Picture,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Picture | None = None,
    tile: int = TILING.tile,
    overlap: int = TILING.overlap,
    engine: str = "auto",
) -> Iterator[SolvedTile]:
    """Yield the tiles of `infer_tiled` one after the other, row by row, in memory that does not
    grow with the picture."""
    picture = _one_picture(model, picture)
    _check_picture(model, picture, mask)
    _, height, width = picture.shape
    grid = TileGrid.of(model.spec, height, width, tile, overlap)
    for inferred in infer_latents(model, picture, grid, spec, plan, mask=mask, engine=engine):
        yield finish_tile(model, grid, inferred)


def infer_latents(
    model: DeconvNet,
    picture: Picture,
    grid: TileGrid,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Picture | None = None,
    engine: str = "auto",
) -> Iterator[InferredTile]:
    """Yield what inference finds in each tile of a grid, row by row."""
    spec = spec or InferenceSpec()
    require(
        not spec.per_batch,
        "step.per = 'batch' for tiles",
        "'image', because inference treats each tile separately",
    )
    check_filters(model)
    _, height, width = picture.shape
    plan = tuple(plan) or joint(model.spec.depth)
    masks = None if mask is None else TileImages(mask, grid)
    spec = resolve_lam(model, TileImages(picture, grid), spec, plan, mask=masks)
    batch_size = torch.get_num_threads() if model.device.type == "cpu" else TILING.gpu_batch
    highest = max(plan, key=lambda phase: phase.layer)
    tiles = grid.tiles
    # one engine for all tiles: another one for a few would take memory for its machine code
    sample = tiles[:: -(-len(tiles) // TILING.engine_sample)]
    targets = [read_tile(model, picture, mask, *grid.window(tile)) for tile in sample]
    resolved = resolve(engine, _tiles_problem(model, targets, highest, spec))
    unfinished = torch.zeros(0)  # one tensor: a list of empty ones would grow with the picture
    with torch.no_grad():
        for begin in range(0, len(tiles), batch_size):
            batch = tiles[begin : begin + batch_size]
            targets = [read_tile(model, picture, mask, *grid.window(tile)) for tile in batch]
            problem = _tiles_problem(model, targets, highest, spec)
            solution = run_plan(resolved, problem, plan)
            changes = unfinished_changes(solution.stats, spec)
            if len(changes):
                unfinished = torch.cat([unfinished.to(changes), changes])
            for n, (place, target) in enumerate(zip(batch, targets, strict=True)):
                yield InferredTile(
                    place=place,
                    window=grid.window(place),
                    core=grid.core(place, 0, height, width),
                    latents=replace(solution.latents[n : n + 1], background=target.background),
                    engine=resolved.name,
                    target=target,
                )
    warn_unconverged(unfinished, len(tiles), spec)


def _tiles_problem(
    model: DeconvNet, targets: Sequence[Target], highest: Phase, spec: InferenceSpec
) -> Problem:
    """Return the inference of several tiles."""
    v = torch.cat([target.v for target in targets])
    return Problem(model, v, highest, spec, mask=_join_masks(targets))


def _join_masks(targets: Sequence[Target]) -> Tensor | None:
    """Return the masks of several tiles, [n, C, h, w]; None if no tile has one."""
    if all(target.mask is None for target in targets):
        return None
    weights = []
    for target in targets:
        mask = torch.ones_like(target.v) if target.mask is None else target.mask
        weights.append(mask.expand_as(target.v))
    return torch.cat(weights)


# Reading and finishing a tile ---------------------------------------------------------------------


@dataclass(frozen=True)
class TileImages:
    """The tiles of a picture as images, [n, C, h, w] for a slice."""

    picture: Picture
    grid: TileGrid

    def __len__(self) -> int:
        return len(self.grid.tiles)

    def __getitem__(self, tiles: slice, /) -> Tensor:
        return torch.cat(
            [_read_window(self.picture, self.grid.window(tile)) for tile in self.grid.tiles[tiles]]
        )


def _one_picture(model: DeconvNet, given: object) -> Picture:
    """Return the picture in any form that `infer` takes; what is read in windows stays as it is."""
    is_array = isinstance(given, np.ndarray | Tensor) and not isinstance(given, np.memmap)
    if is_array or not hasattr(given, "shape") or hasattr(given, "with_channels"):
        return one_image(model, given)
    return cast(Picture, given)


def _check_picture(model: DeconvNet, picture: Picture, mask: Picture | None) -> None:
    """Raise an ImageError unless this is one picture that the model can explain, with a mask that
    fits."""
    C = model.spec.channels
    shape = tuple(picture.shape)
    if len(shape) != 3 or shape[0] != C or 0 in shape:
        expected = f"[{C}, H, W], one picture with {plural(C, 'channel')}"
        raise WrongShape("a picture", shape, expected)
    if mask is not None and (
        len(mask.shape) != 3 or mask.shape[0] not in (1, C) or mask.shape[1:] != shape[1:]
    ):
        expected = f"[{one_or(C)}, {shape[1]}, {shape[2]}]"
        raise WrongShape("a mask", mask.shape, expected, f"for a picture of shape {list(shape)}")


def read_tile(
    model: DeconvNet, picture: Picture, mask: Picture | None, rows: slice, columns: slice
) -> Target:
    """Return what the model explains of these pixels, [1, C, h, w]: the input stage sees as far
    beyond them as it reaches."""
    reach = model.input_stage.reach

    def widen(side: slice) -> slice:
        return slice(max(0, side.start - reach), side.stop + reach)

    def within(side: slice, wide: slice) -> slice:
        return slice(side.start - wide.start, side.stop - wide.start)

    seen = Window(widen(rows), widen(columns))
    inside = Window(within(rows, seen.rows), within(columns, seen.columns))
    images = _read_window(picture, seen)
    weight = None if mask is None else _read_window(mask, seen)
    target = make_target(model, images, weight, allow_unknown=True)

    def crop(part: Tensor) -> Tensor:
        return part[:, :, *inside]

    return Target(
        crop(target.v),
        None if target.mask is None else crop(target.mask),
        target.background.map(crop),
    )


def _read_window(picture: Picture, window: Window) -> Tensor:
    """Return some pixels of a picture, [1, C, h, w]."""
    pixels = picture[:, window.rows, window.columns]
    if not isinstance(pixels, Tensor):
        pixels = torch.from_numpy(np.array(pixels))
    return pixels[None]


def finish_tile(model: DeconvNet, grid: TileGrid, inferred: InferredTile) -> SolvedTile:
    """Cut out of a tile what is taken from it."""
    sized = model.at(grid.rows.size, grid.columns.size)
    whole = model.at(grid.rows.length, grid.columns.length)
    latents = inferred.latents
    stages = sized.descend(latents.features, sized.weights(latents.pooling_params))  # p̂_0 … p̂_l
    image = model.input_stage.inverse(stages[0], latents.background)[0]

    def take(k: int, values: Tensor) -> SparseMap:
        """Return the values [V, B, h, w] of layer k that are taken from this tile, where its
        features are not 0."""
        maps_of_picture = whole.regions[k - 1].grid
        core = grid.core(inferred.place, k, *maps_of_picture[1:])
        corner = core.in_picture.rows.start, core.in_picture.columns.start
        active = stages[k][0, :, *core.in_tile] != 0
        return SparseMap.of(values[:, :, *core.in_tile], active, maps_of_picture, corner)

    where = [
        take(k, torch.cat([theta.mu, theta.gamma], 1)[0])
        for k, theta in enumerate(latents.pooling_params, 1)
    ]
    background = latents.background.map(lambda part: part[:, :, *inferred.core.in_tile])
    features = take(len(latents.pooling_params), latents.features)
    return SolvedTile(
        rows=inferred.window.rows,
        columns=inferred.window.columns,
        reconstruction=image * grid.weights(inferred.place).to(image),
        latents=SparseLatents(features, tuple(where), background),
        core=inferred.core.in_picture,
        engine=inferred.engine,
    )
