"""The weights of pooling regions, and how they are stored next to the pooling variables that they
follow from.

Weights change only where θ moves, which is where there are features; so they are stored, as whole
numbers of 16 bits, and most of what a step does reads them and not θ. (float16 would round them 16
times as coarsely, which shows where the gradient of θ is a small difference.) An axis with s
elements has one plane for each element, but a single one at s = 2: the two weights are a unit
vector, so that d = w_1 - w_0 gives both. The planes of a region are those along rows, then along
columns.
"""

from collections import namedtuple
from typing import NamedTuple

import triton
import triton.language as tl

from whatwhere.engines.triton.math import formulas
from whatwhere.engines.triton.shapes import CHUNK, planes_of

UNIT = tl.constexpr(32767.0)  # what 1 is stored as; times 1 / 32767 that is 1 again, exactly
MAPS = tl.constexpr(CHUNK)
# Numbers that all programs of a solve read, by their places in one tensor. The scales, powers of
# two, keep float16 within its range: images and features come near 1, as does an error weighted by
# M², and a gradient near the error it comes from, for the line search, which asks for no more than
# its direction.
SCALE, UNSCALE, GRADIENT_SCALE, ERROR_SCALE, ERROR_UNSCALE = (tl.constexpr(i) for i in range(5))
axis_planes_of = triton.constexpr_function(planes_of)


class Tile(NamedTuple):
    """What a program works on: rows (regions) and maps of tensors [rows, …, B], and which of them
    exist."""

    row: tl.tensor
    b: tl.tensor
    here: tl.tensor
    ahead: tl.tensor | int = 0  # of every map: how many rows further it is


Strided = namedtuple("Strided", "data strides")  # a tensor in memory in any order


@triton.jit
def own_tile(rows, B: tl.constexpr, M: tl.constexpr):
    """Return the tile of a program without products, and which parts of an image's sums it
    makes."""
    CHUNKS: tl.constexpr = (B + MAPS - 1) // MAPS
    row = tl.program_id(0) // CHUNKS * M + tl.arange(0, M)
    b = tl.program_id(0) % CHUNKS * MAPS + tl.arange(0, MAPS)
    return Tile(row, b, (row < rows)[:, None] & (b < B)[None, :]), row * CHUNKS + tl.program_id(
        0
    ) % CHUNKS


@triton.jit
def plane_offset(tile, PLANES: tl.constexpr, B: tl.constexpr):
    """Return where the first plane of a tile is in a tensor [rows, PLANES, B]."""
    return (
        tile.row.to(tl.int64)[:, None] * (PLANES * B)
        + (tile.ahead * (PLANES * B) + tile.b)[None, :]
    )


@triton.jit
def _to_plane(x):
    """Round a number from -1 to 1 to the nearest that can be stored."""
    return tl.floor(x * UNIT + 0.5).to(tl.int16)


@triton.jit
def _axis_planes(theta, room, S: tl.constexpr, RAGGED: tl.constexpr):
    """Return what is stored of w_i = √softmax_i(-γ (x_i - μ)² / 2) along one axis, over the first
    `room` elements: the others do not exist."""
    mu, gamma = theta
    planes = ()
    if S == 2:
        d = formulas.pair_difference(mu, gamma)
        if RAGGED:
            d = tl.where(room > 1, d, -1.0)
        planes = (_to_plane(d),)
    elif S > 2:
        top = mu * 0 - float("inf")
        for i in tl.static_range(S):
            top = tl.maximum(
                top,
                tl.where(room > i, formulas.exponent(i - (S - 1) / 2, mu, gamma), -float("inf")),
            )
        total = mu * 0
        for i in tl.static_range(S):
            # of every element once: the compiler shares them
            root = tl.exp((formulas.exponent(i - (S - 1) / 2, mu, gamma) - top) / 2)
            total += tl.where(room > i, root * root, 0.0)
        for i in tl.static_range(S):
            root = tl.exp((formulas.exponent(i - (S - 1) / 2, mu, gamma) - top) / 2)
            plane = _to_plane(tl.where(room > i, root * tl.rsqrt(total), 0.0))
            planes = planes + (plane,)  # noqa: RUF005
    return planes


@triton.jit
def axis_weights(planes, first: tl.constexpr, like, S: tl.constexpr):
    """Return the S weights along one axis, from the planes of a region that begin with this one;
    `like` has their shape."""
    w = ()
    if S == 1:
        w = (like * 0.0 + 1.0,)
    elif S == 2:
        w = formulas.weights_from_difference(planes[first].to(tl.float32) * (1 / UNIT))
    else:
        for i in tl.static_range(S):
            w = w + (planes[first + i].to(tl.float32) * (1 / UNIT),)  # noqa: RUF005
    return w


@triton.jit
def region_planes(y, x, room_y, room_x, SHAPE: tl.constexpr):
    """Return what is stored of the weights of a region within one map, from θ along rows and
    columns."""
    planes = _axis_planes(y, room_y, SHAPE.pool_shape[0], SHAPE.ragged[0])
    return planes + _axis_planes(x, room_x, SHAPE.pool_shape[1], SHAPE.ragged[1])


@triton.jit
def region_weights(planes, like, SHAPE: tl.constexpr):
    """Return the weights of a region within one map: along rows, then along columns."""
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    return axis_weights(planes, 0, like, S_Y) + axis_weights(
        planes, axis_planes_of(S_Y), like, SHAPE.pool_shape[1]
    )


@triton.jit
def load_planes(weights, tile, here, SHAPE: tl.constexpr):
    """Load the planes of regions, from weights [N, h, w, planes, B]."""
    COUNT: tl.constexpr = SHAPE.weight_planes
    weights += plane_offset(tile, COUNT, SHAPE.maps)
    planes = ()
    for i in tl.static_range(COUNT):
        planes = planes + (tl.load(weights + i * SHAPE.maps, mask=here, other=0),)  # noqa: RUF005
    return planes


@triton.jit
def store_planes(weights, tile, here, planes, SHAPE: tl.constexpr):
    COUNT: tl.constexpr = SHAPE.weight_planes
    weights += plane_offset(tile, COUNT, SHAPE.maps)
    for i in tl.static_range(COUNT):
        tl.store(weights + i * SHAPE.maps, planes[i], mask=here)


@triton.jit
def load_theta(theta, tile, here, B: tl.constexpr):
    """θ along rows and columns, of regions within one map: μ, then γ, one after the other for all
    maps of a region."""
    theta += plane_offset(tile, 4, B)
    mu_y, mu_x = tl.load(theta, mask=here, other=0.0), tl.load(theta + B, mask=here, other=0.0)
    gamma_y, gamma_x = (
        tl.load(theta + 2 * B, mask=here, other=0.0),
        tl.load(theta + 3 * B, mask=here, other=0.0),
    )
    return (mu_y, gamma_y), (mu_x, gamma_x)


@triton.jit
def store_theta(theta, tile, here, y, x, B: tl.constexpr):
    theta += plane_offset(tile, 4, B)
    tl.store(theta, y[0], mask=here)
    tl.store(theta + B, x[0], mask=here)
    tl.store(theta + 2 * B, y[1], mask=here)
    tl.store(theta + 3 * B, x[1], mask=here)


@triton.jit
def room(row, SHAPE: tl.constexpr):
    """Return how many elements of each region lie within the map, or more, along rows and
    columns."""
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    room_y = SHAPE.unpooled[0] - row // W % H * SHAPE.strides[0]
    room_x = SHAPE.unpooled[1] - row % W * SHAPE.strides[1]
    return room_y[:, None], room_x[:, None]


@triton.jit
def take_theta(mu, gamma, theta, weights, rows, SHAPE: tl.constexpr, M: tl.constexpr):
    """Take μ and γ [N, 2, B, h, w], in memory in any order, into θ, and store the weights of all
    regions."""
    tile, _ = own_tile(rows, SHAPE.maps, M)
    taken = ()
    for axis in tl.static_range(2):
        centre = tl.load(strided(mu, tile, axis, SHAPE), mask=tile.here, other=0.0)
        taken += ((centre, tl.load(strided(gamma, tile, axis, SHAPE), mask=tile.here, other=0.0)),)
    y, x = taken
    store_theta(theta, tile, tile.here, y, x, SHAPE.maps)
    room_y, room_x = room(tile.row, SHAPE)
    store_planes(weights, tile, tile.here, region_planes(y, x, room_y, room_x, SHAPE), SHAPE)


@triton.jit
def strided(theta, tile, axis: tl.constexpr, SHAPE: tl.constexpr):
    """Return where θ of a tile is along one axis, in a tensor with strides."""
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    s = theta.strides
    region = (
        (tile.row // (H * W)).to(tl.int64) * s[0] + tile.row // W % H * s[3] + tile.row % W * s[4]
    )
    return theta.data + (region + axis * s[1])[:, None] + (tile.b * s[2])[None, :]
