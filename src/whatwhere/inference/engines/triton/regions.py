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

from whatwhere.inference.engines.triton.math import moved, own_tile
from whatwhere.inference.engines.triton.step import some_in_row, take_step
from whatwhere.inference.engines.triton.up import BETWEEN, GRADIENT, STEP, errors_at_z, store_error
from whatwhere.inference.engines.triton.weights import (
    axis_planes,
    axis_weights,
    load_axis,
    load_planes,
    planes_of,
    store_planes,
)


@triton.jit
def propagate(
    error, matrix, z_error, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    BY_IMAGE: tl.constexpr, M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The error at z of a tile of cells, in the scale of the error below."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    chunk = tl.program_id(0) % CHUNKS
    row, errors = errors_at_z(
        error, matrix, rows, chunk, C, S, R, H, W, BLOCK_H, BLOCK_W, CHUNKS, BY_IMAGE, M, MAPS, PLACES, K
    )
    place, b = tl.arange(0, PLACES), chunk * MAPS + tl.arange(0, MAPS)
    at = (row.to(tl.int64)[:, None, None] * (S * S) + place[None, :, None]) * B + b[None, None, :]
    here = (row < rows)[:, None, None] & (place < S * S)[None, :, None] & (b < B)[None, None, :]
    tl.store(z_error + at, errors.to(z_error.dtype.element_ty), mask=here)


@triton.jit
def pool(
    z_error, p, theta, weights, weights_before, features, gradient, error_above, beta, rates, penalties, nonzeros,
    squares, uphill, scale, rows, lam, pooling_rate, gamma_min, gamma_max, threshold, ahead, everywhere,
    P: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, CELL: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, CELLS_H: tl.constexpr, CELLS_W: tl.constexpr,
    Z_H: tl.constexpr, Z_W: tl.constexpr, ROLE: tl.constexpr, MOVE: tl.constexpr, KEEP: tl.constexpr,
    S_ABOVE: tl.constexpr, ALPHA: tl.constexpr, EXACT: tl.constexpr, NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr,
    SECANT: tl.constexpr, SCHEDULED: tl.constexpr, M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """The error at z pooled with the weights: g. Then, as `up` does, what ROLE asks, and the step of θ on request."""
    row, b, here, at, part = own_tile(rows, P, M, MAPS)
    image, r_y, r_x = row // (H * W), row // W % H, row % W
    g = tl.zeros((M, MAPS), tl.float32)
    PLANES: tl.constexpr = planes_of(D) + 2 * planes_of(S)
    planes = load_planes(weights, row, b, here, PLANES, P)
    if KEEP:
        store_planes(weights_before, row, b, here, planes, PLANES, P)
    w_d = axis_weights(planes, 0, g, D)
    w_y = axis_weights(planes, planes_of(D), g, S)
    w_x = axis_weights(planes, planes_of(D) + planes_of(S), g, S)
    # along each axis Σ w e x and Σ w e x²
    first_y, first_x, first_d, second_y, second_x, second_d = g, g, g, g, g, g
    for h in tl.static_range(D):
        for i in tl.static_range(S):
            y = r_y * STRIDE + i
            along, along_first, along_second = g * 0, g * 0, g * 0
            for j in tl.static_range(S):
                x = r_x * STRIDE + j
                cell = (image.to(tl.int64) * CELLS_H + y // CELL) * CELLS_W + x // CELL
                element = ((cell * CELL + y % CELL) * CELL + x % CELL) * D + h
                inside = here & ((y < Z_H) & (x < Z_W))[:, None]
                error = tl.load(z_error + element[:, None] * P + b[None, :], mask=inside, other=0.0).to(tl.float32)
                along += w_x[j] * error
                along_first += w_x[j] * error * (j - (S - 1) / 2)
                along_second += w_x[j] * error * ((j - (S - 1) / 2) * (j - (S - 1) / 2))
            weight = w_d[h] * w_y[i]
            g += weight * along
            if MOVE:
                first_x += weight * along_first
                second_x += weight * along_second
                first_y += weight * along * (i - (S - 1) / 2)
                second_y += weight * along * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
                first_d += weight * along * (h - (D - 1) / 2)
                second_d += weight * along * ((h - (D - 1) / 2) * (h - (D - 1) / 2))
    p_hat = tl.load(p + at, mask=here, other=0.0)
    unit = tl.load(scale + 4)
    if MOVE:
        rate = pooling_rate * unit * p_hat
        if SCHEDULED:
            rate *= tl.load(rates + row // (H * W), mask=row < rows, other=0.0)[:, None]
        moving = here & (some_in_row(p_hat != 0) | (everywhere * tl.load(scale + 5 + 0 * row) > 0)[:, None])
        room_y, room_x = (Z_H - r_y * STRIDE)[:, None], (Z_W - r_x * STRIDE)[:, None]
        AXES: tl.constexpr = 2 if D == 1 else 3
        RAGGED_Y: tl.constexpr = (H - 1) * STRIDE + S > Z_H
        RAGGED_X: tl.constexpr = (W - 1) * STRIDE + S > Z_W
        at_row, bounds, room_d = (row, b, moving, rate, g), (gamma_min, gamma_max), room_y * 0 + D
        new = move_axis(theta, AXES - 2, AXES, at_row, first_y, second_y, w_y, room_y, bounds, S, RAGGED_Y, P)
        new = new + move_axis(theta, AXES - 1, AXES, at_row, first_x, second_x, w_x, room_x, bounds, S, RAGGED_X, P)
        if D > 1:
            new = move_axis(theta, 0, AXES, at_row, first_d, second_d, w_d, room_d, bounds, D, False, P) + new
        store_planes(weights, row, b, moving, new, PLANES, P)

    g *= unit
    if ROLE == BETWEEN:
        store_error(error_above, g * tl.load(scale + 3), row, b, here, P, H, W, S_ABOVE)
    if ROLE == GRADIENT:
        g = tl.where(here, g * tl.load(scale + 2), 0.0)
        tl.store(gradient + at, g, mask=here)
        tl.store(squares + part, tl.sum(g * g, axis=1), mask=row < rows)
    if ROLE == STEP:
        take_step(
            p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, part, at, here, rows, lam,
            threshold, ahead, H, W, ALPHA, EXACT, NONNEGATIVE, MOMENTUM, SECANT, SCHEDULED, False,
        )  # fmt: skip


@triton.jit
def move_axis(
    theta, axis: tl.constexpr, AXES: tl.constexpr, at_row, first, second, w, room, bounds,
    S: tl.constexpr, RAGGED: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """The step of θ along one axis with S elements; what is then stored of its weights."""
    row, b, moving, rate, g = at_row
    mu, gamma = load_axis(theta, axis, AXES, row, b, moving, P)
    mean, square = g * 0, g * 0
    for i in tl.static_range(S):
        mean += w[i] * w[i] * (i - (S - 1) / 2)
        square += w[i] * w[i] * ((i - (S - 1) / 2) * (i - (S - 1) / 2))
    mu, gamma = moved(mu, gamma, rate, first - mean * g, second - square * g, bounds[0], bounds[1], S)
    theta += (row.to(tl.int64) * (2 * AXES) + axis)[:, None] * P + b[None, :]
    tl.store(theta, mu, mask=moving)
    tl.store(theta + AXES * P, gamma, mask=moving)
    return axis_planes(mu, gamma, room, S, RAGGED)


@triton.jit
def unpool(
    p, weights, z, scale, rows,
    P: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, CELL: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, CELLS_H: tl.constexpr, CELLS_W: tl.constexpr,
    Z_H: tl.constexpr, Z_W: tl.constexpr, M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """z(i) = Σ w(i) p(j) over the regions j that hold i: of element a of a cell these are REACH along an axis."""
    REACH: tl.constexpr = (S + STRIDE - 1) // STRIDE
    row, b, here, _, _ = own_tile(rows, P, M, MAPS)
    image, c_y, c_x = row // (CELLS_H * CELLS_W), row // CELLS_W % CELLS_H, row % CELLS_W
    elements = ()  # all of them before the first is stored, so that the compiler reads what they share once
    for a in tl.static_range(CELL):
        for c in tl.static_range(CELL):
            for h in tl.static_range(D):
                total = tl.zeros((M, MAPS), tl.float32)
                for o_y in tl.static_range(REACH):
                    for o_x in tl.static_range(REACH):
                        if a % STRIDE + o_y * STRIDE < S and c % STRIDE + o_x * STRIDE < S:
                            r_y = c_y * (CELL // STRIDE) + a // STRIDE - o_y
                            r_x = c_x * (CELL // STRIDE) + c // STRIDE - o_x
                            total += region_element(
                                p, weights, image, r_y, r_x, b, here, h, a, c, o_y, o_x,
                                P, S, STRIDE, D, H, W, Z_H, Z_W,
                            )  # fmt: skip
                elements = elements + (total,)  # noqa: RUF005
    c_scale = tl.load(scale)
    first = row.to(tl.int64)[:, None] * (CELL * CELL * D * P) + b[None, :]
    for i in tl.static_range(CELL * CELL * D):
        tl.store(z + first + i * P, (elements[i] * c_scale).to(z.dtype.element_ty), mask=here)


@triton.jit
def region_element(
    p, weights, image, r_y, r_x, b, here,
    h: tl.constexpr, a: tl.constexpr, c: tl.constexpr, o_y: tl.constexpr, o_x: tl.constexpr,
    P: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
):  # fmt: skip
    """w(i) p(j) of one region for every row: that of element (h, a, c) of the cell, o_y and o_x regions before the last
    that holds it; 0 where there is no such region or element."""
    i: tl.constexpr = a % STRIDE + o_y * STRIDE
    j: tl.constexpr = c % STRIDE + o_x * STRIDE
    exists = here & ((r_y >= 0) & (r_y < H) & (r_x >= 0) & (r_x < W))[:, None]
    region = (image.to(tl.int64) * H + r_y) * W + r_x
    feature = tl.load(p + region[:, None] * P + b[None, :], mask=exists, other=0.0)
    used = exists & some_in_row(feature != 0)
    planes = load_planes(weights, region, b, used, planes_of(D) + 2 * planes_of(S), P)
    w_d = axis_weights(planes, 0, feature, D)
    w_y = axis_weights(planes, planes_of(D), feature, S)
    w_x = axis_weights(planes, planes_of(D) + planes_of(S), feature, S)
    room_y, room_x = (Z_H - r_y * STRIDE)[:, None], (Z_W - r_x * STRIDE)[:, None]
    return tl.where((room_y > i) & (room_x > j), feature * w_d[h] * w_y[i] * w_x[j], 0.0)
