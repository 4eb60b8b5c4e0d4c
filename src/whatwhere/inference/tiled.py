"""Inference on one large picture: in tiles with overlap, many at a time, in memory that does not grow with the picture.

A feature is influenced by what is near it, less and less with distance, so a tile that reaches far enough beyond the
features that are taken from it gives what the whole picture would give. docs/howto/large_pictures.md says how far that
is, and for which settings the two are equal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import ImageError, one_or
from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.inference.checks import check_filters
from whatwhere.inference.convergence import unfinished_changes, warn_unconverged
from whatwhere.inference.engines import resolve
from whatwhere.inference.infer import run_plan
from whatwhere.inference.target import Target, make_target
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, Phase
from whatwhere.spec.checks import require, require_count
from whatwhere.spec.recipe import joint

TILE, OVERLAP = 256, 64
GPU_BATCH = 16


class Picture(Protocol):
    """One picture [C, H, W] that is read in windows: a tensor, an array, or anything that reads from a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, window: tuple[slice, slice, slice], /) -> Any: ...


@dataclass(frozen=True)
class SolvedTile:
    """One tile after inference.

    rows, columns    the pixels of the tile in the picture
    reconstruction   its part of the picture's reconstruction, [C, h, w]: the tiles of a picture are added up
    latents          the features that are taken from this tile, at their places in the picture; their background is
                     that of the pixels in `core`
    core             the pixels that are taken from this tile, rows and columns of the picture
    whole            all latents of the tile
    engine           that ran
    """

    rows: slice
    columns: slice
    reconstruction: Tensor
    latents: SparseLatents
    core: tuple[slice, slice]
    whole: Latents
    engine: str


@dataclass(frozen=True)
class TiledSolution:
    """The outcome of `infer_tiled`.

    latents         features and pooling variables of the whole picture; `latents.dense()` is what `infer` returns
    reconstruction  [C, H, W]
    engine          that ran
    tiles           how many there were
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
    tile: int = TILE,
    overlap: int = OVERLAP,
    engine: str = "auto",
    batch_size: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> TiledSolution:
    """Infer what and where of one picture [C, H, W] in tiles, which are blended without seams.

    With step=Fixed(), codes and reconstruction are those of `infer` on the whole picture, up
    to the influence of pixels beyond the overlap. By every other setting each tile has its own step sizes, restarts
    and end, as an image of its own has, and the two are equal as far as both have converged.

    model       the model, on the device where inference is to run
    picture     a float tensor or array, or an object with a shape (C, H, W) and `picture[:, rows, columns]`
    spec, plan  as in `infer`
    mask        a weight ≥ 0 for every pixel, [1 or C, H, W]: 0 where it is unknown, as NaN is in the picture
    tile        side of a tile in pixels, overlap included; a picture that is no larger is one tile
    overlap     pixels that neighbouring tiles have in common, at least
    engine      as in `infer`
    batch_size  tiles inferred together; None: as many as there are threads, on a GPU 16
    progress    called after every tile with the number 1

    Where no known pixel is within reach of the input stage's low-pass, it is the mean of the tile, not of the picture.

    The reconstruction and the sparse codes are collected in memory; `infer_tiles` yields them tile by tile.

    >>> model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=4),)))
    >>> solution = ww.infer_tiled(model, torch.rand(1, 40, 56), ww.InferenceSpec(steps=2), tile=32, overlap=8)
    >>> solution.reconstruction.shape
    torch.Size([1, 40, 56])
    """
    _, height, width = check_picture(model, picture, mask)
    grid = TileGrid.of(model.spec, height, width, tile, overlap)
    whole, background, parts, name = None, Background(), [], ""
    for solved in infer_tiles(
        model, picture, spec, plan, mask=mask, tile=tile, overlap=overlap, engine=engine, batch_size=batch_size
    ):
        if whole is None:
            whole = solved.reconstruction.new_zeros(len(solved.reconstruction), height, width)
            background = solved.latents.background.map(lambda part: part.new_zeros(1, part.shape[1], height, width))
        whole[:, solved.rows, solved.columns] += solved.reconstruction
        for entire, part in zip(background.tensors(), solved.latents.background.tensors(), strict=True):
            entire[:, :, *solved.core] = part
        parts.append(solved.latents)
        name = solved.engine
        if progress is not None:
            progress(1)
    assert whole is not None
    return TiledSolution(replace(SparseLatents.cat(parts), background=background), whole, name, len(grid))


def infer_tiles(
    model: DeconvNet,
    picture: Picture,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Picture | None = None,
    tile: int = TILE,
    overlap: int = OVERLAP,
    engine: str = "auto",
    batch_size: int | None = None,
) -> Iterator[SolvedTile]:
    """The tiles of `infer_tiled` one after the other, row by row, in memory that does not grow with the picture."""
    spec = spec or InferenceSpec()
    require(not spec.per_batch, "step.per = 'batch' for tiles", "'image', so that every tile is inferred alone")
    _, height, width = check_picture(model, picture, mask)
    check_filters(model)
    grid = TileGrid.of(model.spec, height, width, tile, overlap)
    plan = tuple(plan) or joint(model.spec.depth)
    if batch_size is None:
        batch_size = torch.get_num_threads() if model.device.type == "cpu" else GPU_BATCH
    require_count("batch_size", batch_size)
    spec = resolve_lam(
        model, TileImages(picture, grid), spec, plan, mask=None if mask is None else TileImages(mask, grid)
    )
    highest, left, unfinished = max(plan, key=lambda phase: phase.layer), iter(grid), []
    with torch.no_grad():
        while batch := list(islice(left, batch_size)):
            targets = [read_tile(model, picture, mask, *grid.window(tile)) for tile in batch]
            v, M = torch.cat([target.v for target in targets]), join_masks(targets)
            problem = Problem(model, v, highest, spec, mask=M)
            resolved = resolve(engine, problem[:1])
            solution = run_plan(resolved, problem, plan)
            unfinished.append(unfinished_changes(solution.stats, spec))
            for n, (place, target) in enumerate(zip(batch, targets, strict=True)):
                ended = replace(solution.latents[n : n + 1], background=target.background)
                yield finish_tile(model, grid, place, ended, resolved.name)
    warn_unconverged(torch.cat(unfinished), len(grid), spec)


@dataclass(frozen=True)
class TileImages:
    """The tiles of a picture as images, [n, C, h, w] for a slice."""

    picture: Picture
    grid: TileGrid

    def __len__(self) -> int:
        return len(self.grid)

    def __getitem__(self, tiles: slice, /) -> Tensor:
        return torch.cat([read_window(self.picture, self.grid.window(tile)) for tile in list(self.grid)[tiles]])


def check_picture(model: DeconvNet, picture: Picture, mask: Picture | None) -> tuple[int, int, int]:
    """Channels, height and width of the picture; raises an ImageError for what is not one picture of the model."""
    C, shape = model.spec.channels, tuple(picture.shape)
    if len(shape) != 3 or shape[0] != C or 0 in shape:
        raise ImageError(
            f"a picture of shape {list(shape)} was given; expected [{C}, H, W], one picture of {C} channels"
        )
    if mask is not None and (len(mask.shape) != 3 or mask.shape[0] not in (1, C) or mask.shape[1:] != shape[1:]):
        raise ImageError(
            f"a mask of shape {list(mask.shape)} was given for a picture of shape {list(shape)}; "
            f"expected [{one_or(C)}, {shape[1]}, {shape[2]}]"
        )
    return C, shape[1], shape[2]


def read_tile(model: DeconvNet, picture: Picture, mask: Picture | None, rows: slice, columns: slice) -> Target:
    """What the model explains of these pixels, [1, C, h, w]: the input stage sees as far beyond them as it reaches."""
    reach = model.input_stage.reach
    seen = tuple(slice(max(0, side.start - reach), side.stop + reach) for side in (rows, columns))
    inside = tuple(
        slice(side.start - wide.start, side.stop - wide.start) for side, wide in zip((rows, columns), seen, strict=True)
    )
    images, weight = read_window(picture, seen), None if mask is None else read_window(mask, seen)
    target = make_target(model, images, weight, allow_unknown=True)

    def crop(part: Tensor) -> Tensor:
        return part[:, :, *inside]

    return Target(crop(target.v), None if target.mask is None else crop(target.mask), target.background.map(crop))


def read_window(picture: Picture, window: tuple[slice, ...]) -> Tensor:
    """Some pixels of a picture, [1, C, h, w]."""
    pixels = picture[:, window[0], window[1]]
    return (pixels if isinstance(pixels, Tensor) else torch.from_numpy(np.array(pixels)))[None]


def join_masks(targets: Sequence[Target]) -> Tensor | None:
    """The masks of several tiles, 1 for those that have none; None if none has one."""
    if all(target.mask is None for target in targets):
        return None
    ones = (torch.ones_like(target.v) if target.mask is None else target.mask.expand_as(target.v) for target in targets)
    return torch.cat(list(ones))


def finish_tile(model: DeconvNet, grid: TileGrid, tile: tuple[int, int], latents: Latents, engine: str) -> SolvedTile:
    """Cut out of a tile what is taken from it."""
    sized, whole = model.at(grid.rows.size, grid.columns.size), model.at(grid.rows.length, grid.columns.length)
    stages = sized.descend(latents.features, sized.weights(latents.pooling_params))  # p̂_0 … p̂_l
    image = model.input_stage.inverse(stages[0], latents.background)[0]

    def take(k: int, values: Tensor) -> SparseMap:
        """The values [V, B, h, w] of layer k that are taken from this tile, where its features are not 0."""
        in_picture, inside = grid.core(tile, k, whole.regions[k - 1].grid[1:])
        corner = in_picture[0].start, in_picture[1].start
        return SparseMap.of(values[:, :, *inside], stages[k][0, :, *inside] != 0, whole.regions[k - 1].grid, corner)

    where = [take(k, torch.cat([theta.mu, theta.gamma], 1)[0]) for k, theta in enumerate(latents.pooling_params, 1)]
    core, inside = grid.core(tile, 0, (grid.rows.length, grid.columns.length))
    background = latents.background.map(lambda part: part[:, :, *inside])
    codes = SparseLatents(take(len(latents.pooling_params), latents.features), tuple(where), background)
    return SolvedTile(*grid.window(tile), image * grid.weights(tile).to(image), codes, core, latents, engine)
