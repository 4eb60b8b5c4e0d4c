"""Tiles of regions in work memory, for Gaussian pooling on the CPU: what copies maps in and out.

A tile is a number of rows of regions, counted through all images and channels. Work memory has rows
of `pitch` numbers, one for each region of the tile: the elements of a region, the weights of its
rows and columns, OUTSIDE for those outside the map, then p, μ_y, μ_x, γ_y, γ_x (or their
gradients).

Copies run along a row of regions, in whole vectors; the last vector of a row ends with the row.
Elements that a region shares with its neighbours are read once, and written once: they are copied
within work memory, where the same element of all regions lies side by side.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core.base import BaseContext
from numba.core.typing.context import Context as TypingContext
from numba.core.typing.templates import Signature

from whatwhere.engines.jit import Array, inline_jit, jit
from whatwhere.engines.jit.region import OUTSIDE
from whatwhere.engines.jit.simd import (
    LANES,
    Lanes,
    Lowering,
    Vector,
    intrinsic,
    load,
    noinline,
    store,
)
from whatwhere.engines.jit.vector_math import formulas  # noqa: F401  (operators between vectors)

NUMBERS = (
    *("size_y", "size_x", "stride_y", "stride_x", "padding_y", "padding_x"),  # of a region
    *("height", "width"),  # of the map
    *("rows", "columns"),  # of regions
    "channels",
    "inside",  # whether all regions lie inside the map
    "overlap",  # regions add their contributions to the map, which is 0 before
    "tile",  # rows of regions in a tile
    "pitch",  # of work memory
    "operation",
)
GEOMETRY = np.dtype([(name, np.int64) for name in NUMBERS])
Geometry = Any  # one such record


class Rows(NamedTuple):
    """Rows of regions, counted through all images and channels: from `first` to before `last`."""

    first: int
    last: int


class _Line(NamedTuple):
    """Element (i, j) of each region of a row.

    Parameters
    ----------
    at
        where that of region 0 would be in the map
    of
        where it is in work memory
    first
        the first region whose element lies in the map
    last
        the region after the last one
    """

    at: int
    of: int
    first: int
    last: int


# --- two vectors side by side, and two vectors of their numbers at even and at odd places


def _shuffle(places: Sequence[int]) -> Callable[[Lanes, Lanes], Lanes]:
    """Make a function that picks LANES numbers of two vectors, counted through both."""

    def define(typingctx: TypingContext, a: Vector, b: Vector) -> Lowering | None:
        def codegen(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            index = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(places))
            return builder.shuffle_vector(*arguments, index)

        return a(a, b), codegen

    found: Callable[[Lanes, Lanes], Lanes] = intrinsic(define)
    return found


_evens, _odds = _shuffle(range(0, 2 * LANES, 2)), _shuffle(range(1, 2 * LANES, 2))
_alternating = [lane // 2 + lane % 2 * LANES for lane in range(2 * LANES)]
_lower, _upper = _shuffle(_alternating[:LANES]), _shuffle(_alternating[LANES:])


# --- where things are


@inline_jit
def _line(g: Geometry, place: tuple[int, int], of: int, j: int) -> _Line:
    """Return element (i, j) of the regions of a row.

    Parameters
    ----------
    place
        where the plane begins in the map, and the row of element i in it
    """
    plane, y = place
    first = 0
    last = g.columns
    if g.inside == 0:
        step = g.stride_x
        before = g.padding_x - j
        after = g.width - 1 + before
        first = (before + step - 1) // step if before > 0 else 0
        last = min(g.columns, after // step + 1) if after >= 0 else 0
        if not 0 <= y < g.height or last < first:
            last = first = 0
    return _Line(plane + y * g.width - g.padding_x + j, of + j * g.pitch, first, last)


# --- elements


@inline_jit
def _move(source: Array, at: int, target: Array, of: int, count: int) -> None:
    """target[of : of + count] = source[at : at + count]"""
    if count < LANES:
        for x in range(count):
            target[of + x] = source[at + x]
        return
    for start in range(0, count, LANES):
        x = min(start, count - LANES)
        store(target, of + x, load(source, at + x))


@inline_jit
def _add(work: Array, at: int, of: int, count: int) -> None:
    """work[of : of + count] += work[at : at + count]; places that are read are not written
    before."""
    whole = count // LANES * LANES
    for x in range(0, whole, LANES):
        store(work, of + x, load(work, of + x) + load(work, at + x))
    for x in range(whole, count):
        work[of + x] += work[at + x]


@inline_jit
def _read_line(z: Array, work: Array, line: _Line, step: int) -> None:
    if step == 1:
        first = line.first
        _move(z, line.at + first, work, line.of + first, line.last - first)
    else:
        for x in range(line.first, line.last):
            work[line.of + x] = z[line.at + x * step]


@inline_jit
def _read_pair(z: Array, work: Array, left: _Line, right: _Line, columns: int) -> None:
    """`_read_line` of two lines side by side whose step is 2; a row has `columns` regions."""
    first = left.first
    last = right.last
    # a row shorter than a vector: what is beyond it is overwritten by the next row, or lies in the
    # margin of work memory
    whole = max(last - first, LANES)
    if left.at + 2 * (first + whole) > len(z) or (last - first < LANES and last < columns):
        for x in range(first, last):
            work[left.of + x] = z[left.at + 2 * x]
            work[right.of + x] = z[right.at + 2 * x]
    else:
        for start in range(first, last, LANES):
            x = min(start, first + whole - LANES)
            at = left.at + 2 * x
            a = load(z, at)
            b = load(z, at + LANES)
            store(work, left.of + x, _evens(a, b))
            store(work, right.of + x, _odds(a, b))
    # the region at each border may have one of the two only
    if right.first < first:
        work[right.of + right.first] = z[right.at + 2 * right.first]
    if last < left.last:
        work[left.of + last] = z[left.at + 2 * last]


@inline_jit
def _plane(g: Geometry, row: int) -> tuple[int, int]:
    """Return where the plane of a row begins in the map, and the row in it."""
    plane = row // g.rows
    return plane * g.height * g.width, row - plane * g.rows


@inline_jit
def _shared(g: Geometry) -> tuple[int, int]:
    """Return how many elements of a column, and of a row, of a region are those of the region
    before it, too."""
    return max(0, g.size_y - g.stride_y), max(0, g.size_x - g.stride_x)


@jit
def read_elements(z: Array, g: Geometry, rows: Rows, work: Array) -> None:
    """Copy the elements of a tile to work memory, with zeros outside the map."""
    noinline()
    M = g.pitch
    above, before = _shared(g)
    # what regions do not share
    for row in range(rows.first, rows.last):
        plane, y = _plane(g, row)
        first = row == rows.first or y == 0
        for i in range(0 if first else above, g.size_y):
            place = plane, y * g.stride_y - g.padding_y + i
            to = i * g.size_x * M + (row - rows.first) * g.columns
            if g.inside == 0:
                for j in range(before, g.size_x):
                    work[to + j * M : to + j * M + g.columns] = 0
            if g.stride_x == 2 and g.size_x >= 2:
                left = _line(g, place, to, before)
                _read_pair(z, work, left, _line(g, place, to, before + 1), g.columns)
            else:
                for j in range(before, g.size_x):
                    _read_line(z, work, _line(g, place, to, j), g.stride_x)
    # from the regions above; the first row of a plane, and of the tile, has none
    count = (rows.last - rows.first) * g.columns
    for i in range(above - 1, -1, -1):
        for j in range(before, g.size_x):
            of = (i * g.size_x + j) * M
            same = of + g.stride_y * g.size_x * M
            row = rows.first
            while row < rows.last:
                last = min(rows.last, (row // g.rows + 1) * g.rows)
                start = (row - rows.first) * g.columns
                length = (last - row - 1) * g.columns
                _move(work, same + start, work, of + start + g.columns, length)
                row = last
    # from the regions on the left; the first of a row has none
    for i in range(g.size_y):
        to = i * g.size_x * M
        for j in range(before - 1, -1, -1):
            of = to + j * M
            _move(work, of + g.stride_x * M, work, of + 1, count - 1)
            for row in range(rows.first, rows.last):
                plane, y = _plane(g, row)
                place = plane, y * g.stride_y - g.padding_y + i
                line = _line(g, place, to + (row - rows.first) * g.columns, j)
                inside = line.first == 0 and line.last > 0
                work[line.of] = z[line.at] if inside else 0


@inline_jit
def _write_line(z: Array, work: Array, line: _Line, step: int, add: bool) -> None:
    if add:
        for x in range(line.first, line.last):
            z[line.at + x * step] += work[line.of + x]
    elif step == 1:
        first = line.first
        _move(work, line.of + first, z, line.at + first, line.last - first)
    else:
        for x in range(line.first, line.last):
            z[line.at + x * step] = work[line.of + x]


@inline_jit
def _write_pair(z: Array, work: Array, left: _Line, right: _Line, end: int) -> None:
    """`_write_line` of two lines side by side whose step is 2.

    Parameters
    ----------
    end
        until where later lines overwrite what is beyond a row that is shorter than a vector
    """
    first = left.first
    last = right.last
    whole = max(last - first, LANES)
    if last - first < LANES and left.at + 2 * (first + whole) > end:
        for x in range(first, last):
            z[left.at + 2 * x] = work[left.of + x]
            z[right.at + 2 * x] = work[right.of + x]
    else:
        for start in range(first, last, LANES):
            x = min(start, first + whole - LANES)
            at = left.at + 2 * x
            even = load(work, left.of + x)
            odd = load(work, right.of + x)
            store(z, at, _lower(even, odd))
            store(z, at + LANES, _upper(even, odd))
    if right.first < first:
        z[right.at + 2 * right.first] = work[right.of + right.first]
    if last < left.last:
        z[left.at + 2 * last] = work[left.of + last]


@jit
def write_elements(z: Array, g: Geometry, rows: Rows, work: Array) -> None:
    """Copy the elements of a tile back to the map, which is 0 if regions overlap; add those that
    regions share."""
    noinline()
    M = g.pitch
    above, before = _shared(g)
    count = (rows.last - rows.first) * g.columns
    # to the regions on the left; the first of a row has none
    for i in range(g.size_y):
        to = i * g.size_x * M
        for j in range(before):
            of = to + j * M
            for row in range(rows.first, rows.last):
                plane, y = _plane(g, row)
                place = plane, y * g.stride_y - g.padding_y + i
                line = _line(g, place, to + (row - rows.first) * g.columns, j)
                if line.first == 0 and line.last > 0:
                    z[line.at] += work[line.of]
                work[line.of] = 0
            _add(work, of + 1, of + g.stride_x * M, count - 1)
    # to the regions above; the first row of a plane, and of the tile, has none
    for i in range(above):
        for j in range(before, g.size_x):
            of = (i * g.size_x + j) * M
            same = of + g.stride_y * g.size_x * M
            row = rows.first
            while row < rows.last:
                last = min(rows.last, (row // g.rows + 1) * g.rows)
                start = (row - rows.first) * g.columns
                length = (last - row - 1) * g.columns
                _add(work, of + start + g.columns, same + start, length)
                row = last
    for row in range(rows.first, rows.last):
        plane, y = _plane(g, row)
        first = row == rows.first or y == 0
        for i in range(0 if first else above, g.size_y):
            place = plane, y * g.stride_y - g.padding_y + i
            to = i * g.size_x * M + (row - rows.first) * g.columns
            if i < above or g.stride_x != 2 or g.size_x < 2:
                for j in range(before, g.size_x):
                    # other tiles share these
                    _write_line(z, work, _line(g, place, to, j), g.stride_x, i < above)
            else:
                left = _line(g, place, to, before)
                # regions that tile a map write each element once; a plane belongs to one thread
                end = 0 if g.overlap else plane + g.height * g.width
                _write_pair(z, work, left, _line(g, place, to, before + 1), end)


# --- values, and what lies outside


@jit
def copy_values(map: Array, g: Geometry, rows: Rows, work: Array, k: int, to_work: bool) -> None:
    """Value k of each region of a tile, from a map [N, C, h, w] of p, or of μ or γ [N, 2, C, h,
    w], or back."""
    noinline()
    to = (g.size_y * g.size_x + 2 * (g.size_y + g.size_x) + k) * g.pitch
    # p has one plane for each channel, μ and γ one for rows and one for columns
    axes = 1
    axis = 0
    if k > 0:
        axes = 2
        axis = (k - 1) % 2
    row = rows.first
    while row < rows.last:
        # the rows of a plane follow each other
        plane = row // g.rows
        y = row - plane * g.rows
        last = min(rows.last, row + g.rows - y)
        image = plane // g.channels
        at = ((image * (axes - 1) + axis) * g.channels + plane) * g.rows * g.columns
        at += y * g.columns
        count = (last - row) * g.columns
        if to_work:
            _move(map, at, work, to, count)
        else:
            _move(work, to, map, at, count)
        to += count
        row = last


@jit
def mark_outside(g: Geometry, rows: Rows, work: Array) -> None:
    """OUTSIDE for each row and column of each region that lies outside the map, 0 for the
    others."""
    noinline()
    start = (g.size_y * g.size_x + g.size_y + g.size_x) * g.pitch
    columns = start + g.size_y * g.pitch
    y = rows.first % g.rows
    of = 0
    for _ in range(rows.first, rows.last):
        top = y * g.stride_y - g.padding_y
        for i in range(g.size_y):
            at = start + i * g.pitch + of
            work[at : at + g.columns] = 0 if 0 <= top + i < g.height else OUTSIDE
        for j in range(g.size_x):
            # row 0 of the map exists: what lies outside it lies left or right of it
            line = _line(g, (0, 0), columns + of, j)
            work[line.of : line.of + g.columns] = OUTSIDE
            work[line.of + line.first : line.of + line.last] = 0
        of += g.columns
        y += 1
        if y == g.rows:
            y = 0
