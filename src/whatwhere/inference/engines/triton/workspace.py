"""One inference step on a batch as a list of launches.

The steps never wait for the host: what they measure stays in tensors, and so a CUDA graph can hold all of them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from whatwhere.inference.engines.triton import down, regions, step, sums, up
from whatwhere.inference.engines.triton.batch_memory import ELEMENTWISE, BatchMemory
from whatwhere.inference.engines.triton.shapes import CHUNK, depth_block, down_tile, power_of_two
from whatwhere.inference.step_size import KEPT_GROWTH, SECANT_RANGE

DOWN = {"M": 128, "num_warps": 8, "num_stages": 3}
DOWN_NARROW = {"M": 128, "num_warps": 4, "num_stages": 3}  # few columns, as over images
DOWN_FEW = {"M": 32, "num_warps": 4, "num_stages": 4}  # where larger tiles would leave most processors idle
FEW_ROWS = 4096
UP = {"M": 64, "num_warps": 4, "num_stages": 3}
POOL = {"M": 32, "num_warps": 4}
UNPOOL_REGIONS = {"M": 32, "num_warps": 4}
SUM = 256  # elements that a sum takes at a time


class Workspace(BatchMemory):
    """The memory of a batch and the steps over it."""

    def run(self) -> None:
        """All T steps, and the measurements of the end."""
        everything = slice(0, self.N)
        self.choose_scale()
        self.used.fill_(-1.0)
        if self.spec.momentum:
            self.momentum[0].fill_(1.0)
        if self.from_zero:
            self.take_first_step()
        else:
            self.unpool(self.top, everything, self.p[-1], measure=True, stamp=0)
        for t in range(int(self.from_zero), self.spec.steps):
            self.take_step(t)
        if self.spec.momentum:
            self.p[-1].copy_(self.features)
            self.unpool(self.top, everything, self.p[-1], measure=True, stamp=self.spec.steps)
        self.reconstruct(self.N, stamp=self.spec.steps)
        self.measure(self.spec.steps)

    def take_first_step(self) -> None:
        """The step from p = 0, whose pass up fits the pooling variables on its way."""
        for empty in (self.z[0], self.penalties, self.nonzeros):
            empty.zero_()
        self.reconstruct(self.N, top=1)
        self.measure(0)
        self.climb(slice(0, self.N), up.STEP, 0, fit=True)

    def take_step(self, t: int) -> None:
        """Step t. What does not need β runs while β is found: the measurements, and the pass up below the top."""
        searched = self.sample
        left = slice(searched, self.N)
        self.reconstruct(self.N, secant=self.secant, stamp=t)
        with self.aside():
            self.measure(t)
            self.climb(left, up.STEP, t, layers=range(1, self.top))
        if searched:
            self.search_line(t)
        self.join()
        with self.aside():
            self.step(t, searched)
        self.climb(left, up.STEP, t, layers=range(self.top, self.top + 1))
        self.join()
        if self.spec.momentum:
            self.accelerate(t)

    def aside(self) -> AbstractContextManager[object]:
        """Launches in here run next to those that follow, until `join`."""
        if self.side is None:
            return nullcontext()
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.side)

    def join(self) -> None:
        """What follows waits for what runs aside."""
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def reconstruct(
        self,
        images: int,
        *,
        top: int = 0,
        to: int = 0,
        subtract: bool = True,
        secant: bool = False,
        trial: bool = False,
        stamp: int | None = None,
    ) -> None:
        """From z of layer `top` (0: the top layer) down to the error at the image, or to z_to, of the first images.

        `subtract` the images; for the `secant`, measure how the error changed. A `trial` is R g of the line search,
        with the weights before it: only its squares are of use. `stamp`: the top's regions in use are marked with this.
        """
        stages, z = (self.trial, [*self.z[:-1], self.trial_z]) if trial else (self.p, self.z)
        below_weights = self.weights_before if trial else self.weights
        for k in range(top or self.top, to, -1):
            shape = self.shapes[k - 1]
            rows, width = images * shape.groups[0] * shape.groups[1], down_tile(shape)
            below, unpool = max(k - 2, 0), k > 1 and self.shapes[k - 2].tiled
            tiles = self.down[k - 1].shape[2] // width
            options = DOWN_FEW if rows <= FEW_ROWS else DOWN if width == 64 else DOWN_NARROW
            sparse = stamp is not None and shape.can_skip and rows > FEW_ROWS and k == self.top
            count = triton.cdiv(images, options["M"]) * (rows // images) if sparse else triton.cdiv(rows, options["M"])
            if sparse:  # registers that suffice: with fewer, more programs share a processor
                options = options | {"maxnreg": 80}
            down.down[(count * tiles,)](
                z[k - 1], self.down[k - 1], self.used, float(stamp or 0),
                stages[below] if k > 1 else self.scale, below_weights[below], self.z[below],
                self.images, self.images if self.mask is None else self.mask, self.error[0],
                self.trial_squares if trial else self.squares_below, self.before, self.changes_below, self.scale, rows,
                **shape.constants(), GROUP=shape.group, LOWEST=k == 1, SUBTRACT=subtract and not trial,
                MASKED=k == 1 and self.mask is not None, KEEP=not trial, SECANT=k == 1 and secant,
                UNPOOL=unpool, S_BELOW=self.shapes[below].pool_size, SPARSE=sparse, N=width,
                K=depth_block(shape.cell_row), **options,
            )  # fmt: skip
            if k > 1 and not unpool:
                self.unpool(k - 1, slice(0, images), stages[below], before=trial)

    def unpool(
        self,
        k: int,
        images: slice,
        p: Tensor,
        *,
        before: bool = False,
        measure: bool = False,
        accelerate: int | None = None,
        stamp: int | None = None,
    ) -> None:
        """z_k from p of layer k; with the weights `before` the line search; with `accelerate`, the step t, from the
        point that momentum leads to."""
        shape, t, count = self.shapes[k - 1], accelerate or 0, images.stop - images.start
        p, z, own_weights = p[images], self.z[k - 1][images], (self.weights_before if before else self.weights)[k - 1]
        if shape.tiled or measure:
            rows = count * shape.grid[0] * shape.grid[1]
            constants = shape.constants() | {"B": shape.pooled_maps, "H": shape.grid[0], "W": shape.grid[1]}
            down.unpool[(triton.cdiv(rows, ELEMENTWISE["M"]) * shape.pooled_chunks,)](
                p, own_weights[images], z, self.used, float(stamp or 0), self.features, self.momentum[t],
                self.uphill_sum,
                self.momentum[t + 1] if accelerate is not None else self.momentum[t], self.penalties, self.nonzeros,
                self.scale, rows, **constants, ALPHA=self.spec.alpha, MEASURE=measure,
                ACCELERATE=accelerate is not None, UNPOOL=shape.tiled, MARK=stamp is not None, MAPS=CHUNK,
                **ELEMENTWISE,
            )  # fmt: skip
        if not shape.tiled:
            rows = count * shape.cells[0] * shape.cells[1]
            regions.unpool[(triton.cdiv(rows, UNPOOL_REGIONS["M"]) * shape.pooled_chunks,)](
                p, own_weights[images], z, self.scale, rows, **shape.region_constants(), MAPS=CHUNK, **UNPOOL_REGIONS
            )

    def climb(self, images: slice, role: Any, t: int, *, layers: range | None = None, fit: bool = False) -> None:
        """The error at the image up to the top (or through these layers), what `role` does with it there, and the step
        of θ."""
        if images.start == images.stop:
            return
        for k in range(1, self.top + 1) if layers is None else layers:
            keep = bool(role == up.GRADIENT) and self.keeps_weights(k)
            own = role if k == self.top else up.BETWEEN
            self.propagate(k, images, own, k in self.moving, t, keep=keep, fit=fit)

    def propagate(
        self, k: int, images: slice, role: Any, move: bool, t: int, *, keep: bool = False, fit: bool = False
    ) -> None:
        """The error below layer k up to its features, and what `role` does with it there; `fit` θ to it first; `keep`
        the weights before θ moves."""
        shape, spec, lam, count = self.shapes[k - 1], self.spec, self.lam, images.stop - images.start
        rows, cells = count * shape.grid[0] * shape.grid[1], count * shape.cells[0] * shape.cells[1]
        above, last, error = min(k, self.top - 1), t == spec.steps - 1, self.error[k - 1][images]
        sizes = spec.schedule.steps[t] if spec.schedule else None
        rate = spec.pooling_step if sizes is None else sizes.pooling_step_of(k)
        threshold, ahead = (0.0, 0.0) if sizes is None else (sizes.threshold, 0.0 if last else sizes.extrapolation)
        own = (self.p[k - 1], self.theta[k - 1], self.weights[k - 1], self.weights_before[k - 1])
        p, theta, planes, planes_before = (x[images] for x in own)
        parts = (self.rates, self.penalties, self.nonzeros, self.squares_above, self.uphill)
        after = (
            self.features[images], self.gradient, self.error[above][images], self.beta[t][images],
            *(x[images] for x in parts), self.scale, rows, lam, lam * rate, spec.moments.gamma_min,
            spec.moments.gamma_max, threshold, ahead, float(t == 0),
        )  # fmt: skip
        options = {
            "ROLE": role, "MOVE": move, "KEEP": keep, "S_ABOVE": self.shapes[above].cell, "ALPHA": spec.alpha,
            "EXACT": spec.shrinkage == "exact", "NONNEGATIVE": self.model_spec.nonnegative, "MOMENTUM": spec.momentum,
            "SECANT": self.secant, "SCHEDULED": sizes is not None, "MAPS": CHUNK,
        }  # fmt: skip
        by_image = count >= UP["M"] and shape.block_row >= 64
        product = {"PLACES": shape.places, "K": depth_block(shape.block_row), "BY_IMAGE": by_image, **UP}
        tiles = triton.cdiv(count, UP["M"]) * (cells // count) if by_image else triton.cdiv(cells, UP["M"])
        programs = (tiles * shape.chunks,)
        if shape.tiled:
            z = self.trial_z if role == up.GRADIENT else self.z[k - 1][images]
            if shape.places <= 4 and not fit:  # registers that suffice: with fewer, more programs share a processor
                product["maxnreg"] = 80 if role == up.BETWEEN else 128
            up.up[programs](
                error, self.up[k - 1], p, theta, planes, planes_before, z, self.used, float(t + 1),
                images.start, *after, *spec.start_scales(k),
                **shape.constants(), **options, FIT=spec.moments.power if fit else 0, **product,
            )  # fmt: skip
            return
        z_error = self.z_error[k - 1][images]
        regions.propagate[programs](error, self.up[k - 1], z_error, cells, **shape.constants(), MAPS=CHUNK, **product)
        regions.pool[(triton.cdiv(rows, POOL["M"]) * shape.pooled_chunks,)](
            z_error, p, theta, planes, planes_before, *after, **shape.region_constants(), **options, **POOL
        )
        if role == up.GRADIENT:
            self.unpool(k, images, self.gradient, before=True)
        elif role == up.STEP and not spec.momentum:
            self.unpool(k, images, self.p[k - 1])

    def measure(self, t: int) -> None:
        """The objective's parts before step t."""
        sums.measure[(self.N,)](
            self.squares_below, self.penalties, self.nonzeros, self.reconstruction[t], self.penalty[t], self.count[t],
            self.lam / 2, **self.lengths(), num_warps=1,
        )  # fmt: skip

    def take_secant(self, t: int) -> None:
        """β of step t > 0, from what the last step changed."""
        sums.secant[(self.N,)](
            self.uphill, self.changes_below, self.beta[t], self.beta[t - 1], self.beta[0], self.lam,
            RANGE=SECANT_RANGE, **self.lengths(), num_warps=1,
        )  # fmt: skip

    def keep_step(self, t: int) -> None:
        """β of step t > 0 between two searches."""
        sums.keep[(triton.cdiv(self.N, SUM),)](
            self.beta[t], self.beta[t - 1], self.beta[max(t - 2, 0)], self.N, GROWTH=KEPT_GROWTH, BLOCK=SUM
        )

    def lengths(self) -> dict[str, int]:
        """How many parts an image's sums have, at the image and at the features."""
        below, above = self.squares_below.shape[1], self.penalties.shape[1]
        return {"BELOW": below, "BELOW_BLOCK": sum_block(below), "ABOVE": above, "ABOVE_BLOCK": sum_block(above)}

    def search_line(self, t: int) -> None:
        """β of step t, from the gradient of the sample and what it reconstructs, by the weights before the step.

        What belongs to the sample is then done but for its step: θ has moved, and the gradient is stored.
        """
        self.climb(slice(0, self.sample), up.GRADIENT, t)
        self.reconstruct(self.sample, trial=True)
        shared = self.spec.per_batch
        sums.line_search[(self.sample,)](
            self.squares_above, self.trial_squares, self.beta[t], self.gradient_norm, self.reconstruction_norm,
            self.lam, SHARED=shared, **self.lengths(), num_warps=1,
        )  # fmt: skip
        if shared:
            sums.shared_step[(triton.cdiv(self.N, SUM),)](
                self.gradient_norm, self.reconstruction_norm, self.beta[t], self.N, self.lam,
                SAMPLE=self.sample, BLOCK=SUM,
            )  # fmt: skip

    def step(self, t: int, images: int) -> None:
        """The step of the first images along the gradient that the line search left."""
        if images == 0:
            return
        shape, spec = self.shapes[-1], self.spec
        rows = images * shape.grid[0] * shape.grid[1]
        constants = shape.constants() | {"B": shape.pooled_maps, "H": shape.grid[0], "W": shape.grid[1]}
        step.step[(triton.cdiv(rows, ELEMENTWISE["M"]) * shape.pooled_chunks,)](
            self.gradient, self.p[-1], self.weights[-1], self.z[-1], self.used, float(t + 1), self.features,
            self.beta[t], self.penalties,
            self.nonzeros, self.uphill, self.scale, rows, self.lam, **constants,
            ALPHA=spec.alpha, EXACT=spec.shrinkage == "exact", NONNEGATIVE=self.model_spec.nonnegative,
            MOMENTUM=spec.momentum, SECANT=self.secant, UNPOOL=shape.tiled and not spec.momentum, MAPS=CHUNK,
            **ELEMENTWISE,
        )  # fmt: skip
        if not shape.tiled and not spec.momentum:
            self.unpool(self.top, slice(0, images), self.p[-1])

    def accelerate(self, t: int) -> None:
        """FISTA's next point."""
        self.sum(self.uphill, self.uphill_sum, self.N)
        self.unpool(self.top, slice(0, self.N), self.p[-1], measure=True, accelerate=t, stamp=t + 1)

    def sum(self, parts: Tensor, out: Tensor, images: int, factor: float = 1.0) -> None:
        count = parts.shape[1]
        sums.sum_rows[(images,)](parts, out, float(factor), COUNT=count, BLOCK=sum_block(count), num_warps=1)


def sum_block(count: int) -> int:
    """How many parts a sum takes at a time."""
    return min(512, power_of_two(count))
