"""Pooling regions that are no cells of z, since they overlap or hold several maps: three kernels in place of one.

`up` does everything about a tiled region in registers. Here the error at z goes through memory, cell by cell, because
regions share it:

    propagate       the error below to the error at z                     rows are cells
    pool            that to g, ∇θ and the step, region by region          rows are regions
    unpool          the features back to z, summed over regions           rows are cells

Element (h, y, x) of z is in map h of the m that are pooled together, and z is stored as [N, cells, s², m, P], P pooled
maps. Every other layout is that of `down`. θ is [N, h, w, 2 · axes, P]: μ, then γ, along maps where m > 1, rows and
columns.
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
    axis_planes,
    axis_planes_of,
    axis_theta,
    axis_weights,
    load_planes,
    own_tile,
    plane_offset,
    store_planes,
)


@triton.jit
def propagate(tensors, z_error, rows, SHAPE: tl.constexpr, BY_IMAGE: tl.constexpr, M: tl.constexpr):
    """The error at z of a tile of cells, in the scale of the error below."""
    S: tl.constexpr = SHAPE.cell
    B: tl.constexpr = SHAPE.maps
    row, errors = errors_at_z(tensors, rows, SHAPE, BY_IMAGE, M)
    place, b = tl.arange(0, SHAPE.places), tl.program_id(0) % SHAPE.chunks * MAPS + tl.arange(0, MAPS)
    at = (row.to(tl.int64)[:, None, None] * (S * S) + place[None, :, None]) * B + b[None, None, :]
    here = (row < rows)[:, None, None] & (place < S * S)[None, :, None] & (b < B)[None, None, :]
    tl.store(z_error + at, errors.to(z_error.dtype.element_ty), mask=here)


@triton.jit
def pool(tensors, numbers, SHAPE: tl.constexpr, ABOVE: tl.constexpr, RULE: tl.constexpr, M: tl.constexpr):
    """The error at z pooled with the weights: g. Then, as `up` does, the step of θ on request, and what its role is."""
    P: tl.constexpr = SHAPE.pooled_maps
    D: tl.constexpr = SHAPE.depth
    S: tl.constexpr = SHAPE.pool_size
    CELL: tl.constexpr = SHAPE.cell
    STRIDE: tl.constexpr = SHAPE.stride
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    Z_H: tl.constexpr = SHAPE.unpooled[0]
    Z_W: tl.constexpr = SHAPE.unpooled[1]
    tile, part = own_tile(numbers.rows, P, M)
    row, b, here, common = tile.row, tile.b, tile.here, tensors.common
    at = plane_offset(tile, 1, P)
    image, r_y, r_x = row // (H * W), row // W % H, row % W
    g = tl.zeros((M, MAPS), tl.float32)
    planes = load_planes(tensors.weights, tile, here, SHAPE)
    if RULE.keep:
        store_planes(tensors.weights_before, tile, here, planes, SHAPE)
    w_d, w_y, w_x = all_weights(planes, g, SHAPE)
    # along each axis Σ w e x and Σ w e x²
    first_y, first_x, first_d, second_y, second_x, second_d = g, g, g, g, g, g
    for h in tl.static_range(D):
        for i in tl.static_range(S):
            y = r_y * STRIDE + i
            along, along_first, along_second = g * 0, g * 0, g * 0
            for j in tl.static_range(S):
                x = r_x * STRIDE + j
                cell = (image.to(tl.int64) * SHAPE.cells[0] + y // CELL) * SHAPE.cells[1] + x // CELL
                element = ((cell * CELL + y % CELL) * CELL + x % CELL) * D + h
                inside = here & ((y < Z_H) & (x < Z_W))[:, None]
                error = tl.load(tensors.error + element[:, None] * P + b[None, :], mask=inside, other=0.0)
                error = error.to(tl.float32)
                along += w_x[j] * error
                along_first += w_x[j] * error * (j - (S - 1) / 2)
                along_second += w_x[j] * error * ((j - (S - 1) / 2) * (j - (S - 1) / 2))
            weight = w_d[h] * w_y[i]
            g += weight * along
            if RULE.move:
                first_x += weight * along_first
                second_x += weight * along_second
                first_y += weight * along * (i - (S - 1) / 2)
                second_y += weight * along * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
                first_d += weight * along * (h - (D - 1) / 2)
                second_d += weight * along * ((h - (D - 1) / 2) * (h - (D - 1) / 2))
    p_hat = tl.load(tensors.p + at, mask=here, other=0.0)
    unit = tl.load(common + ERROR_UNSCALE)
    if RULE.move:
        rate, moving = movement(tensors, numbers, tile, p_hat, numbers.pooling_rate * unit, SHAPE, RULE)
        room_y, room_x = (Z_H - r_y * STRIDE)[:, None], (Z_W - r_x * STRIDE)[:, None]
        at_row, bounds = (Tile(row, b, moving), rate, g), numbers.gamma_bounds
        new = move_axis(tensors.theta, at_row, (first_y, second_y, w_y), room_y, bounds, 1, SHAPE)
        new = new + move_axis(tensors.theta, at_row, (first_x, second_x, w_x), room_x, bounds, 2, SHAPE)
        if D > 1:
            room_d = room_y * 0 + D
            new = move_axis(tensors.theta, at_row, (first_d, second_d, w_d), room_d, bounds, 0, SHAPE) + new
        store_planes(tensors.weights, tile, moving, new, SHAPE)

    g *= unit
    if RULE.role == "between":
        store_error(tensors.error_above, g * tl.load(common + ERROR_SCALE), tile, SHAPE, ABOVE)
    if RULE.role == "gradient":
        store_gradient(tensors, g, tile, part, numbers.rows, SHAPE)
    if RULE.role == "step":
        take_step(tensors, tile, part, (g, p_hat), numbers, SHAPE, RULE)


@triton.jit
def all_weights(planes, like, SHAPE: tl.constexpr):
    """The weights of a region along maps, rows and columns."""
    D: tl.constexpr = axis_planes_of(SHAPE.depth)
    S: tl.constexpr = SHAPE.pool_size
    w_d, w_y = axis_weights(planes, 0, like, SHAPE.depth), axis_weights(planes, D, like, S)
    return w_d, w_y, axis_weights(planes, D + axis_planes_of(S), like, S)


@triton.jit
def move_axis(theta, at_row, sums, room, bounds, AXIS: tl.constexpr, SHAPE: tl.constexpr):
    """The step of θ along one axis (of maps, rows, columns); what is then stored of its weights."""
    S: tl.constexpr = SHAPE.region[AXIS]
    BETWEEN: tl.constexpr = SHAPE.axes * SHAPE.pooled_maps
    tile, rate, g = at_row
    first, second, w = sums
    theta = axis_theta(theta, tile, AXIS - 3 + SHAPE.axes, SHAPE)
    mu, gamma = tl.load(theta, mask=tile.here, other=0.0), tl.load(theta + BETWEEN, mask=tile.here, other=0.0)
    mean, square = g * 0, g * 0
    for i in tl.static_range(S):
        mean += w[i] * w[i] * (i - (S - 1) / 2)
        square += w[i] * w[i] * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
    new = moved((mu, gamma), (first - mean * g, second - square * g), rate, bounds, S)
    tl.store(theta, new[0], mask=tile.here)
    tl.store(theta + BETWEEN, new[1], mask=tile.here)
    return axis_planes(new, room, S, SHAPE.ragged[AXIS])


@triton.jit
def unpool(p, weights, z, common, rows, SHAPE: tl.constexpr, M: tl.constexpr):
    """z(i) = Σ w(i) p(j) over the regions j that hold i: of element a of a cell these are REACH along an axis."""
    D: tl.constexpr = SHAPE.depth
    S: tl.constexpr = SHAPE.pool_size
    CELL: tl.constexpr = SHAPE.cell
    STRIDE: tl.constexpr = SHAPE.stride
    REACH: tl.constexpr = (S + STRIDE - 1) // STRIDE
    H: tl.constexpr = SHAPE.cells[0]
    W: tl.constexpr = SHAPE.cells[1]
    tile, _ = own_tile(rows, SHAPE.pooled_maps, M)
    image, c_y, c_x = tile.row // (H * W), tile.row // W % H, tile.row % W
    elements = ()  # all of them before the first is stored, so that the compiler reads what they share once
    for a in tl.static_range(CELL):
        for c in tl.static_range(CELL):
            for h in tl.static_range(D):
                total = tl.zeros((M, MAPS), tl.float32)
                for o_y in tl.static_range(REACH):
                    for o_x in tl.static_range(REACH):
                        if (
                            a % STRIDE + o_y * STRIDE < S and c % STRIDE + o_x * STRIDE < S
                        ):  # a name would be no constant
                            region = (
                                image,
                                c_y * (CELL // STRIDE) + a // STRIDE - o_y,
                                c_x * (CELL // STRIDE) + c // STRIDE - o_x,
                            )
                            total += region_element(
                                (p, weights),
                                region,
                                tile,
                                h,
                                a % STRIDE + o_y * STRIDE,
                                c % STRIDE + o_x * STRIDE,
                                SHAPE,
                            )
                elements = elements + (total,)  # noqa: RUF005
    c_scale = tl.load(common + SCALE)
    first = plane_offset(tile, CELL * CELL * D, SHAPE.pooled_maps)
    for i in tl.static_range(CELL * CELL * D):
        tl.store(z + first + i * SHAPE.pooled_maps, (elements[i] * c_scale).to(z.dtype.element_ty), mask=tile.here)


@triton.jit
def region_element(
    source, region, tile, h: tl.constexpr, i: tl.constexpr, j: tl.constexpr, SHAPE: tl.constexpr
):  # fmt: skip
    """w(i) p(j) of element (h, i, j) of one region for every row; 0 where there is no such region or element."""
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    p, weights = source
    image, r_y, r_x = region
    exists = tile.here & ((r_y >= 0) & (r_y < H) & (r_x >= 0) & (r_x < W))[:, None]
    own = Tile((image.to(tl.int64) * H + r_y) * W + r_x, tile.b, exists)
    feature = tl.load(p + plane_offset(own, 1, SHAPE.pooled_maps), mask=exists, other=0.0)
    planes = load_planes(weights, own, exists & some_in_row(feature != 0), SHAPE)
    w_d, w_y, w_x = all_weights(planes, feature, SHAPE)
    room_y, room_x = (
        (SHAPE.unpooled[0] - r_y * SHAPE.stride)[:, None],
        (SHAPE.unpooled[1] - r_x * SHAPE.stride)[:, None],
    )
    return tl.where((room_y > i) & (room_x > j), feature * w_d[h] * w_y[i] * w_x[j], 0.0)
