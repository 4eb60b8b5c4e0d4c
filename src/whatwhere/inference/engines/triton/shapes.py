"""The convolutions of a layer as matrix products over cells of z: sizes, and filters laid out as matrices.

z is cut into cells of s × s elements: the pooling regions, where they lie side by side within one map. The map below
is cut into blocks of s × s elements too, so that block q and cell r = q + t meet through the same s² × s² piece of the
filters for every q, where the tap t runs over R × R values. With all the elements of a cell (or block) of all maps side
by side in one row,

    down   block q = Σ_t cell(q + t)  · G_t         G_t [s² B, s² C]
    up     cell  r = Σ_t block(r - t) · G_tᵀ

At s = 2 and K = 5 that is 9 taps for 25, each row read a third as often, for 1.44 times the products.

Regions that overlap are no cells: `regions` goes between them and the cells, whose side is the regions' stride.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from whatwhere.model import DeconvNet

CHUNK = 16  # maps that one program of the upward pass takes: the least that the tensor cores accept


def planes_of(size: int) -> int:
    """How many numbers the weights along one axis are stored as: at 2 elements one says both."""
    return (0, 1)[size - 1] if size <= 2 else size


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def power_of_two(n: int) -> int:
    """The least power of two that is no less than n."""
    return 1 << (n - 1).bit_length()


def depth_block(inner: int) -> int:
    """How many elements of a row one product takes: rows of any length are read in such pieces."""
    return min(64, max(16, power_of_two(inner)))


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one layer: B maps of z over C maps below, K × K filters.

    Kernels take it whole, as one constant that they are compiled for.
    """

    maps: int
    below: tuple[int, int, int]  # C, height, width
    unpooled: tuple[int, int]  # height and width of z
    grid: tuple[int, int]  # regions, h × w
    pool_size: int
    stride: int
    filter_size: int

    @property
    def tiled(self) -> bool:
        """Whether regions are cells, so that one kernel goes from the error below to the features."""
        return self.stride == self.pool_size

    @property
    def weight_planes(self) -> int:
        """How many numbers a region's weights are stored as (`weights`)."""
        return 2 * planes_of(self.pool_size)

    @property
    def cell(self) -> int:
        """The side of a cell, s: a multiple of the stride, so that an element's place in its regions is known."""
        return self.pool_size if self.tiled else max(self.stride, 2)

    @property
    def cells(self) -> tuple[int, int]:
        """Cells of z, along rows and columns."""
        return -(-self.unpooled[0] // self.cell), -(-self.unpooled[1] // self.cell)

    @property
    def taps(self) -> int:
        """R: how many cells, along one axis, a block reaches."""
        return 1 + (self.cell + self.filter_size - 2) // self.cell

    @property
    def can_skip(self) -> bool:
        """Whether the downward pass can leave out cells that nothing uses: long rows, and taps that fit in 32 bits."""
        return self.tiled and self.cell_row >= 64 and (self.taps + self.group - 1) ** 2 < 32

    @property
    def blocks(self) -> tuple[int, int]:
        _, height, width = self.below
        return -(-height // self.cell), -(-width // self.cell)

    @property
    def cell_row(self) -> int:
        """Elements of z in a cell, all maps: s² B."""
        return self.cell**2 * self.maps

    @property
    def block_row(self) -> int:
        """Elements of the map below in a block, all maps: s² C."""
        return self.cell**2 * self.below[0]

    @property
    def group(self) -> int:
        """Blocks along one axis that the downward pass makes at a time: 2 where a block of 1 would leave
        the tensor cores idle, as over images."""
        return 2 if 4 * self.block_row <= 64 else 1

    @property
    def groups(self) -> tuple[int, int]:
        return -(-self.blocks[0] // self.group), -(-self.blocks[1] // self.group)

    @property
    def group_row(self) -> int:
        """Elements of the map below in a group of blocks, all maps."""
        return self.group**2 * self.block_row

    @property
    def chunks(self) -> int:
        """Programs that share the maps."""
        return -(-self.maps // CHUNK)

    @property
    def places(self) -> int:
        """Elements of a cell, rounded up to a power of two as the kernels need it."""
        return power_of_two(self.cell**2)

    @property
    def ragged(self) -> tuple[bool, bool]:
        """Whether the last region reaches beyond z, along rows and columns."""
        ends = ((n - 1) * self.stride + self.pool_size for n in self.grid)
        rows, columns = (end > extent for end, extent in zip(ends, self.unpooled, strict=True))
        return rows, columns

    @property
    def down_tile(self) -> int:
        """Columns that one program of the downward pass takes."""
        return depth_block(self.group_row)

    @property
    def down_depth(self) -> int:
        return depth_block(self.cell_row)

    @property
    def up_depth(self) -> int:
        return depth_block(self.block_row)


def layer_shapes(model: DeconvNet, height: int, width: int, layer: int) -> list[LayerShape]:
    """The shapes of layers 1 … layer for images of this size."""
    below, shapes = (model.spec.signal_channels, height, width), []
    for spec, regions in zip(model.spec.layers, model.at(height, width).regions[:layer], strict=False):
        maps, height, width = regions.shape
        shapes.append(
            LayerShape(
                maps,
                below,
                (height, width),
                regions.grid[1:],
                spec.pool_shape[0],
                spec.strides[0],
                spec.filter_shape[0],
            )
        )
        below = regions.grid
    return shapes


def filter_blocks(f: Tensor, shape: LayerShape, group: int = 1) -> Tensor:
    """G of f [C, B, K, K]: every tap, from the elements of a cell to those of a block (or of a group of blocks),
    [taps², s² B, s² C].

    Element u of the cells and element y of the group meet in element i of a filter: down is a valid convolution, so
    i = K - 1 - (u - y).
    """
    s, R, side, (C, B, K, _) = shape.cell, shape.taps + group - 1, group * shape.cell, f.shape
    u, y, i = (torch.arange(n, device=f.device) for n in (R * s, side, K))
    meet = (i == K - 1 - (u[:, None, None] - y[:, None])).to(f.dtype)
    G = torch.einsum("cbij,uyi,vxj->cbuyvx", f, meet, meet).view(C, B, R, s, side, R, s, side)
    return G.permute(2, 5, 3, 6, 1, 4, 7, 0).reshape(R * R, s * s * B, side * side * C)


# `filter_blocks` only moves elements about. Where each comes from is found once, from filters that hold their own
# numbers, 1, 2, …; from then on laying out filters is one gathering, which on a GPU costs one launch instead of many.


def numbered(shape: LayerShape) -> Tensor:
    size = (shape.below[0], shape.maps, shape.filter_size, shape.filter_size)
    return torch.arange(1, math.prod(size) + 1, dtype=torch.float64).view(size)


def lay_out(f: Tensor, sources: Tensor) -> Tensor:
    """A matrix whose elements are those of f that `sources` numbers from 1, or 0."""
    return torch.cat([f.new_zeros(1), f.flatten()])[sources]


def filters_of(G: Tensor, shape: LayerShape) -> Tensor:
    """The adjoint of `filter_blocks` for single blocks: every element of a filter is in s² places of G."""
    return G.flatten()[block_places(shape, G.device)].sum(1).view(numbered(shape).shape)


@cache
def block_places(shape: LayerShape, device: torch.device) -> Tensor:
    """Where each element of the filters is in G, [C B K², s²]."""
    sources = filter_blocks(numbered(shape), shape).flatten()
    placed = sources.argsort(stable=True)[int((sources == 0).sum()) :]
    return placed.view(-1, shape.cell**2).to(device)


def down_size(shape: LayerShape) -> tuple[int, int, int]:
    """Taps, rows and columns of the matrix of the downward pass, padded as its kernel reads it."""
    rows, columns = shape.cell_row, shape.group_row
    return (shape.taps + shape.group - 1) ** 2, round_up(rows, shape.down_depth), round_up(columns, shape.down_tile)


def down_matrix(f: Tensor, shape: LayerShape) -> Tensor:
    """G_t of every tap, [taps², s² B, elements of a group of blocks], padded with zeros."""
    return lay_out(f, down_sources(shape, f.device))


@cache
def down_sources(shape: LayerShape, device: torch.device) -> Tensor:
    padded = torch.zeros(down_size(shape), dtype=torch.long)
    padded[:, : shape.cell_row, : shape.group_row] = filter_blocks(numbered(shape), shape, shape.group).long()
    return padded.to(device)


def up_size(shape: LayerShape) -> tuple[int, int, int]:
    """Taps, rows and columns of the matrix of the upward pass, padded as its kernel reads it."""
    return shape.taps**2, round_up(shape.block_row, shape.up_depth), shape.chunks * shape.places * CHUNK


def up_matrix(f: Tensor, shape: LayerShape) -> Tensor:
    """G_tᵀ of every tap, [R², s² C, chunks · places · CHUNK]: its columns in chunks of maps, padded with zeros."""
    return lay_out(f, up_sources(shape, f.device))


@cache
def up_sources(shape: LayerShape, device: torch.device) -> Tensor:
    s, columns = shape.cell, shape.block_row
    taps, rows, _ = up_size(shape)
    G = filter_blocks(numbered(shape), shape).view(taps, s * s, shape.maps, columns)  # [t, a, b, y c]
    padded = torch.zeros(taps, rows, shape.chunks * CHUNK, shape.places, dtype=torch.long)
    padded[:, :columns, : shape.maps, : s * s] = G.permute(0, 3, 2, 1).long()
    chunked: Tensor = padded.unflatten(2, (shape.chunks, CHUNK))
    return chunked.transpose(3, 4).flatten(2).to(device)
