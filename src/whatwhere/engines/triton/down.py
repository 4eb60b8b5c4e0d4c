"""The way down: reconstruct a layer and unpool it.

`shapes` says how convolutions become products, docs/engines/triton.md why.

Every tensor has its maps last. Rows are regions [N · h · w] or blocks [N · block_h · block_w] of a
batch:

    p          [N, h, w, B]           float32        features of a layer
    z          [N, h, w, s, B]        float16 · scale  its unpooled maps, region by region of s
               elements
    error      [N, blocks, s, C]      float16 · scale  the error at the layer below, block by block
    theta      [N, h, w, 4, B]        float32        pooling variables: μ, then γ, each along rows
               and columns
    weights    [N, h, w, …, B]        int16          the weights of its regions, as `weights` stores
               them

The scales are described in `weights`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from whatwhere.engines.triton.math import formulas, place
from whatwhere.engines.triton.step import (
    MARKED_IMAGES,
    mark_active,
    measure_features,
    some_in_row,
    store_unpooled,
)
from whatwhere.engines.triton.weights import (
    ERROR_SCALE,
    MAPS,
    SCALE,
    UNSCALE,
    Tile,
    load_planes,
    own_tile,
    plane_offset,
    region_weights,
)


class DownTensors(NamedTuple):
    """What `down` reads and writes; at the lowest layer `out`, `weights` and `z_below` are not
    used, above it `images`, `mask`, `error` and `squares` are not."""

    z: Tensor
    matrix: Tensor  # the filters of the pass down
    active: Tensor  # which regions of the top have a feature

    # the layer below
    out: Tensor  # its p
    weights: Tensor
    z_below: Tensor

    # the images
    images: Tensor
    mask: Tensor
    error: Tensor
    squares: Tensor  # parts of an image's ‖M ⊙ e‖²

    common: Tensor  # the numbers that `weights` names


@dataclass(frozen=True)
class DownRule:
    """What `down` is compiled for."""

    subtract: bool  # the images
    masked: bool
    # what comes out: p̂ where it is unpooled at once, the error M ⊙ e at the lowest layer
    keep: bool
    # the rows of a program are one group of many images; regions that none of these uses are left
    # out
    sparse: bool


@triton.jit
def down(
    tensors,
    rows,
    step_number,
    SHAPE: tl.constexpr,
    BELOW: tl.constexpr,
    RULE: tl.constexpr,
    M: tl.constexpr,
):
    """Reconstruct the layer BELOW: p̂ into `out`, and z of it where its regions lie side by side;
    p̂ is then stored on request only, as float16 · scale. At the lowest layer (BELOW is None) what
    comes out, weighted by the mask M, is the error e: keep M ⊙ e on request, and sum the squares of
    e. A row is a group of blocks."""
    N: tl.constexpr = SHAPE.down_tile
    TALL: tl.constexpr = SHAPE.group_sides[0]
    WIDE: tl.constexpr = SHAPE.group_sides[1]
    TILES: tl.constexpr = (SHAPE.group_row + N - 1) // N
    C, BELOW_H, BELOW_W = SHAPE.below[0], SHAPE.below[1], SHAPE.below[2]
    tile = tl.program_id(0) % TILES
    row, image, q_y, q_x, total = product(tensors, rows, step_number, SHAPE, RULE.sparse, M)
    column = tile * N + tl.arange(0, N)
    common = tensors.common
    total *= tl.load(common + UNSCALE)

    # where the numbers of a group of blocks are in the layer below
    y = q_y[:, None] * TALL + (column // C // WIDE)[None, :]
    x = q_x[:, None] * WIDE + (column // C % WIDE)[None, :]
    c = column % C
    exists = (
        (row < rows)[:, None] & (column < SHAPE.group_row)[None, :] & (y < BELOW_H) & (x < BELOW_W)
    )
    # the image: subtract it, weigh it, and hand the error to the pass up in the order of its blocks
    if BELOW is None:
        S_Y: tl.constexpr = SHAPE.cell[0]
        S_X: tl.constexpr = SHAPE.cell[1]
        pixel = ((image[:, None] * C + c[None, :]).to(tl.int64) * BELOW_H + y) * BELOW_W + x
        if RULE.subtract:
            total -= tl.load(tensors.images + pixel, mask=exists, other=0.0)
        kept = total
        if RULE.masked:
            weight = tl.load(tensors.mask + pixel, mask=exists, other=0.0)
            total *= weight
            kept = total * weight
        if RULE.keep:
            block = (image.to(tl.int64)[:, None] * SHAPE.blocks[0] + y // S_Y) * SHAPE.blocks[
                1
            ] + x // S_X
            error = tensors.error + ((block * S_Y + y % S_Y) * S_X + x % S_X) * C + c[None, :]
            tl.store(
                error,
                (kept * tl.load(common + ERROR_SCALE)).to(error.dtype.element_ty),
                mask=exists,
            )
        total = tl.where(exists, total, 0.0)
        tl.store(
            tensors.squares + row * TILES + tile, tl.sum(total * total, axis=1), mask=row < rows
        )
    else:
        region = (image.to(tl.int64) * BELOW_H + q_y * TALL) * BELOW_W + q_x * WIDE
        if BELOW.tiled:
            total *= tl.load(common + SCALE)
        if RULE.keep or not BELOW.tiled:
            place_below = column // C // WIDE * BELOW_W + column // C % WIDE
            out = tensors.out + (region[:, None] * C + (place_below * C + c)[None, :])
            tl.store(out, total.to(out.dtype.element_ty), mask=exists)
        if BELOW.tiled:
            total = tl.reshape(total, (M, N // 16, 16))
            for i in tl.static_range(N // 16):  # a few columns at a time, for the registers
                column = tile * N + i * 16 + tl.arange(0, 16)
                d_y, d_x, c = column // C // WIDE, column // C % WIDE, column % C
                inside = (q_y[:, None] * TALL + d_y[None, :] < BELOW_H) & (
                    q_x[:, None] * WIDE + d_x[None, :] < BELOW_W
                )
                exists = inside & (row < rows)[:, None] & (column < SHAPE.group_row)[None, :]
                element = place(total, i, N // 16)
                own = Tile(region, c, exists, d_y * BELOW_W + d_x)
                planes = load_planes(tensors.weights, own, exists, BELOW)
                w = region_weights(planes, element, BELOW)
                store_unpooled(element, tensors.z_below, w, own, exists, BELOW)


@triton.jit
def product(tensors, rows, step_number, SHAPE: tl.constexpr, SPARSE: tl.constexpr, M: tl.constexpr):
    """Return the rows of a program, their image and group of blocks, and the product of the cells
    that reach them with the filters, [M, N]."""
    N: tl.constexpr = SHAPE.down_tile
    K: tl.constexpr = SHAPE.down_depth
    INNER: tl.constexpr = SHAPE.cell_row
    PIECES: tl.constexpr = (INNER + K - 1) // K
    R_Y: tl.constexpr = SHAPE.group_taps[0]
    R_X: tl.constexpr = SHAPE.group_taps[1]
    TILES: tl.constexpr = (SHAPE.group_row + N - 1) // N
    GROUPS_H, GROUPS_W = SHAPE.groups[0], SHAPE.groups[1]
    H, W = SHAPE.cells[0], SHAPE.cells[1]
    index = tl.program_id(0) // TILES
    if SPARSE:
        q = index % (GROUPS_H * GROUPS_W)
        first = index // (GROUPS_H * GROUPS_W) * M
        image = first + tl.arange(0, M)
        row = image * (GROUPS_H * GROUPS_W) + q
        q_y, q_x = q // GROUPS_W + 0 * image, q % GROUPS_W + 0 * image
        from_y, from_x = q // GROUPS_W * SHAPE.group[0], q % GROUPS_W * SHAPE.group[1]
        taps = _active_taps(tensors.active, step_number, (first, from_y, from_x), SHAPE, M)
        steps, bits = tl.sum(taps) * PIECES, tl.sum(taps << tl.arange(0, 32))
    else:
        row = index * M + tl.arange(0, M)
        image, q_y, q_x = row // (GROUPS_H * GROUPS_W), row // GROUPS_W % GROUPS_H, row % GROUPS_W
        steps, bits = R_Y * PIECES * R_X, 0
    r_y, r_x = q_y * SHAPE.group[0], q_x * SHAPE.group[1]
    column = tl.program_id(0) % TILES * N + tl.arange(0, N)
    region = ((image * H + r_y) * W + r_x).to(tl.int64) * INNER
    total = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        if SPARSE:
            piece, t_y, t_x = step % PIECES, _lowest_bit(bits) // R_X, _lowest_bit(bits) % R_X
            bits = tl.where(piece == PIECES - 1, bits & (bits - 1), bits)
        else:
            t_y, t_x, piece = step // (PIECES * R_X), step % R_X, step // R_X % PIECES
        depth = piece * K + tl.arange(0, K)
        inside = row < rows
        if not SPARSE:
            inside &= (r_y + t_y < H) & (r_x + t_x < W)
        there = inside[:, None] if INNER % K == 0 else inside[:, None] & (depth < INNER)[None, :]
        left = tl.load(
            tensors.z + region[:, None] + ((t_y * W + t_x) * INNER + depth)[None, :],
            mask=there,
            other=0.0,
        )
        line = ((t_y * R_X + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(tensors.matrix + line[:, None] * (TILES * N) + column[None, :])
        total = tl.dot(left, right, total)
    return row, image, q_y, q_x, total


@triton.jit
def _active_taps(active, step_number, at, SHAPE: tl.constexpr, M: tl.constexpr):
    """1 for every tap whose region has a feature in any of M images, where `at` is the first image
    and region; otherwise 0."""
    R_Y: tl.constexpr = SHAPE.group_taps[0]
    R_X: tl.constexpr = SHAPE.group_taps[1]
    H, W = SHAPE.cells[0], SHAPE.cells[1]
    image, r_y, r_x = at
    i = tl.arange(0, 32)[:, None]
    group = (image // MARKED_IMAGES + tl.arange(0, M // MARKED_IMAGES))[None, :]
    y, x = r_y + i // R_X, r_x + i % R_X
    exists = (i < R_Y * R_X) & (y < H) & (x < W)
    marks = tl.load(active + (group * H + y) * W + x, mask=exists, other=-1.0)
    return tl.max((marks == step_number).to(tl.int32), axis=1)


@triton.jit
def _lowest_bit(bits):
    """Return the number of the lowest bit that is set: a power of two is all exponent, as
    float32."""
    return ((bits & -bits).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@dataclass(frozen=True)
class UnpoolRule:
    """What `unpool` is compiled for."""

    penalty: tuple[int, float]  # its `code`
    measure: bool  # and mark active regions
    accelerate: (
        bool  # first move p, the last change of the features, ahead of these by FISTA's momentum
    )


@triton.jit
def unpool(tensors, numbers, SHAPE: tl.constexpr, RULE: tl.constexpr, M: tl.constexpr):
    """z(i) = w(i) p(j) where regions lie side by side, and what the rule asks."""
    tile, part = own_tile(numbers.rows, SHAPE.maps, M)
    here, exists, at = tile.here, tile.row < numbers.rows, plane_offset(tile, 1, SHAPE.maps)
    p_hat = tl.load(tensors.p + at, mask=here, other=0.0)
    if RULE.accelerate:
        image = tile.row // (SHAPE.grid[0] * SHAPE.grid[1])
        t = tl.load(tensors.momentum + image, mask=exists, other=1.0)
        uphill = tl.load(tensors.uphill_sum + image, mask=exists, other=0.0)
        t_next, share = formulas.next_momentum(t, uphill)
        p_hat = tl.load(tensors.features + at, mask=here, other=0.0) + share[:, None] * p_hat
        tl.store(tensors.p + at, p_hat, mask=here)
        tl.store(tensors.next_momentum + image, t_next, mask=exists)
    if SHAPE.tiled:
        # without features there is nothing to weigh, so weights are read only in rows with a
        # feature
        planes = load_planes(tensors.weights, tile, here & some_in_row(p_hat != 0), SHAPE)
        z, c = tensors.z, tl.load(tensors.common + SCALE)
        store_unpooled(p_hat * c, z, region_weights(planes, p_hat, SHAPE), tile, here, SHAPE)
    if RULE.measure:
        mark_active(tensors.active, p_hat, tile.row, 0, numbers, SHAPE)
        measure_features(tensors, p_hat, part, exists, RULE)


@triton.jit
def unpool_overlapping(p, weights, z, common, rows, SHAPE: tl.constexpr, M: tl.constexpr):
    """z(i) = Σ w(i) p(j) over the regions j that hold i: of an element of a cell these are REACH
    along an axis."""
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    CELL_Y: tl.constexpr = SHAPE.cell[0]
    CELL_X: tl.constexpr = SHAPE.cell[1]
    DOWN: tl.constexpr = SHAPE.strides[0]
    RIGHT: tl.constexpr = SHAPE.strides[1]
    REACH_Y: tl.constexpr = (S_Y + DOWN - 1) // DOWN
    REACH_X: tl.constexpr = (S_X + RIGHT - 1) // RIGHT
    H: tl.constexpr = SHAPE.cells[0]
    W: tl.constexpr = SHAPE.cells[1]
    tile, _ = own_tile(rows, SHAPE.maps, M)
    image, c_y, c_x = tile.row // (H * W), tile.row // W % H, tile.row % W
    # all of them before the first is stored, so that the compiler reads what they share once
    elements = ()
    for a in tl.static_range(CELL_Y):
        for c in tl.static_range(CELL_X):
            total = tl.zeros((M, MAPS), tl.float32)
            for o_y in tl.static_range(REACH_Y):
                for o_x in tl.static_range(REACH_X):
                    # a name would be no constant
                    if a % DOWN + o_y * DOWN < S_Y and c % RIGHT + o_x * RIGHT < S_X:
                        r_y = c_y * (CELL_Y // DOWN) + a // DOWN - o_y
                        r_x = c_x * (CELL_X // RIGHT) + c // RIGHT - o_x
                        total += _region_element(
                            (p, weights),
                            (image, r_y, r_x),
                            tile,
                            a % DOWN + o_y * DOWN,
                            c % RIGHT + o_x * RIGHT,
                            SHAPE,
                        )
            elements = elements + (total,)  # noqa: RUF005
    c_scale = tl.load(common + SCALE)
    AREA: tl.constexpr = SHAPE.cell_area
    first = plane_offset(tile, AREA, SHAPE.maps)
    for i in tl.static_range(AREA):
        tl.store(
            z + first + i * SHAPE.maps,
            (elements[i] * c_scale).to(z.dtype.element_ty),
            mask=tile.here,
        )


@triton.jit
def _region_element(source, region, tile, i: tl.constexpr, j: tl.constexpr, SHAPE: tl.constexpr):
    """w(i) p(j) of element (i, j) of one region for every row; 0 where there is no such region or
    element."""
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    p, weights = source
    image, r_y, r_x = region
    exists = tile.here & ((r_y >= 0) & (r_y < H) & (r_x >= 0) & (r_x < W))[:, None]
    own = Tile((image.to(tl.int64) * H + r_y) * W + r_x, tile.b, exists)
    feature = tl.load(p + plane_offset(own, 1, SHAPE.maps), mask=exists, other=0.0)
    planes = load_planes(weights, own, exists & some_in_row(feature != 0), SHAPE)
    w = region_weights(planes, feature, SHAPE)
    inside = (SHAPE.unpooled[0] - r_y * SHAPE.strides[0] > i) & (
        SHAPE.unpooled[1] - r_x * SHAPE.strides[1] > j
    )
    return tl.where(inside[:, None], feature * w[i] * w[SHAPE.pool_shape[0] + j], 0.0)
