"""The kernels of one inference step. `shapes` says how convolutions become products, docs/engines/triton.md why.

Every tensor has its maps last. Rows are regions [N · h · w] or blocks [N · block_h · block_w] of a batch:

    p          [N, h, w, B]           float32        features of a layer
    z          [N, h, w, s², B]       float16 · scale  its unpooled maps, region by region
    error      [N, blocks, s², C]     float16 · scale  the error at the layer below, block by block
    theta      [N, h, w, 4, B]        float32        pooling variables: μ, then γ, each along rows and columns
    leans      [N, h, w, 2, B]        float16        the weights of 2 × 2 regions, as `math.lean` stores them

`scale` = (c, 1/c, d, e, 1/e) keeps float16 within its range. All are powers of two: c brings images and features near
1, e an error weighted by M², and d a gradient near the error it comes from, for the line search, which asks for no
more than its direction. Without a mask, e is c.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import (
    fitted,
    lean,
    leaning_weights,
    load_leans,
    load_theta,
    moved,
    penalty,
    place,
    pooled,
    region_weights,
    store_leans,
    store_theta,
)
from whatwhere.inference.engines.triton.step import some_in_row, store_unpooled, take_step

# what the upward pass does with what arrives at a layer
BETWEEN = tl.constexpr(0)  # hand the pooled error to the layer above
GRADIENT = tl.constexpr(1)  # unpool the gradient g, for the line search
STEP = tl.constexpr(2)  # take the step on the features


@triton.jit
def down(
    z, matrix, out, leans, z_below, images, weights, error, squares, before, changes, scale, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    GROUP: tl.constexpr, LOWEST: tl.constexpr, SUBTRACT: tl.constexpr, MASKED: tl.constexpr, KEEP: tl.constexpr,
    SECANT: tl.constexpr, UNPOOL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Reconstruct the layer below: p̂ into `out`; where its regions are 2 × 2 (UNPOOL), z of it as well, and p̂ is
    stored only on request. At the lowest layer, the images subtracted on request, what
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
        region = (image.to(tl.int64) * BELOW_H + q_y * SIDE) * BELOW_W + q_x * SIDE
        if KEEP or not UNPOOL:
            place_below = column // C // SIDE * BELOW_W + column // C % SIDE
            tl.store(out + region[:, None] * C + (place_below * C + c)[None, :], total, mask=exists)
        if UNPOOL:
            total = tl.reshape(total * tl.load(scale), (M, N // 16, 16))
            for i in tl.static_range(N // 16):  # a few columns at a time, for the registers
                column = tile * N + i * 16 + tl.arange(0, 16)
                beyond_y, beyond_x, c = column // C // SIDE, column // C % SIDE, column % C
                exists = (row < rows)[:, None] & (column < OUTER)[None, :]
                exists &= (q_y[:, None] * SIDE + beyond_y[None, :] < BELOW_H) & (q_x[:, None] * SIDE + beyond_x[None, :] < BELOW_W)
                beyond = beyond_y * BELOW_W + beyond_x
                d_y, d_x = load_leans(leans, region, beyond * (2 * C) + c, exists, C)
                w = leaning_weights(d_y, d_x)
                store_unpooled(place(total, i, N // 16), z_below, w, region, beyond * (4 * C) + c, exists, C, 2)


@triton.jit
def unpool(
    p, theta, leans, z, features, momentum, uphill, next_momentum, penalties, nonzeros, scale, rows,
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
        # without features there is nothing to weigh, so weights are read only in rows with a feature
        used = here & some_in_row(p_hat != 0)
        if S == 2:
            d_y, d_x = load_leans(leans, row, b, used, B)
            w = leaning_weights(d_y, d_x)
        else:
            room_y, room_x = (Z_H - row // W % H * S)[:, None], (Z_W - row % W * S)[:, None]
            mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, row, b, used, B)
            w = region_weights(mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, Z_H % S != 0, Z_W % S != 0)
        store_unpooled(p_hat * tl.load(scale), z, w, row, b, here, B, S)
    if MEASURE:
        tl.store(penalties + row * CHUNKS + chunk, tl.sum(penalty(p_hat, ALPHA), axis=1), mask=row < rows)
        tl.store(nonzeros + row * CHUNKS + chunk, tl.sum((p_hat != 0).to(tl.float32), axis=1), mask=row < rows)


@triton.jit
def weigh(
    theta, leans, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """The weights of every 2 × 2 region from θ, as they are stored."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    row = tl.program_id(0) // CHUNKS * M + tl.arange(0, M)
    b = tl.program_id(0) % CHUNKS * MAPS + tl.arange(0, MAPS)
    here = (row < rows)[:, None] & (b < B)[None, :]
    at = row.to(tl.int64)[:, None] * B + b[None, :]
    mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, row, b, here, B)
    room_y, room_x = (Z_H - row // W % H * S)[:, None], (Z_W - row % W * S)[:, None]
    d_y, d_x = lean(mu_y, gamma_y, room_y, Z_H % S != 0), lean(mu_x, gamma_x, room_x, Z_W % S != 0)
    store_leans(leans, row, b, here, d_y, d_x, B)


@triton.jit
def up(
    error, matrix, p, theta, leans, next_leans, z, features, gradient, error_above, beta, rates, penalties, nonzeros,
    squares, uphill, scale, rows, lam, pooling_rate, gamma_min, gamma_max, threshold, ahead,
    mu_scale, gamma_scale, everywhere,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ROLE: tl.constexpr, MOVE: tl.constexpr, WHOLE: tl.constexpr, S_ABOVE: tl.constexpr,
    ALPHA: tl.constexpr, EXACT: tl.constexpr, NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr, SECANT: tl.constexpr,
    SCHEDULED: tl.constexpr, FIT: tl.constexpr, BY_IMAGE: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The error at z (a product), pooled with the weights: g. Then, all in registers, what ROLE asks, and
    θ ← bound(θ - λ β_U ∇θ) where MOVE asks it: only where there are features, or `everywhere`, so that θ out of its
    bounds comes within them. WHOLE: the new weights go to other memory, all of them, and the gradient is stored.
    SCHEDULED: the threshold and the momentum are given. FIT, by moments of this power: the first step from p = 0, which
    fits θ, too. BY_IMAGE: the rows of a program are one region of many images, else many regions."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    chunk, tile = tl.program_id(0) % CHUNKS, tl.program_id(0) // CHUNKS
    if BY_IMAGE:
        row = tile % (H * W) + (tile // (H * W) * M + tl.arange(0, M)) * (H * W)
        errors = errors_of_images(
            error, matrix, row, rows, tile % (H * W), chunk, C, S, R, H, W, BLOCK_H, BLOCK_W, CHUNKS, M, MAPS, PLACES, K
        )
    else:
        row = tile * M + tl.arange(0, M)
        errors = errors_at_z(
            error, matrix, row, rows, chunk, C, S, R, H, W, BLOCK_H, BLOCK_W, CHUNKS, M, MAPS, PLACES, K
        )
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
        store_theta(theta, row, b, here, mu_y, mu_x, gamma_y, gamma_x, B)
        if S == 2:
            d_y, d_x = lean(mu_y, gamma_y, room_y, RAGGED_Y), lean(mu_x, gamma_x, room_x, RAGGED_X)
            store_leans(leans, row, b, here, d_y, d_x, B)
    elif S == 2:
        d_y, d_x = load_leans(leans, row, b, here, B)
    else:
        mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, row, b, here, B)
    if S == 2:
        w = leaning_weights(d_y, d_x)
    else:
        w = region_weights(mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, RAGGED_Y, RAGGED_X)
    g, first_y, first_x, second_y, second_x = pooled(errors, w, S, PLACES)
    p_hat = g * 0 if FIT else tl.load(p + at, mask=here, other=0.0)
    new_w = w
    if MOVE:
        rate = pooling_rate * p_hat
        if SCHEDULED:
            rate *= tl.load(rates + row // (H * W), mask=row < rows, other=0.0)[:, None]
        moving = here & (some_in_row(p_hat != 0) | (everywhere > 0))
        if S == 2:
            mu_y, mu_x, gamma_y, gamma_x = load_theta(theta, row, b, moving, B)
        mu_y, gamma_y = moved(mu_y, gamma_y, rate, first_y, second_y, gamma_min, gamma_max, S)
        mu_x, gamma_x = moved(mu_x, gamma_x, rate, first_x, second_x, gamma_min, gamma_max, S)
        store_theta(theta, row, b, moving, mu_y, mu_x, gamma_y, gamma_x, B)
        if S == 2:
            d_y = tl.where(moving, lean(mu_y, gamma_y, room_y, RAGGED_Y), d_y)
            d_x = tl.where(moving, lean(mu_x, gamma_x, room_x, RAGGED_X), d_x)
            store_leans(next_leans, row, b, here if WHOLE else moving, d_y, d_x, B)
            new_w = leaning_weights(d_y, d_x)
        else:
            new_w = region_weights(mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S, RAGGED_Y, RAGGED_X)

    c = tl.load(scale)
    if ROLE == BETWEEN:
        store_error(error_above, g * tl.load(scale + 3), row, b, here, B, H, W, S_ABOVE)
    if ROLE == GRADIENT:
        if WHOLE:
            tl.store(gradient + at, g, mask=here)
        g = tl.where(here, g * tl.load(scale + 2), 0.0)
        tl.store(squares + row * CHUNKS + chunk, tl.sum(g * g, axis=1), mask=row < rows)
        store_unpooled(g * c, z, w, row, b, here, B, S)
    if ROLE == STEP:
        new = take_step(
            p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, chunk, at, here, rows, lam,
            threshold, ahead, H, W, CHUNKS, ALPHA, EXACT, NONNEGATIVE, MOMENTUM, SECANT, SCHEDULED, FIT,
        )  # fmt: skip
        if not MOMENTUM:
            changed = here if FIT else here & some_in_row((new != 0) | (p_hat != 0))
            store_unpooled(new * c, z, new_w, row, b, changed, B, S)


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


@triton.jit
def errors_of_images(
    error, matrix, row, rows, region, chunk,
    C: tl.constexpr, S: tl.constexpr, R: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr, CHUNKS: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr, PLACES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """`errors_at_z` for rows that are one region of many images: blocks beyond the border are left out."""
    INNER: tl.constexpr = S * S * C
    PIECES: tl.constexpr = (INNER + K - 1) // K
    N: tl.constexpr = PLACES * MAPS
    r_y, r_x = region // W, region % W
    column = chunk * N + tl.arange(0, N)
    first_y, last_y = tl.maximum(r_y - BLOCK_H + 1, 0), tl.minimum(r_y, R - 1)
    first_x, last_x = tl.maximum(r_x - BLOCK_W + 1, 0), tl.minimum(r_x, R - 1)
    start = (row // (H * W)).to(tl.int64) * (BLOCK_H * BLOCK_W * INNER)
    total = tl.zeros((M, N), tl.float32)
    t_y, t_x, piece = first_y, first_x, first_x * 0
    for _ in range((last_y - first_y + 1) * (last_x - first_x + 1) * PIECES):
        depth = piece * K + tl.arange(0, K)
        there = (row < rows)[:, None] if INNER % K == 0 else (row < rows)[:, None] & (depth < INNER)[None, :]
        block = (r_y - t_y) * BLOCK_W + r_x - t_x
        left = tl.load(error + start[:, None] + (block * INNER + depth)[None, :], mask=there, other=0.0)
        line = ((t_y * R + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(matrix + line[:, None] * (CHUNKS * N) + column[None, :])
        total = tl.dot(left, right, total)
        t_x += 1
        wrap = t_x > last_x
        t_x = tl.where(wrap, first_x, t_x)
        if PIECES > 1:
            piece = tl.where(wrap, piece + 1, piece)
            wrap = piece == PIECES
            piece = tl.where(wrap, 0, piece)
        t_y = tl.where(wrap, t_y + 1, t_y)
    return tl.reshape(total, (M, PLACES, MAPS))
