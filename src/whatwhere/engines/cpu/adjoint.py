"""Back-propagation through the scheduled steps of one image: the adjoint of `loop.advance`.

A step is a pass down, a pass up, and steps of the features and of the pooling variables. Its
adjoint goes through the same layers with the same kernels: the adjoint of the pass up is a pass
down, and the other way round. Adjoints have the layout of the state, in a second half of memory
(`mirror`, a table of layers with offsets there); the adjoints of the error and of the
reconstruction share their place, since the first is used up before the second is there.

With a = γμ/2, the two weights of an axis are cos and sin of an angle whose derivative by a is their
product. So P = Σ w z of a region of 2 × 2 has derivatives of any order in few operations:

    P_y = c_y (y₀ r₁ - y₁ r₀),   P_yy = (y₀² - y₁²) P_y - c_y² P,   c_y = y₀ y₁,
    r_i = Σ_j x_j z_ij
"""

from collections.abc import Callable
from typing import NamedTuple

from whatwhere.engines.cpu.convolution import convolve_down, convolve_up
from whatwhere.engines.cpu.pooling import (
    axes_of,
    compute_weights,
    element_offset,
    region_offset,
    unpool,
    weights_offset,
)
from whatwhere.engines.cpu.records import Layer, Network, Settings
from whatwhere.engines.cpu.start import MOMENTS, copy, copy_latents, rounding_of
from whatwhere.engines.jit import Array, cached_jit, inline_jit, jit
from whatwhere.engines.jit.region import fit_moments
from whatwhere.engines.jit.simd import (
    LANES,
    Lanes,
    any_nonzero,
    load,
    noinline,
    splat,
    store,
    total,
)
from whatwhere.engines.jit.vector_math import clamp, fma, formulas, where

TAPS = 8  # taps of a filter's row whose sums are in registers together


class Tape(NamedTuple):
    """What the forward pass has left of N images, and the gradients of its results.

    Parameters
    ----------
    states
        [N, T, …]  the state before each step, and p there
    above
        [N, …]  gradients of p, or of p, μ and γ of all layers, as `pack_latents` has them
    rates
        [N]  factors of the schedule's β_U
    """

    states: Array
    above: Array
    rates: Array


class Sums(NamedTuple):
    """The gradients, which are added to.

    Parameters
    ----------
    images
        [N, H W C]
    filters
        of all layers, one after the other: [map, row, column, map below], or [row, column, map
        below, map] where the maps below do not fill vectors. One array, because a tuple of arrays
        would be compiled again for every number of layers
    starts
        where each layer's begin in it, [layers]
    steps
        [T, 3 + layers]  size, threshold, extrapolation, β_U of every layer
    scales
        [layers, 2]  of the fitted μ and γ
    rates
        [N]
    """

    images: Array
    filters: Array
    starts: Array
    steps: Array
    scales: Array
    rates: Array


class Pair(NamedTuple):
    """LANES regions of 2 × 2: P = Σ w z, and its derivatives by a = γμ/2 of rows and columns."""

    value: Lanes
    rows: Lanes
    columns: Lanes


class Ahead(NamedTuple):
    """Where the adjoints of p, of the p before it and of y are."""

    p: int
    before: int
    y: int
    length: int


class PoolingStep(NamedTuple):
    """The step λ β_U of a layer's pooling variables, 0 if they stay, and their bounds."""

    size: float
    gamma_min: float
    gamma_max: float


@cached_jit
def pull_back(source: str) -> Callable[..., None]:
    def pull_back(
        tape: Tape,
        memory: Array,
        network: Network,
        mirror: Array,
        settings: Settings,
        sizes: tuple[Array, Array, Array],
        sums: Sums,
    ) -> None:
        """Add the gradients of every image to `sums`.

        `sizes` are β of every step, the schedule and the scales, as in `loop.advance`; memory holds
        the state, its mirror, and three more codes.
        """
        source  # noqa: B018
        betas, schedule, scales = sizes
        layers, filters = network
        config = settings[0]
        top = layers[len(layers) - 1]
        length = top.rows * top.columns * top.maps
        end = len(memory) - 3 * length
        ahead = Ahead(end, end + length, end + 2 * length, length)
        for n in range(len(tape.states)):
            kept = tape.states.shape[2] - length
            copy_latents(tape.above[n], memory, mirror, True)
            memory[ahead.before : ahead.before + length] = 0
            for t in range(len(betas), 0, -1):
                copy(tape.states[n, t - 1], 0, memory, 0, kept)
                for k in range(1, len(layers)):
                    if not layers[k].unpooled:
                        compute_weights(memory, layers[k])
                _pull_back_features(
                    memory,
                    (top, mirror[len(layers) - 1]),
                    config,
                    (betas[t - 1], schedule[t - 1, 0]),
                    ahead,
                    sums.steps[t - 1],
                )
                # the pooling variables, and the pass up
                for k in range(len(layers) - 1, 0, -1):
                    pair = layers[k], mirror[k]
                    if not layers[k].unpooled:
                        share = config.lam * schedule[t - 1, 1 + k]
                        rate = share * tape.rates[n] if layers[k].updates_pooling else 0.0
                        step = PoolingStep(rate, config.gamma_min, config.gamma_max)
                        slope = _pull_back_pooling(memory, pair, step, k == len(layers) - 1)
                        if layers[k].updates_pooling:
                            sums.steps[t - 1, 2 + k] -= config.lam * tape.rates[n] * slope
                            sums.rates[n] -= share * slope
                        if t == 1 and layers[k].fit == MOMENTS:
                            scale = scales[k - 1], sums.scales[k - 1]
                            _pull_back_fit(memory, pair, config, scale)
                    below = layers[k - 1]
                    z = mirror[k].z_error
                    own = sums.filters[sums.starts[k - 1] :]
                    correlate(memory, (below, layers[k]), z, below.error, own)
                    target = mirror[k - 1].error
                    convolve_down(memory, filters, mirror[k - 1], mirror[k], z, target)
                _subtract_error(memory, mirror[0], sums.images[n])
                if t == 1:
                    continue
                # the pass down
                for k in range(1, len(layers)):
                    layer = layers[k]
                    z = layer.features
                    if not layer.unpooled:
                        z = layer.z
                        unpool(memory, layer, layer.features)
                    error = mirror[k - 1].error
                    own = sums.filters[sums.starts[k - 1] :]
                    correlate(memory, (layers[k - 1], layer), z, error, own)
                    convolve_up(memory, filters, mirror[k - 1], mirror[k])
                    if not layer.unpooled:
                        _pull_back_unpooling(memory, layer, mirror[k])
                share = schedule[t - 2, 1]
                states = tape.states[n, t - 2 : t]
                y = mirror[len(layers) - 1].error
                sums.steps[t - 2, 2] += _pull_back_ahead(memory, states, kept, y, ahead, share)

    return pull_back


@jit
def _pull_back_features(
    memory: Array,
    top: tuple[Layer, Layer],
    settings: Settings,
    size: tuple[float, float],
    ahead: Ahead,
    sums: Array,
) -> None:
    """p = project(shrink(y - λ β g, threshold)): from the adjoint of p to the adjoints of g and y,
    and the derivatives by β and the threshold."""
    noinline()
    layer, mirror = top
    beta, threshold = size
    step = settings.lam * beta
    by_size = splat(memory, 0)
    by_threshold = splat(memory, 0)
    cut = splat(memory, threshold)
    for i in range(0, ahead.length, LANES):
        d_p = load(memory, ahead.p + i)
        if not any_nonzero(d_p):
            store(memory, mirror.error + i, d_p)
            store(memory, ahead.y + i, d_p)
            continue
        g = load(memory, layer.error + i)
        moved = load(memory, layer.features + i) - g * step
        by_p, by_cut = formulas.shrink_slopes(moved, cut, settings.penalty_parameter)
        if settings.nonnegative:
            d_p = where(moved > 0, d_p, 0.0)
        by_threshold = fma(d_p, by_cut, by_threshold)
        d_p = d_p * by_p
        by_size = fma(d_p, g, by_size)
        store(memory, mirror.error + i, d_p * (-step))
        store(memory, ahead.y + i, d_p)
    sums[0] -= settings.lam * total(by_size)
    sums[1] += total(by_threshold)


@jit
def _pull_back_ahead(
    memory: Array, states: Array, kept: int, y: int, ahead: Ahead, share: float
) -> float:
    """y = p + share (p - p_old): the adjoints of p and p_old, and the derivative by the share; y is
    where the pass down left its part of the adjoint of y."""
    noinline()
    slope = splat(memory, 0)
    for i in range(0, ahead.length, LANES):
        d_y = load(memory, ahead.y + i) + load(memory, y + i)
        p = load(states[1], kept + i)
        slope = fma(d_y, p - load(states[0], kept + i), slope)
        store(memory, ahead.p + i, fma(d_y, 1 + share, load(memory, ahead.before + i)))
        store(memory, ahead.before + i, d_y * (-share))
    return total(slope)


@jit
def _subtract_error(memory: Array, bottom: Layer, image: Array) -> None:
    """e = R p - v: the adjoint of v."""
    noinline()
    length = bottom.columns * bottom.maps
    for y in range(bottom.rows):
        at = element_offset(bottom, bottom.error, y, 0)
        for i in range(length):
            image[y * length + i] -= memory[at + i]


# --- regions of 2 × 2


class Weights(NamedTuple):
    """The weights along rows and columns of LANES regions, and their products c."""

    y0: Lanes
    y1: Lanes
    x0: Lanes
    x1: Lanes
    y: Lanes
    x: Lanes


class Elements(NamedTuple):
    """Something at the four elements of LANES regions."""

    z00: Lanes
    z01: Lanes
    z10: Lanes
    z11: Lanes


@inline_jit
def _load_weights(memory: Array, w: int, B: int) -> Weights:
    y0 = load(memory, w)
    y1 = load(memory, w + B)
    x0 = load(memory, w + 2 * B)
    x1 = load(memory, w + 3 * B)
    return Weights(y0, y1, x0, x1, y0 * y1, x0 * x1)


@inline_jit
def _load_elements(memory: Array, z: int, down: int, right: int) -> Elements:
    return Elements(
        load(memory, z),
        load(memory, z + right),
        load(memory, z + down),
        load(memory, z + down + right),
    )


@inline_jit
def _store_elements(memory: Array, z: int, down: int, right: int, of: Elements) -> None:
    store(memory, z, of.z00)
    store(memory, z + right, of.z01)
    store(memory, z + down, of.z10)
    store(memory, z + down + right, of.z11)


@inline_jit
def _pair_of(z: Elements, w: Weights) -> Pair:
    """P and its derivatives by a of both axes."""
    r0 = fma(z.z00, w.x0, z.z01 * w.x1)
    r1 = fma(z.z10, w.x0, z.z11 * w.x1)
    k0 = fma(z.z00, w.y0, z.z10 * w.y1)
    k1 = fma(z.z01, w.y0, z.z11 * w.y1)
    value = fma(w.y0, r0, w.y1 * r1)
    return Pair(value, w.y * (w.y0 * r1 - w.y1 * r0), w.x * (w.x0 * k1 - w.x1 * k0))


class Where(NamedTuple):
    """μ and γ of rows and columns, or their adjoints."""

    my: Lanes
    gy: Lanes
    mx: Lanes
    gx: Lanes


@inline_jit
def _load_where(memory: Array, mu: int, gamma: int, B: int) -> Where:
    return Where(
        load(memory, mu), load(memory, gamma), load(memory, mu + B), load(memory, gamma + B)
    )


@inline_jit
def _store_where(memory: Array, mu: int, gamma: int, B: int, of: Where) -> None:
    store(memory, mu, of.my)
    store(memory, gamma, of.gy)
    store(memory, mu + B, of.mx)
    store(memory, gamma + B, of.gx)


@inline_jit
def _if_free(adjoint: Lanes, moved: Lanes, low: float, high: float) -> Lanes:
    """Return the adjoint of what a bound has not changed; 0 elsewhere."""
    return where(clamp(moved, low, high) == moved, adjoint, 0.0)


@jit
def _pull_back_pooling(
    memory: Array, pair: tuple[Layer, Layer], step: PoolingStep, at_top: bool
) -> float:
    """P = Σ w r, with the errors r at z, and θ ← bound(θ - step p̂ ∇P): from their adjoints to the
    adjoints of r, of p̂ (into `gain`) and of θ; return Σ ⟨adjoint, p̂ ∇P⟩."""
    noinline()
    layer, mirror = pair
    B = layer.maps
    y, x = axes_of(layer)
    slope = splat(memory, 0)
    zero = splat(memory, 0)
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, layer.features, row, column)
            d_at = element_offset(layer, mirror.error, row, column)
            gain = element_offset(layer, mirror.gain, row, column)
            w_at = weights_offset(layer, row, column)
            theta_at = (row * layer.columns + column) * 2 * B
            z_at = region_offset(layer, 0, row, column)
            for b in range(0, B, LANES):
                p = load(memory, p_at + b)
                d = load(memory, d_at + b)
                to = mirror.z_error + z_at + b
                if at_top and not (any_nonzero(p) or any_nonzero(d)):
                    nothing = Elements(zero, zero, zero, zero)
                    _store_elements(memory, to, y.stride, x.stride, nothing)
                    store(memory, gain + b, zero)
                    continue
                w = _load_weights(memory, w_at + b, B)
                r = _load_elements(memory, layer.z_error + z_at + b, y.stride, x.stride)
                of = _pair_of(r, w)
                at = layer.mu + theta_at + b, layer.gamma + theta_at + b
                d_of = mirror.mu + theta_at + b, mirror.gamma + theta_at + b
                theta = _load_where(memory, at[0], at[1], B)
                above = _load_where(memory, d_of[0], d_of[1], B)
                # half of ∂a/∂θ
                half = Where(theta.my * 0.5, theta.gy * 0.5, theta.mx * 0.5, theta.gx * 0.5)
                sp = p * step.size
                my = theta.my - sp * half.gy * of.rows
                gy = theta.gy - sp * half.my * of.rows
                mx = theta.mx - sp * half.gx * of.columns
                gx = theta.gx - sp * half.mx * of.columns
                above = Where(
                    _if_free(above.my, my, -0.5, 0.5),
                    _if_free(above.gy, gy, step.gamma_min, step.gamma_max),
                    _if_free(above.mx, mx, -0.5, 0.5),
                    _if_free(above.gx, gx, step.gamma_min, step.gamma_max),
                )
                # how fast a moves along the adjoint of θ, and ⟨adjoint, ∇P⟩
                ay = fma(half.gy, above.my, half.my * above.gy)
                ax = fma(half.gx, above.mx, half.mx * above.gx)
                along = fma(ay, of.rows, ax * of.columns)
                slope = fma(p, along, slope)
                store(memory, gain + b, along * (-step.size))
                # second derivatives
                yy = (w.y0 * w.y0 - w.y1 * w.y1) * of.rows - w.y * w.y * of.value
                xx = (w.x0 * w.x0 - w.x1 * w.x1) * of.columns - w.x * w.x * of.value
                crossed = w.y0 * (w.x0 * r.z11 - w.x1 * r.z10)
                crossed = w.y * w.x * (crossed - w.y1 * (w.x0 * r.z01 - w.x1 * r.z00))
                dy = d * of.rows - sp * fma(ay, yy, ax * crossed)
                dx = d * of.columns - sp * fma(ax, xx, ay * crossed)
                halved = sp * 0.5
                rows, columns = halved * of.rows, halved * of.columns
                found = Where(
                    fma(half.gy, dy, above.my) - rows * above.gy,
                    fma(half.my, dy, above.gy) - rows * above.my,
                    fma(half.gx, dx, above.mx) - columns * above.gx,
                    fma(half.mx, dx, above.gx) - columns * above.mx,
                )
                _store_where(memory, d_of[0], d_of[1], B, found)
                # Σ over the adjoints of w y_i x_j, and of its derivative along a
                ay = -(sp * ay * w.y)
                ax = -(sp * ax * w.x)
                y0, y1 = fma(d, w.y0, -(ay * w.y1)), fma(d, w.y1, ay * w.y0)
                x0, x1 = -(ax * w.x1), ax * w.x0
                spread = Elements(
                    fma(y0, w.x0, w.y0 * x0),
                    fma(y0, w.x1, w.y0 * x1),
                    fma(y1, w.x0, w.y1 * x0),
                    fma(y1, w.x1, w.y1 * x1),
                )
                _store_elements(memory, to, y.stride, x.stride, spread)
    return total(slope)


@jit
def _pull_back_unpooling(memory: Array, layer: Layer, mirror: Layer) -> None:
    """z = w p̂: from the adjoint of z to that of p̂, with what the pooling variables have left in
    `gain`, and of θ."""
    noinline()
    B = layer.maps
    y, x = axes_of(layer)
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, layer.features, row, column)
            d_at = element_offset(layer, mirror.error, row, column)
            gain = element_offset(layer, mirror.gain, row, column)
            w_at = weights_offset(layer, row, column)
            theta_at = (row * layer.columns + column) * 2 * B
            z_at = region_offset(layer, mirror.z_error, row, column)
            for b in range(0, B, LANES):
                w = _load_weights(memory, w_at + b, B)
                of = _pair_of(_load_elements(memory, z_at + b, y.stride, x.stride), w)
                store(memory, d_at + b, of.value + load(memory, gain + b))
                p = load(memory, p_at + b)
                if not any_nonzero(p):
                    continue
                at = theta_at + b
                theta = _load_where(memory, layer.mu + at, layer.gamma + at, B)
                before = _load_where(memory, mirror.mu + at, mirror.gamma + at, B)
                rows = p * of.rows * 0.5
                columns = p * of.columns * 0.5
                found = Where(
                    fma(rows, theta.gy, before.my),
                    fma(rows, theta.my, before.gy),
                    fma(columns, theta.gx, before.mx),
                    fma(columns, theta.mx, before.gx),
                )
                _store_where(memory, mirror.mu + at, mirror.gamma + at, B, found)


@jit
def _pull_back_fit(
    memory: Array, pair: tuple[Layer, Layer], settings: Settings, scale: tuple[Array, Array]
) -> None:
    """Pull the fit of the start back: add to the adjoint of the signal at z what comes through θ,
    and to `sums` the derivatives by the scales."""
    noinline()
    layer, mirror = pair
    scales, sums = scale
    B = layer.maps
    axes = axes_of(layer)
    y, x = axes
    floor = rounding_of(memory, layer, settings)
    low, high = settings.gamma_min, settings.gamma_max
    by_mu = splat(memory, 0)
    by_gamma = splat(memory, 0)
    power = settings.moment_power
    for row in range(layer.rows):
        for column in range(layer.columns):
            theta_at = (row * layer.columns + column) * 2 * B
            z_at = region_offset(layer, 0, row, column)
            for b in range(0, B, LANES):
                s_at = layer.z_error + z_at + b
                fitted = fit_moments(memory, s_at, axes, power, floor)
                d_of = mirror.mu + theta_at + b, mirror.gamma + theta_at + b
                above = _load_where(memory, d_of[0], d_of[1], B)
                m_y, v_y = fitted.rows.mean, fitted.rows.variance
                m_x, v_x = fitted.columns.mean, fitted.columns.variance
                g_y = formulas.precision(v_y, fitted.total, low, high)
                g_x = formulas.precision(v_x, fitted.total, low, high)
                above = Where(
                    _if_free(above.my, m_y * scales[0], -0.5, 0.5),
                    _if_free(above.gy, g_y * scales[1], low, high),
                    _if_free(above.mx, m_x * scales[0], -0.5, 0.5),
                    _if_free(above.gx, g_x * scales[1], low, high),
                )
                by_mu = fma(above.my, m_y, fma(above.mx, m_x, by_mu))
                by_gamma = fma(above.gy, g_y, fma(above.gx, g_x, by_gamma))
                scale = where(fitted.largest > floor, 1 / formulas.or_one(fitted.largest), 0.0)
                unit = scale / formulas.or_one(fitted.total)
                rows = above.my * scales[0], above.gy * scales[1]
                columns = above.mx * scales[0], above.gx * scales[1]
                a_y, b_y, c_y = formulas.fit_slope((m_y, g_y), v_y, rows, unit)
                a_x, b_x, c_x = formulas.fit_slope((m_x, g_x), v_x, columns, unit)
                for i in range(2):
                    from_y = (i - 0.5) - m_y
                    of_row = fma(fma(b_y, from_y, a_y), from_y, -c_y - c_x)
                    for j in range(2):
                        from_x = (j - 0.5) - m_x
                        at = i * y.stride + j * x.stride
                        slope = formulas.strength_slope(load(memory, s_at + at) * scale, power)
                        share = slope * fma(fma(b_x, from_x, a_x), from_x, of_row)
                        to = mirror.z_error + z_at + b + at
                        store(memory, to, load(memory, to) + share)
    sums[0] += total(by_mu)
    sums[1] += total(by_gamma)


# --- the gradient of the filters


class Errors(NamedTuple):
    """The errors of a layer, with their border: where they begin, from row to row, and its maps."""

    at: int
    pitch: int
    maps: int


@jit
def correlate(memory: Array, pair: tuple[Layer, Layer], z: int, error: int, sums: Array) -> None:
    """sums(b, i, j, c) += Σ z_b(y, x) · error_c(y + i, x + j); the error begins at its border."""
    noinline()
    below, layer = pair
    errors = Errors(error, (below.columns + 2 * below.border_x) * below.maps, below.maps)
    if below.maps % LANES == 0:
        _correlate_regions(memory, layer, z, errors, sums)
    else:
        _correlate_channels(memory, layer, z, errors, sums)


@jit
def _correlate_regions(memory: Array, layer: Layer, z: int, errors: Errors, sums: Array) -> None:
    """Do the same over the regions where z is not 0, from maps below that fill vectors."""
    noinline()
    B = layer.maps
    pooled = 1 if layer.unpooled else 2
    # without pooling, all four are the one element, and only the first counts
    down = layer.z_columns * B * (pooled - 1)
    right = B * (pooled - 1)
    # a block of maps at a time: its sums stay in the nearest cache
    for first in range(0, B, LANES):
        for row in range(layer.rows):
            for column in range(layer.columns):
                here = z + pooled * (row * layer.z_columns + column) * B + first
                e = _load_elements(memory, here, down, right)
                if not (
                    any_nonzero(e.z00)
                    or any_nonzero(e.z01)
                    or any_nonzero(e.z10)
                    or any_nonzero(e.z11)
                ):
                    continue
                of = pooled * (row * errors.pitch + column * errors.maps)
                here_errors = Errors(errors.at + of, errors.pitch, errors.maps)
                for b in range(LANES):
                    z00 = memory[here + b]
                    if pooled == 1:
                        if z00 != 0:
                            _add_element(memory, layer, here_errors, z00, first + b, sums)
                        continue
                    z01 = memory[here + b + right]
                    z10 = memory[here + b + down]
                    z11 = memory[here + b + down + right]
                    if z00 != 0 or z01 != 0 or z10 != 0 or z11 != 0:
                        four = z00, z01, z10, z11
                        _add_region(memory, layer, here_errors, four, first + b, sums)


@jit
def _add_region(
    memory: Array,
    layer: Layer,
    errors: Errors,
    z: tuple[float, float, float, float],
    b: int,
    sums: Array,
) -> None:
    """Add the part of one region, in one map."""
    noinline()
    place, pitch, C = errors
    z00, z01, z10, z11 = z
    length = layer.size_x * C
    out = b * layer.size_y * length
    for x in range(0, length, LANES):
        # a row of errors is the bottom of one row of taps and the top of the next
        left = load(memory, place + x)
        right = load(memory, place + x + C)
        for i in range(layer.size_y):
            below = place + (i + 1) * pitch + x
            at = out + i * length + x
            here = fma(z00, left, fma(z01, right, load(sums, at)))
            left = load(memory, below)
            right = load(memory, below + C)
            store(sums, at, fma(z10, left, fma(z11, right, here)))


@jit
def _add_element(
    memory: Array, layer: Layer, errors: Errors, z: float, b: int, sums: Array
) -> None:
    """Add the part of one element, in one map."""
    noinline()
    place, pitch, C = errors
    length = layer.size_x * C
    for i in range(layer.size_y):
        out = (b * layer.size_y + i) * length
        for x in range(0, length, LANES):
            store(
                sums,
                out + x,
                fma(z, load(memory, place + i * pitch + x), load(sums, out + x)),
            )


@jit
def _correlate_channels(memory: Array, layer: Layer, z: int, errors: Errors, sums: Array) -> None:
    """Do the same from few channels: LANES maps at a time, the sums of TAPS columns in
    registers."""
    noinline()
    error, pitch, C = errors
    B = layer.maps
    for first in range(0, B, LANES):
        for i in range(layer.size_y):
            for c in range(C):
                for j in range(0, layer.size_x, TAPS):
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = splat(memory, 0)
                    for y in range(layer.height):
                        e = error + (y + i) * pitch + j * C + c
                        at = z + y * layer.z_columns * B + first
                        for x in range(layer.width):
                            value = load(memory, at + x * B)
                            of = e + x * C
                            s0 = fma(value, memory[of], s0)
                            s1 = fma(value, memory[of + C], s1)
                            s2 = fma(value, memory[of + 2 * C], s2)
                            s3 = fma(value, memory[of + 3 * C], s3)
                            s4 = fma(value, memory[of + 4 * C], s4)
                            s5 = fma(value, memory[of + 5 * C], s5)
                            s6 = fma(value, memory[of + 6 * C], s6)
                            s7 = fma(value, memory[of + 7 * C], s7)
                    taps = (s0, s1, s2, s3, s4, s5, s6, s7)
                    for tap in range(min(TAPS, layer.size_x - j)):
                        out = (((i * layer.size_x) + j + tap) * C + c) * B + first
                        store(sums, out, load(sums, out) + taps[tap])
