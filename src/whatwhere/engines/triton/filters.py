"""The filters' linear map on the GPU: what `engines.reference.filter_map.FilterMap` does, through
the engine's kernels.

Its gradient is one more product over cells and blocks,  ∂G_t = Σ_r cell(r)ᵀ · block(r - t),  of
which every program takes one tile and one share of the rows; the shares are added at the end, so
the order of sums is fixed.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from whatwhere.engines.base import LinearMap
from whatwhere.engines.triton.shapes import (
    LayerShape,
    depth_block,
    down_sources,
    filters_of,
    lay_out,
)
from whatwhere.engines.triton.weights import ERROR_UNSCALE, UNSCALE
from whatwhere.engines.triton.workspace import Workspace
from whatwhere.model import Problem

PROGRAMS = 1024  # about this many take part in a sum, each with a share of the rows
M, K = tl.constexpr(64), tl.constexpr(64)  # rows and depth of a tile


class TritonFilterMap(LinearMap):
    """The linear map A from the filters of layer k to the reconstruction of a batch of images."""

    def __init__(self, workspace: Workspace, problem: Problem, k: int) -> None:
        self.workspace, self.k = workspace, k
        workspace.load(problem, problem.latents)
        workspace.choose_scale()
        workspace.unpool(workspace.top, slice(0, workspace.N), workspace.p[-1])
        workspace.reconstruct(workspace.N, to=k)

    def gradient(self, f: Tensor, *, subtract: bool) -> Tensor:
        workspace, k = self.workspace, self.k
        shape, largest = workspace.shapes[k - 1], f.abs().amax()
        # directions may be too large for float16
        unit = largest.where(largest > 0, torch.ones_like(largest))
        workspace.down[k - 1].copy_(lay_out(f / unit, down_sources(shape, f.device)))
        workspace.sources.clear()  # one of the matrices is another
        if subtract:
            workspace.images.div_(unit)
        workspace.reconstruct(workspace.N, top=k, subtract=subtract)
        if subtract:
            workspace.images.mul_(unit)
        for j in range(1, k):
            workspace.propagate(j, slice(0, workspace.N), "between", 0, move=False)
        return unit * self.correlation(shape)

    def correlation(self, shape: LayerShape) -> Tensor:
        """Return the gradient of layer k's filters from z_k and the error below it, [C, B, K,
        L]."""
        workspace, (inner, outer) = (
            self.workspace,
            (shape.cell_row, math.prod(shape.taps) * shape.block_row),
        )
        rows = workspace.N * shape.cells[0] * shape.cells[1]
        columns = depth_block(outer)
        tiles = triton.cdiv(inner, M.value) * triton.cdiv(outer, columns)
        shares = triton.cdiv(PROGRAMS, tiles)
        parts = torch.empty(shares, inner, outer, device=workspace.device)
        correlate[(tiles, shares)](
            workspace.z[self.k - 1],
            workspace.error[self.k - 1],
            parts,
            rows,
            SHAPE=shape,
            N=columns,
            STEPS=triton.cdiv(rows, K.value * shares),
            num_warps=4,
            num_stages=3,
        )
        G = parts.sum(0).view(inner, -1, shape.block_row).transpose(0, 1)
        return filters_of(G, shape) * (
            workspace.common[UNSCALE.value] * workspace.common[ERROR_UNSCALE.value]
        )


@triton.jit
def correlate(z, error, out, rows, SHAPE: tl.constexpr, N: tl.constexpr, STEPS: tl.constexpr):
    """Compute one tile of cell(r)ᵀ · [block(r - t) of every tap t], over one share of the cells r,
    into out [shares, s B, taps · s C]."""
    INNER: tl.constexpr = SHAPE.cell_row
    OUTER: tl.constexpr = SHAPE.block_row
    R: tl.constexpr = SHAPE.taps[1]
    COLUMNS: tl.constexpr = SHAPE.taps[0] * R * OUTER
    H, W = SHAPE.cells[0], SHAPE.cells[1]
    BLOCK_H, BLOCK_W = SHAPE.blocks[0], SHAPE.blocks[1]
    ACROSS: tl.constexpr = (COLUMNS + N - 1) // N
    above = tl.program_id(0) // ACROSS * M + tl.arange(0, M)
    column = tl.program_id(0) % ACROSS * N + tl.arange(0, N)
    t_y, t_x = column // OUTER // R, column // OUTER % R
    total = tl.zeros((M, N), tl.float32)
    for step in range(STEPS):
        row = (tl.program_id(1) * STEPS + step) * K + tl.arange(0, K)
        here = (row < rows)[None, :] & (above < INNER)[:, None]
        left = tl.load(z + row.to(tl.int64)[None, :] * INNER + above[:, None], mask=here, other=0.0)
        q_y, q_x = (row // W % H)[:, None] - t_y[None, :], (row % W)[:, None] - t_x[None, :]
        inside = (q_y >= 0) & (q_y < BLOCK_H) & (q_x >= 0) & (q_x < BLOCK_W)
        inside = inside & (row < rows)[:, None] & (column < COLUMNS)[None, :]
        block = ((row // (H * W)).to(tl.int64)[:, None] * BLOCK_H + q_y) * BLOCK_W + q_x
        right = tl.load(error + block * OUTER + (column % OUTER)[None, :], mask=inside, other=0.0)
        total = tl.dot(left, right, total)
    at = (tl.program_id(1) * INNER + above[:, None]) * COLUMNS + column[None, :]
    tl.store(out + at, total, mask=(above < INNER)[:, None] & (column < COLUMNS)[None, :])
