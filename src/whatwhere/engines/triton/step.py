"""The step on the features, the same wherever their gradient comes from, and unpooling what it
leaves."""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from whatwhere.engines.triton.math import formulas
from whatwhere.engines.triton.weights import (
    GRADIENT_SCALE,
    SCALE,
    load_planes,
    own_tile,
    plane_offset,
    region_weights,
)

MARKED_IMAGES = tl.constexpr(64)  # images that share a mark


class Tensors(NamedTuple):
    """What the kernels over regions read and write of one layer, in the layouts of `down`."""

    # the layer
    p: Tensor
    theta: Tensor
    weights: Tensor
    weights_before: Tensor  # those before the line search moved θ
    z: Tensor
    error: Tensor  # at the layer below; where regions overlap, at z
    error_above: Tensor
    matrix: Tensor  # the filters of the pass up
    features: Tensor  # of the top after the last step, if p is ahead of them
    gradient: Tensor  # that the line search left

    # the step, of every image
    beta: Tensor
    rates: Tensor  # multiply the step of θ in a schedule
    momentum: Tensor
    next_momentum: Tensor
    uphill_sum: Tensor

    # parts of an image's sums
    uphill: Tensor
    penalties: Tensor
    nonzeros: Tensor
    squares: Tensor

    active: Tensor  # which regions of the top have a feature (`mark_active`)
    common: Tensor  # the numbers that `weights` names


class Numbers(NamedTuple):
    """The numbers of one launch."""

    rows: int
    lam: float
    pooling_rate: float
    gamma_bounds: tuple[float, float]
    threshold: float  # of a schedule, as is `ahead`
    ahead: float
    is_first: float  # whether this is the first step, 1 or 0
    start_scales: tuple[float, float]  # of μ and γ where they are fitted
    next_step: float  # the number of the step that follows
    first_image: int


@dataclass(frozen=True)
class Rule:
    """What a pass up or a step is compiled for."""

    penalty: tuple[int, float]  # its `code`
    nonnegative: bool
    momentum: bool
    scheduled: bool
    role: str = "step"  # what is done with the gradient g: see `up.up`
    move: bool = False  # θ ← bound(θ - λ β_U ∇θ)
    keep: bool = False  # store the weights before θ moves
    fit: int = 0  # the first step from p = 0, which fits θ by moments of this power
    by_image: bool = False  # the rows of a program are one region of many images


@triton.jit
def step(tensors, numbers, SHAPE: tl.constexpr, RULE: tl.constexpr, M: tl.constexpr):
    """Take the step along the gradient that a line search left, and z, with the weights after θ
    moved."""
    tile, part = own_tile(numbers.rows, SHAPE.maps, M)
    at = plane_offset(tile, 1, SHAPE.maps)
    g = tl.load(tensors.gradient + at, mask=tile.here, other=0.0) / tl.load(
        tensors.common + GRADIENT_SCALE
    )
    p_hat = tl.load(tensors.p + at, mask=tile.here, other=0.0)
    new = take_step(tensors, tile, part, (g, p_hat), numbers, SHAPE, RULE)
    if SHAPE.tiled and not RULE.momentum:
        changed = tile.here & some_in_row((new != 0) | (p_hat != 0))
        planes = load_planes(tensors.weights, tile, changed, SHAPE)
        z, c = tensors.z, tl.load(tensors.common + SCALE)
        store_unpooled(new * c, z, region_weights(planes, new, SHAPE), tile, changed, SHAPE)
        mark_active(tensors.active, new, tile.row, 0, numbers, SHAPE)


@triton.jit
def take_step(tensors, tile, part, values, numbers, SHAPE: tl.constexpr, RULE: tl.constexpr):
    """Take the step on the features, p ← project(shrink(p - λ β g, β)), and what is measured of it;
    the new features.

    `values` are g and p. With momentum, `uphill` are parts of FISTA's sum, and p becomes the
    change."""
    g, p_hat = values
    here, exists = tile.here, tile.row < numbers.rows
    at = plane_offset(tile, 1, SHAPE.maps)
    step = tl.load(
        tensors.beta + tile.row // (SHAPE.grid[0] * SHAPE.grid[1]), mask=exists, other=0.0
    )[:, None]
    cut = numbers.threshold if RULE.scheduled else step
    # Triton 3.6 passes no tuple of a rule on to a function, but one of constants that is made here
    KIND: tl.constexpr = RULE.penalty[0]
    PARAMETER: tl.constexpr = RULE.penalty[1]
    new = formulas.shrink(p_hat - numbers.lam * step * g, cut, (KIND, PARAMETER))
    if RULE.nonnegative:
        new = tl.maximum(new, 0.0)
    new = tl.where(here, new, 0.0)
    if RULE.scheduled:
        old = p_hat if RULE.fit else tl.load(tensors.features + at, mask=here, other=0.0)
        tl.store(
            tensors.features + at, new, mask=here if RULE.fit else here & some_in_row(new != old)
        )
        new += numbers.ahead * (new - old)
    if RULE.momentum:
        change = new - tl.load(tensors.features + at, mask=here, other=0.0)
        tl.store(tensors.uphill + part, tl.sum((p_hat - new) * change, axis=1), mask=exists)
        tl.store(tensors.features + at, new, mask=here)
        tl.store(tensors.p + at, change, mask=here)
    else:
        tl.store(tensors.p + at, new, mask=here if RULE.fit else here & some_in_row(new != p_hat))
        measure_features(tensors, new, part, exists, RULE)
    return new


@triton.jit
def measure_features(tensors, p, part, exists, RULE: tl.constexpr):
    """Measure the parts of an image's penalty and number of non-zeros that a tile of features
    makes."""
    KIND: tl.constexpr = RULE.penalty[0]
    PARAMETER: tl.constexpr = RULE.penalty[1]
    cost = formulas.cost(p, (KIND, PARAMETER))
    tl.store(tensors.penalties + part, tl.sum(cost, axis=1), mask=exists)
    tl.store(tensors.nonzeros + part, tl.sum((p != 0).to(tl.float32), axis=1), mask=exists)


@triton.jit
def store_unpooled(p, z, w, tile, here, SHAPE: tl.constexpr):
    """z(i) = w(i) p(j), `w` as `region_weights` orders them."""
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    first = plane_offset(tile, S_Y * S_X, SHAPE.maps)
    for i in tl.static_range(S_Y):
        for j in tl.static_range(S_X):
            element = p * w[i] * w[S_Y + j]
            tl.store(
                z + first + (i * S_X + j) * SHAPE.maps, element.to(z.dtype.element_ty), mask=here
            )


@triton.jit
def mark_active(active, p, row, first_image, numbers, SHAPE: tl.constexpr):
    """Mark the regions [N / MARKED_IMAGES, h, w] that have a feature in any of the images that
    share a mark; row 0 is that of `first_image`.

    A mark is the number of the step that will read it, so that none has to be cleared.
    """
    REGIONS: tl.constexpr = SHAPE.grid[0] * SHAPE.grid[1]
    mark = (row // REGIONS + first_image) // MARKED_IMAGES * REGIONS + row % REGIONS
    value = numbers.next_step + 0.0 * mark
    tl.store(
        active + mark,
        value,
        mask=(row < numbers.rows) & (tl.max((p != 0).to(tl.int32), axis=1) > 0),
    )


@triton.jit
def some_in_row(mask):
    """Tell whether any of a row is true, for every element of the row: features are sparse, so most
    rows need no writing, and those that do are written whole, in wide stores."""
    return tl.broadcast_to(tl.max(mask.to(tl.int32), axis=1, keep_dims=True) > 0, mask.shape)
