"""The kernels of one inference step. `shapes` says how convolutions become products, docs/engines/triton.md why.

Every tensor has its maps last. Rows are regions [N · h · w] or blocks [N · block_h · block_w] of a batch:

    p, mu_y …  [N, h, w, B]           float32        features and pooling variables of a layer
    z          [N, h, w, s², B]       float16 · scale  its unpooled maps, region by region
    error      [N, blocks, s², C]     float16 · scale  the error at the layer below, block by block

`scale` = (c, 1/c, d, e, 1/e) keeps float16 within its range. All are powers of two: c brings images and features near
1, e an error weighted by M², and d a gradient near the error it comes from, for the line search, which asks for no
more than its direction. Without a mask, e is c.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import (
    axis_weight,
    clamp,
    fitted,
    load_theta,
    penalty,
    pooled,
    shrink,
    store_theta,
)

# what the upward pass does with what arrives at a layer
BETWEEN = tl.constexpr(0)  # hand the pooled error to the layer above
GRADIENT = tl.constexpr(1)  # unpool the gradient g, for the line search
STEP = tl.constexpr(2)  # take the step on the features


@triton.jit
def down(
    z, matrix, out, images, weights, error, squares, before, changes, scale, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    GROUP: tl.constexpr, LOWEST: tl.constexpr, SUBTRACT: tl.constexpr, MASKED: tl.constexpr, KEEP: tl.constexpr,
    SECANT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Reconstruct the layer below: p̂ into `out`. At the lowest layer, the images subtracted on request, what
    comes out, weighted by the mask M, is the error e: keep M ⊙ e on request, and sum the squares of e; for the
    secant, sum the squares of its change, too. A row is a group of blocks."""
    SIDE: tl.constexpr = S * GROUP
    TAPS: tl.constexpr = R + GROUP - 1
    GROUPS_H: tl.constexpr = (BLOCK_H + GROUP - 1) // GROUP
    GROUPS_W: tl.constexpr = (BLOCK_W + GROUP - 1) // GROUP
    INNER: tl.constexpr = S * S * B
    PIECES: tl.constexpr = (INNER + K - 1) // K
    OUTER: tl.constexpr = SIDE * SIDE * C
    TILES: tl.constexpr = (OUTER + N - 1) // N
    tile = tl.program_id(0) % TILES
    row = tl.program_id(0) // TILES * M + tl.arange(0, M)
    image, q_y, q_x = row // (GROUPS_H * GROUPS_W), row // GROUPS_W % GROUPS_H, row % GROUPS_W
    r_y, r_x = q_y * GROUP, q_x * GROUP
    column = tile * N + tl.arange(0, N)
    region = ((image * H + r_y) * W + r_x).to(tl.int64) * INNER
    total = tl.zeros((M, N), tl.float32)
    for step in range(TAPS * PIECES * TAPS):
        t_y, t_x, piece = step // (PIECES * TAPS), step % TAPS, step // TAPS % PIECES
        depth = piece * K + tl.arange(0, K)
        inside = (row < rows) & (r_y + t_y < H) & (r_x + t_x < W)
        there = inside[:, None] if INNER % K == 0 else inside[:, None] & (depth < INNER)[None, :]
        left = tl.load(z + region[:, None] + ((t_y * W + t_x) * INNER + depth)[None, :], mask=there, other=0.0)
        line = ((t_y * TAPS + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(matrix + line[:, None] * (TILES * N) + column[None, :])
        total = tl.dot(left, right, total)
    total *= tl.load(scale + 1)

    y, x = q_y[:, None] * SIDE + (column // C // SIDE)[None, :], q_x[:, None] * SIDE + (column // C % SIDE)[None, :]
    c = column % C
    exists = (row < rows)[:, None] & (column < OUTER)[None, :] & (y < BELOW_H) & (x < BELOW_W)
    if LOWEST:
        if SUBTRACT or MASKED or SECANT:
            pixel = ((image[:, None] * C + c[None, :]).to(tl.int64) * BELOW_H + y) * BELOW_W + x
        if SUBTRACT:
            total -= tl.load(images + pixel, mask=exists, other=0.0)
        kept = total
        if MASKED:
            weight = tl.load(weights + pixel, mask=exists, other=0.0)
            total *= weight
            kept = total * weight
        if KEEP:
            block = (image.to(tl.int64)[:, None] * BLOCK_H + y // S) * BLOCK_W + x // S
            at = ((block * S + y % S) * S + x % S) * C + c[None, :]
            tl.store(error + at, (kept * tl.load(scale + 3)).to(error.dtype.element_ty), mask=exists)
        total = tl.where(exists, total, 0.0)
        if SECANT:
            change = total - tl.load(before + pixel, mask=exists, other=0.0)
            tl.store(before + pixel, total, mask=exists)
            tl.store(changes + row * TILES + tile, tl.sum(change * change, axis=1), mask=row < rows)
        tl.store(squares + row * TILES + tile, tl.sum(total * total, axis=1), mask=row < rows)
    else:
        position = ((image[:, None].to(tl.int64) * BELOW_H + y) * BELOW_W + x) * C + c[None, :]
        tl.store(out + position, total, mask=exists)


@triton.jit
def unpool(
    p, theta, z, features, momentum, uphill, next_momentum, penalties, nonzeros, scale, rows, plane,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ALPHA: tl.constexpr, MEASURE: tl.constexpr, ACCELERATE: tl.constexpr, UNPOOL: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """z(i) = w(i) p(j). On request: measure p, and first move p ahead by FISTA's momentum (`ista.accelerate`),
    where p holds the last change of the features. Without UNPOOL, only that."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    chunk = tl.program_id(0) % CHUNKS
    row = tl.program_id(0) // CHUNKS * M + tl.arange(0, M)
    b = chunk * MAPS + tl.arange(0, MAPS)
    here = (row < rows)[:, None] & (b < B)[None, :]
    at = row.to(tl.int64)[:, None] * B + b[None, :]
    p_hat = tl.load(p + at, mask=here, other=0.0)
    if ACCELERATE:
        image = row // (H * W)
        t = tl.load(momentum + image, mask=row < rows, other=1.0)
        t = tl.where(tl.load(uphill + image, mask=row < rows, other=0.0) > 0, 1.0, t)
        t_next = (1 + tl.sqrt(1 + 4 * t * t)) / 2
        p_hat = tl.load(features + at, mask=here, other=0.0) + ((t - 1) / t_next)[:, None] * p_hat
        tl.store(p + at, p_hat, mask=here)
        tl.store(next_momentum + image, t_next, mask=row < rows)
    if UNPOOL:
        # without features there is nothing to weigh, so θ is read only in rows with a feature
        mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, at, here & some_in_row(p_hat != 0), plane)
        store_unpooled(p_hat * tl.load(scale), z, mu_y, mu_x, gamma_y, gamma_x, row, b, here, B, S, H, W, Z_H, Z_W)
    if MEASURE:
        tl.store(penalties + row * CHUNKS + chunk, tl.sum(penalty(p_hat, ALPHA), axis=1), mask=row < rows)
        tl.store(nonzeros + row * CHUNKS + chunk, tl.sum((p_hat != 0).to(tl.float32), axis=1), mask=row < rows)


@triton.jit
def store_unpooled(
    p, z, mu_y, mu_x, gamma_y, gamma_x, row, b, here,
    B: tl.constexpr, S: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
):  # fmt: skip
    RAGGED_Y: tl.constexpr = Z_H % S != 0
    RAGGED_X: tl.constexpr = Z_W % S != 0
    room_y, room_x = (Z_H - row // W % H * S)[:, None], (Z_W - row % W * S)[:, None]
    first = row.to(tl.int64)[:, None] * (S * S * B) + b[None, :]
    for i in tl.static_range(S):
        along = p * axis_weight(i, mu_y, gamma_y, room_y, S, RAGGED_Y)
        for j in tl.static_range(S):
            element = along * axis_weight(j, mu_x, gamma_x, room_x, S, RAGGED_X)
            tl.store(z + first + (i * S + j) * B, element.to(z.dtype.element_ty), mask=here)


@triton.jit
def up(
    error, matrix, p, theta, z, features, error_above, beta, rates, penalties, nonzeros, squares, uphill, scale,
    rows, plane, lam, pooling_rate, gamma_min, gamma_max, threshold, ahead, mu_scale, gamma_scale,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ROLE: tl.constexpr, MOVE: tl.constexpr, S_ABOVE: tl.constexpr,
    ALPHA: tl.constexpr, EXACT: tl.constexpr, NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr, SECANT: tl.constexpr,
    SCHEDULED: tl.constexpr, FIT: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The error at z (a product), pooled with the weights: g. Then, all in registers, what ROLE asks, and
    θ ← bound(θ - λ β_U ∇θ) where MOVE asks it. SCHEDULED: the threshold and the momentum are given. FIT, by moments
    of this power: the first step from p = 0, which fits θ, too."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    chunk = tl.program_id(0) % CHUNKS
    row = tl.program_id(0) // CHUNKS * M + tl.arange(0, M)
    errors = errors_at_z(error, matrix, row, rows, chunk, C, S, R, H, W, BLOCK_H, BLOCK_W, CHUNKS, M, MAPS, PLACES, K)
    errors *= tl.load(scale + 4)

    b = chunk * MAPS + tl.arange(0, MAPS)
    here = (row < rows)[:, None] & (b < B)[None, :]
    at = row.to(tl.int64)[:, None] * B + b[None, :]
    RAGGED_Y: tl.constexpr = Z_H % S != 0
    RAGGED_X: tl.constexpr = Z_W % S != 0
    room_y, room_x = (Z_H - row // W % H * S)[:, None], (Z_W - row % W * S)[:, None]
    if FIT:
        mu_y, mu_x, gamma_y, gamma_x = fitted(
            errors, room_y, room_x, mu_scale, gamma_scale, gamma_min, gamma_max, S, FIT, PLACES
        )
        store_theta(theta, at, here, plane, mu_y, mu_x, gamma_y, gamma_x)
    else:
        mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, at, here, plane)
    g, along_mu_y, along_mu_x, along_gamma_y, along_gamma_x = pooled(
        errors, mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, RAGGED_Y, RAGGED_X, PLACES
    )
    p_hat = g * 0 if FIT else tl.load(p + at, mask=here, other=0.0)
    if MOVE:
        rate = pooling_rate * p_hat
        if SCHEDULED:
            rate *= tl.load(rates + row // (H * W), mask=row < rows, other=0.0)[:, None]
        REACH: tl.constexpr = (S - 1) / 2
        new_mu_y = clamp(mu_y - rate * gamma_y / 2 * along_mu_y, -REACH, REACH)
        new_mu_x = clamp(mu_x - rate * gamma_x / 2 * along_mu_x, -REACH, REACH)
        new_gamma_y = clamp(gamma_y + rate / 4 * along_gamma_y, gamma_min, gamma_max)
        new_gamma_x = clamp(gamma_x + rate / 4 * along_gamma_x, gamma_min, gamma_max)
        moved = (new_mu_y != mu_y) | (new_mu_x != mu_x) | (new_gamma_y != gamma_y) | (new_gamma_x != gamma_x)
        written = here & some_in_row(moved)
        store_theta(theta, at, written, plane, new_mu_y, new_mu_x, new_gamma_y, new_gamma_x)
        mu_y, mu_x, gamma_y, gamma_x = new_mu_y, new_mu_x, new_gamma_y, new_gamma_x

    c = tl.load(scale)
    if ROLE == BETWEEN:
        store_error(error_above, g * tl.load(scale + 3), row, b, here, B, H, W, S_ABOVE)
    if ROLE == GRADIENT:
        g = tl.where(here, g * tl.load(scale + 2), 0.0)
        tl.store(squares + row * CHUNKS + chunk, tl.sum(g * g, axis=1), mask=row < rows)
        store_unpooled(g * c, z, mu_y, mu_x, gamma_y, gamma_x, row, b, here, B, S, H, W, Z_H, Z_W)
    if ROLE == STEP:
        new = take_step(
            p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, chunk, at, here, rows, lam,
            threshold, ahead, H, W, CHUNKS, ALPHA, EXACT, NONNEGATIVE, MOMENTUM, SECANT, SCHEDULED, FIT,
        )  # fmt: skip
        if not MOMENTUM:
            store_unpooled(new * c, z, mu_y, mu_x, gamma_y, gamma_x, row, b, here, B, S, H, W, Z_H, Z_W)


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
def take_step(
    p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, chunk, at, here, rows, lam,
    threshold, ahead, H: tl.constexpr, W: tl.constexpr, CHUNKS: tl.constexpr, ALPHA: tl.constexpr, EXACT: tl.constexpr,
    NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr, SECANT: tl.constexpr, SCHEDULED: tl.constexpr,
    FIT: tl.constexpr,
):  # fmt: skip
    """The step on the features, p ← project(shrink(p - λ β g, β)), and what is measured of it; the new features.
    `uphill` are parts of FISTA's sum, or of ‖p - p_old‖² for the secant."""
    step = tl.load(beta + row // (H * W), mask=row < rows, other=0.0)[:, None]
    cut = threshold if SCHEDULED else step
    new = shrink(p_hat - lam * step * g, cut, ALPHA, EXACT)
    if NONNEGATIVE:
        new = tl.maximum(new, 0.0)
    new = tl.where(here, new, 0.0)
    if SCHEDULED:
        old = p_hat if FIT else tl.load(features + at, mask=here, other=0.0)
        tl.store(features + at, new, mask=here if FIT else here & some_in_row(new != old))
        new += ahead * (new - old)
    if MOMENTUM:
        change = new - tl.load(features + at, mask=here, other=0.0)
        tl.store(uphill + row * CHUNKS + chunk, tl.sum((p_hat - new) * change, axis=1), mask=row < rows)
        tl.store(features + at, new, mask=here)
        tl.store(p + at, change, mask=here)
    else:
        tl.store(p + at, new, mask=here if FIT else here & some_in_row(new != p_hat))
        if SECANT:
            tl.store(uphill + row * CHUNKS + chunk, tl.sum((new - p_hat) * (new - p_hat), axis=1), mask=row < rows)
        tl.store(penalties + row * CHUNKS + chunk, tl.sum(penalty(new, ALPHA), axis=1), mask=row < rows)
        tl.store(nonzeros + row * CHUNKS + chunk, tl.sum((new != 0).to(tl.float32), axis=1), mask=row < rows)
    return new


@triton.jit
def some_in_row(mask):
    """Whether any of a row is true, for every element of the row: features are sparse, so most rows need no writing,
    and those that do are written whole, in wide stores."""
    return tl.broadcast_to(tl.max(mask.to(tl.int32), axis=1, keep_dims=True) > 0, mask.shape)


@triton.jit
def errors_at_z(
    error, matrix, row, rows, chunk,
    C: tl.constexpr, S: tl.constexpr, R: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr, CHUNKS: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """What the error below says about every element of a tile of regions, [M, PLACES, MAPS], times the scale."""
    INNER: tl.constexpr = S * S * C
    PIECES: tl.constexpr = (INNER + K - 1) // K
    N: tl.constexpr = PLACES * MAPS
    image, r_y, r_x = row // (H * W), row // W % H, row % W
    block = ((image * BLOCK_H + r_y) * BLOCK_W + r_x).to(tl.int64) * INNER
    column = chunk * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for step in range(R * PIECES * R):
        t_y, t_x, piece = step // (PIECES * R), step % R, step // R % PIECES
        depth = piece * K + tl.arange(0, K)
        q_y, q_x = r_y - t_y, r_x - t_x
        inside = (row < rows) & (q_y >= 0) & (q_y < BLOCK_H) & (q_x >= 0) & (q_x < BLOCK_W)
        there = inside[:, None] if INNER % K == 0 else inside[:, None] & (depth < INNER)[None, :]
        at = block[:, None] + (depth - (t_y * BLOCK_W + t_x) * INNER)[None, :]
        left = tl.load(error + at, mask=there, other=0.0)
        line = ((t_y * R + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(matrix + line[:, None] * (CHUNKS * N) + column[None, :])
        total = tl.dot(left, right, total)
    return tl.reshape(total, (M, PLACES, MAPS))
