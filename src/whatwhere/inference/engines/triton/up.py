"""The way up: the error below a layer to its features, in one kernel where regions lie side by side within a map.

Layouts are those of `down`.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import fitted, load_theta, moved, place, pooled, store_theta
from whatwhere.inference.engines.triton.step import mark_used, some_in_row, store_unpooled, take_step
from whatwhere.inference.engines.triton.weights import (
    either,
    load_planes,
    planes_of,
    region_planes,
    region_weights,
    store_planes,
)

# what the upward pass does with what arrives at a layer
BETWEEN = tl.constexpr(0)  # hand the pooled error to the layer above
GRADIENT = tl.constexpr(1)  # unpool the gradient g, for the line search
STEP = tl.constexpr(2)  # take the step on the features


@triton.jit
def up(
    error, matrix, p, theta, weights, weights_before, z, used, stamp, first, features, gradient, error_above, beta,
    rates, penalties, nonzeros, squares, uphill, scale, rows, lam, pooling_rate, gamma_min, gamma_max, threshold,
    ahead, everywhere, mu_scale, gamma_scale,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ROLE: tl.constexpr, MOVE: tl.constexpr, KEEP: tl.constexpr, S_ABOVE: tl.constexpr,
    ALPHA: tl.constexpr, EXACT: tl.constexpr, NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr, SECANT: tl.constexpr,
    SCHEDULED: tl.constexpr, FIT: tl.constexpr, BY_IMAGE: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The error at z (a product), pooled with the weights: g. Then, all in registers, what ROLE asks, and
    θ ← bound(θ - λ β_U ∇θ) where MOVE asks it: only where there are features, or `everywhere` if any θ is out of its
    bounds, so that it comes within them. KEEP: the weights before that are kept in other memory.
    SCHEDULED: the threshold and the momentum are given. FIT, by moments of this power: the first step from p = 0, which
    fits θ, too. BY_IMAGE: the rows of a program are one region of many images, else many regions."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    chunk = tl.program_id(0) % CHUNKS
    row, errors = errors_at_z(
        error, matrix, rows, chunk, C, S, R, H, W, BLOCK_H, BLOCK_W, CHUNKS, BY_IMAGE, M, MAPS, PLACES, K
    )
    errors *= tl.load(scale + 4)

    b = chunk * MAPS + tl.arange(0, MAPS)
    here = (row < rows)[:, None] & (b < B)[None, :]
    at, part = row.to(tl.int64)[:, None] * B + b[None, :], row * CHUNKS + chunk
    RAGGED_Y: tl.constexpr = Z_H % S != 0
    RAGGED_X: tl.constexpr = Z_W % S != 0
    room_y, room_x = (Z_H - row // W % H * S)[:, None], (Z_W - row % W * S)[:, None]
    PLANES: tl.constexpr = 2 * planes_of(S)
    if FIT:
        mu_y, mu_x, gamma_y, gamma_x = fitted(
            errors, room_y, room_x, mu_scale, gamma_scale, gamma_min, gamma_max, S, FIT, PLACES
        )
        store_theta(theta, row, b, here, mu_y, mu_x, gamma_y, gamma_x, B)
        planes = region_planes(mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, RAGGED_Y, RAGGED_X)
        store_planes(weights, row, b, here, planes, PLANES, B)
    else:
        planes = load_planes(weights, row, b, here, PLANES, B)
    if KEEP:
        store_planes(weights_before, row, b, here, planes, PLANES, B)
    w = region_weights(planes, place(errors, 0, PLACES), S)
    g, first_y, first_x, second_y, second_x = pooled(errors, w, S, PLACES)
    p_hat = g * 0 if FIT else tl.load(p + at, mask=here, other=0.0).to(tl.float32)
    if ROLE == BETWEEN:
        p_hat *= tl.load(scale + 1)
    if MOVE:
        rate = pooling_rate * p_hat
        if SCHEDULED:
            rate *= tl.load(rates + row // (H * W), mask=row < rows, other=0.0)[:, None]
        moving = here & (some_in_row(p_hat != 0) | (everywhere * tl.load(scale + 5 + 0 * row) > 0)[:, None])
        mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, row, b, moving, B)
        mu_y, gamma_y = moved(mu_y, gamma_y, rate, first_y, second_y, gamma_min, gamma_max, S)
        mu_x, gamma_x = moved(mu_x, gamma_x, rate, first_x, second_x, gamma_min, gamma_max, S)
        store_theta(theta, row, b, moving, mu_y, mu_x, gamma_y, gamma_x, B)
        new = region_planes(mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, RAGGED_Y, RAGGED_X)
        planes = either(moving, new, planes, PLANES)
        store_planes(weights, row, b, moving, new, PLANES, B)

    c = tl.load(scale)
    if ROLE == BETWEEN:
        store_error(error_above, g * tl.load(scale + 3), row, b, here, B, H, W, S_ABOVE)
    if ROLE == GRADIENT:
        g = tl.where(here, g * tl.load(scale + 2), 0.0)
        tl.store(gradient + at, g, mask=here)
        tl.store(squares + part, tl.sum(g * g, axis=1), mask=row < rows)
        store_unpooled(g * c, z, w, row, b, here, B, S)
    if ROLE == STEP:
        new = take_step(
            p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, part, at, here, rows, lam,
            threshold, ahead, H, W, ALPHA, EXACT, NONNEGATIVE, MOMENTUM, SECANT, SCHEDULED, FIT,
        )  # fmt: skip
        if not MOMENTUM:
            changed = here if FIT else here & some_in_row((new != 0) | (p_hat != 0))
            store_unpooled(new * c, z, region_weights(planes, new, S), row, b, changed, B, S)
            mark_used(used, stamp, new, row, rows, first, H, W)


@triton.jit
def store_error(error_above, g, row, b, here, B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S_ABOVE: tl.constexpr):
    """Hand a pooled error to the layer above, in the order of its blocks."""
    r_y, r_x = row // W % H, row % W
    ABOVE_W: tl.constexpr = (W + S_ABOVE - 1) // S_ABOVE
    ABOVE_H: tl.constexpr = (H + S_ABOVE - 1) // S_ABOVE
    block = (row // (H * W) * ABOVE_H + r_y // S_ABOVE) * ABOVE_W + r_x // S_ABOVE
    slot = block.to(tl.int64) * (S_ABOVE * S_ABOVE) + r_y % S_ABOVE * S_ABOVE + r_x % S_ABOVE
    tl.store(error_above + slot[:, None] * B + b[None, :], g.to(error_above.dtype.element_ty), mask=here)


@triton.jit
def errors_at_z(
    error, matrix, rows, chunk,
    C: tl.constexpr, S: tl.constexpr, R: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr, CHUNKS: tl.constexpr, BY_IMAGE: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """A program's rows, and what the error below says about every element of these cells, [M, PLACES, MAPS], times the
    scale. BY_IMAGE: the rows are one cell of many images, so that blocks beyond the border are left out."""
    INNER: tl.constexpr = S * S * C
    PIECES: tl.constexpr = (INNER + K - 1) // K
    N: tl.constexpr = PLACES * MAPS
    tile, column = tl.program_id(0) // CHUNKS, chunk * N + tl.arange(0, N)
    if BY_IMAGE:
        row = tile % (H * W) + (tile // (H * W) * M + tl.arange(0, M)) * (H * W)
        r_y, r_x = tile // W % H, tile % W
        first_y, last_y = tl.maximum(r_y - BLOCK_H + 1, 0), tl.minimum(r_y, R - 1)
        first_x, last_x = tl.maximum(r_x - BLOCK_W + 1, 0), tl.minimum(r_x, R - 1)
    else:
        row = tile * M + tl.arange(0, M)
        r_y, r_x = row // W % H, row % W
        first_y, last_y, first_x, last_x = tile * 0, R - 1, tile * 0, R - 1
    block = ((row // (H * W) * BLOCK_H + r_y) * BLOCK_W + r_x).to(tl.int64) * INNER
    total = tl.zeros((M, N), tl.float32)
    t_y, t_x, piece = first_y, first_x, tile * 0
    for _ in range((last_y - first_y + 1) * (last_x - first_x + 1) * PIECES):
        depth = piece * K + tl.arange(0, K)
        inside = row < rows
        if not BY_IMAGE:
            inside &= (r_y >= t_y) & (r_y - t_y < BLOCK_H) & (r_x >= t_x) & (r_x - t_x < BLOCK_W)
        there = inside[:, None] if INNER % K == 0 else inside[:, None] & (depth < INNER)[None, :]
        at = block[:, None] + (depth - (t_y * BLOCK_W + t_x) * INNER)[None, :]
        left = tl.load(error + at, mask=there, other=0.0)
        line = ((t_y * R + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(matrix + line[:, None] * (CHUNKS * N) + column[None, :])
        total = tl.dot(left, right, total)
        t_x += 1
        ends = t_x > last_x
        t_x = tl.where(ends, first_x, t_x)
        if PIECES > 1:
            piece = tl.where(ends, piece + 1, piece)
            ends = piece == PIECES
            piece = tl.where(ends, 0, piece)
        t_y = tl.where(ends, t_y + 1, t_y)
    return row, tl.reshape(total, (M, PLACES, MAPS))
