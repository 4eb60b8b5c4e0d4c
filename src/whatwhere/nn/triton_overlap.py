"""The kernel for overlapping regions: every element of the map adds up the contributions of its regions.

A program processes one band of regions after another. First it stores, for every region of the band and for those above
that overlap it, the few numbers that determine a contribution. Then it visits the cells of the band (the elements
between the start of one region and of the next) and adds up the contributions of the regions that contain them. The
stored numbers are few and their memory is reused for the next band, so that they stay in the cache: each map is read
and written once, and the sum has a fixed order.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.nn.triton_region import (
    Maps,
    Region,
    Rule,
    Sizes,
    element,
    fit_slopes,
    gradient,
    load_values,
    norm,
    place,
    zeros,
)

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
def overlap_kernel(maps, notes, sizes, bands, bounds, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """UNPOOL: z = Σ_j w(i) p(j). Otherwise ∇z, from z, ∇p, ∇μ and ∇γ.

    A band is `rows` rows of regions of GROUP channels of one image; MY × MX regions at most hold an element. In cell
    (y, x), TY × TX elements, lie the first elements of region (y, x); `columns` cells make up a row.
    """
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    TY: tl.constexpr = RULE.stride[0]
    TX: tl.constexpr = RULE.stride[1]
    MY: tl.constexpr = RULE.holders[0]
    MX: tl.constexpr = RULE.holders[1]
    GROUP: tl.constexpr = RULE.group
    IS_SUM: tl.constexpr = RULE.operation == "unpool"
    read, written = maps
    N, C, H, W, h, w = sizes.N, sizes.C, sizes.H, sizes.W, sizes.h, sizes.w
    PY, PX = sizes.padding_y, sizes.padding_x
    rows, bands, groups, columns = bands
    zn, zc, zy, zx = read.z_strides
    on, oc, oy, ox = written.z_strides
    unit = tl.program_id(0)
    step = tl.num_programs(0)
    if RULE.wide:
        unit, step = unit.to(tl.int64), step.to(tl.int64)
    above: tl.constexpr = MY - 1
    count = (rows + above) * w * GROUP
    notes += tl.program_id(0).to(tl.int64) * (count * 12)
    while unit < N * groups * bands:
        band = unit % bands
        first_c = unit // bands % groups * GROUP
        n = unit // bands // groups
        start = 0
        while start < count:
            index = start + tl.arange(0, BLOCK)
            _, c, y, x = place(index, GROUP, rows + above, w, RULE.channels_last)
            y += band * rows - above
            c += first_c
            live = (index < count) & (y >= 0) & (y < h) & (c < C)
            top, left = y * TY - PY, x * TX - PX
            note = notes + index
            slopes = load_values(read, (n, c, y, x), live, RULE)
            if IS_SUM:
                feature, mu_y, mu_x, g_y, g_x = slopes
                peak_y, scale_y = norm((top, H, mu_y, g_y), KY, RULE.inside)
                peak_x, scale_x = norm((left, W, mu_x, g_x), KX, RULE.inside)
                known = mu_y, mu_x, g_y, g_x, feature * scale_y * scale_x, peak_y + peak_x
            else:
                r = Region(read.z + n * zn + c * zc, top, left, live, H, W, zy, zx)
                known, more = fit_slopes(r, slopes, bounds, RULE)
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
            _, in_group, in_band, x = place(index, GROUP, rows, columns, RULE.channels_last)
            y, c = band * rows + in_band, first_c + in_group
            live = (index < cells) & (c < C)
            top, left = y * TY - PY, x * TX - PX
            values, totals = (), ()
            for e in tl.static_range(TY):
                for f in tl.static_range(TX):
                    v = zeros(written.z, x)
                    if not IS_SUM:
                        v = element(Region(read.z + n * zn + c * zc, top, left, live, H, W, zy, zx), e, f, False)
                    values += (v,)
                    totals += (zeros(written.z, x),)
            for a in tl.static_range(MY):
                for b in tl.static_range(MX):
                    holds = live & (y >= a) & (y - a < h) & (x >= b) & (x - b < w)
                    at = (in_band + above - a) * w + x - b
                    note = notes + (at * GROUP + in_group if RULE.channels_last else in_group * (rows + above) * w + at)
                    known = load_numbers(note, count, holds)
                    more = known
                    if not IS_SUM:
                        more = load_numbers(note + 6 * count, count, holds)
                    mu_y, mu_x, g_y, g_x, G, peak = known
                    added = ()
                    for e in tl.static_range(TY):
                        for f in tl.static_range(TX):
                            total = totals[e * TX + f]
                            if e + a * TY < KY and f + b * TX < KX:
                                from_y = e + a * TY - (KY - 1) / 2 - mu_y
                                from_x = f + b * TX - (KX - 1) / 2 - mu_x
                                if IS_SUM:
                                    share = G * tl.exp(-0.25 * (g_y * from_y * from_y + g_x * from_x * from_x) - peak)
                                else:
                                    share = gradient(values[e * TX + f], from_y, from_x, known, more, RULE.power)
                                total += tl.where(holds, share, 0.0)
                            added += (total,)
                    totals = added
            for e in tl.static_range(TY):
                for f in tl.static_range(TX):
                    row, col = top + e, left + f
                    there = live & (row >= 0) & (row < H) & (col >= 0) & (col < W)
                    tl.store(written.z + n * on + c * oc + row * oy + col * ox, totals[e * TX + f], mask=there)
            start += BLOCK
        tl.debug_barrier()
        unit += step


def launch(read: Maps, written: Maps, sizes: Sizes, bounds: tuple[float, float], rule: Rule) -> None:
    """Launch a few programs per multiprocessor, each for several bands; nothing for an empty map."""
    z: Tensor = written.z
    if z.numel() == 0:
        return
    step, before = (sizes.stride_y, sizes.stride_x), (sizes.padding_y, sizes.padding_x)
    n, c, w = sizes.N, sizes.C, sizes.w
    group = min(CHANNELS, triton.next_power_of_2(c)) if rule.channels_last else 1
    cells, columns = ((n - 1 + b) // t + 1 for n, b, t in zip(z.shape[2:], before, step, strict=True))
    rows = min(cells, triton.cdiv(BAND, w * group))
    bands, groups = triton.cdiv(cells, rows), triton.cdiv(c, group)
    holders = triton.cdiv(rule.size[0], step[0]), triton.cdiv(rule.size[1], step[1])
    processors = torch.cuda.get_device_properties(z.device).multi_processor_count if z.is_cuda else 1
    programs = min(n * groups * bands, 4 * processors)
    length = (rows + holders[0] - 1) * w * group * NUMBERS
    notes = z.new_empty(programs * length, dtype=torch.float64 if z.dtype == torch.float64 else torch.float32)
    rule = replace(rule, stride=step, holders=holders, group=group)
    with torch.cuda.device_of(z):
        overlap_kernel[(programs,)](
            (read, written), notes, sizes, (rows, bands, groups, columns), bounds, RULE=rule, BLOCK=BLOCK
        )
