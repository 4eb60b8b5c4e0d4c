"""One inference step on a batch as a list of launches.

The steps never wait for the host: what they measure stays in tensors, and so a CUDA graph can hold
all of them.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from whatwhere.engines.triton import down, step, sums, up
from whatwhere.engines.triton.batch_memory import ELEMENTWISE, BatchMemory
from whatwhere.engines.triton.shapes import LayerShape
from whatwhere.engines.triton.step import Numbers, Rule, Tensors

DOWN = {"M": 128, "num_warps": 8, "num_stages": 3}
DOWN_NARROW = {"M": 128, "num_warps": 4, "num_stages": 3}  # few columns, as over images
UP = {"M": 64, "num_warps": 4, "num_stages": 3}
# for at most FEW_ROWS rows, where larger tiles would leave most processors idle
DOWN_FEW = {"M": 32, "num_warps": 4, "num_stages": 4}
FEW_ROWS = 4096
# for an image or two: the smallest tiles, whose loops are as long and run on more processors
DOWN_SINGLE = {"M": 16, "num_warps": 4, "num_stages": 4}
UP_SINGLE = {"M": 16, "num_warps": 2, "num_stages": 3}
SINGLE_ROWS = 512
REGIONS = {"M": 32, "num_warps": 4}


class DownPass(NamedTuple):
    """One pass down.

    Parameters
    ----------
    images
        how many images of the batch, from the first
    subtract
        whether to subtract the images from the reconstruction
    trial
        whether this is R g of the line search, with the weights before it: only its squares are
        used
    t
        the step whose marks say which of the top's regions have a feature; None: not known
    """

    images: int
    subtract: bool
    trial: bool
    t: int | None


def _down_options(shape: LayerShape, rows: int, sparse: bool) -> dict[str, int]:
    """Return how `down` is launched over this many rows."""
    if rows <= FEW_ROWS:
        return DOWN_SINGLE if rows <= SINGLE_ROWS // 2 else DOWN_FEW
    options = DOWN if shape.down_tile == 64 else DOWN_NARROW
    # registers that suffice: with fewer, more programs share a processor
    return options | {"maxnreg": 80} if sparse else options


def _up_registers(shape: LayerShape, role: str, fit: bool) -> dict[str, int]:
    """Return the registers that suffice for `up`: with fewer, more programs share a processor."""
    if fit or shape.cell not in ((1, 1), (2, 2)):
        return {}
    return {"maxnreg": 80 if role == "between" else 128}


class Workspace(BatchMemory):
    """The memory of a batch and the steps over it."""

    def run(self) -> None:
        """Take all T steps, and the measurements of the end."""
        everything = slice(0, self.N)
        self.choose_scale()
        self.active.fill_(-1.0)
        if self.spec.momentum:
            self.momentum[0].fill_(1.0)
        if self.from_zero:
            self.take_first_step()
        else:
            self.unpool(self.top, everything, self.p[-1], next_step=0)
        for t in range(int(self.from_zero), self.spec.steps):
            self.take_step(t)
        if self.spec.momentum:
            self.p[-1].copy_(self.features)
            self.unpool(self.top, everything, self.p[-1], next_step=self.spec.steps)
        self.reconstruct(self.N, t=self.spec.steps)
        self.measure(self.spec.steps)

    def take_first_step(self) -> None:
        """Take the step from p = 0, whose pass up fits the pooling variables on its way."""
        for empty in (self.z[0], self.penalties, self.nonzeros):
            empty.zero_()
        self.reconstruct(self.N, top=1)
        self.measure(0)
        self.propagate_through(range(1, self.top + 1), slice(0, self.N), "step", 0, fit=True)

    def take_step(self, t: int) -> None:
        """Step t. What does not need β runs while β is found: the measurements, and the pass up
        below the top."""
        searched = self.sample
        left = slice(searched, self.N)
        self.reconstruct(self.N, t=t)
        with self.side_stream():
            self.measure(t)
            self.propagate_through(range(1, self.top), left, "step", t)
        if searched:
            self.search_line(t)
        self.join_streams()
        with self.side_stream():
            self.step(t, searched)
        self.propagate_through(range(self.top, self.top + 1), left, "step", t)
        self.join_streams()
        if self.spec.momentum:
            self.accelerate(t)

    def side_stream(self) -> AbstractContextManager[object]:
        """Launches in here run next to those that follow, until `join_streams`."""
        if self.side is None:
            return nullcontext()
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.side)

    def join_streams(self) -> None:
        """Let what follows wait for the side stream."""
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    # --- the arguments of kernels

    def tensors(self, k: int, images: slice, t: int = 0, **others: Tensor) -> Tensors:
        """Return what kernels read and write of layer k and these images, in step t."""
        above = min(k, self.top - 1)
        last = len(self.momentum) - 1  # without momentum there is one row, which is never read
        tensors = Tensors(
            p=self.p[k - 1][images],
            theta=self.theta[k - 1][images],
            weights=self.weights[k - 1][images],
            weights_before=self.weights_before[k - 1][images],
            z=self.z[k - 1][images],
            error=self.error[k - 1][images],
            error_above=self.error[above][images],
            matrix=self.up[k - 1],
            features=self.features[images],
            gradient=self.gradient,
            beta=self.beta[min(t, len(self.beta) - 1)][images],
            rates=self.rates[images],
            momentum=self.momentum[min(t, last)],
            next_momentum=self.momentum[min(t + 1, last)],
            uphill_sum=self.uphill_sum,
            uphill=self.uphill[images],
            penalties=self.penalties[images],
            nonzeros=self.nonzeros[images],
            squares=self.squares_above[images],
            active=self.active,
            common=self.common,
        )
        return tensors._replace(**others)

    def numbers(
        self, rows: int, k: int, t: int, *, first_image: int = 0, next_step: int = 0
    ) -> Numbers:
        """Return the numbers of a launch in step t."""
        spec = self.spec
        sizes = spec.schedule.steps[t] if spec.schedule and t < spec.steps else None
        rate = spec.pooling_step if sizes is None else sizes.pooling_step_of(k)
        ahead = 0.0 if sizes is None or t == spec.steps - 1 else sizes.extrapolation
        return Numbers(
            rows=rows,
            lam=self.lam,
            pooling_rate=self.lam * rate,
            gamma_bounds=(spec.moments.gamma_min, spec.moments.gamma_max),
            threshold=0.0 if sizes is None else sizes.threshold,
            ahead=ahead,
            is_first=float(t == 0),
            start_scales=spec.start_scales(k),
            next_step=float(next_step),
            first_image=first_image,
        )

    @property
    def rule(self) -> Rule:
        """What a pass up or a step is compiled for, except its role."""
        spec = self.spec
        return Rule(
            penalty=spec.penalty.code,
            nonnegative=self.model_spec.nonnegative,
            momentum=spec.momentum,
            scheduled=spec.schedule is not None,
        )

    # --- the parts of a step

    def reconstruct(
        self,
        images: int,
        *,
        top: int = 0,
        to: int = 0,
        subtract: bool = True,
        trial: bool = False,
        t: int | None = None,
    ) -> None:
        """From z of layer `top` (0: the top layer) down to the error at the image, or to z_to, of
        the first images.

        `subtract` the images. A `trial` is R g of the line search, with the weights before it: only
        its squares are of use. `t`: the top's regions that have a feature are marked with this
        step.
        """
        way = DownPass(images, subtract, trial, t)
        p = self.trial if trial else self.p
        for k in range(top or self.top, to, -1):
            self.reconstruct_layer(k, way)
            if k > 1 and not self.shapes[k - 2].tiled:
                self.unpool(k - 1, slice(0, images), p[k - 2], before=trial)

    def reconstruct_layer(self, k: int, way: DownPass) -> None:
        """From z of layer k to z of the layer below, or to p where that is unpooled later; at
        layer 1 to the error."""
        shape = self.shapes[k - 1]
        rows = way.images * shape.groups[0] * shape.groups[1]
        # only the top's regions are marked, and only large batches gain by leaving regions out
        sparse = way.t is not None and k == self.top and shape.can_skip and rows > FEW_ROWS
        options = _down_options(shape, rows, sparse)
        tiles = triton.cdiv(rows, options["M"])
        if sparse:  # a program's rows are one block of many images
            tiles = triton.cdiv(way.images, options["M"]) * (rows // way.images)
        rule = down.DownRule(
            subtract=way.subtract and not way.trial and k == 1,
            masked=k == 1 and self.mask is not None,
            keep=not way.trial,
            sparse=sparse,
        )
        down.down[(tiles * (self.down[k - 1].shape[2] // shape.down_tile),)](
            self.down_tensors(k, way.trial),
            rows,
            float(way.t or 0),
            SHAPE=shape,
            BELOW=self.shapes[k - 2] if k > 1 else None,
            RULE=rule,
            **options,
        )

    def down_tensors(self, k: int, trial: bool) -> down.DownTensors:
        """Return what `down` reads and writes from layer k. Layer 1 has no layer below, and the
        tensors in its place are never used."""
        under = max(k - 2, 0)
        out = self.common
        if k > 1:
            out = (self.trial if trial else self.p)[under]
        return down.DownTensors(
            z=self.trial_z if trial and k == self.top else self.z[k - 1],
            matrix=self.down[k - 1],
            active=self.active,
            out=out,
            weights=(self.weights_before if trial else self.weights)[under],
            z_below=self.z[under],
            images=self.images,
            mask=self.images if self.mask is None else self.mask,
            error=self.error[0],
            squares=self.trial_squares if trial else self.squares_below,
            common=self.common,
        )

    def unpool(
        self,
        k: int,
        images: slice,
        p: Tensor,
        *,
        before: bool = False,
        accelerate: bool = False,
        next_step: int = -1,
    ) -> None:
        """z_k from p of layer k, with the weights `before` the line search where asked.

        With a `next_step`, p is measured, and active regions are marked for that step; with
        `accelerate`, p is first moved to the point that momentum leads to.
        """
        shape = self.shapes[k - 1]
        t = max(next_step - 1, 0)
        count = images.stop - images.start
        measure = next_step >= 0
        weights = (self.weights_before if before else self.weights)[k - 1][images]
        if shape.tiled or measure:
            rows, programs = self.regions(shape, count)
            rule = down.UnpoolRule(self.spec.penalty.code, measure, accelerate)
            tensors = self.tensors(k, images, t, p=p[images], weights=weights)
            numbers = self.numbers(rows, k, t, next_step=next_step)
            down.unpool[programs](tensors, numbers, SHAPE=shape, RULE=rule, **ELEMENTWISE)
        if not shape.tiled:
            rows = count * shape.cells[0] * shape.cells[1]
            down.unpool_overlapping[(triton.cdiv(rows, REGIONS["M"]) * shape.chunks,)](
                p[images], weights, self.z[k - 1][images], self.common, rows, SHAPE=shape, **REGIONS
            )

    def propagate_through(
        self, layers: range, images: slice, role: str, t: int, *, fit: bool = False
    ) -> None:
        """Propagate the error below the first of these layers up through all of them, and what
        `role` does with it at the top."""
        if images.start == images.stop:
            return
        for k in layers:
            own_role = role if k == self.top else "between"
            self.propagate(k, images, own_role, t, move=k in self.moving, fit=fit)

    def propagate(
        self,
        k: int,
        images: slice,
        role: str,
        t: int,
        *,
        move: bool,
        keep: bool = False,
        fit: bool = False,
    ) -> None:
        """Propagate the error below layer k up to its features, and do what `role` asks there;
        `fit` θ to it first."""
        shape = self.shapes[k - 1]
        count = images.stop - images.start
        cells = count * shape.cells[0] * shape.cells[1]
        launch = UP_SINGLE if cells <= SINGLE_ROWS else UP
        by_image = count >= launch["M"] and shape.block_row >= 64
        tiles = triton.cdiv(cells, launch["M"])
        if by_image:  # a program's rows are one cell of many images
            tiles = triton.cdiv(count, launch["M"]) * (cells // count)
        programs = (tiles * shape.chunks,)
        rule = replace(
            self.rule,
            role=role,
            move=move and not fit,
            keep=keep,
            fit=self.spec.moments.power if fit else 0,
        )
        rows, region_programs = self.regions(shape, count, REGIONS["M"])
        numbers = self.numbers(rows, k, t, first_image=images.start, next_step=t + 1)
        tensors = self.tensors(k, images, t)
        above = self.shapes[min(k, self.top - 1)]
        if shape.tiled:
            if role == "gradient":
                tensors = tensors._replace(z=self.trial_z)
            rule = replace(rule, by_image=by_image)
            options = launch | _up_registers(shape, role, fit)
            up.up[programs](tensors, numbers, SHAPE=shape, ABOVE=above, RULE=rule, **options)
            return
        # regions that overlap share elements: the error at z goes through memory
        z_error = self.z_error[k - 1][images]
        up.propagate[programs](tensors, z_error, cells, SHAPE=shape, BY_IMAGE=by_image, **launch)
        tensors = tensors._replace(error=z_error)
        up.up[region_programs](tensors, numbers, SHAPE=shape, ABOVE=above, RULE=rule, **REGIONS)
        if role == "gradient":
            self.unpool(k, images, self.gradient, before=True)
        elif role == "step" and not self.spec.momentum:
            self.unpool(k, images, self.p[k - 1])

    def measure(self, t: int) -> None:
        """Measure the objective's parts before step t."""
        sums.measure[(self.N,)](
            (self.squares_below, self.penalties, self.nonzeros),
            (self.reconstruction[t], self.penalty[t], self.count[t]),
            self.lam / 2,
            **self.lengths,
            num_warps=1,
        )

    @property
    def lengths(self) -> dict[str, int]:
        """How many parts an image's sums have, at the image and at the features."""
        return {"BELOW": self.squares_below.shape[1], "ABOVE": self.penalties.shape[1]}

    def search_line(self, t: int) -> None:
        """β of step t, from the gradient of the sample and what it reconstructs, by the weights
        before the step.

        The sample then lacks only its step: θ has moved, and the gradient is stored.
        """
        for k in range(1, self.top + 1):
            role = "gradient" if k == self.top else "between"
            move = k in self.moving
            self.propagate(k, slice(0, self.sample), role, t, move=move, keep=self.keeps_weights(k))
        self.reconstruct(self.sample, trial=True)
        shared = self.spec.per_batch
        norms = (self.gradient_norm, self.reconstruction_norm)
        sums.line_search[(self.sample,)](
            (self.squares_above, self.trial_squares),
            norms,
            None if shared else self.beta[t],
            self.lam,
            **self.lengths,
            num_warps=1,
        )
        if shared:
            programs = (triton.cdiv(self.N, sums.BLOCK.value),)
            sums.shared_step[programs](norms, self.beta[t], self.N, self.lam, SAMPLE=self.sample)

    def step(self, t: int, images: int) -> None:
        """Take the step of the first images along the gradient that the line search left."""
        if images == 0:
            return
        shape = self.shapes[-1]
        first = slice(0, images)
        rows, programs = self.regions(shape, images)
        numbers = self.numbers(rows, self.top, t, next_step=t + 1)
        step.step[programs](
            self.tensors(self.top, first, t), numbers, SHAPE=shape, RULE=self.rule, **ELEMENTWISE
        )
        if not shape.tiled and not self.spec.momentum:
            self.unpool(self.top, first, self.p[-1])

    def accelerate(self, t: int) -> None:
        """FISTA's next point."""
        sums.sum_rows[(self.N,)](
            self.uphill, self.uphill_sum, COUNT=self.uphill.shape[1], num_warps=1
        )
        self.unpool(self.top, slice(0, self.N), self.p[-1], accelerate=True, next_step=t + 1)
