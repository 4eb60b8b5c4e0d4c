"""The convolutions of a layer as matrix products over cells of z: sizes, and filters laid out as
matrices.

z is cut into cells: the pooling regions, where they lie side by side within one map. The map below
is cut into blocks of the same size, so that block q and cell r = q + t meet through the same piece
of the filters for every q, where the tap t runs over R × R values, along rows and columns. With all
the s elements of a cell (or block) of all maps side by side in one row,

    down   block q = Σ_t cell(q + t)  · G_t         G_t [s B, s C]
    up     cell  r = Σ_t block(r - t) · G_tᵀ

With cells of 2 × 2 and filters of 5 × 5 that is 9 taps for 25, each row read a third as often, for
1.44 times the products.

Regions that overlap are not cells: the sides of cells are then the strides of the regions, and the
error at z goes through memory.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.ops.pooling import Regions
from whatwhere.spec import LayerSpec

Pair = tuple[int, int]  # along rows and columns
CHUNK = 16  # maps that one program of the upward pass takes: the least that the tensor cores accept


def planes_of(size: int) -> int:
    """Return how many numbers the weights along one axis are stored as: at 2 elements one says
    both."""
    return (0, 1)[size - 1] if size <= 2 else size


def round_up(n: int, multiple: int) -> int:
    return _ceil_div(n, multiple) * multiple


def _ceil_div(n: int, size: int) -> int:
    return -(-n // size)


def both(function: Callable[[int, int], int], one: Pair, other: Pair) -> Pair:
    """Make a function of two pairs, along rows and along columns."""
    return function(one[0], other[0]), function(one[1], other[1])


def cell_sides(pool_shape: Pair, strides: Pair) -> Pair:
    """Return the sides of the regions if they do not overlap; otherwise the strides, but at least
    2."""
    return both(lambda s, t: s if s == t else max(t, 2), pool_shape, strides)


def _power_of_two(n: int) -> int:
    """Return the least power of two that is no less than n."""
    return 1 << (n - 1).bit_length()


def depth_block(inner: int) -> int:
    """Return how many elements of a row one product takes: rows of any length are read in such
    pieces."""
    return min(64, max(16, _power_of_two(inner)))


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one layer: B maps of z over C maps below. Pairs of numbers are along rows and
    columns.

    Kernels take it whole, as one constant that they are compiled for. `_layer_shape` computes it.
    """

    maps: int
    below: tuple[int, int, int]  # C, height, width
    unpooled: Pair  # of z
    grid: Pair  # regions, h × w
    pool_shape: Pair  # of a region
    strides: Pair
    filter_shape: Pair  # K × L
    tiled: bool  # regions are cells, so that one kernel goes from the error below to the features
    weight_planes: int  # how many numbers a region's weights are stored as (`weights`)
    ragged: tuple[bool, bool]  # whether the last region reaches beyond z
    # sides of a cell: multiples of the strides, so that an element's place in its regions is known
    cell: Pair
    cell_area: int  # elements of a cell in one map
    cell_row: int  # in all maps
    cells: Pair  # of z
    taps: Pair  # R: how many cells a block reaches
    blocks: Pair  # of the map below
    block_row: int  # elements of the map below in a block, all maps
    group: Pair  # blocks that the downward pass makes at a time
    group_taps: Pair  # how many cells a group of blocks reaches
    groups: Pair
    group_sides: Pair  # elements of the map below in a group of blocks
    group_row: int  # in all maps
    # the downward pass can leave out cells that nothing uses: long rows, taps that fit in 32 bits
    can_skip: bool
    chunks: int  # programs of the upward pass that share the maps
    places: int  # elements of a cell, rounded up to a power of two as the kernels need it
    down_tile: int  # columns that one program of the downward pass takes
    down_depth: int
    up_depth: int


def _layer_shape(spec: LayerSpec, below: tuple[int, int, int], regions: Regions) -> LayerShape:
    """Return the shape of a layer over maps of this size."""
    maps, unpooled, grid = regions.shape[0], regions.shape[1:], regions.grid[1:]
    cell = cell_sides(spec.pool_shape, spec.strides)
    area, tiled = math.prod(cell), spec.strides == spec.pool_shape
    blocks, taps = (
        both(_ceil_div, below[1:], cell),
        both(lambda s, K: 1 + (s + K - 2) // s, cell, spec.filter_shape),
    )
    block_row, cell_row = area * below[0], area * maps
    group = (1, 1)
    if 4 * block_row <= 64:  # a block of 1 would leave the tensor cores idle, as over images
        group = (1, 4) if blocks[0] == 1 else (2, 2)
    group_taps, group_row = both(lambda R, g: R + g - 1, taps, group), math.prod(group) * block_row
    ends = both(lambda n, t: (n - 1) * t, grid, spec.strides)
    ends = both(operator.add, ends, spec.pool_shape)
    return LayerShape(
        maps=maps,
        below=below,
        unpooled=unpooled,
        grid=grid,
        pool_shape=spec.pool_shape,
        strides=spec.strides,
        filter_shape=spec.filter_shape,
        tiled=tiled,
        weight_planes=sum(map(planes_of, spec.pool_shape)),
        ragged=(ends[0] > unpooled[0], ends[1] > unpooled[1]),
        cell=cell,
        cell_area=area,
        cell_row=cell_row,
        cells=both(_ceil_div, unpooled, cell),
        taps=taps,
        blocks=blocks,
        block_row=block_row,
        group=group,
        group_taps=group_taps,
        groups=both(_ceil_div, blocks, group),
        group_sides=both(operator.mul, group, cell),
        group_row=group_row,
        can_skip=tiled and cell_row >= 64 and math.prod(group_taps) < 32,
        chunks=_ceil_div(maps, CHUNK),
        places=_power_of_two(area),
        down_tile=depth_block(group_row),
        down_depth=depth_block(cell_row),
        up_depth=depth_block(block_row),
    )


def layer_shapes(model: DeconvNet, height: int, width: int, layer: int) -> list[LayerShape]:
    """Return the shapes of layers 1 … layer for images of this size."""
    below, shapes = (model.spec.target_channels, height, width), []
    for spec, regions in zip(
        model.spec.layers, model.at(height, width).regions[:layer], strict=False
    ):
        shapes.append(_layer_shape(spec, below, regions))
        below = regions.grid
    return shapes


def filter_blocks(f: Tensor, shape: LayerShape, group: Pair = (1, 1)) -> Tensor:
    """G of f [C, B, K, L]: every tap, from the elements of a cell to those of a block (or of a
    group of blocks), [taps, elements of a cell · B, elements of a block · C].

    Element u of the cells and element y of the group meet in element i of a filter: down is a valid
    convolution, so i = K - 1 - (u - y).
    """
    meet, sides = [], []
    for s, R, g, K in zip(shape.cell, shape.taps, group, shape.filter_shape, strict=True):
        u, y, i = (torch.arange(n, device=f.device) for n in ((R + g - 1) * s, g * s, K))
        meet.append((i == K - 1 - (u[:, None, None] - y[:, None])).to(f.dtype))
        sides += [R + g - 1, s, g * s]
    G = torch.einsum("cbij,uyi,vxj->cbuyvx", f, *meet).view(*f.shape[:2], *sides)
    return G.permute(2, 5, 3, 6, 1, 4, 7, 0).flatten(5).flatten(2, 4).flatten(0, 1)


# `filter_blocks` only moves elements about. Where each comes from is found once, from filters that
# hold their own numbers, 1, 2, …; from then on laying out filters is one gathering, which on a GPU
# costs one launch instead of many.


def numbered(shape: LayerShape) -> Tensor:
    size = (shape.below[0], shape.maps, *shape.filter_shape)
    return torch.arange(1, math.prod(size) + 1, dtype=torch.float64).view(size)


def lay_out(f: Tensor, sources: Tensor) -> Tensor:
    """Make a matrix whose elements are those of f that `sources` numbers from 1, or 0."""
    return torch.cat([f.new_zeros(1), f.flatten()])[sources]


def filters_of(G: Tensor, shape: LayerShape) -> Tensor:
    """Return the adjoint of `filter_blocks` for single blocks: every element of a filter is in s
    places of G."""
    return G.flatten()[_block_places(shape, G.device)].sum(1).view(numbered(shape).shape)


@cache
def _block_places(shape: LayerShape, device: torch.device) -> Tensor:
    """Return where each element of the filters is in G, [C B K L, s]."""
    sources = filter_blocks(numbered(shape), shape).flatten()
    placed = sources.argsort(stable=True)[int((sources == 0).sum()) :]
    return placed.view(-1, shape.cell_area).to(device)


@cache
def down_sources(shape: LayerShape, device: torch.device) -> Tensor:
    """Return the sources of G_t for every tap, [taps, s B, elements of a group of blocks], padded
    with zeros."""
    rows, columns = (
        round_up(shape.cell_row, shape.down_depth),
        round_up(shape.group_row, shape.down_tile),
    )
    padded = torch.zeros(math.prod(shape.group_taps), rows, columns, dtype=torch.long)
    padded[:, : shape.cell_row, : shape.group_row] = filter_blocks(
        numbered(shape), shape, shape.group
    ).long()
    return padded.to(device)


@cache
def up_sources(shape: LayerShape, device: torch.device) -> Tensor:
    """Return the sources of G_tᵀ for every tap, [taps, s C, chunks · places · CHUNK]: its columns
    in chunks of maps, padded with zeros."""
    area, columns, taps = shape.cell_area, shape.block_row, math.prod(shape.taps)
    # [t, a, b, y c]
    G = filter_blocks(numbered(shape), shape).view(taps, area, shape.maps, columns)
    rows = round_up(columns, shape.up_depth)
    padded = torch.zeros(taps, rows, shape.chunks * CHUNK, shape.places, dtype=torch.long)
    padded[:, :columns, : shape.maps, :area] = G.permute(0, 3, 2, 1).long()
    chunked: Tensor = padded.unflatten(2, (shape.chunks, CHUNK))
    return chunked.transpose(3, 4).flatten(2).to(device)
