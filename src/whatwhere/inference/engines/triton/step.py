"""The step on the features, the same wherever their gradient comes from, and unpooling what it leaves."""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import own_tile, penalty, shrink
from whatwhere.inference.engines.triton.weights import load_planes, planes_of, region_weights

USERS = tl.constexpr(64)  # images that share a mark


@triton.jit
def step(
    gradient, p, weights, z, used, stamp, features, beta, penalties, nonzeros, uphill, scale, rows, lam,
    B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, Z_H: tl.constexpr, Z_W: tl.constexpr,
    BELOW_H: tl.constexpr, BELOW_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
    ALPHA: tl.constexpr, EXACT: tl.constexpr, NONNEGATIVE: tl.constexpr, MOMENTUM: tl.constexpr, SECANT: tl.constexpr,
    UNPOOL: tl.constexpr, M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """The step along the gradient that a line search left; on request (UNPOOL) z, with the weights after θ moved."""
    row, b, here, at, part = own_tile(rows, B, M, MAPS)
    g = tl.load(gradient + at, mask=here, other=0.0) / tl.load(scale + 2)
    p_hat = tl.load(p + at, mask=here, other=0.0)
    new = take_step(
        p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, part, at, here, rows, lam,
        0.0, 0.0, H, W, ALPHA, EXACT, NONNEGATIVE, MOMENTUM, SECANT, False, False,
    )  # fmt: skip
    if UNPOOL:
        PLANES: tl.constexpr = 2 * planes_of(S)
        changed = here & some_in_row((new != 0) | (p_hat != 0))
        planes = load_planes(weights, row, b, changed, PLANES, B)
        store_unpooled(new * tl.load(scale), z, region_weights(planes, new, S), row, b, changed, B, S)
        mark_used(used, stamp, new, row, rows, 0, H, W)


@triton.jit
def take_step(
    p, features, beta, penalties, nonzeros, uphill, g, p_hat, row, part, at, here, rows, lam,
    threshold, ahead, H: tl.constexpr, W: tl.constexpr, ALPHA: tl.constexpr, EXACT: tl.constexpr,
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
        tl.store(uphill + part, tl.sum((p_hat - new) * change, axis=1), mask=row < rows)
        tl.store(features + at, new, mask=here)
        tl.store(p + at, change, mask=here)
    else:
        tl.store(p + at, new, mask=here if FIT else here & some_in_row(new != p_hat))
        if SECANT:
            tl.store(uphill + part, tl.sum((new - p_hat) * (new - p_hat), axis=1), mask=row < rows)
        tl.store(penalties + part, tl.sum(penalty(new, ALPHA), axis=1), mask=row < rows)
        tl.store(nonzeros + part, tl.sum((new != 0).to(tl.float32), axis=1), mask=row < rows)
    return new


@triton.jit
def store_unpooled(p, z, w, row, b, here, B: tl.constexpr, S: tl.constexpr):
    """z(i) = w(i) p(j), `w` as `region_weights` orders them."""
    first = row.to(tl.int64)[:, None] * (S * S * B) + b[None, :]
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            element = p * w[i] * w[S + j]
            tl.store(z + first + (i * S + j) * B, element.to(z.dtype.element_ty), mask=here)


@triton.jit
def mark_used(used, stamp, p, row, rows, first, H: tl.constexpr, W: tl.constexpr):
    """Mark the regions [N / USERS, h, w] that have a feature in any of USERS images; row 0 is that of image `first`.

    A mark is the number of the step that will read it, so that none has to be taken back.
    """
    mark = (row // (H * W) + first) // USERS * (H * W) + row % (H * W)
    tl.store(used + mark, stamp + 0.0 * mark, mask=(row < rows) & (tl.max((p != 0).to(tl.int32), axis=1) > 0))


@triton.jit
def some_in_row(mask):
    """Whether any of a row is true, for every element of the row: features are sparse, so most rows need no writing,
    and those that do are written whole, in wide stores."""
    return tl.broadcast_to(tl.max(mask.to(tl.int32), axis=1, keep_dims=True) > 0, mask.shape)
