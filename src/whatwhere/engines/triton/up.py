"""The way up: the error below a layer to its features, in one kernel where regions lie side by
side.

Regions that overlap share elements, so that the error at z goes through memory, cell by cell:
`propagate` writes it, `up` reads the elements of each region. Layouts are the same as in `down`.
"""

import triton
import triton.language as tl

from whatwhere.engines.triton.math import element, fitted, moved, pooled
from whatwhere.engines.triton.step import mark_active, some_in_row, store_unpooled, take_step
from whatwhere.engines.triton.weights import (
    ERROR_SCALE,
    ERROR_UNSCALE,
    GRADIENT_SCALE,
    MAPS,
    SCALE,
    UNSCALE,
    Tile,
    load_planes,
    load_theta,
    plane_offset,
    region_planes,
    region_weights,
    room,
    store_planes,
    store_theta,
)


@triton.jit
def up(
    tensors, numbers, SHAPE: tl.constexpr, ABOVE: tl.constexpr, RULE: tl.constexpr, M: tl.constexpr
):
    """Pool the error at z (a product, or what `propagate` left where regions overlap), pooled with
    the weights: g. Then, all in registers, θ moves where the rule asks it: only where there are
    features, but in the first step everywhere, so that θ comes within its bounds. By its role,

    Parameters
    ----------
    between
        g is handed to the layer above
    gradient
        g is stored and unpooled, for the line search
    step
        the step on the features is taken
    """
    B: tl.constexpr = SHAPE.maps
    common, rows = tensors.common, numbers.rows
    # the error at z: regions side by side have it as a product, all in registers
    if SHAPE.tiled:
        row, errors = _errors_at_z(tensors, rows, SHAPE, RULE.by_image, M)
        errors *= tl.load(common + ERROR_UNSCALE)
    else:
        row = tl.program_id(0) // SHAPE.chunks * M + tl.arange(0, M)
    chunk = tl.program_id(0) % SHAPE.chunks
    b = chunk * MAPS + tl.arange(0, MAPS)
    here = (row < rows)[:, None] & (b < B)[None, :]
    tile = Tile(row, b, here)
    at, part = plane_offset(tile, 1, B), row * SHAPE.chunks + chunk
    room_y, room_x = room(row, SHAPE)
    if not SHAPE.tiled:
        errors = gather(tensors, tile, room_y, room_x, SHAPE)

    # the weights: at the first step from p = 0 of the θ that is fitted to this very error
    if RULE.fit:
        y, x = fitted(errors, room_y, room_x, numbers, SHAPE, RULE.fit)
        store_theta(tensors.theta, tile, here, y, x, B)
        planes = region_planes(y, x, room_y, room_x, SHAPE)
        store_planes(tensors.weights, tile, here, planes, SHAPE)
    else:
        planes = load_planes(tensors.weights, tile, here, SHAPE)
    if RULE.keep:
        store_planes(tensors.weights_before, tile, here, planes, SHAPE)

    # pool: g, and the sums that the gradient of θ needs, from one pass over the elements
    w = region_weights(planes, element(errors, 0, SHAPE), SHAPE)
    g, first_y, first_x, second_y, second_x = pooled(errors, w, SHAPE)
    p_hat = g * 0 if RULE.fit else tl.load(tensors.p + at, mask=here, other=0.0).to(tl.float32)
    if RULE.role == "between" and SHAPE.tiled:
        p_hat *= tl.load(common + UNSCALE)
    # move θ: the features before the step are those that its gradient is meant for
    if RULE.move:
        rate, moving = movement(tensors, numbers, tile, p_hat, SHAPE, RULE)
        y, x = load_theta(tensors.theta, tile, moving, B)
        y = moved(y, (first_y, second_y), rate, numbers.gamma_bounds, SHAPE.pool_shape[0])
        x = moved(x, (first_x, second_x), rate, numbers.gamma_bounds, SHAPE.pool_shape[1])
        store_theta(tensors.theta, tile, moving, y, x, B)
        new = region_planes(y, x, room_y, room_x, SHAPE)
        planes = either(moving, new, planes, SHAPE.weight_planes)
        store_planes(tensors.weights, tile, moving, new, SHAPE)

    # what this layer does with g, by its role
    c = tl.load(common + SCALE)
    if RULE.role == "between":
        _store_error(tensors.error_above, g * tl.load(common + ERROR_SCALE), tile, SHAPE, ABOVE)
    if RULE.role == "gradient":
        g = store_gradient(tensors, g, tile, part, rows, SHAPE)
        if SHAPE.tiled:
            store_unpooled(g * c, tensors.z, w, tile, here, SHAPE)
    if RULE.role == "step":
        new = take_step(tensors, tile, part, (g, p_hat), numbers, SHAPE, RULE)
        if SHAPE.tiled and not RULE.momentum:
            changed = here if RULE.fit else here & some_in_row((new != 0) | (p_hat != 0))
            store_unpooled(
                new * c, tensors.z, region_weights(planes, new, SHAPE), tile, changed, SHAPE
            )
            mark_active(tensors.active, new, row, numbers.first_image, numbers, SHAPE)


@triton.jit
def gather(tensors, tile, room_y, room_x, SHAPE: tl.constexpr):
    """Gather the error at every element of regions that overlap, from cells of z; 0 beyond the
    map."""
    S_Y: tl.constexpr = SHAPE.pool_shape[0]
    S_X: tl.constexpr = SHAPE.pool_shape[1]
    CELL_Y: tl.constexpr = SHAPE.cell[0]
    CELL_X: tl.constexpr = SHAPE.cell[1]
    H: tl.constexpr = SHAPE.grid[0]
    W: tl.constexpr = SHAPE.grid[1]
    image = (tile.row // (H * W)).to(tl.int64)
    unit = tl.load(tensors.common + ERROR_UNSCALE)
    elements = ()
    for i in tl.static_range(S_Y):
        y = tile.row // W % H * SHAPE.strides[0] + i
        for j in tl.static_range(S_X):
            x = tile.row % W * SHAPE.strides[1] + j
            cell = (image * SHAPE.cells[0] + y // CELL_Y) * SHAPE.cells[1] + x // CELL_X
            at = ((cell * CELL_Y + y % CELL_Y) * CELL_X + x % CELL_X)[
                :, None
            ] * SHAPE.maps + tile.b[None, :]
            inside = tile.here & (room_y > i) & (room_x > j)
            elements += (tl.load(tensors.error + at, mask=inside, other=0.0).to(tl.float32) * unit,)
    return elements


@triton.jit
def movement(tensors, numbers, tile, p_hat, SHAPE: tl.constexpr, RULE: tl.constexpr):
    """λ β_U p̂ of every region, and where θ moves: where there are features, in the first step
    everywhere."""
    row = tile.row
    rate = numbers.pooling_rate * p_hat
    if RULE.scheduled:
        image = row // (SHAPE.grid[0] * SHAPE.grid[1])
        rate *= tl.load(tensors.rates + image, mask=row < numbers.rows, other=0.0)[:, None]
    return rate, tile.here & (some_in_row(p_hat != 0) | (numbers.is_first > 0))


@triton.jit
def store_gradient(tensors, g, tile, part, rows, SHAPE: tl.constexpr):
    """Store g for the line search, in its scale, and the parts of its square; g in that scale."""
    g = tl.where(tile.here, g * tl.load(tensors.common + GRADIENT_SCALE), 0.0)
    tl.store(tensors.gradient + plane_offset(tile, 1, SHAPE.maps), g, mask=tile.here)
    tl.store(tensors.squares + part, tl.sum(g * g, axis=1), mask=tile.row < rows)
    return g


@triton.jit
def either(condition, new, old, COUNT: tl.constexpr):
    """`tl.where` for all planes of a region."""
    planes = ()
    for i in tl.static_range(COUNT):
        planes = planes + (tl.where(condition, new[i], old[i]),)  # noqa: RUF005
    return planes


@triton.jit
def _store_error(error_above, g, tile, SHAPE: tl.constexpr, ABOVE: tl.constexpr):
    """Hand a pooled error to the layer above, in the order of its blocks."""
    S_Y: tl.constexpr = ABOVE.cell[0]
    S_X: tl.constexpr = ABOVE.cell[1]
    H = SHAPE.grid[0]
    W = SHAPE.grid[1]
    r_y = tile.row // W % H
    r_x = tile.row % W
    block = (tile.row // (H * W) * ABOVE.blocks[0] + r_y // S_Y) * ABOVE.blocks[1] + r_x // S_X
    slot = block.to(tl.int64) * (S_Y * S_X) + r_y % S_Y * S_X + r_x % S_X
    at = slot[:, None] * SHAPE.maps + tile.b[None, :]
    tl.store(error_above + at, g.to(error_above.dtype.element_ty), mask=tile.here)


@triton.jit
def _errors_at_z(tensors, rows, SHAPE: tl.constexpr, BY_IMAGE: tl.constexpr, M: tl.constexpr):
    """Return a program's rows, and what the error below says about every element of these cells,
    [M, places, maps], times the scale. BY_IMAGE: the rows are one cell of many images, so that
    blocks beyond the border are left out."""
    INNER: tl.constexpr = SHAPE.block_row
    K: tl.constexpr = SHAPE.up_depth
    PIECES: tl.constexpr = (INNER + K - 1) // K
    N: tl.constexpr = SHAPE.places * MAPS
    H = SHAPE.cells[0]
    W = SHAPE.cells[1]
    BLOCK_H = SHAPE.blocks[0]
    BLOCK_W = SHAPE.blocks[1]
    R_Y: tl.constexpr = SHAPE.taps[0]
    R_X: tl.constexpr = SHAPE.taps[1]
    # maps vary fastest: programs that follow each other share the error that they read
    chunk = tl.program_id(0) % SHAPE.chunks
    index = tl.program_id(0) // SHAPE.chunks
    column = chunk * N + tl.arange(0, N)
    if BY_IMAGE:
        # all rows are at one place of the map, so that taps beyond its border are skipped for all
        row = index % (H * W) + (index // (H * W) * M + tl.arange(0, M)) * (H * W)
        r_y = index // W % H
        r_x = index % W
        first_y = tl.maximum(r_y - BLOCK_H + 1, 0)
        last_y = tl.minimum(r_y, R_Y - 1)
        first_x = tl.maximum(r_x - BLOCK_W + 1, 0)
        last_x = tl.minimum(r_x, R_X - 1)
    else:
        # rows are at different places: every tap is visited, and masked where it is outside
        row = index * M + tl.arange(0, M)
        r_y = row // W % H
        r_x = row % W
        first_y = index * 0
        last_y = R_Y - 1
        first_x = index * 0
        last_x = R_X - 1
    block = ((row // (H * W) * BLOCK_H + r_y) * BLOCK_W + r_x).to(tl.int64) * INNER
    total = tl.zeros((M, N), tl.float32)
    # one loop over taps and pieces of the depth, which the compiler can pipeline: nested it cannot
    t_y = first_y
    t_x = first_x
    piece = index * 0
    for _ in range((last_y - first_y + 1) * (last_x - first_x + 1) * PIECES):
        depth = piece * K + tl.arange(0, K)
        inside = row < rows
        if not BY_IMAGE:
            inside &= (r_y >= t_y) & (r_y - t_y < BLOCK_H) & (r_x >= t_x) & (r_x - t_x < BLOCK_W)
        there = inside[:, None] if INNER % K == 0 else inside[:, None] & (depth < INNER)[None, :]
        at = block[:, None] + (depth - (t_y * BLOCK_W + t_x) * INNER)[None, :]
        left = tl.load(tensors.error + at, mask=there, other=0.0)
        line = ((t_y * R_X + t_x) * PIECES + piece) * K + tl.arange(0, K)
        right = tl.load(tensors.matrix + line[:, None] * (SHAPE.chunks * N) + column[None, :])
        total = tl.dot(left, right, total)
        t_x += 1
        ends = t_x > last_x
        t_x = tl.where(ends, first_x, t_x)
        if PIECES > 1:
            piece = tl.where(ends, piece + 1, piece)
            ends = piece == PIECES
            piece = tl.where(ends, 0, piece)
        t_y = tl.where(ends, t_y + 1, t_y)
    return row, tl.reshape(total, (M, SHAPE.places, MAPS))


@triton.jit
def propagate(tensors, z_error, rows, SHAPE: tl.constexpr, BY_IMAGE: tl.constexpr, M: tl.constexpr):
    """Propagate the error at z of a tile of cells, in the scale of the error below."""
    AREA: tl.constexpr = SHAPE.cell_area
    B: tl.constexpr = SHAPE.maps
    row, errors = _errors_at_z(tensors, rows, SHAPE, BY_IMAGE, M)
    place = tl.arange(0, SHAPE.places)
    b = tl.program_id(0) % SHAPE.chunks * MAPS + tl.arange(0, MAPS)
    at = (row.to(tl.int64)[:, None, None] * AREA + place[None, :, None]) * B + b[None, None, :]
    here = (row < rows)[:, None, None] & (place < AREA)[None, :, None] & (b < B)[None, None, :]
    tl.store(z_error + at, errors.to(z_error.dtype.element_ty), mask=here)
