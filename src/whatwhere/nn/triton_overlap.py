"""The kernels for overlapping regions: every element of the map adds up the contributions of its
regions, in a fixed order.

The elements between the start of one region and of the next are a cell. A thread has a cell, visits
the regions that contain it and writes its elements once. For the gradient of the fit, what a region
contributes is computed first and stored as 12 numbers (`Slopes`), because it needs all elements of
the region; for unpooling it is computed again for each cell, which is faster than reading it.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from whatwhere.nn.triton_region import (
    Axis,
    Memory,
    Rule,
    Sizes,
    Slopes,
    contribution,
    element,
    fit_slopes,
    inside,
    load_values,
    norm,
    place,
    program_index,
    region_at,
    weight,
    zeros,
)

BLOCK = 256  # regions or cells of one program
SLOPES = len(Slopes._fields)
LARGEST_NOTES = 2**26  # numbers of slopes that are stored at a time: 256 MiB in float32


@triton.jit
def slopes_kernel(read, notes, sizes, bounds, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """Store the slopes of BLOCK regions."""
    index = program_index(BLOCK, RULE.wide)
    at = place(index, sizes.C, sizes.h, sizes.w, RULE.channels_last)
    live = at[0] < sizes.N
    r = region_at(read, at, live, sizes)
    slopes = fit_slopes(r, load_values(read, at, live, RULE), bounds, RULE)
    # a pointer that moves on: k * count may need more than 32 bits
    note = notes + index
    for k in tl.static_range(12):
        tl.store(note, slopes[k], mask=live)
        note += sizes.N * sizes.C * sizes.h * sizes.w


@triton.jit
def _number_of(at, sizes, CHANNELS_LAST: tl.constexpr):
    """Return the numbers of the regions at = (n, c, y, x) in the order of memory; the inverse of
    `place`."""
    n, c, y, x = at
    if CHANNELS_LAST:
        return ((n * sizes.h + y) * sizes.w + x) * sizes.C + c
    return ((n * sizes.C + c) * sizes.h + y) * sizes.w + x


@triton.jit
def _load_slopes(notes, at, holds, sizes, RULE: tl.constexpr):
    """Load the slopes of the regions at = (n, c, y, x)."""
    note = notes + _number_of(at, sizes, RULE.channels_last)
    numbers = ()
    for _ in tl.static_range(12):
        numbers += (tl.load(note, mask=holds, other=0),)
        note += sizes.N * sizes.C * sizes.h * sizes.w
    return Slopes(*numbers)  # type: ignore[call-arg]


@triton.jit
def gather_kernel(read, written, notes, sizes, cells, RULE: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the contributions of all regions to the elements of BLOCK cells.

    In cell (y, x), TY × TX elements, lie the first elements of region (y, x). MY × MX regions at
    most contain an element: (y, x) and those before it.
    """
    KY: tl.constexpr = RULE.size[0]
    KX: tl.constexpr = RULE.size[1]
    TY: tl.constexpr = RULE.stride[0]
    TX: tl.constexpr = RULE.stride[1]
    MY: tl.constexpr = (KY + TY - 1) // TY
    MX: tl.constexpr = (KX + TX - 1) // TX
    index = program_index(BLOCK, RULE.wide)
    n, c, y, x = place(index, sizes.C, cells[0], cells[1], RULE.channels_last)
    live = n < sizes.N
    cell = region_at(written, (n, c, y, x), live, sizes)
    # the elements are read once; unpooling does not need them
    values = ()
    totals = ()
    source = region_at(read, (n, c, y, x), live, sizes)
    for e in tl.static_range(TY):
        for f in tl.static_range(TX):
            total = zeros(written.z, x)
            if RULE.operation == "unpool":
                values += (total,)
            else:
                values += (element(source, e, f, False),)
            totals += (total,)
    for a in tl.static_range(MY):
        for b in tl.static_range(MX):
            # region (y - a, x - b), as seen from the cell
            holds = live & (y >= a) & (y - a < sizes.h) & (x >= b) & (x - b < sizes.w)
            at = n, c, y - a, x - b
            added = ()
            if RULE.operation == "unpool":
                v = load_values(read, at, holds, RULE)
                axis_y = Axis(cell.top - a * TY, cell.H, v.mu_y, v.gamma_y)
                axis_x = Axis(cell.left - b * TX, cell.W, v.mu_x, v.gamma_x)
                # a region that does not exist may lie outside the map: its norm is not used
                norm_y = norm(axis_y, KY, RULE.inside)
                norm_x = norm(axis_x, KX, RULE.inside)
                for e in tl.static_range(TY):
                    for f in tl.static_range(TX):
                        total = totals[e * TX + f]
                        if e + a * TY < KY and f + b * TX < KX:
                            w_y = weight(e + a * TY, axis_y, norm_y, KY, RULE.inside)
                            w_x = weight(f + b * TX, axis_x, norm_x, KX, RULE.inside)
                            total += tl.where(holds, v.p * w_y * w_x, 0.0)
                        added += (total,)
            else:
                slopes = _load_slopes(notes, at, holds, sizes, RULE)
                for e in tl.static_range(TY):
                    for f in tl.static_range(TX):
                        total = totals[e * TX + f]
                        if e + a * TY < KY and f + b * TX < KX:
                            value = values[e * TX + f]
                            share = contribution(value, e + a * TY, f + b * TX, slopes, RULE)
                            total += tl.where(holds, share, 0.0)
                        added += (total,)
            totals = added
    for e in tl.static_range(TY):
        for f in tl.static_range(TX):
            target = cell.z + e * cell.zy + f * cell.zx
            tl.store(target, totals[e * TX + f], mask=inside(cell, e, f, False))


def launch(
    read: Memory, written: Memory, sizes: Sizes, bounds: tuple[float, float], rule: Rule
) -> None:
    """Write z, or ∇z, of all images; as many at a time as their slopes have room for."""
    rows = (sizes.H - 1 + sizes.padding_y) // sizes.stride_y + 1
    columns = (sizes.W - 1 + sizes.padding_x) // sizes.stride_x + 1
    cells = rows, columns
    if rule.operation == "unpool":
        return gather(read, written, written.z, sizes, cells, rule)
    regions = sizes.C * sizes.h * sizes.w
    some = max(1, min(sizes.N, LARGEST_NOTES // (SLOPES * regions)))
    dtype = torch.float64 if read.z.dtype == torch.float64 else torch.float32
    notes = read.z.new_empty(SLOPES * some * regions, dtype=dtype)
    for first in range(0, sizes.N, some):
        images = slice(first, min(first + some, sizes.N))
        part = sizes._replace(N=images.stop - images.start)
        given = of_images(read, images)
        programs = (triton.cdiv(part.N * regions, BLOCK),)
        slopes_kernel[programs](given, notes, part, bounds, RULE=rule, BLOCK=BLOCK)
        gather(given, of_images(written, images), notes, part, cells, rule)


def gather(
    read: Memory, written: Memory, notes: Any, sizes: Sizes, cells: tuple[int, int], rule: Rule
) -> None:
    programs = (triton.cdiv(sizes.N * sizes.C * cells[0] * cells[1], BLOCK),)
    gather_kernel[programs](read, written, notes, sizes, cells, RULE=rule, BLOCK=BLOCK)


def of_images(memory: Memory, images: slice) -> Memory:
    """Return the part of some images; strides stay."""
    return memory._replace(
        z=memory.z[images], p=memory.p[images], mu=memory.mu[images], gamma=memory.gamma[images]
    )
