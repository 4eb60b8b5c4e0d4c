"""The weights of pooling regions, and how they are stored next to the pooling variables that they follow from.

Weights change only where θ moves, which is where there are features; so they are stored, as whole numbers of 16 bits,
and most of what a step does reads them and not θ. (float16 would round them 16 times as coarsely, which shows where the
gradient of θ is a small difference.) Of an axis with s elements that is one plane for each, and at s = 2 a single one:
the two weights are a unit vector, so that d = w_1 - w_0 says both. The planes of a region are those along maps, where
it holds several, along rows and along columns.
"""

# mypy: allow-untyped-defs, disable-error-code="assignment"
import triton
import triton.language as tl

from whatwhere.inference.engines.triton.math import own_tile

UNIT = tl.constexpr(32767.0)  # what 1 is stored as; times 1 / 32767 that is 1 again, exactly


@triton.constexpr_function
def planes_of(S):
    """Planes that the weights along an axis of S elements take."""
    return 0 if S == 1 else 1 if S == 2 else S


@triton.jit
def axis_planes(mu, gamma, room, S: tl.constexpr, RAGGED: tl.constexpr):
    """What is stored of w_i = √softmax_i(-γ (x_i - μ)² / 2) along one axis, over the first `room` elements: the others
    do not exist.

    At s = 2 the weights are sigmoids of a = γ μ: w_1 = 1/√(1 + t²), w_0 = t w_1, t = exp(-a/2). Beyond |a| = 80 the
    smaller one is under 1e-17, so a is cut there to keep t² finite (a switch has a = 5000).
    """
    planes = ()
    if S == 2:
        t = tl.exp(-tl.minimum(tl.maximum(gamma * mu, -80.0), 80.0) / 2)
        d = (1 - t) * tl.rsqrt(1 + t * t)
        if RAGGED:
            d = tl.where(room > 1, d, -1.0)
        planes = (to_plane(d),)
    elif S > 2:
        top = mu * 0 - float("inf")
        for i in tl.static_range(S):
            top = tl.maximum(top, tl.where(room > i, exponent(i, mu, gamma, S), -float("inf")))
        total = mu * 0
        for i in tl.static_range(S):
            root = tl.exp((exponent(i, mu, gamma, S) - top) / 2)  # of every element once: the compiler shares them
            total += tl.where(room > i, root * root, 0.0)
        for i in tl.static_range(S):
            root = tl.exp((exponent(i, mu, gamma, S) - top) / 2)
            planes = planes + (to_plane(tl.where(room > i, root * tl.rsqrt(total), 0.0)),)  # noqa: RUF005
    return planes


@triton.jit
def to_plane(x):
    """A number from -1 to 1 to the nearest that can be stored."""
    return tl.floor(x * UNIT + 0.5).to(tl.int16)


@triton.jit
def exponent(i: tl.constexpr, mu, gamma, S: tl.constexpr):
    x = i - (S - 1) / 2
    return -gamma / 2 * (x - mu) * (x - mu)


@triton.jit
def axis_weights(planes, first: tl.constexpr, like, S: tl.constexpr):
    """The S weights along one axis, from the planes of a region that begin with this one; `like` has their shape."""
    w = ()
    if S == 1:
        w = (like * 0.0 + 1.0,)
    elif S == 2:
        d = planes[first].to(tl.float32) * (1 / UNIT)
        s = tl.sqrt(2 - d * d)
        w = ((s - d) / 2, (s + d) / 2)
    else:
        for i in tl.static_range(S):
            w = w + (planes[first + i].to(tl.float32) * (1 / UNIT),)  # noqa: RUF005
    return w


@triton.jit
def region_planes(
    mu_y, mu_x, gamma_y, gamma_x, room_y, room_x, S: tl.constexpr, RAGGED_Y: tl.constexpr, RAGGED_X: tl.constexpr
):
    """What is stored of the weights of a region within one map."""
    return axis_planes(mu_y, gamma_y, room_y, S, RAGGED_Y) + axis_planes(mu_x, gamma_x, room_x, S, RAGGED_X)


@triton.jit
def region_weights(planes, like, S: tl.constexpr):
    """The weights of a region within one map: S along rows, then S along columns."""
    return axis_weights(planes, 0, like, S) + axis_weights(planes, planes_of(S), like, S)


@triton.jit
def load_planes(weights, row, b, here, COUNT: tl.constexpr, B: tl.constexpr):
    """The planes of regions `row` for maps b, from weights [N, h, w, COUNT, B]."""
    weights += row.to(tl.int64)[:, None] * (COUNT * B) + b[None, :]
    planes = ()
    for i in tl.static_range(COUNT):
        planes = planes + (tl.load(weights + i * B, mask=here, other=0),)  # noqa: RUF005
    return planes


@triton.jit
def store_planes(weights, row, b, here, planes, COUNT: tl.constexpr, B: tl.constexpr):
    weights += row.to(tl.int64)[:, None] * (COUNT * B) + b[None, :]
    for i in tl.static_range(COUNT):
        tl.store(weights + i * B, planes[i], mask=here)


@triton.jit
def either(condition, new, old, COUNT: tl.constexpr):
    """`tl.where` for all planes of a region."""
    planes = ()
    for i in tl.static_range(COUNT):
        planes = planes + (tl.where(condition, new[i], old[i]),)  # noqa: RUF005
    return planes


@triton.jit
def take_theta(
    mu, gamma, mu_strides, gamma_strides, theta, weights, scale, rows, gamma_min, gamma_max,
    P: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, CELL: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, CELLS_H: tl.constexpr, CELLS_W: tl.constexpr,
    Z_H: tl.constexpr, Z_W: tl.constexpr, M: tl.constexpr, MAPS: tl.constexpr,
):  # fmt: skip
    """Take μ and γ [N, axes, P, h, w], in memory in any order, into θ, and store the weights that these make; say in
    `scale` if any of them is out of its bounds."""
    AXES: tl.constexpr = 2 if D == 1 else 3
    row, b, here, _, _ = own_tile(rows, P, M, MAPS)
    r_y, r_x = row // W % H, row % W
    room_y, room_x = (Z_H - r_y * STRIDE)[:, None], (Z_W - r_x * STRIDE)[:, None]
    planes = ()
    for axis in tl.static_range(AXES):
        from_mu = mu + strided(mu_strides, row // (H * W), axis, b, r_y, r_x)
        from_gamma = gamma + strided(gamma_strides, row // (H * W), axis, b, r_y, r_x)
        centre, precision = tl.load(from_mu, mask=here, other=0.0), tl.load(from_gamma, mask=here, other=0.0)
        to = theta + (row.to(tl.int64) * (2 * AXES) + axis)[:, None] * P + b[None, :]
        tl.store(to, centre, mask=here)
        tl.store(to + AXES * P, precision, mask=here)
        reach = ((D if axis < AXES - 2 else S) - 1) / 2
        outside = (tl.abs(centre) > reach) | (precision < gamma_min) | (precision > gamma_max)
        tl.store(scale + 5 + 0 * row, 1.0 + 0.0 * row, mask=tl.max((here & outside).to(tl.int32), axis=1) > 0)
        if axis == AXES - 1:
            planes = planes + axis_planes(centre, precision, room_x, S, (W - 1) * STRIDE + S > Z_W)
        elif axis == AXES - 2:
            planes = planes + axis_planes(centre, precision, room_y, S, (H - 1) * STRIDE + S > Z_H)
        else:
            planes = planes + axis_planes(centre, precision, room_y * 0 + D, D, False)
    store_planes(weights, row, b, here, planes, planes_of(D) + 2 * planes_of(S), P)


@triton.jit
def strided(strides, image, axis: tl.constexpr, b, r_y, r_x):
    """Where element (image, axis, b, r_y, r_x) is in a tensor with these strides."""
    region = image.to(tl.int64) * strides[0] + r_y * strides[3] + r_x * strides[4]
    return (region + axis * strides[1])[:, None] + (b * strides[2])[None, :]


@triton.jit
def load_axis(theta, axis: tl.constexpr, AXES: tl.constexpr, row, b, here, P: tl.constexpr):
    """μ and γ along one axis, from θ [N, h, w, 2 · axes, P]: μ along all axes, then γ."""
    theta += (row.to(tl.int64) * (2 * AXES) + axis)[:, None] * P + b[None, :]
    return tl.load(theta, mask=here, other=0.0), tl.load(theta + AXES * P, mask=here, other=0.0)
