"""What a model reconstructs of images of any size: in tiles, and as the mean of several views.

A pooling region explains a feature by one Gaussian, so a result depends a little on the grid of regions. That part of
the error differs from view to view, and the mean of views has less of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.inference import infer, infer_tiled
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, ModelSpec, RestorationSpec

Progress = Callable[[int], None]


def region_side(spec: ModelSpec) -> int:
    """The distance, in pixels, at which the pooling regions of the top layer repeat."""
    side = 1
    for layer in spec.layers:
        side *= layer.stride
    return side


def shifts(side: int, views: int) -> list[tuple[int, int]]:
    """Offsets (rows, columns) of the grid of regions: along the diagonal first, which differ most."""
    along = max(1, side // views)
    diagonals = [(i, (i + j) % side) for j in range(side) for i in range(0, side, along)]
    return diagonals[:views]


def count_tiles(model: ModelSpec, planes: int, height: int, width: int, spec: RestorationSpec) -> int:
    """How often `explain` reports progress, in all."""
    offsets = shifts(region_side(model), spec.views)
    grids = (TileGrid.of(model, height + down, width + right, spec.tile, spec.overlap) for down, right in offsets)
    return planes * sum(len(grid) for grid in grids)


def explain(
    model: DeconvNet,
    images: Tensor,
    mask: Tensor | None,
    settings: InferenceSpec,
    spec: RestorationSpec,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Tensor:
    """What the model reconstructs of images [N, C, H, W], the mean over all views.

    A view has rows and columns more, at the top and on the left, which moves its grid of regions.
    """
    total = torch.zeros_like(images)
    for down, right in (offsets := shifts(region_side(model.spec), spec.views)):
        frame = (right, 0, down, 0)
        padded = F.pad(images, frame, mode="replicate")
        known = None if mask is None else F.pad(mask, frame, mode="replicate")
        total += _reconstruct(model, padded, known, settings, spec, engine, progress)[:, :, down:, right:]
    return total / len(offsets)


def _reconstruct(
    model: DeconvNet,
    images: Tensor,
    mask: Tensor | None,
    settings: InferenceSpec,
    spec: RestorationSpec,
    engine: str,
    progress: Progress | None,
) -> Tensor:
    """One view: small images together, so that they share the cores, large ones in tiles, which do."""
    if max(images.shape[2:]) <= spec.tile:
        return infer(model, images, settings, mask=mask, engine=engine, progress=progress).reconstruction
    parts = []
    for n in range(len(images)):
        known = None if mask is None else mask[n]
        solution = infer_tiled(
            model,
            images[n],
            settings,
            mask=known,
            tile=spec.tile,
            overlap=spec.overlap,
            engine=engine,
            progress=progress,
        )
        parts.append(solution.reconstruction)
    return torch.stack(parts)
