"""The kernel for overlapping regions: every element of the map adds up the contributions of its regions.

A program processes one band of regions after another. First it stores, for every region of the band and for those above
that overlap it, the few numbers that determine a contribution. Then it visits the cells of the band (the elements
between the start of one region and of the next) and adds up the contributions of the regions that contain them. The
stored numbers are few and their memory is reused for the next band, so that they stay in the cache: each map is read
and written once, and the sum has a fixed order.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="assignment,var-annotated"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn.triton_region import Region, element, fit_slopes, gradient, load_slopes, norm, place

BLOCK = 256  # regions or elements at a time
BAND = 1024  # regions of a band, about
CHANNELS = 32  # channels of a band in channels_last
NUMBERS = 12  # that determine the contribution of a region


@triton.jit
def load_numbers(note, count, holds):
    """Six numbers of a region."""
    numbers = ()
    for i in tl.static_range(6):
        numbers += (tl.load(note + i * count, mask=holds, other=0),)
    return numbers


@triton.jit
def overlap_kernel(
    z, p, mu, gamma, out, notes, N, C, H, W, h, w, TY: tl.constexpr, TX: tl.constexpr, PY, PX, lo, hi,
    zn, zc, zy, zx, pn, pc, py, px, mn, ma, mc, my, mx, gn, ga, gc, gy, gx, on, oc, oy, ox,
    rows, bands, groups, columns,
    UNPOOL: tl.constexpr, POWER: tl.constexpr, D_MU: tl.constexpr, D_GAMMA: tl.constexpr,
    KY: tl.constexpr, KX: tl.constexpr, MY: tl.constexpr, MX: tl.constexpr, GROUP: tl.constexpr,
    INSIDE: tl.constexpr, CHANNELS_LAST: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    """UNPOOL: out = Σ_j w(i) p(j) with θ = (mu, gamma). Otherwise out = ∇z from ∇p, ∇μ, ∇γ = p, mu, gamma.

    A band is `rows` rows of regions of GROUP channels of one image; MY × MX regions at most hold an element.
    In cell (y, x), TY × TX elements, lie the first elements of region (y, x); `columns` cells make up a row.
    """
    unit = tl.program_id(0)
    step = tl.num_programs(0)
    if WIDE:
        unit, step = unit.to(tl.int64), step.to(tl.int64)
    above: tl.constexpr = MY - 1
    count = (rows + above) * w * GROUP
    notes += tl.program_id(0).to(tl.int64) * count * NUMBERS
    while unit < N * groups * bands:
        band = unit % bands
        first_c = unit // bands % groups * GROUP
        n = unit // bands // groups
        start = 0
        while start < count:
            index = start + tl.arange(0, BLOCK)
            _, c, y, x = place(index, GROUP, rows + above, w, CHANNELS_LAST)
            y += band * rows - above
            c += first_c
            live = (index < count) & (y >= 0) & (y < h) & (c < C)
            top, left = y * TY - PY, x * TX - PX
            p_at = p + n * pn + c * pc + y * py + x * px
            mu_at = mu + n * mn + c * mc + y * my + x * mx
            gamma_at = gamma + n * gn + c * gc + y * gy + x * gx
            note = notes + index
            slopes = load_slopes((p_at, mu_at, gamma_at), (ma, ga), live, D_MU, D_GAMMA, ACC)
            if UNPOOL:
                feature, mu_y, mu_x, g_y, g_x = slopes
                peak_y, scale_y = norm((top, H, mu_y, g_y), KY, INSIDE)
                peak_x, scale_x = norm((left, W, mu_x, g_x), KX, INSIDE)
                known = mu_y, mu_x, g_y, g_x, feature * scale_y * scale_x, peak_y + peak_x
            else:
                r = Region(z + n * zn + c * zc, top, left, live, H, W, zy, zx)
                known, more = fit_slopes(r, slopes, (lo, hi), KY, KX, POWER, INSIDE, ACC)
                for i in tl.static_range(6):
                    tl.store(note + (6 + i) * count, more[i], mask=live)
            for i in tl.static_range(6):
                tl.store(note + i * count, known[i], mask=live)
            start += BLOCK
        tl.debug_barrier()
        cells = rows * columns * GROUP
        start = 0
        while start < cells:
            index = start + tl.arange(0, BLOCK)
            _, in_group, in_band, x = place(index, GROUP, rows, columns, CHANNELS_LAST)
            y, c = band * rows + in_band, first_c + in_group
            live = (index < cells) & (c < C)
            top, left = y * TY - PY, x * TX - PX
            values, totals = (), ()
            for e in tl.static_range(TY):
                for f in tl.static_range(TX):
                    v = tl.zeros((BLOCK,), ACC)
                    if not UNPOOL:
                        v = element(Region(z + n * zn + c * zc, top, left, live, H, W, zy, zx), e, f, False, ACC)
                    values += (v,)
                    totals += (tl.zeros((BLOCK,), ACC),)
            for a in tl.static_range(MY):
                for b in tl.static_range(MX):
                    holds = live & (y >= a) & (y - a < h) & (x >= b) & (x - b < w)
                    at = (in_band + above - a) * w + x - b
                    note = notes + (at * GROUP + in_group if CHANNELS_LAST else in_group * (rows + above) * w + at)
                    known = load_numbers(note, count, holds)
                    more = known
                    if not UNPOOL:
                        more = load_numbers(note + 6 * count, count, holds)
                    mu_y, mu_x, g_y, g_x, G, peak = known
                    added = ()
                    for e in tl.static_range(TY):
                        for f in tl.static_range(TX):
                            total = totals[e * TX + f]
                            if e + a * TY < KY and f + b * TX < KX:
                                from_y = e + a * TY - (KY - 1) / 2 - mu_y
                                from_x = f + b * TX - (KX - 1) / 2 - mu_x
                                if UNPOOL:
                                    share = G * tl.exp(-0.25 * (g_y * from_y * from_y + g_x * from_x * from_x) - peak)
                                else:
                                    share = gradient(values[e * TX + f], from_y, from_x, known, more, POWER)
                                total += tl.where(holds, share, 0.0)
                            added += (total,)
                    totals = added
            for e in tl.static_range(TY):
                for f in tl.static_range(TX):
                    row, col = top + e, left + f
                    there = live & (row >= 0) & (row < H) & (col >= 0) & (col < W)
                    tl.store(out + n * on + c * oc + row * oy + col * ox, totals[e * TX + f], mask=there)
            start += BLOCK
        tl.debug_barrier()
        unit += step


def launch(
    z: Tensor,
    p: Tensor,
    geometry: Sequence[int],
    tensors: tuple[Tensor, ...],
    bounds: tuple[float, float],
    strides: tuple[int, ...],
    constants: dict[str, Any],
) -> None:
    """Launch a few programs per multiprocessor, each for several bands; nothing for an empty map."""
    if z.numel() == 0:
        return
    size, step, before = geometry[:2], geometry[2:4], geometry[4:6]
    (n, c), (h, w) = z.shape[:2], p.shape[2:]
    group = min(CHANNELS, triton.next_power_of_2(c)) if constants["CHANNELS_LAST"] else 1
    cells, columns = ((n - 1 + b) // t + 1 for n, b, t in zip(z.shape[2:], before, step, strict=True))
    rows = min(cells, triton.cdiv(BAND, w * group))
    bands, groups = triton.cdiv(cells, rows), triton.cdiv(c, group)
    most = [triton.cdiv(s, t) for s, t in zip(size, step, strict=True)]
    programs = min(n * groups * bands, 4 * processors(z))
    length = (rows + most[0] - 1) * w * group * NUMBERS
    notes = z.new_empty(programs * length, dtype=torch.float64 if z.dtype == torch.float64 else torch.float32)
    with torch.cuda.device_of(z):
        overlap_kernel[(programs,)](
            *tensors, notes, *z.shape, h, w, *geometry[2:6], *bounds, *strides, rows, bands, groups, columns,
            MY=most[0], MX=most[1], GROUP=group, BLOCK=BLOCK, NUMBERS=NUMBERS, **constants,
        )  # fmt: skip


def processors(z: Tensor) -> int:
    return torch.cuda.get_device_properties(z.device).multi_processor_count if z.is_cuda else 1
