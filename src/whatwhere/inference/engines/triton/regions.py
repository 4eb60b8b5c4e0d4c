"""Pooling regions that are no cells of z, since they overlap: three kernels in place of one.

`up` does everything about a tiled region in registers. Here the error at z goes through memory, cell by cell, because
regions share it:

    propagate       the error below to the error at z                     rows are cells
    pool            that to g, ∇θ and the step, region by region          rows are regions
    unpool          the features back to z, summed over regions           rows are cells

Layouts are those of `down`.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import moved
from whatwhere.inference.engines.triton.step import some_in_row, take_step
from whatwhere.inference.engines.triton.up import errors_at_z, movement, store_error, store_gradient
from whatwhere.inference.engines.triton.weights import (
    ERROR_SCALE,
    ERROR_UNSCALE,
    MAPS,
    SCALE,
    Tile,
    load_planes,
    load_theta,
    own_tile,
    plane_offset,
    region_planes,
    region_weights,
    room,
    store_planes,
    store_theta,
)


@triton.jit
def propagate(tensors, z_error, rows, SHAPE: tl.constexpr, BY_IMAGE: tl.constexpr, M: tl.constexpr):
    """The error at z of a tile of cells, in the scale of the error below."""
    AREA: tl.constexpr = SHAPE.cell_area
    B: tl.constexpr = SHAPE.maps
    row, errors = errors_at_z(tensors, rows, SHAPE, BY_IMAGE, M)
    place, b = tl.arange(0, SHAPE.places), tl.program_id(0) % SHAPE.chunks * MAPS + tl.arange(0, MAPS)
    at = (row.to(tl.int64)[:, None, None] * AREA + place[None, :, None]) * B + b[None, None, :]
    here = (row < rows)[:, None, None] & (place < AREA)[None, :, None] & (b < B)[None, None, :]
    tl.store(z_error + at, errors.to(z_error.dtype.element_ty), mask=here)


@triton.jit
def pool(tensors, numbers, SHAPE: tl.constexpr, ABOVE: tl.constexpr, RULE: tl.constexpr, M: tl.constexpr):
    """The error at z pooled with the weights: g. Then, as `up` does, the step of θ on request, and what its role is."""
    B: tl.constexpr = SHAPE.maps
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    CELL_Y: tl.constexpr = SHAPE.cell[0]
    CELL_X: tl.constexpr = SHAPE.cell[1]
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    tile, part = own_tile(numbers.rows, B, M)
    row, here, common = tile.row, tile.here, tensors.common
    image = row // (H * W)
    room_y, room_x = room(row, SHAPE)
    g = tl.zeros((M, MAPS), tl.float32)
    planes = load_planes(tensors.weights, tile, here, SHAPE)
    if RULE.keep:
        store_planes(tensors.weights_before, tile, here, planes, SHAPE)
    w = region_weights(planes, g, SHAPE)
    # along each axis Σ w e x and Σ w e x²
    first_y, first_x, second_y, second_x = g, g, g, g
    for i in tl.static_range(S_Y):
        y = row // W % H * SHAPE.strides[0] + i
        along, along_first, along_second = g * 0, g * 0, g * 0
        for j in tl.static_range(S_X):
            x = row % W * SHAPE.strides[1] + j
            cell = (image.to(tl.int64) * SHAPE.cells[0] + y // CELL_Y) * SHAPE.cells[1] + x // CELL_X
            element = (cell * CELL_Y + y % CELL_Y) * CELL_X + x % CELL_X
            inside = here & (room_y > i) & (room_x > j)
            error = tl.load(tensors.error + element[:, None] * B + tile.b[None, :], mask=inside, other=0.0)
            error = error.to(tl.float32)
            along += w[S_Y + j] * error
            along_first += w[S_Y + j] * error * (j - (S_X - 1) / 2)
            along_second += w[S_Y + j] * error * ((j - (S_X - 1) / 2) * (j - (S_X - 1) / 2))
        g += w[i] * along
        if RULE.move:
            first_x += w[i] * along_first
            second_x += w[i] * along_second
            first_y += w[i] * along * (i - (S_Y - 1) / 2)
            second_y += w[i] * along * ((i - (S_Y - 1) / 2) * (i - (S_Y - 1) / 2))
    p_hat = tl.load(tensors.p + plane_offset(tile, 1, B), mask=here, other=0.0)
    unit = tl.load(common + ERROR_UNSCALE)
    if RULE.move:
        rate, moving = movement(tensors, numbers, tile, p_hat, numbers.pooling_rate * unit, SHAPE, RULE)
        y, x = load_theta(tensors.theta, tile, moving, B)
        y = moved(y, centred((first_y, second_y), g, w, 0, S_Y), rate, numbers.gamma_bounds, S_Y)
        x = moved(x, centred((first_x, second_x), g, w, S_Y, S_X), rate, numbers.gamma_bounds, S_X)
        store_theta(tensors.theta, tile, moving, y, x, B)
        store_planes(tensors.weights, tile, moving, region_planes(y, x, room_y, room_x, SHAPE), SHAPE)

    g *= unit
    if RULE.role == "between":
        store_error(tensors.error_above, g * tl.load(common + ERROR_SCALE), tile, SHAPE, ABOVE)
    if RULE.role == "gradient":
        store_gradient(tensors, g, tile, part, numbers.rows, SHAPE)
    if RULE.role == "step":
        take_step(tensors, tile, part, (g, p_hat), numbers, SHAPE, RULE)


@triton.jit
def centred(sums, g, w, first: tl.constexpr, S: tl.constexpr):
    """Σ w e (x - Σ q x) and Σ w e (x² - Σ q x²) along the axis whose weights begin with `first`; `sums` lack the q."""
    mean, square = g * 0, g * 0
    for i in tl.static_range(S):
        mean += w[first + i] * w[first + i] * (i - (S - 1) / 2)
        square += w[first + i] * w[first + i] * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
    return sums[0] - mean * g, sums[1] - square * g


@triton.jit
def unpool(p, weights, z, common, rows, SHAPE: tl.constexpr, M: tl.constexpr):
    """z(i) = Σ w(i) p(j) over the regions j that hold i: of an element of a cell these are REACH along an axis."""
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
    elements = ()  # all of them before the first is stored, so that the compiler reads what they share once
    for a in tl.static_range(CELL_Y):
        for c in tl.static_range(CELL_X):
            total = tl.zeros((M, MAPS), tl.float32)
            for o_y in tl.static_range(REACH_Y):
                for o_x in tl.static_range(REACH_X):
                    if a % DOWN + o_y * DOWN < S_Y and c % RIGHT + o_x * RIGHT < S_X:  # a name would be no constant
                        r_y = c_y * (CELL_Y // DOWN) + a // DOWN - o_y
                        r_x = c_x * (CELL_X // RIGHT) + c // RIGHT - o_x
                        total += region_element(
                            (p, weights), (image, r_y, r_x), tile,
                            a % DOWN + o_y * DOWN, c % RIGHT + o_x * RIGHT, SHAPE,
                        )  # fmt: skip
            elements = elements + (total,)  # noqa: RUF005
    c_scale = tl.load(common + SCALE)
    AREA: tl.constexpr = SHAPE.cell_area
    first = plane_offset(tile, AREA, SHAPE.maps)
    for i in tl.static_range(AREA):
        tl.store(z + first + i * SHAPE.maps, (elements[i] * c_scale).to(z.dtype.element_ty), mask=tile.here)


@triton.jit
def region_element(source, region, tile, i: tl.constexpr, j: tl.constexpr, SHAPE: tl.constexpr):
    """w(i) p(j) of element (i, j) of one region for every row; 0 where there is no such region or element."""
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    p, weights = source
    image, r_y, r_x = region
    exists = tile.here & ((r_y >= 0) & (r_y < H) & (r_x >= 0) & (r_x < W))[:, None]
    own = Tile((image.to(tl.int64) * H + r_y) * W + r_x, tile.b, exists)
    feature = tl.load(p + plane_offset(own, 1, SHAPE.maps), mask=exists, other=0.0)
    planes = load_planes(weights, own, exists & some_in_row(feature != 0), SHAPE)
    w = region_weights(planes, feature, SHAPE)
    inside = (SHAPE.unpooled[0] - r_y * SHAPE.strides[0] > i) & (SHAPE.unpooled[1] - r_x * SHAPE.strides[1] > j)
    return tl.where(inside[:, None], feature * w[i] * w[SHAPE.pool_shape[0] + j], 0.0)
