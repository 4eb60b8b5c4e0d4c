"""One inference step on a batch as a list of launches.

The steps never wait for the host: what they measure stays in tensors, and so a CUDA graph can hold all of them.
"""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from whatwhere.inference.engines.triton import down, regions, step, sums, up, weights
from whatwhere.inference.engines.triton.batch_memory import BatchMemory
from whatwhere.inference.engines.triton.shapes import CHUNK, depth_block, down_tile, power_of_two
from whatwhere.inference.step_size import SECANT_RANGE
from whatwhere.latents import PoolingParams

DOWN = {"M": 128, "num_warps": 8, "num_stages": 3}
DOWN_FEW = {"M": 32, "num_warps": 4, "num_stages": 4}  # where larger tiles would leave most processors idle
FEW_ROWS = 4096
UP = {"M": 64, "num_warps": 4, "num_stages": 3}
BY_IMAGE = True
UNPOOL = {"M": 64, "num_warps": 4}
POOL = {"M": 32, "num_warps": 4}
UNPOOL_REGIONS = {"M": 32, "num_warps": 4}
SUM = 256  # elements that a sum takes at a time


class Workspace(BatchMemory):
    """The memory of a batch and the steps over it."""

    def run(self) -> None:
        """All T steps, and the measurements of the end."""
        self.half = [0] * self.top
        if self.from_zero:
            self.take_first_step()
        else:
            self.unpool(self.top, self.N, self.p[-1], measure=True)
        for t in range(int(self.from_zero), self.spec.steps):
            self.reconstruct(self.N, secant=self.secant)
            self.measure(t)
            if self.secant and t > 0:
                self.take_secant(t)
            elif self.sample:
                self.search_line(t)
            if self.whole_search and not (self.secant and t > 0):
                self.step(t)
            else:
                self.climb(self.N, up.STEP, t, move=True)
            if self.spec.momentum:
                self.accelerate(t)
        if self.spec.momentum:
            self.p[-1].copy_(self.features)
            self.unpool(self.top, self.N, self.p[-1], measure=True)
        self.reconstruct(self.N)
        self.measure(self.spec.steps)

    def take_first_step(self) -> None:
        """The step from p = 0, whose pass up fits the pooling variables on its way."""
        for empty in (self.z[0], self.penalties, self.nonzeros):
            empty.zero_()
        self.reconstruct(self.N, top=1)
        self.measure(0)
        self.climb(self.N, up.STEP, 0, fit=True)

    def load_latents(self, p: Tensor, theta: tuple[PoolingParams, ...]) -> None:
        """Take features and pooling variables, and store the weights that these make."""
        super().load_latents(p, theta)
        for own, halves, shape in zip(self.theta, self.weights, self.shapes, strict=True):
            rows = self.N * shape.grid[0] * shape.grid[1]
            weights.weigh[(triton.cdiv(rows, UNPOOL["M"]) * shape.pooled_chunks,)](
                own, halves[0], rows, **shape.region_constants(), MAPS=CHUNK, **UNPOOL
            )

    def reconstruct(
        self,
        images: int,
        *,
        top: int = 0,
        to: int = 0,
        subtract: bool = True,
        secant: bool = False,
        trial: bool = False,
    ) -> None:
        """From z of layer `top` (0: the top layer) down to the error at the image, or to z_to.

        `subtract` the images; for the `secant`, measure how the error changed. A `trial` is R g of the line search: only
        its squares are of use.
        """
        stages, z = (self.trial, [*self.z[:-1], self.trial_z]) if trial else (self.p, self.z)
        for k in range(top or self.top, to, -1):
            shape = self.shapes[k - 1]
            rows, width = images * shape.groups[0] * shape.groups[1], down_tile(shape)
            below, unpool = max(k - 2, 0), k > 1 and self.shapes[k - 2].tiled
            tiles, options = self.down[k - 1].shape[2] // width, DOWN if rows > FEW_ROWS else DOWN_FEW
            down.down[(triton.cdiv(rows, options["M"]) * tiles,)](
                z[k - 1], self.down[k - 1], stages[below] if k > 1 else self.scale, self.own_weights(below + 1), self.z[below], self.images,
                self.images if self.mask is None else self.mask, self.error[0], self.squares_below, self.before,
                self.changes_below, self.scale, rows,
                **shape.constants(), GROUP=shape.group, LOWEST=k == 1, SUBTRACT=subtract and not trial,
                MASKED=k == 1 and self.mask is not None, KEEP=not trial, SECANT=k == 1 and secant,
                UNPOOL=unpool, S_BELOW=self.shapes[below].pool_size, N=width, K=depth_block(shape.cell_row), **options,
            )  # fmt: skip
            if k > 1 and not unpool:
                self.unpool(k - 1, images, stages[below])

    def own_weights(self, k: int) -> Tensor:
        """The weights of layer k that are in use."""
        return self.weights[k - 1][self.half[k - 1]]

    def unpool(self, k: int, images: int, p: Tensor, *, measure: bool = False, accelerate: int | None = None) -> None:
        """z_k from p of layer k; with `accelerate`, the step t, from the point that momentum leads to."""
        shape, t = self.shapes[k - 1], accelerate or 0
        rows = images * shape.grid[0] * shape.grid[1]
        if shape.tiled or measure:
            constants = shape.constants() | {"B": shape.pooled_maps, "H": shape.grid[0], "W": shape.grid[1]}
            down.unpool[(triton.cdiv(rows, UNPOOL["M"]) * shape.pooled_chunks,)](
                p, self.own_weights(k), self.z[k - 1], self.features, self.momentum[t], self.uphill_sum,
                self.momentum[t + 1] if accelerate is not None else self.momentum[t], self.penalties, self.nonzeros,
                self.scale, rows, **constants, ALPHA=self.spec.alpha, MEASURE=measure,
                ACCELERATE=accelerate is not None, UNPOOL=shape.tiled, MAPS=CHUNK, **UNPOOL,
            )  # fmt: skip
        if not shape.tiled:
            rows = images * shape.cells[0] * shape.cells[1]
            regions.unpool[(triton.cdiv(rows, UNPOOL_REGIONS["M"]) * shape.pooled_chunks,)](
                p, self.own_weights(k), self.z[k - 1], self.scale, rows, **shape.region_constants(), MAPS=CHUNK,
                **UNPOOL_REGIONS,
            )  # fmt: skip

    def climb(self, images: int, role: Any, t: int, *, move: bool = False, whole: bool = False, fit: bool = False) -> None:
        """The error at the image up to the top, and what `role` does with it there."""
        for k in range(1, self.top + 1):
            own = role if k == self.top else up.BETWEEN
            self.propagate(k, images, own, move and k in self.moving, t, whole=whole, fit=fit)

    def propagate(
        self, k: int, images: int, role: Any, move: bool, t: int, *, whole: bool = False, fit: bool = False
    ) -> None:
        """The error below layer k up to its features, and what `role` does with it there; `fit` θ to it first."""
        shape, spec, lam = self.shapes[k - 1], self.spec, self.spec.lam_value
        rows, cells = images * shape.grid[0] * shape.grid[1], images * shape.cells[0] * shape.cells[1]
        above, last, p, theta = min(k, self.top - 1), t == spec.steps - 1, self.p[k - 1], self.theta[k - 1]
        sizes = spec.schedule[t] if spec.schedule else None
        rate = spec.pooling_step if sizes is None else sizes.pooling_step_of(k)
        threshold, ahead = (0.0, 0.0) if sizes is None else (sizes.threshold, 0.0 if last else sizes.momentum)
        after = (
            self.error[above], self.beta[t], self.rates, self.penalties, self.nonzeros, self.squares_above,
            self.uphill, self.scale, rows, lam, lam * rate, spec.gamma_min, spec.gamma_max,
            threshold, ahead,
        )  # fmt: skip
        options = {
            "ROLE": role, "MOVE": move, "S_ABOVE": self.shapes[above].cell, "ALPHA": spec.alpha, "MAPS": CHUNK,
            "EXACT": spec.shrinkage == "exact", "NONNEGATIVE": self.model_spec.nonnegative, "MOMENTUM": spec.momentum,
            "SECANT": self.secant, "SCHEDULED": sizes is not None, "WHOLE": whole,
        }  # fmt: skip
        weights_of = self.own_weights(k), self.weights[k - 1][1 - self.half[k - 1]] if whole else self.own_weights(k)
        by_image = BY_IMAGE and images >= UP["M"] and shape.block_row >= 64
        product = {"PLACES": shape.places, "K": depth_block(shape.block_row), "BY_IMAGE": by_image, **UP}
        tiles = triton.cdiv(images, UP["M"]) * shape.cells[0] * shape.cells[1] if by_image else triton.cdiv(cells, UP["M"])
        programs = (tiles * shape.chunks,)
        if shape.tiled:
            z = self.trial_z if role == up.GRADIENT else self.z[k - 1]
            up.up[programs](
                self.error[k - 1], self.up[k - 1], p, theta, *weights_of, z,
                self.features, self.gradient, *after, float(t == 0), *spec.start_scales(k), **shape.constants(), **options,
                FIT=spec.moment_power if fit else 0, **product,
            )  # fmt: skip
            return
        regions.propagate[programs](
            self.error[k - 1], self.up[k - 1], self.z_error[k - 1], cells, **shape.constants(), MAPS=CHUNK, **product
        )
        regions.pool[(triton.cdiv(rows, POOL["M"]) * shape.pooled_chunks,)](
            self.z_error[k - 1], p, theta, *weights_of, self.features, self.gradient, *after, float(t == 0),
            **shape.region_constants(), **options, **POOL,
        )  # fmt: skip
        if role == up.GRADIENT:
            self.unpool(k, images, self.gradient)
        elif role == up.STEP and not spec.momentum:
            self.unpool(k, images, p)

    def measure(self, t: int) -> None:
        """The objective's parts before step t."""
        sums.measure[(self.N,)](
            self.squares_below, self.penalties, self.nonzeros, self.reconstruction[t], self.penalty[t], self.count[t],
            self.spec.lam_value / 2, **self.lengths(), num_warps=1,
        )  # fmt: skip

    def take_secant(self, t: int) -> None:
        """β of step t > 0, from what the last step changed."""
        sums.secant[(self.N,)](
            self.uphill, self.changes_below, self.beta[t], self.beta[t - 1], self.beta[0], self.spec.lam_value,
            RANGE=SECANT_RANGE, **self.lengths(), num_warps=1,
        )  # fmt: skip

    def lengths(self) -> dict[str, int]:
        """How many parts an image's sums have, at the image and at the features."""
        below, above = self.squares_below.shape[1], self.penalties.shape[1]
        return {"BELOW": below, "BELOW_BLOCK": sum_block(below), "ABOVE": above, "ABOVE_BLOCK": sum_block(above)}

    def search_line(self, t: int) -> None:
        """β of step t, from the gradient of the sample and what it reconstructs, by the weights before the step."""
        self.climb(self.sample, up.GRADIENT, t, move=self.whole_search, whole=self.whole_search)
        self.reconstruct(self.sample, trial=True)
        self.sum(self.squares_above, self.gradient_norm, self.sample)
        self.sum(self.squares_below, self.reconstruction_norm, self.sample)
        sums.line_search[(triton.cdiv(self.N, SUM),)](
            self.gradient_norm, self.reconstruction_norm, self.beta[t], self.N, self.spec.lam_value,
            SAMPLE=self.sample if self.spec.step_size == "batch" else 0, BLOCK=SUM,
        )  # fmt: skip

    def step(self, t: int) -> None:
        """The step along the gradient that a line search of all images left, after it moved θ."""
        for k in self.moving:
            self.half[k - 1] = 1 - self.half[k - 1]
        shape, spec = self.shapes[-1], self.spec
        rows = self.N * shape.grid[0] * shape.grid[1]
        constants = shape.constants() | {"B": shape.pooled_maps, "H": shape.grid[0], "W": shape.grid[1]}
        step.step[(triton.cdiv(rows, UNPOOL["M"]) * shape.pooled_chunks,)](
            self.gradient, self.p[-1], self.own_weights(self.top), self.z[-1], self.features, self.beta[t], self.penalties,
            self.nonzeros, self.uphill, self.scale, rows, spec.lam_value, **constants,
            ALPHA=spec.alpha, EXACT=spec.shrinkage == "exact", NONNEGATIVE=self.model_spec.nonnegative,
            MOMENTUM=spec.momentum, SECANT=self.secant, UNPOOL=shape.tiled and not spec.momentum, MAPS=CHUNK, **UNPOOL,
        )  # fmt: skip
        if not shape.tiled and not spec.momentum:
            self.unpool(self.top, self.N, self.p[-1])

    def accelerate(self, t: int) -> None:
        """FISTA's next point."""
        self.sum(self.uphill, self.uphill_sum, self.N)
        self.unpool(self.top, self.N, self.p[-1], measure=True, accelerate=t)

    def sum(self, parts: Tensor, out: Tensor, images: int, factor: float = 1.0) -> None:
        count = parts.shape[1]
        sums.sum_rows[(images,)](parts, out, float(factor), COUNT=count, BLOCK=sum_block(count), num_warps=1)


def sum_block(count: int) -> int:
    """How many parts a sum takes at a time."""
    return min(512, power_of_two(count))
