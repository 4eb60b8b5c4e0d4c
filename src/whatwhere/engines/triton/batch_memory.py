"""The memory of one batch on the device: everything that the steps touch, what goes in and what
comes out."""

import torch
import triton
from torch import Tensor

from whatwhere.engines.reference.step_size import batch_sample, pooling_rate, safe_step
from whatwhere.engines.triton.shapes import (
    LayerShape,
    down_sources,
    lay_out,
    layer_shapes,
    round_up,
    up_sources,
)
from whatwhere.engines.triton.step import MARKED_IMAGES
from whatwhere.engines.triton.weights import Strided, take_theta
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Stats
from whatwhere.spec import Fixed, LineSearch

HALF = torch.float16  # what the tensor cores multiply; their sums are float32
ELEMENTWISE = {"M": 64, "num_warps": 4}  # launches of kernels without products


class BatchMemory:
    """Everything that T steps on N images of one size touch, allocated once and used again."""

    def __init__(self, problem: Problem, *, from_zero: bool = False) -> None:
        model, images, spec = problem.model, problem.images, problem.spec
        N, C, height, width = images.shape
        self.model_spec, self.spec, self.lam, self.N, self.top = (
            model.spec,
            spec,
            problem.lam,
            N,
            problem.phase.layer,
        )
        self.shapes = layer_shapes(model, height, width, self.top)
        self.moving, self.from_zero, masked = problem.moving, from_zero, problem.mask is not None
        self.sample = (
            (batch_sample(N) if spec.per_batch else N) if isinstance(spec.step, LineSearch) else 0
        )
        self.device = images.device
        self.side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(*shape, dtype=dtype, device=images.device)

        self.images, self.mask = (
            empty(N, C, height, width),
            empty(N, C, height, width) if masked else None,
        )
        self.common = empty(5)  # scales, by the names of `weights`
        self.gradient_unit = empty(1)  # of an error that is not weighted
        self.p = [  # what `down` unpools at once, it stores as float16 · scale
            empty(N, *s.grid, s.maps, dtype=HALF if k < self.top and s.tiled else torch.float32)
            for k, s in enumerate(self.shapes, start=1)
        ]
        self.trial = [  # R g on its way down, where it is not unpooled at once
            empty(0 if s.tiled else self.sample, *s.grid, s.maps) for s in self.shapes[:-1]
        ]
        self.theta = [empty(N, *s.grid, 4, s.maps) for s in self.shapes]
        self.weights = [
            empty(N, *s.grid, s.weight_planes, s.maps, dtype=torch.int16) for s in self.shapes
        ]
        # the line search moves θ on its way up, but what it tries on its way down has the weights
        # from before
        self.weights_before = [
            empty(self.sample, *w.shape[1:], dtype=w.dtype) if self.keeps_weights(k) else w
            for k, w in enumerate(self.weights, start=1)
        ]
        # which regions of the top have a feature in any of a few images, as `step.mark_active`
        # marks them
        self.active = empty(round_up(N, 128) // MARKED_IMAGES.value, *self.shapes[-1].grid)
        self.z = [empty(N, *s.cells, s.cell_area, s.maps, dtype=HALF) for s in self.shapes]
        self.trial_z = (
            torch.empty_like(self.z[-1][: self.sample]) if self.shapes[-1].tiled else self.z[-1]
        )
        self.z_error = [
            z[:0] if s.tiled else torch.empty_like(z)
            for z, s in zip(self.z, self.shapes, strict=True)
        ]
        # blocks at the border may reach beyond the map: what is not there is 0, and nothing ever
        # writes it
        self.error = [
            torch.zeros(N, *s.blocks, s.cell_area, s.below[0], dtype=HALF, device=images.device)
            for s in self.shapes
        ]
        self.down = [empty(*down_sources(s, self.device).shape, dtype=HALF) for s in self.shapes]
        self.up = [empty(*up_sources(s, self.device).shape, dtype=HALF) for s in self.shapes]
        self.sources: list[tuple[Tensor, int]] = []  # what is laid out, and its versions

        top, bottom = self.shapes[-1], self.shapes[0]
        self.gradient = empty(self.sample, *top.grid, top.maps)
        parts = top.grid[0] * top.grid[1] * top.chunks
        tiles = self.down[0].shape[2] // bottom.down_tile
        self.penalties, self.nonzeros, self.uphill, self.squares_above = (
            empty(N, parts) for _ in range(4)
        )
        self.squares_below = empty(N, bottom.groups[0] * bottom.groups[1] * tiles)
        self.trial_squares = torch.empty_like(self.squares_below[: self.sample])
        self.gradient_norm, self.reconstruction_norm, self.uphill_sum = empty(N), empty(N), empty(N)
        self.features = (
            empty(*self.p[-1].shape) if spec.momentum or spec.schedule is not None else self.p[-1]
        )
        T = spec.steps
        self.momentum = empty(T + 1, N) if spec.momentum else empty(1, N)
        self.reconstruction, self.penalty, self.count = (empty(T + 1, N) for _ in range(3))
        self.beta, self.rates = empty(max(T, 1), N), empty(N)
        for beta, sizes in zip(
            self.beta, spec.schedule.steps if spec.schedule else (), strict=False
        ):
            beta.fill_(sizes.size)

    def keeps_weights(self, k: int) -> bool:
        """Whether a line search needs the weights of layer k after it moved its θ."""
        return k in self.moving and not (k == self.top and self.shapes[k - 1].tiled)

    def load(self, problem: Problem, start: Latents | None) -> None:
        """Take a batch with its mask, the filters, and where to start (None where that is
        `from_zero`)."""
        self.images.copy_(problem.images)
        self.load_filters(problem.model)
        if self.mask is not None:
            assert problem.mask is not None
            self.mask.copy_(problem.mask.expand_as(problem.images))
        if start is not None:
            self.load_latents(start.features, start.pooling_params)
        if self.spec.schedule is not None:
            self.rates.copy_(
                pooling_rate(problem.images, problem.mask, self.spec.schedule.contrast)
            )
        elif isinstance(self.spec.step, Fixed) and self.spec.steps:
            self.beta.fill_(safe_step(problem.model, self.top, self.lam))

    def load_latents(self, p: Tensor, theta: tuple[PoolingParams, ...]) -> None:
        """Take features and pooling variables, and store the weights that these make."""
        self.p[-1].copy_(p.permute(0, 2, 3, 1))
        if self.features is not self.p[-1]:
            self.features.copy_(self.p[-1])
        for known, own, planes, shape in zip(
            theta, self.theta, self.weights, self.shapes, strict=True
        ):
            mu, gamma = (Strided(x, x.stride()) for x in (known.mu, known.gamma))
            rows, programs = self.regions(shape, self.N)
            take_theta[programs](mu, gamma, own, planes, rows, SHAPE=shape, **ELEMENTWISE)

    @staticmethod
    def regions(
        shape: LayerShape, images: int, tile: int = ELEMENTWISE["M"]
    ) -> tuple[int, tuple[int]]:
        """How many regions these images have, and the grid of a kernel that takes them in tiles."""
        rows = images * shape.grid[0] * shape.grid[1]
        return rows, (triton.cdiv(rows, tile) * shape.chunks,)

    def choose_scale(self) -> None:
        """The powers of two that keep float16 within its range, from what was loaded; see
        `weights`."""
        size = largest(self.images)
        unit = to_unit(size if self.from_zero else torch.maximum(size, largest(self.p[-1])))
        weight = (
            torch.ones_like(unit) if self.mask is None else to_unit(largest(self.mask)).square()
        )
        error = unit * weight
        self.common.copy_(
            torch.stack([unit, 1 / unit, self.gradient_unit[0] * weight, error, 1 / error])
        )

    def load_filters(self, model: DeconvNet) -> None:
        """Lay out filters that are not here yet, and find how much larger than an error its
        gradient may be."""
        if self.holds(model):
            return
        upward = model.upward[: self.top]
        self.gradient_unit[0] = to_unit(
            torch.stack([f.abs().sum((0, 2, 3)).amax() for f in upward]).prod()
        )
        for k, shape in enumerate(self.shapes):
            self.down[k].copy_(lay_out(model.filters[k], down_sources(shape, self.device)))
            self.up[k].copy_(lay_out(upward[k], up_sources(shape, self.device)))
        self.sources = [(f, f._version) for f in self.both_passes(model)]

    def both_passes(self, model: DeconvNet) -> tuple[Tensor, ...]:
        """The filters of the pass down, then those of the pass up."""
        return model.filters[: self.top] + model.upward[: self.top]

    def holds(self, model: DeconvNet) -> bool:
        """Whether the filters of this model are here."""
        if not self.sources:
            return False
        known = zip(self.both_passes(model), self.sources, strict=True)
        return all(f is own and f._version == version for f, (own, version) in known)

    def latents(self) -> Latents:
        """A copy of what was inferred, shaped as everywhere else; in memory the maps come last, as
        `load` likes it."""
        pooling = []
        for planes in self.theta:
            mu, gamma = planes.clone().permute(0, 3, 4, 1, 2).chunk(2, dim=1)
            pooling.append(PoolingParams(mu, gamma))
        return Latents(self.features.clone().permute(0, 3, 1, 2), tuple(pooling))

    def stats(self) -> Stats:
        parts = (self.reconstruction, self.penalty, self.count.long(), self.beta[: self.spec.steps])
        return Stats(*(part.clone() for part in parts))


def largest(x: Tensor) -> Tensor:
    """max |x|, in one pass."""
    return torch.linalg.vector_norm(x, torch.inf)


def to_unit(size: Tensor) -> Tensor:
    """The power of two that brings a size to between ½ and 1."""
    return torch.exp2(-torch.frexp(size.where(size > 0, torch.ones_like(size)))[1].float())
