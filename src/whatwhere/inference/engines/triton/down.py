"""The way down: reconstruct a layer and unpool it.

`shapes` says how convolutions become products, docs/engines/triton.md why.

Every tensor has its maps last. Rows are regions [N · h · w] or blocks [N · block_h · block_w] of a batch:

    p          [N, h, w, B]           float32        features of a layer
    z          [N, h, w, s², B]       float16 · scale  its unpooled maps, region by region
    error      [N, blocks, s², C]     float16 · scale  the error at the layer below, block by block
    theta      [N, h, w, 4, B]        float32        pooling variables: μ, then γ, each along rows and columns
    weights    [N, h, w, …, B]        int16          the weights of its regions, as `weights` stores them

`scale` = (c, 1/c, d, e, 1/e) keeps float16 within its range. All are powers of two: c brings images and features near
1, e an error weighted by M², and d a gradient near the error it comes from, for the line search, which asks for no
more than its direction. Without a mask, e is c. A sixth number is 1 if the latents that a solve starts from have a θ
out of its bounds, else 0.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import own_tile, penalty, place
from whatwhere.inference.engines.triton.step import USERS, mark_used, some_in_row, store_unpooled
from whatwhere.inference.engines.triton.weights import load_planes, planes_of, region_weights


@triton.jit
def down(
    z, matrix, used, stamp, out, below_weights, z_below, images, mask, error, squares, before, changes, scale, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    GROUP: tl.constexpr, LOWEST: tl.constexpr, SUBTRACT: tl.constexpr, MASKED: tl.constexpr, KEEP: tl.constexpr,
    SECANT: tl.constexpr, UNPOOL: tl.constexpr, S_BELOW: tl.constexpr, SPARSE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Reconstruct the layer below: p̂ into `out`, and z of it where its regions lie side by side (UNPOOL); p̂ is then
    stored on request only, as float16 · scale. At the lowest layer, the images subtracted on request, what comes out,
    weighted by the mask M, is the error e: keep M ⊙ e on request, and sum the squares of e; for the secant, sum the
    squares of its change, too. A row is a group of blocks. SPARSE: the rows of a program are one group of many images,
    so that regions which none of these uses are left out (`step.mark_used`)."""
    SIDE: tl.constexpr = S * GROUP
    TAPS: tl.constexpr = R + GROUP - 1
    GROUPS_H: tl.constexpr = (BLOCK_H + GROUP - 1) // GROUP
    GROUPS_W: tl.constexpr = (BLOCK_W + GROUP - 1) // GROUP
    INNER: tl.constexpr = S * S * B
    PIECES: tl.constexpr = (INNER + K - 1) // K
    OUTER: tl.constexpr = SIDE * SIDE * C
    TILES: tl.constexpr = (OUTER + N - 1) // N
    tile = tl.program_id(0) % TILES
    if SPARSE:
        q = tl.program_id(0) // TILES % (GROUPS_H * GROUPS_W)
        first = tl.program_id(0) // TILES // (GROUPS_H * GROUPS_W) * M
        image = first + tl.arange(0, M)
        row = image * (GROUPS_H * GROUPS_W) + q
        q_y, q_x = q // GROUPS_W + 0 * image, q % GROUPS_W + 0 * image
        taps = used_taps(used, stamp, first, q // GROUPS_W * GROUP, q % GROUPS_W * GROUP, TAPS, H, W, M)
        steps, bits = tl.sum(taps) * PIECES, tl.sum(taps << tl.arange(0, 32))
    else:
        row = tl.program_id(0) // TILES * M + tl.arange(0, M)
        image, q_y, q_x = row // (GROUPS_H * GROUPS_W), row // GROUPS_W % GROUPS_H, row % GROUPS_W
        steps, bits = TAPS * PIECES * TAPS, 0
    r_y, r_x = q_y * GROUP, q_x * GROUP
    column = tile * N + tl.arange(0, N)
    region = ((image * H + r_y) * W + r_x).to(tl.int64) * INNER
    total = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        if SPARSE:
            piece, t_y, t_x = step % PIECES, lowest_bit(bits) // TAPS, lowest_bit(bits) % TAPS
            bits = tl.where(piece == PIECES - 1, bits & (bits - 1), bits)
        else:
            t_y, t_x, piece = step // (PIECES * TAPS), step % TAPS, step // TAPS % PIECES
        depth = piece * K + tl.arange(0, K)
        inside = row < rows
        if not SPARSE:
            inside &= (r_y + t_y < H) & (r_x + t_x < W)
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
            weight = tl.load(mask + pixel, mask=exists, other=0.0)
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
        if UNPOOL:
            total *= tl.load(scale)
        if KEEP or not UNPOOL:
            place_below = column // C // SIDE * BELOW_W + column // C % SIDE
            at = region[:, None] * C + (place_below * C + c)[None, :]
            tl.store(out + at, total.to(out.dtype.element_ty), mask=exists)
        if UNPOOL:
            PLANES: tl.constexpr = 2 * planes_of(S_BELOW)
            total = tl.reshape(total, (M, N // 16, 16))
            for i in tl.static_range(N // 16):  # a few columns at a time, for the registers
                column = tile * N + i * 16 + tl.arange(0, 16)
                d_y, d_x, c = column // C // SIDE, column // C % SIDE, column % C
                inside = (q_y[:, None] * SIDE + d_y[None, :] < BELOW_H) & (q_x[:, None] * SIDE + d_x[None, :] < BELOW_W)
                exists = inside & (row < rows)[:, None] & (column < OUTER)[None, :]
                element, ahead = place(total, i, N // 16), d_y * BELOW_W + d_x
                planes = load_planes(below_weights, region, ahead * (PLANES * C) + c, exists, PLANES, C)
                w = region_weights(planes, element, S_BELOW)
                store_unpooled(element, z_below, w, region, ahead * (S_BELOW * S_BELOW * C) + c, exists, C, S_BELOW)


@triton.jit
def used_taps(used, stamp, image, r_y, r_x, TAPS: tl.constexpr, H: tl.constexpr, W: tl.constexpr, M: tl.constexpr):
    """1 for every tap whose region any of M images uses, from the first image and region on; else 0."""
    i = tl.arange(0, 32)[:, None]
    group = (image // USERS + tl.arange(0, M // USERS))[None, :]
    y, x = r_y + i // TAPS, r_x + i % TAPS
    exists = (i < TAPS * TAPS) & (y < H) & (x < W)
    marks = tl.load(used + (group * H + y) * W + x, mask=exists, other=-1.0)
    return tl.max((marks == stamp).to(tl.int32), axis=1)


@triton.jit
def lowest_bit(bits):
    """The number of the lowest bit that is set: a power of two is all exponent, as float32."""
    return ((bits & -bits).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def unpool(
    p, weights, z, used, stamp, features, momentum, uphill, next_momentum, penalties, nonzeros, scale, rows,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ALPHA: tl.constexpr, MEASURE: tl.constexpr, ACCELERATE: tl.constexpr, UNPOOL: tl.constexpr, MARK: tl.constexpr,
    M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """z(i) = w(i) p(j). On request: measure p, and first move p ahead by FISTA's momentum (`ista.accelerate`),
    where p holds the last change of the features. Without UNPOOL, only that."""
    row, b, here, at, part = own_tile(rows, B, M, MAPS)
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
        PLANES: tl.constexpr = 2 * planes_of(S)
        planes = load_planes(weights, row, b, here & some_in_row(p_hat != 0), PLANES, B)
        store_unpooled(p_hat * tl.load(scale), z, region_weights(planes, p_hat, S), row, b, here, B, S)
    if MARK:
        mark_used(used, stamp, p_hat, row, rows, 0, H, W)
    if MEASURE:
        tl.store(penalties + part, tl.sum(penalty(p_hat, ALPHA), axis=1), mask=row < rows)
        tl.store(nonzeros + part, tl.sum((p_hat != 0).to(tl.float32), axis=1), mask=row < rows)
