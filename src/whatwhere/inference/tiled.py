"""Inference on one large picture: in tiles with overlap, many at a time, in memory that does not grow with the picture.

A feature is influenced by what is near it, less and less with distance, so a tile that reaches far enough beyond the
features that are taken from it gives what the whole picture would give. docs/howto/large_pictures.md says how far that
is, and for which settings the two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from whatwhere.inference.auto_lam import resolve_lam
from whatwhere.inference.checks import check_filters
from whatwhere.inference.convergence import warn_unconverged
from whatwhere.inference.engines import resolve
from whatwhere.inference.infer import run_plan
from whatwhere.inference.plan import joint
from whatwhere.inference.solved_tile import SolvedTile, finish_tile
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.inference.tile_reader import Picture, TileImages, check_picture, join_masks, read_tile
from whatwhere.latents import Background, SparseLatents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Stats
from whatwhere.spec import InferenceSpec, Phase
from whatwhere.spec.checks import require, require_count

TILE, OVERLAP = 256, 64
GPU_BATCH = 16


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
    highest, left, stats = max(plan, key=lambda phase: phase.layer), iter(grid), []
    with torch.no_grad():
        while batch := list(islice(left, batch_size)):
            targets = [read_tile(model, picture, mask, *grid.window(tile)) for tile in batch]
            v, M = torch.cat([target.v for target in targets]), join_masks(targets)
            problem = Problem(model, v, highest, spec, mask=M)
            resolved = resolve(engine, problem[:1])
            solution = run_plan(resolved, problem, plan)
            if spec.tolerance > 0:
                stats.append(solution.stats)
            for n, (place, target) in enumerate(zip(batch, targets, strict=True)):
                ended = replace(solution.latents[n : n + 1], background=target.background)
                yield finish_tile(model, grid, place, ended, (height, width), resolved.name)
    if stats:
        warn_unconverged(Stats.cat(stats), spec)
