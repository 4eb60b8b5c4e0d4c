"""Sums over the parts that the kernels leave for every image, and the step size that follows from two of them."""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl


@triton.jit
def row_sum(parts, image, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Σ parts [N, COUNT] of one image, always in the same order."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COUNT, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(parts + image.to(tl.int64) * COUNT + i, mask=i < COUNT, other=0.0)
    return tl.sum(total)


@triton.jit
def sum_rows(parts, out, factor, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """factor · Σ parts [N, COUNT] → out [N], one program an image."""
    tl.store(out + tl.program_id(0), factor * row_sum(parts, tl.program_id(0), COUNT, BLOCK))


@triton.jit
def measure(
    squares, penalties, nonzeros, reconstruction, penalty, count, factor,
    BELOW: tl.constexpr, BELOW_BLOCK: tl.constexpr, ABOVE: tl.constexpr, ABOVE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The objective's parts of every image, one program each: BELOW parts of ‖e‖², ABOVE of the features' sums."""
    image = tl.program_id(0)
    tl.store(reconstruction + image, factor * row_sum(squares, image, BELOW, BELOW_BLOCK))
    tl.store(penalty + image, row_sum(penalties, image, ABOVE, ABOVE_BLOCK))
    tl.store(count + image, row_sum(nonzeros, image, ABOVE, ABOVE_BLOCK))


@triton.jit
def secant(
    changes, changes_below, beta, last, first, lam, RANGE: tl.constexpr,
    BELOW: tl.constexpr, BELOW_BLOCK: tl.constexpr, ABOVE: tl.constexpr, ABOVE_BLOCK: tl.constexpr,
):  # fmt: skip
    """`step_size.secant_step` of every image, one program each."""
    image = tl.program_id(0)
    above = row_sum(changes, image, ABOVE, ABOVE_BLOCK)
    below = lam * row_sum(changes_below, image, BELOW, BELOW_BLOCK)
    known = (above > 0) & (below > 0)
    size = tl.where(known, above / tl.where(known, below, 1.0), tl.load(last + image))
    begun = tl.load(first + image)
    tl.store(beta + image, tl.minimum(tl.maximum(size, begun / RANGE), begun * RANGE))


@triton.jit
def keep(beta, last, before, images, GROWTH: tl.constexpr, BLOCK: tl.constexpr):
    """`step_size.kept_step` of every image; `before` is `last` where there is no step before that."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = tl.load(last + i, mask=i < images, other=0.0)
    limit = GROWTH * tl.load(before + i, mask=i < images, other=0.0)
    tl.store(beta + i, tl.where(limit > 0, tl.minimum(size, limit), size), mask=i < images)


@triton.jit
def line_search(
    squares_above, squares_below, beta, above_norm, below_norm, lam, SHARED: tl.constexpr,
    BELOW: tl.constexpr, BELOW_BLOCK: tl.constexpr, ABOVE: tl.constexpr, ABOVE_BLOCK: tl.constexpr,
):  # fmt: skip
    """β = ‖g‖² / (λ ‖M ⊙ R g‖²) of every image, one program each; SHARED: both norms, for `shared_step`."""
    image = tl.program_id(0)
    above = row_sum(squares_above, image, ABOVE, ABOVE_BLOCK)
    below = row_sum(squares_below, image, BELOW, BELOW_BLOCK)
    if SHARED:
        tl.store(above_norm + image, above)
        tl.store(below_norm + image, below)
    else:
        tl.store(beta + image, ratio(above, lam * below))


@triton.jit
def shared_step(above_norm, below_norm, beta, images, lam, SAMPLE: tl.constexpr, BLOCK: tl.constexpr):
    """β of all images, from the norms of the first SAMPLE together."""
    above, below = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, SAMPLE, BLOCK):
        j = start + tl.arange(0, BLOCK)
        above += tl.load(above_norm + j, mask=j < SAMPLE, other=0.0)
        below += tl.load(below_norm + j, mask=j < SAMPLE, other=0.0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(beta + i, ratio(tl.sum(above), lam * tl.sum(below)) + i * 0.0, mask=i < images)


@triton.jit
def ratio(above, below):
    """The step of a line search; 0 where there is no gradient."""
    return tl.where(below > 0, above / tl.where(below > 0, below, 1.0), 0.0)
