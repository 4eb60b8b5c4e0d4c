"""Sums over the parts that the kernels leave for every image, and the step size that follows from
two of them."""

import triton
import triton.language as tl

from whatwhere.engines.triton.math import formulas

BLOCK = tl.constexpr(256)  # images that a program of `shared_step` takes at a time


@triton.constexpr_function
def _sum_block(count):
    """Return how many parts a sum takes at a time."""
    return min(512, 1 << (count - 1).bit_length())


@triton.jit
def _row_sum(parts, COUNT: tl.constexpr):
    """Σ parts [N, COUNT] of the image of a program, always in the same order."""
    SIZE: tl.constexpr = _sum_block(COUNT)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, COUNT, SIZE):
        i = start + tl.arange(0, SIZE)
        total += tl.load(
            parts + tl.program_id(0).to(tl.int64) * COUNT + i, mask=i < COUNT, other=0.0
        )
    return tl.sum(total)


@triton.jit
def sum_rows(parts, out, COUNT: tl.constexpr):
    """Σ parts [N, COUNT] → out [N], one program an image."""
    tl.store(out + tl.program_id(0), _row_sum(parts, COUNT))


@triton.jit
def measure(parts, out, factor, BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Measure the objective's parts of every image, one program each: BELOW parts of ‖e‖², ABOVE of
    the features' sums."""
    image = tl.program_id(0)
    tl.store(out[0] + image, factor * _row_sum(parts[0], BELOW))
    tl.store(out[1] + image, _row_sum(parts[1], ABOVE))
    tl.store(out[2] + image, _row_sum(parts[2], ABOVE))


@triton.jit
def line_search(parts, norms, beta, lam, BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """β of every image, one program each, from the parts of ‖g‖² and ‖M ⊙ R g‖²; or, where `beta`
    is None, these norms, for `shared_step`."""
    image = tl.program_id(0)
    above, below = _row_sum(parts[0], ABOVE), _row_sum(parts[1], BELOW)
    if beta is None:
        tl.store(norms[0] + image, above)
        tl.store(norms[1] + image, below)
    else:
        tl.store(beta + image, formulas.line_search(above, lam * below))


@triton.jit
def shared_step(norms, beta, images, lam, SAMPLE: tl.constexpr):
    """β of all images, from the norms of the first SAMPLE together."""
    above, below = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, SAMPLE, BLOCK):
        j = start + tl.arange(0, BLOCK)
        above += tl.load(norms[0] + j, mask=j < SAMPLE, other=0.0)
        below += tl.load(norms[1] + j, mask=j < SAMPLE, other=0.0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        beta + i,
        formulas.line_search(tl.sum(above), lam * tl.sum(below)) + i * 0.0,
        mask=i < images,
    )
