"""Fused kernels of Gaussian pooling for CUDA, one region for each thread, and their launch.

Where regions overlap and an operation writes their elements, `triton_overlap` adds up their
contributions.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn import fused, plain, triton_overlap, triton_pairs
from whatwhere.nn.triton_region import (
    Axis,
    Memory,
    Rule,
    Sizes,
    contribution,
    element,
    fit,
    fit_slopes,
    inside,
    load_values,
    map_offset,
    norm,
    place,
    program_index,
    region_at,
    sums,
    theta_offset,
    weight,
)
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

BLOCK = 256  # regions of one program
WIDE = 2**31  # number of elements from which offsets need 64 bits


class Launch(NamedTuple):
    """What a launch needs to know in addition to its tensors.

    Parameters
    ----------
    overlap
        regions overlap where the operation writes
    gaps
        the operation leaves elements of z out, which are 0
    pairs
        the operation is one of `triton_pairs`, for maps that these hold
    """

    rule: Rule
    sizes: Sizes
    overlap: bool
    gaps: bool
    pairs: bool


@triton.jit
def pooling_kernel(read, written, sizes, bounds, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the operation of the rule for BLOCK regions; where it writes z, these do not
    overlap."""
    index = program_index(BLOCK, RULE.wide)
    at = place(index, sizes.C, sizes.h, sizes.w, RULE.channels_last)
    live = at[0] < sizes.N
    r = region_at(read, at, live, sizes)
    if RULE.operation == "fit_pool":
        f = fit(r, bounds, RULE)
        theta = f.mu_y, f.mu_x, f.gamma_y, f.gamma_x
        pooled, _, _, _ = sums(r, theta, RULE)
        tl.store(written.p + map_offset(written.p_strides, at), pooled, mask=live)
        if RULE.theta:
            store_theta(written, at, theta, live)
    elif RULE.operation == "unpool":
        v = load_values(read, at, live, RULE)
        spread(region_at(written, at, live, sizes), v, RULE)
    elif RULE.operation == "fit_pool_backward":
        slopes = fit_slopes(r, load_values(read, at, live, RULE), bounds, RULE)
        store_gradient(region_at(written, at, live, sizes), r, slopes, RULE)
    else:
        p, mu_y, mu_x, g_y, g_x = load_values(read, at, live, RULE)
        pooled, by_theta, _, _ = sums(r, (mu_y, mu_x, g_y, g_x), RULE)
        tl.store(written.p + map_offset(written.p_strides, at), pooled, mask=live)
        if RULE.operation == "slopes":
            slopes = p * by_theta[0], p * by_theta[1], p * by_theta[2], p * by_theta[3]
            store_theta(written, at, slopes, live)


@triton.jit
def store_theta(maps, at, theta, live):
    """μ_y, μ_x, γ_y and γ_x of each region, or what belongs to them."""
    mu = maps.mu + theta_offset(maps.mu_strides, at)
    gamma = maps.gamma + theta_offset(maps.gamma_strides, at)
    tl.store(mu, theta[0], mask=live)
    tl.store(mu + maps.mu_strides[1], theta[1], mask=live)
    tl.store(gamma, theta[2], mask=live)
    tl.store(gamma + maps.gamma_strides[1], theta[3], mask=live)


@triton.jit
def spread(out, v, RULE: tl.constexpr):
    """z(i) = w(i) p(j)."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    axis_y = Axis(out.top, out.H, v.mu_y, v.gamma_y)
    axis_x = Axis(out.left, out.W, v.mu_x, v.gamma_x)
    norm_y = norm(axis_y, KY, RULE.inside)
    norm_x = norm(axis_x, KX, RULE.inside)
    for i in tl.static_range(KY):
        row = v.p * weight(i, axis_y, norm_y, KY, RULE.inside)
        for j in tl.static_range(KX):
            share = row * weight(j, axis_x, norm_x, KX, RULE.inside)
            place = out.z + i * out.zy + j * out.zx
            tl.store(place, share, mask=inside(out, i, j, RULE.inside))


@triton.jit
def store_gradient(out, r, slopes, RULE: tl.constexpr):
    """∇z of the elements of each region."""
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    # all before the first store, so that no element is loaded twice
    gradient = ()
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            gradient += (contribution(element(r, i, j, RULE.inside), i, j, slopes, RULE),)
    for i in tl.static_range(KY):
        for j in tl.static_range(KX):
            place = out.z + i * out.zy + j * out.zx
            tl.store(place, gradient[i * KX + j], mask=inside(out, i, j, RULE.inside))


def launch(
    operation: str, regions: Regions, read: fused.Maps, written: fused.Maps, fit: MomentFit
) -> None:
    """Run an operation of `fused` on all regions."""
    z = read.z if written.z is None else written.z
    assert z is not None  # every operation reads or writes z
    theta = read.mu is not None or written.mu is not None
    how = describe(operation, regions, z.shape[0], plain.channels_last(z), theta, fit.power)
    if how.pairs and triton_pairs.holds(z):
        return _launch_pairs(read, written, fit)
    bounds = float(fit.gamma_min), float(fit.gamma_max)
    source = memory_of(read, z)
    target = memory_of(written, z)
    with torch.cuda.device_of(z):
        if how.overlap:
            return triton_overlap.launch(source, target, how.sizes, bounds, how.rule)
        if how.gaps:
            z.zero_()
        sizes = how.sizes
        programs = (triton.cdiv(sizes.N * sizes.C * sizes.h * sizes.w, BLOCK),)
        pooling_kernel[programs](source, target, sizes, bounds, RULE=how.rule, BLOCK=BLOCK)


def _launch_pairs(read: fused.Maps, written: fused.Maps, fit: MomentFit) -> None:
    """`fit_pool`, or its derivative, in regions of 2 × 2."""
    z = read.z
    assert z is not None
    with torch.cuda.device_of(z):
        if written.p is not None:
            triton_pairs.launch_fit_pool(z, written.p, fit)
        else:
            assert read.p is not None
            assert written.z is not None
            triton_pairs.launch_fit_pool_backward(z, read.p, written.z, fit)


@lru_cache(256)
def describe(
    operation: str, regions: Regions, images: int, channels_last: bool, theta: bool, power: int
) -> Launch:
    """Return what a launch needs to know, computed once for each geometry."""
    shape = regions.shape
    grid = regions.grid
    size = regions.size[1:]
    stride = regions.stride[1:]
    writes_z = operation in ("unpool", "fit_pool_backward")
    overlap = writes_z and (stride[0] < size[0] or stride[1] < size[1])
    rule = Rule(
        operation,
        size,
        power,
        inside=regions.inside(1) and regions.inside(2),
        channels_last=channels_last,
        theta=theta,
        wide=images * max(math.prod(shape), 4 * math.prod(grid)) >= WIDE,
        stride=stride if overlap else (0, 0),
    )
    sizes = Sizes(images, *shape, *grid[1:], *stride, *regions.padding[1:])
    fits = operation in ("fit_pool", "fit_pool_backward")
    return Launch(
        rule,
        sizes,
        overlap,
        gaps=writes_z and not regions.tiling,
        pairs=fits and not theta and triton_pairs.fills(regions),
    )


def memory_of(maps: fused.Maps, instead: Tensor) -> Memory:
    """Tensors with their strides; what is not given is another tensor, which is not used."""
    tensors = []
    strides = []
    for tensor, axes in zip(maps, (4, 4, 5, 5), strict=True):
        tensors.append(instead if tensor is None else tensor)
        strides.append((0,) * axes if tensor is None else tensor.stride())
    return Memory(*tensors, *strides)
