"""Gaussian pooling on the CPU: the compiled loop, and its launch in threads.

A tile is a number of rows of regions. Its elements and variables are copied to work memory
(`cpu_tiles`), where regions are processed LANES at a time by the functions of the CPU engine;
results are copied back.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.jit import Array, cached_jit, inline_jit, is_compiled, jit
from whatwhere.engines.jit.region import (
    Axis,
    axis_weights,
    coordinate,
    fit_moments,
    pool_plane,
    pool_with_gradient,
    spread,
)
from whatwhere.engines.jit.simd import LANES, Lanes, Pair, load, store
from whatwhere.engines.jit.vector_math import fma, formulas
from whatwhere.engines.threads import share
from whatwhere.errors import warn
from whatwhere.nn.cpu_tiles import (
    GEOMETRY,
    Rows,
    copy_values,
    mark_outside,
    read_elements,
    write_elements,
)
from whatwhere.nn.fused import Maps
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

TILE = 512  # regions that are processed together, about
PER_THREAD = 20_000  # regions that are worth another thread
OPERATIONS = ("fit_pool", "fit_pool_backward", "pool", "slopes", "unpool")
FIT_POOL, FIT_POOL_BACKWARD, POOL, _, UNPOOL = range(5)  # their numbers, for compiled code
VALUES = 5  # p, μ_y, μ_x, γ_y, γ_x


class FitRule(NamedTuple):
    """How Gaussians are fitted; see `MomentFit`."""

    gamma_min: float
    gamma_max: float
    power: int


class Region(NamedTuple):
    """LANES regions in work memory.

    Parameters
    ----------
    z, w, values
        where elements, weights and values begin
    axes
        rows and columns
    outside
        how far OUTSIDE is from the weights; 0 if all elements lie in the map
    """

    z: int
    w: int
    values: int
    axes: tuple[Axis, Axis]
    outside: int


class Fitted(NamedTuple):
    """What the fit of LANES regions gives, in vectors.

    Parameters
    ----------
    largest
        |z|
    total
        Σ strength
    rows, columns
        μ and γ of each axis
    variances
        of the position along rows and along columns
    """

    largest: Lanes
    total: Lanes
    rows: Pair
    columns: Pair
    variances: Pair


# --- LANES regions in work memory


@inline_jit
def load_values(work: Array, at: Region) -> tuple[Lanes, Pair, Pair]:
    """p, θ_y and θ_x."""
    M = at.axes[0].step
    v = at.values
    rows = load(work, v + M), load(work, v + 3 * M)
    columns = load(work, v + 2 * M), load(work, v + 4 * M)
    return load(work, v), rows, columns


@inline_jit
def _store_values(work: Array, at: Region, p: Lanes, rows: Pair, columns: Pair) -> None:
    M = at.axes[0].step
    v = at.values
    store(work, v, p)
    store(work, v + M, rows[0])
    store(work, v + 2 * M, columns[0])
    store(work, v + 3 * M, rows[1])
    store(work, v + 4 * M, columns[1])


@inline_jit
def _set_weights(work: Array, at: Region, rows: Pair, columns: Pair) -> None:
    """w_y and w_x of θ_y and θ_x."""
    y, x = at.axes
    axis_weights(work, at.w, y, rows, y.size, at.outside)
    axis_weights(work, at.w, x, columns, x.size, at.outside)


@inline_jit
def fit(work: Array, at: Region, how: FitRule) -> Fitted:
    """Fit a Gaussian to each region, and set its weights."""
    largest, total, (mu_y, v_y), (mu_x, v_x) = fit_moments(work, at.z, at.axes, how.power, 0.0)
    rows = mu_y, formulas.precision(v_y, total, how.gamma_min, how.gamma_max)
    columns = mu_x, formulas.precision(v_x, total, how.gamma_min, how.gamma_max)
    _set_weights(work, at, rows, columns)
    return Fitted(largest, total, rows, columns, (v_y, v_x))


@jit
def _fit_gradient(work: Array, at: Region, how: FitRule) -> None:
    """Replace z by ∇z from the gradients of p, μ and γ: those through p = Σ w z, and those through
    the fit."""
    y, x = at.axes
    d_p, d_rows, d_columns = load_values(work, at)
    # the fit again, which costs less than reading what it gave
    fitted = fit(work, at, how)
    theta = fitted.rows, fitted.columns
    _, of_rows, of_columns = pool_with_gradient(work, at.z, at.w, at.axes, theta)
    # strengths are in units of the largest element, as the fit has them
    scale = 1 / formulas.or_one(fitted.largest)
    unit = scale / formulas.or_one(fitted.total)
    # gradients by θ: through p, and directly; then their slopes along the positions of elements
    by_rows = fma(d_p, of_rows[0], d_rows[0]), fma(d_p, of_rows[1], d_rows[1])
    by_columns = fma(d_p, of_columns[0], d_columns[0]), fma(d_p, of_columns[1], d_columns[1])
    a_y, b_y, c_y = formulas.fit_slope(fitted.rows, fitted.variances[0], by_rows, unit)
    a_x, b_x, c_x = formulas.fit_slope(fitted.columns, fitted.variances[1], by_columns, unit)
    for i in range(y.size):
        from_y = coordinate(i, y.size) - fitted.rows[0]
        weight = d_p * load(work, at.w + y.weights + i * y.step)
        of_row = fma(fma(b_y, from_y, a_y), from_y, -c_y - c_x)
        for j in range(x.size):
            from_x = coordinate(j, x.size) - fitted.columns[0]
            k = at.z + i * y.stride + j * x.stride
            slope = formulas.strength_slope(load(work, k) * scale, how.power)
            share = slope * fma(fma(b_x, from_x, a_x), from_x, of_row)
            store(work, k, fma(weight, load(work, at.w + x.weights + j * x.step), share))


@inline_jit
def compute(work: Array, at: Region, operation: int, how: FitRule) -> None:
    """Compute one operation on LANES regions: what it reads and writes are the elements and values
    in work memory."""
    y, x = at.axes
    if operation == FIT_POOL:
        fitted = fit(work, at, how)
        pooled = pool_plane(work, at.z, at.w, y, x)
        _store_values(work, at, pooled, fitted.rows, fitted.columns)
    elif operation == FIT_POOL_BACKWARD:
        _fit_gradient(work, at, how)
    else:
        p, rows, columns = load_values(work, at)
        _set_weights(work, at, rows, columns)
        if operation == UNPOOL:
            spread(work, at.z, at.w, p, (y, x), False)
        elif operation == POOL:
            store(work, at.values, pool_plane(work, at.z, at.w, y, x))
        else:
            theta = rows, columns
            pooled, of_rows, of_columns = pool_with_gradient(work, at.z, at.w, at.axes, theta)
            d_rows = p * of_rows[0], p * of_rows[1]
            d_columns = p * of_columns[0], p * of_columns[1]
            _store_values(work, at, pooled, d_rows, d_columns)


@cached_jit
def run(source: str) -> Callable[..., None]:
    def run(
        rows: Rows, geometry: Array, how: FitRule, maps: tuple[Array, ...], work: Array
    ) -> None:
        """Run an operation on rows of regions, a tile at a time.

        Parameters
        ----------
        maps
            flat: z, p, μ and γ that are read, then those that are written; those that are not given
            have no elements
        """
        source  # noqa: B018
        g = geometry[0]
        # where elements, weights and values are in work memory
        M = g.pitch
        elements = g.size_y * g.size_x
        weights = g.size_y + g.size_x
        values = (elements + 2 * weights) * M
        axes = Axis(g.size_y, g.size_x * M, 0, M), Axis(g.size_x, M, g.size_y * M, M)
        outside = 0 if g.inside else weights * M
        for start in range(rows.first, rows.last, g.tile):
            tile = Rows(start, min(start + g.tile, rows.last))
            # what the operation reads; map 1 has value 0 (p), 2 has 1 and 2 (μ), 3 has 3 and 4 (γ)
            if g.inside == 0:
                mark_outside(g, tile, work)
            if len(maps[0]) > 0:
                read_elements(maps[0], g, tile, work)
            for k in range(VALUES):
                if len(maps[1 + (k + 1) // 2]) > 0:
                    copy_values(maps[1 + (k + 1) // 2], g, tile, work, k, True)
            for m in range(0, (tile.last - tile.first) * g.columns, LANES):
                at = Region(m, elements * M + m, values + m, axes, outside)
                compute(work, at, g.operation, how)
            # what it writes
            for k in range(VALUES):
                if len(maps[5 + (k + 1) // 2]) > 0:
                    copy_values(maps[5 + (k + 1) // 2], g, tile, work, k, False)
            if len(maps[4]) > 0:
                write_elements(maps[4], g, tile, work)

    return run


@cache
def announce_compilation() -> None:
    """Say, once, why the first call takes long."""
    if not is_compiled(run):
        warn(
            "The first Gaussian pooling on this machine compiles its kernels, which takes about"
            " 20 s, once per installation."
        )


def launch(operation: str, regions: Regions, read: Maps, written: Maps, fit: MomentFit) -> None:
    """Run an operation of `fused` on all regions, in as many threads as are worth their cost.

    Maps in half precision are computed in float32. Threads share the planes (one channel of one
    image each), so that results do not depend on their number.
    """
    given = next(tensor for tensor in read if tensor is not None)
    dtype = torch.float64 if given.dtype == torch.float64 else torch.float32
    sources = [None if tensor is None else _plain_memory(tensor, dtype) for tensor in read]
    targets = [None if tensor is None else _plain_memory(tensor, dtype) for tensor in written]
    # regions that overlap add their contributions, and gaps between regions stay 0
    if targets[0] is not None and not regions.tiling:
        targets[0].zero_()
    p = next(tensor for tensor in (sources[1], targets[1]) if tensor is not None)
    nothing = p.new_empty(0)
    maps = tuple(
        (nothing if tensor is None else tensor.view(-1)).numpy() for tensor in (*sources, *targets)
    )
    planes = p.shape[0] * p.shape[1]
    rows = p.shape[2]
    record, length = describe(regions, operation)
    how = FitRule(float(fit.gamma_min), float(fit.gamma_max), fit.power)

    def work(first: int, last: int) -> None:
        memory = torch.zeros(length, dtype=dtype).numpy()
        run(Rows(first * rows, last * rows), record, how, maps, memory)

    announce_compilation()
    share(work, planes, min(torch.get_num_threads(), planes, p.numel() // PER_THREAD))
    for target, computed in zip(written, targets, strict=True):
        if target is not None and computed is not None and not computed.is_set_to(target):
            target.copy_(computed)


def _plain_memory(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor as the kernel needs it: contiguous and in a dtype; itself if it is that."""
    return tensor.detach().to(dtype).contiguous()


@lru_cache(256)
def describe(regions: Regions, operation: str) -> tuple[np.ndarray, int]:
    """Return what the kernel knows of regions, and the length of its work memory."""
    channels, rows, columns = regions.grid
    _, size_y, size_x = regions.size
    tile = max(1, TILE // columns)
    pitch = (-(-tile * columns // LANES) + 1) * LANES  # with a margin
    inside, overlap = regions.inside(1) and regions.inside(2), not regions.tiling
    axes = (
        *regions.size[1:],
        *regions.stride[1:],
        *regions.padding[1:],
        *regions.shape[1:],
        rows,
        columns,
    )
    numbers = (*axes, channels, inside, overlap, tile, pitch, OPERATIONS.index(operation))
    return np.array([numbers], GEOMETRY), (size_y * size_x + 2 * (size_y + size_x) + VALUES) * pitch
