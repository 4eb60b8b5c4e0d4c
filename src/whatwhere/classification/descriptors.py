"""Descriptors: the vectors that a linear classifier receives (paper, "Classification").

A feature map is divided into overlapping patches, one at every position. Each patch is pooled in
cells and scaled to unit length. The patches of an image, concatenated and scaled to unit length,
are its descriptor. At the paper's size this gives 8·8 patches × 3·3 cells × 16 maps = 9216 numbers
at layer 1, 5·5 × 2·2 × 48 = 4800 at layer 2. Larger images would give many more numbers: there,
patches are further apart, and on still larger images the patches and their cells grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, SpecError, plural
from whatwhere.inference import infer
from whatwhere.inference.learned_steps import Steps, resolve_steps
from whatwhere.inference.target import ImageSource, Pictures, in_model_units
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec, Phase, Recipe
from whatwhere.spec.recipe import joint

Matrix: TypeAlias = Any  # rows [N, D]: np.ndarray or a tensor


def describe(features: Sequence[Tensor], spec: DescriptorSpec, layers: Sequence[int]) -> Tensor:
    """Descriptors [N, D] of the features of some layers, concatenated and scaled to unit length.

    Parameters
    ----------
    features
        features of each layer, [N, B, H, W]
    spec
        how they are described
    layers
        the number of each layer, which selects its patch and stride; larger maps get larger ones
        (`spec.size`)

    Examples
    --------
    >>> describe([torch.rand(5, 48, 10, 10)], ww.DescriptorSpec(), [2]).shape
    torch.Size([5, 4800])
    >>> describe([torch.rand(5, 48, 35, 35)], ww.DescriptorSpec(size=2000), [2]).shape   # 128 × 128
    torch.Size([5, 1728])
    """
    pairs = zip(features, layers, strict=True)
    parts = [p.flatten(1) if spec.raw else _layer_patches(p, spec, k).flatten(1) for p, k in pairs]
    return unit_length(torch.cat([unit_length(part) for part in parts], 1))


def _layer_patches(p: Tensor, spec: DescriptorSpec, layer: int) -> Tensor:
    """Return the patches of one layer, pooled in cells, of unit length:  [N, B, H, W] → [N, rows,
    columns, B · cells].

    If the map is smaller than a patch, the map is the only patch.
    """
    patch, stride, cell = patch_sizes(p.shape[1], tuple(p.shape[2:]), spec, layer)
    cells = pool_cells(
        p, spec.cell_statistic, (min(cell, patch, p.shape[2]), min(cell, patch, p.shape[3]))
    )
    index = patch_elements(p.shape[1], p.shape[2:], patch, stride, cell, p.device)
    return unit_length(cells.flatten(1).index_select(1, index.flatten()).unflatten(1, index.shape))


@lru_cache(maxsize=64)
def patch_sizes(
    maps: int, extents: tuple[int, int], spec: DescriptorSpec, layer: int
) -> tuple[int, int, int]:
    """Return the side, stride and cell of a layer's patches: the smallest that give at most
    `spec.size` columns.

    Strides grow up to the side of a patch, so that patches leave nothing out; then patches and
    cells grow.
    """
    patch, stride = (sizes[min(layer, len(sizes)) - 1] for sizes in (spec.patch, spec.stride))

    def fits(factor: int, distance: int) -> bool:
        side = patch * factor
        cell = spec.cell * factor
        axes = (
            cell_positions(e, min(side, e), distance, min(cell, side, e)).numel() for e in extents
        )
        return maps * prod(axes) <= spec.size

    most = -(-max(extents) // min(spec.cell, patch))  # then a map is one cell
    factor = next((f for f in range(1, most) if fits(f, max(stride, patch * f))), most)
    largest = max(stride, patch * factor)
    distance = next((d for d in range(stride, largest) if fits(factor, d)), largest)
    return patch * factor, distance, spec.cell * factor


def pool_cells(p: Tensor, statistic: str, cell: tuple[int, int]) -> Tensor:
    """Return the statistic of the cell at every position of a map:  [N, B, H, W] → [N, B, H - c +
    1, W - c + 1]."""
    if statistic == "max":
        return F.max_pool2d(p, cell, stride=1)
    if statistic == "mean":
        return F.avg_pool2d(p, cell, stride=1)
    squares = p.square()
    # where PyTorch averages maps in this order three times as fast, to the same numbers
    if p.device.type == "cpu":
        squares = squares.contiguous(memory_format=torch.channels_last)
    return F.avg_pool2d(squares, cell, stride=1).sqrt()


@lru_cache(maxsize=64)  # copied to a GPU once, not for every batch
def patch_elements(
    maps: int, extents: tuple[int, int], patch: int, stride: int, cell: int, device: torch.device
) -> Tensor:
    """Return where the elements of every patch lie in the flattened cells of an image:  [rows,
    columns, maps · cells]."""
    rows, columns = (
        cell_positions(extent, min(patch, extent), stride, min(cell, patch, extent))
        for extent in extents
    )
    height, width = (extent - min(cell, patch, extent) + 1 for extent in extents)
    # [rows, columns, cells, cells]
    place = rows[:, None, :, None] * width + columns[None, :, None, :]
    elements = torch.arange(maps)[:, None, None] * (height * width) + place[:, :, None]
    return elements.flatten(2).to(device)


def cell_positions(extent: int, patch: int, stride: int, cell: int) -> Tensor:
    """Return the first positions of the cells of every patch along one axis:  [patches, cells]."""
    return strides(extent - patch, stride)[:, None] + strides(patch - cell, cell)


def strides(last: int, stride: int) -> Tensor:
    """0, stride, 2 stride, … and `last`, so that the end is always covered."""
    return torch.tensor(sorted({*range(0, last, stride), last}))


def unit_length(x: Tensor) -> Tensor:
    """Scale the vectors along the last axis to unit length; a zero vector stays zero."""
    return F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny)


def describe_images(
    model: DeconvNet,
    images: Pictures,
    recipe: Recipe | None = None,
    *,
    engine: str = "auto",
    on_device: bool = False,
    progress: Callable[[int], object] = lambda images: None,
    steps: Steps | int | None = None,
) -> Matrix:
    """Infer and describe images batch by batch on the device of the model: a matrix [N, D],
    float32.

    A layer below the top one is inferred on its own, as if the model ended there. The setting
    `where` of the descriptor has no influence here, but in `anywhere.describe_where`.

    Parameters
    ----------
    model
        the model
    images
        as in `ww.infer`: paths, pictures, arrays or images that are read batch by batch
    recipe
        how features are inferred and described; None takes the paper's
    engine
        engine of the inference
    on_device
        whether to keep the matrix on the device of the model as a tensor, for an SVM that is fitted
        there
    progress
        called after every batch with the number of images in it
    steps
        as in `ww.infer`: a number of steps, or 'learned' for those that were saved next to the
        model, which take a ninth of the time of the paper's 50

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> describe_images(model, ww.data.load("digits")[:4], steps="learned").shape
    (4, 4800)
    """
    recipe = recipe or Recipe.paper(model.spec)
    if steps is not None:
        model, recipe = _with_steps(model, recipe, steps)
    source: ImageSource = in_model_units(model.spec, images)
    if len(source) == 0:
        raise ImageError("Got an empty set of images; expected at least one.")
    layers = recipe.descriptor.layers or (model.spec.depth,)
    plans = _layer_plans(model.spec.depth, layers, recipe)

    rows: Tensor | None = None
    for start in range(0, len(source), recipe.batch_size):
        v = source[slice(start, start + recipe.batch_size)].to(model.device, model.dtype)
        features = [
            infer(model, v, recipe.inference, plan, engine=engine, batch_size=len(v)).features
            for plan in plans
        ]
        described = describe(features, recipe.descriptor, layers).float()
        if rows is None:
            place = model.device if on_device else "cpu"
            rows = torch.empty(len(source), described.shape[1], device=place)
        rows[start : start + len(v)] = described
        progress(len(v))
    assert rows is not None
    return rows if on_device else rows.numpy()


def _with_steps(model: DeconvNet, recipe: Recipe, steps: Steps | int) -> tuple[DeconvNet, Recipe]:
    """Return the model and the recipe for a number of steps, or for learned ones."""
    if isinstance(steps, int):
        return model, replace(recipe, inference=replace(recipe.inference, steps=steps))
    model, inference = resolve_steps(model, steps)
    return model, replace(recipe, inference=inference, plan=())


def _layer_plans(depth: int, layers: Sequence[int], recipe: Recipe) -> list[tuple[Phase, ...]]:
    """Return how each of these layers is inferred: the top one by the recipe's plan, others on
    their own."""
    top = recipe.plan or joint(depth)
    if max(layers) > depth:
        raise SpecError(
            f"Cannot describe layer {max(layers)}: the model has {plural(depth, 'layer')}."
        )
    if recipe.inference.schedule is not None and layers != (top[-1].layer,):
        raise SpecError(
            f"Got a descriptor of layers {layers} with learned steps, whose sizes fit the top layer"
            f" only; expected layers = [{top[-1].layer}], or steps that were not learned."
        )
    return [top if k == top[-1].layer else joint(k) for k in layers]
