"""The memory of one batch on the device and the launches of one inference step over it.

The steps never wait for the host: what they measure stays in tensors, and so a CUDA graph can hold all of them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from whatwhere.inference.engines.triton import kernels
from whatwhere.inference.engines.triton.shapes import (
    CHUNK,
    depth_block,
    down_matrix,
    down_size,
    down_tile,
    layer_shapes,
    power_of_two,
    up_matrix,
    up_size,
)
from whatwhere.inference.ista import moving_layers
from whatwhere.inference.step_size import batch_sample, safe_step
from whatwhere.latents import Latents, PoolingParams, Stats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

DOWN = {"M": 128, "num_warps": 8, "num_stages": 3}
UP = {"M": 64, "num_warps": 4, "num_stages": 3}
UNPOOL = {"M": 64, "num_warps": 4}
SUM = 256  # elements that a sum takes at a time
HALF = torch.float16  # what the tensor cores multiply; their sums are float32


class Workspace:
    """Everything that T steps on N images of one size touch, allocated once and used again."""

    def __init__(
        self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec, masked: bool = False
    ) -> None:
        N, C, height, width = images.shape
        self.model_spec, self.spec, self.N, self.top = model.spec, spec, N, phase.layer
        self.shapes = layer_shapes(model, height, width, phase.layer)
        self.moving = moving_layers(model, phase)
        self.sample = {"image": N, "batch": batch_sample(N), "fixed": 0}[spec.step_size]
        self.device = images.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(*shape, dtype=dtype, device=images.device)

        self.images, self.mask = empty(N, C, height, width), empty(N, C, height, width) if masked else None
        self.scale = empty(5)  # see `kernels`
        self.gradient_unit = empty(1)  # of an error that is not weighted
        self.p = [empty(N, *s.grid, s.maps) for s in self.shapes]
        self.trial = [empty(self.sample, *s.grid, s.maps) for s in self.shapes[:-1]]  # R g on its way down
        self.theta = [empty(4, N, *s.grid, s.maps) for s in self.shapes]
        self.z = [empty(N, *s.grid, s.pool_size**2, s.maps, dtype=HALF) for s in self.shapes]
        # blocks at the border may reach beyond the map: what is not there is 0, and nothing ever writes it
        self.error = [
            torch.zeros(N, *s.blocks, s.pool_size**2, s.below[0], dtype=HALF, device=images.device) for s in self.shapes
        ]
        self.down = [empty(*down_size(s), dtype=HALF) for s in self.shapes]
        self.up = [empty(*up_size(s), dtype=HALF) for s in self.shapes]
        self.filters: list[Tensor | None] = [None] * self.top  # whose matrices these are
        self.versions = [0] * self.top

        top, bottom = self.shapes[-1], self.shapes[0]
        regions = top.grid[0] * top.grid[1] * top.chunks
        tiles = self.down[0].shape[2] // down_tile(bottom)
        self.penalties, self.nonzeros, self.uphill, self.squares_above = (empty(N, regions) for _ in range(4))
        self.squares_below = empty(N, bottom.groups[0] * bottom.groups[1] * tiles)
        self.gradient_norm, self.reconstruction_norm, self.uphill_sum = empty(N), empty(N), empty(N)
        self.features = empty(*self.p[-1].shape) if spec.momentum or spec.schedule else self.p[-1]
        T = spec.steps
        self.momentum = empty(T + 1, N) if spec.momentum else empty(1, N)
        self.reconstruction, self.penalty, self.count = (empty(T + 1, N) for _ in range(3))
        self.beta = empty(max(T, 1), N)

    # In and out ---------------------------------------------------------------------------------------------

    def load(
        self,
        model: DeconvNet,
        images: Tensor,
        p: Tensor,
        theta: tuple[PoolingParams, ...],
        mask: Tensor | None = None,
    ) -> None:
        """Take a batch with its mask, where to start from, and the filters."""
        self.images.copy_(images)
        self.load_filters(model)
        unit, weight = to_unit(torch.maximum(images.abs().amax(), p.abs().amax())), torch.ones_like(self.scale[0])
        if self.mask is not None:
            assert mask is not None
            self.mask.copy_(mask.expand_as(images))
            weight = to_unit(mask.amax()).square()
        error = unit * weight
        self.scale.copy_(torch.stack([unit, 1 / unit, self.gradient_unit[0] * weight, error, 1 / error]))
        self.p[-1].copy_(p.permute(0, 2, 3, 1))
        for planes, known in zip(self.theta, theta, strict=True):
            for plane, variable in zip(planes, axes(known), strict=True):
                plane.copy_(variable.permute(0, 2, 3, 1))
        if self.features is not self.p[-1]:
            self.features.copy_(self.p[-1])
        if self.spec.momentum:
            self.momentum[0].fill_(1.0)
        if self.spec.schedule:
            for beta, sizes in zip(self.beta, self.spec.schedule, strict=True):
                beta.fill_(sizes.size)
        elif self.spec.step_size == "fixed" and self.spec.steps:
            self.beta.fill_(safe_step(model, self.top, self.spec.lam_value))

    def load_filters(self, model: DeconvNet) -> None:
        """Lay out the filters that are not here yet, and find how much larger than an error its gradient may be."""
        filters = model.filters[: self.top]
        changed = [self.filters[k] is not f or self.versions[k] != f._version for k, f in enumerate(filters)]
        if any(changed):
            self.gradient_unit[0] = to_unit(torch.stack([f.abs().sum((0, 2, 3)).amax() for f in filters]).prod())
        for k, f in enumerate(filters):
            if changed[k]:
                self.down[k].copy_(down_matrix(f, self.shapes[k]))
                self.up[k].copy_(up_matrix(f, self.shapes[k]))
                self.filters[k], self.versions[k] = f, f._version

    def latents(self) -> Latents:
        """A copy of what was inferred, shaped as everywhere else; in memory the maps come last, as `load` likes it."""
        pooling = []
        for planes in self.theta:
            mu, gamma = planes.clone().permute(1, 0, 4, 2, 3).split(2, dim=1)
            pooling.append(PoolingParams(mu, gamma))
        return Latents(self.features.clone().permute(0, 3, 1, 2), tuple(pooling))

    def stats(self) -> Stats:
        parts = (self.reconstruction, self.penalty, self.count.long(), self.beta[: self.spec.steps])
        return Stats(*(part.clone() for part in parts))

    # The steps ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All T steps, and the measurements of the end."""
        self.unpool(self.top, self.N, self.p[-1], measure=True)
        for t in range(self.spec.steps):
            self.reconstruct(self.N, self.p)
            self.measure(t)
            if self.sample:
                self.search_line(t)
            for k in range(1, self.top + 1):
                self.propagate(k, self.N, kernels.STEP if k == self.top else kernels.BETWEEN, k in self.moving, t)
            if self.spec.momentum:
                self.accelerate(t)
        if self.spec.momentum:
            self.p[-1].copy_(self.features)
            self.unpool(self.top, self.N, self.p[-1], measure=True)
        self.reconstruct(self.N, self.p)
        self.measure(self.spec.steps)

    def reconstruct(
        self, images: int, stages: list[Tensor], *, top: int = 0, to: int = 0, subtract: bool = True, keep: bool = True
    ) -> None:
        """From z of layer `top` (0: the top layer) down to the error at the image, through p̂_k in `stages`, or to z_to.

        `subtract` the images, `keep` the error for the way up.
        """
        for k in range(top or self.top, to, -1):
            shape = self.shapes[k - 1]
            rows, width = images * shape.groups[0] * shape.groups[1], down_tile(shape)
            tiles = self.down[k - 1].shape[2] // width
            kernels.down[(triton.cdiv(rows, DOWN["M"]) * tiles,)](
                self.z[k - 1], self.down[k - 1], stages[k - 2] if k > 1 else self.scale, self.images,
                self.images if self.mask is None else self.mask, self.error[0], self.squares_below, self.scale, rows,
                **shape.constants(), GROUP=shape.group, LOWEST=k == 1, SUBTRACT=subtract,
                MASKED=k == 1 and self.mask is not None, KEEP=keep, N=width, K=depth_block(shape.region_row), **DOWN,
            )  # fmt: skip
            if k > 1:
                self.unpool(k - 1, images, stages[k - 2])

    def unpool(self, k: int, images: int, p: Tensor, *, measure: bool = False, accelerate: int | None = None) -> None:
        """z_k from p of layer k; with `accelerate`, the step t, from the point that momentum leads to."""
        shape = self.shapes[k - 1]
        rows, t = images * shape.grid[0] * shape.grid[1], accelerate or 0
        kernels.unpool[(triton.cdiv(rows, UNPOOL["M"]) * shape.chunks,)](
            p, self.theta[k - 1], self.z[k - 1], self.features, self.momentum[t], self.uphill_sum,
            self.momentum[t + 1] if accelerate is not None else self.momentum[t], self.penalties, self.nonzeros,
            self.scale, rows, self.theta[k - 1][0].numel(), **shape.constants(), ALPHA=self.spec.alpha,
            MEASURE=measure, ACCELERATE=accelerate is not None, MAPS=CHUNK, **UNPOOL,
        )  # fmt: skip

    def propagate(self, k: int, images: int, role: Any, move: bool, t: int) -> None:
        """The error below layer k up to its features, and what `role` does with it there."""
        shape, spec, lam = self.shapes[k - 1], self.spec, self.spec.lam_value
        rows = images * shape.grid[0] * shape.grid[1]
        above, last = min(k, self.top - 1), t == spec.steps - 1
        sizes = spec.schedule[t] if spec.schedule else None
        rate = spec.pooling_step if sizes is None else sizes.pooling_step_of(k)
        threshold, ahead = (0.0, 0.0) if sizes is None else (sizes.threshold, 0.0 if last else sizes.momentum)
        kernels.up[(triton.cdiv(rows, UP["M"]) * shape.chunks,)](
            self.error[k - 1], self.up[k - 1], self.p[k - 1], self.theta[k - 1], self.z[k - 1], self.features,
            self.error[above], self.beta[t], self.penalties, self.nonzeros, self.squares_above, self.uphill,
            self.scale, rows, self.theta[k - 1][0].numel(), lam, lam * rate, spec.gamma_min,
            spec.gamma_max, threshold, ahead, **shape.constants(), ROLE=role, MOVE=move,
            S_ABOVE=self.shapes[above].pool_size, ALPHA=spec.alpha, EXACT=spec.shrinkage == "exact",
            NONNEGATIVE=self.model_spec.nonnegative, MOMENTUM=spec.momentum, SCHEDULED=sizes is not None, MAPS=CHUNK,
            PLACES=shape.places, K=depth_block(shape.block_row), **UP,
        )  # fmt: skip

    def measure(self, t: int) -> None:
        """The objective's parts before step t."""
        self.sum(self.squares_below, self.reconstruction[t], self.N, self.spec.lam_value / 2)
        self.sum(self.penalties, self.penalty[t], self.N)
        self.sum(self.nonzeros, self.count[t], self.N)

    def search_line(self, t: int) -> None:
        """β of step t, from the gradient of the sample and what it reconstructs, by the weights before the step."""
        for k in range(1, self.top + 1):
            self.propagate(k, self.sample, kernels.GRADIENT if k == self.top else kernels.BETWEEN, False, t)
        self.reconstruct(self.sample, self.trial, subtract=False, keep=False)
        self.sum(self.squares_above, self.gradient_norm, self.sample)
        self.sum(self.squares_below, self.reconstruction_norm, self.sample)
        kernels.line_search[(triton.cdiv(self.N, SUM),)](
            self.gradient_norm, self.reconstruction_norm, self.beta[t], self.N, self.spec.lam_value,
            SAMPLE=self.sample if self.spec.step_size == "batch" else 0, BLOCK=SUM,
        )  # fmt: skip

    def accelerate(self, t: int) -> None:
        """FISTA's next point."""
        self.sum(self.uphill, self.uphill_sum, self.N)
        self.unpool(self.top, self.N, self.p[-1], measure=True, accelerate=t)

    def sum(self, parts: Tensor, out: Tensor, images: int, factor: float = 1.0) -> None:
        count = parts.shape[1]
        block = min(512, power_of_two(count))
        kernels.sum_rows[(images,)](parts, out, float(factor), COUNT=count, BLOCK=block, num_warps=1)


def to_unit(size: Tensor) -> Tensor:
    """The power of two that brings a size to between ½ and 1."""
    return torch.exp2(-torch.frexp(size.where(size > 0, torch.ones_like(size)))[1].float())


def axes(theta: PoolingParams) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """μ and γ along rows and columns, in the order of the kernels' planes."""
    return theta.mu[:, 0], theta.mu[:, 1], theta.gamma[:, 0], theta.gamma[:, 1]
