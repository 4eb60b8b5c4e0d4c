"""The memory of one batch on the device: everything that the steps touch, what goes in and what
comes out."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from whatwhere.engines.reference.step_size import batch_sample, known_sizes, pooling_rate
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
from whatwhere.spec import InferenceSpec, LineSearch

HALF = torch.float16  # what the tensor cores multiply; their sums are float32
ELEMENTWISE = {"M": 64, "num_warps": 4}  # launches of kernels without products


class FilterSource(NamedTuple):
    """Filters that were laid out as matrices, and their version then: they may change in place."""

    filters: Tensor
    version: int


def _searched_images(spec: InferenceSpec, images: int) -> int:
    """Return how many images a line search uses; 0 without a line search."""
    if not isinstance(spec.step, LineSearch):
        return 0
    return batch_sample(images) if spec.per_batch else images


class BatchMemory:
    """Everything that T steps on N images of one size touch, allocated once and used again."""

    def __init__(self, problem: Problem, *, from_zero: bool = False) -> None:
        images = problem.images
        self.model_spec = problem.model.spec
        self.spec = problem.spec
        self.lam = problem.lam
        self.N = len(images)
        self.top = problem.phase.layer
        self.moving = problem.moving
        self.from_zero = from_zero
        self.has_sizes = False
        self.sample = _searched_images(problem.spec, self.N)
        self.device = images.device
        self.side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        _, _, height, width = images.shape
        self.shapes = layer_shapes(problem.model, height, width, self.top)

        self.images = self.empty(*images.shape)
        self.mask = None if problem.mask is None else self.empty(*images.shape)
        self.common = self.empty(5)  # scales, by the names of `weights`
        self.gradient_unit = self.empty(1)  # of an error that is not weighted
        self.allocate_filters()
        self.allocate_pooling()
        self.allocate_maps()
        self.allocate_sums()
        self.allocate_trace()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device=self.device)

    # --- what is allocated

    def allocate_filters(self) -> None:
        """Allocate the filters as matrices, of the pass down and of the pass up."""
        self.down = [
            self.empty(*down_sources(s, self.device).shape, dtype=HALF) for s in self.shapes
        ]
        self.up = [self.empty(*up_sources(s, self.device).shape, dtype=HALF) for s in self.shapes]
        self.sources: list[FilterSource] = []  # what is laid out here

    def allocate_pooling(self) -> None:
        """θ of every layer, and the weights that it makes."""
        N = self.N
        self.theta = [self.empty(N, *s.grid, 4, s.maps) for s in self.shapes]
        self.weights = [
            self.empty(N, *s.grid, s.weight_planes, s.maps, dtype=torch.int16) for s in self.shapes
        ]
        # the line search moves θ on its way up, but what it tries on its way down has the weights
        # from before
        self.weights_before = [
            self.empty(self.sample, *w.shape[1:], dtype=w.dtype) if self.keeps_weights(k) else w
            for k, w in enumerate(self.weights, start=1)
        ]

    def allocate_maps(self) -> None:
        """Features, unpooled maps and errors of every layer, and those of the line search."""
        N = self.N
        top = self.shapes[-1]
        self.p = [
            self.empty(N, *s.grid, s.maps, dtype=self.feature_type(k))
            for k, s in enumerate(self.shapes, start=1)
        ]
        # a momentum or a schedule leaves p ahead of the features
        ahead = self.spec.momentum or self.spec.schedule is not None
        self.features = self.empty(*self.p[-1].shape) if ahead else self.p[-1]
        self.z = [self.empty(N, *s.cells, s.cell_area, s.maps, dtype=HALF) for s in self.shapes]
        self.z_error = [
            z[:0] if s.tiled else torch.empty_like(z)
            for z, s in zip(self.z, self.shapes, strict=True)
        ]
        # blocks at the border may reach beyond the map: what is not there is 0, and nothing ever
        # writes it
        self.error = [
            torch.zeros(N, *s.blocks, s.cell_area, s.below[0], dtype=HALF, device=self.device)
            for s in self.shapes
        ]
        # which regions of the top have a feature in any of a few images, as `step.mark_active`
        # marks them
        self.active = self.empty(round_up(N, 128) // MARKED_IMAGES.value, *top.grid)

        # of the line search: g, and R g on its way down, where it is not unpooled at once
        self.gradient = self.empty(self.sample, *top.grid, top.maps)
        self.trial = [
            self.empty(0 if s.tiled else self.sample, *s.grid, s.maps) for s in self.shapes[:-1]
        ]
        self.trial_z = torch.empty_like(self.z[-1][: self.sample]) if top.tiled else self.z[-1]

    def feature_type(self, k: int) -> torch.dtype:
        """Below the top, what `down` unpools at once it stores as float16 · scale."""
        return HALF if k < self.top and self.shapes[k - 1].tiled else torch.float32

    def allocate_sums(self) -> None:
        """Allocate the parts of every image's sums that programs leave, and the sums themselves."""
        N = self.N
        top = self.shapes[-1]
        bottom = self.shapes[0]
        parts = top.grid[0] * top.grid[1] * top.chunks
        self.penalties = self.empty(N, parts)
        self.nonzeros = self.empty(N, parts)
        self.uphill = self.empty(N, parts)
        self.squares_above = self.empty(N, parts)
        tiles = self.down[0].shape[2] // bottom.down_tile
        self.squares_below = self.empty(N, bottom.groups[0] * bottom.groups[1] * tiles)
        self.trial_squares = torch.empty_like(self.squares_below[: self.sample])
        self.gradient_norm = self.empty(N)
        self.reconstruction_norm = self.empty(N)
        self.uphill_sum = self.empty(N)

    def allocate_trace(self) -> None:
        """Allocate what every step measures, and the sizes of the steps."""
        N = self.N
        T = self.spec.steps
        self.momentum = self.empty(T + 1, N) if self.spec.momentum else self.empty(1, N)
        self.reconstruction = self.empty(T + 1, N)
        self.penalty = self.empty(T + 1, N)
        self.count = self.empty(T + 1, N)
        self.rates = self.empty(N)
        self.beta = self.empty(max(T, 1), N)

    def keeps_weights(self, k: int) -> bool:
        """Tell whether a line search needs the weights of layer k after it moved its θ."""
        return k in self.moving and not (k == self.top and self.shapes[k - 1].tiled)

    # --- what goes in and what comes out

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
        if not self.sample and self.spec.steps:
            self.load_sizes(problem)

    def load_sizes(self, problem: Problem) -> None:
        """β of every step, which the rule knows before. Those of a schedule never change, so that
        they are loaded once; others may depend on the filters."""
        if self.spec.schedule is not None and self.has_sizes:
            return
        sizes = known_sizes(problem)
        assert sizes is not None, "only a line search finds them in every step"
        if len(set(sizes)) == 1:
            self.beta.fill_(sizes[0])
        else:
            for beta, size in zip(self.beta, sizes, strict=True):
                beta.fill_(size)
        self.has_sizes = True

    def load_latents(self, p: Tensor, theta: tuple[PoolingParams, ...]) -> None:
        """Take features and pooling variables, and store the weights that these make."""
        self.p[-1].copy_(p.permute(0, 2, 3, 1))
        if self.features is not self.p[-1]:
            self.features.copy_(self.p[-1])
        for known, own, planes, shape in zip(
            theta, self.theta, self.weights, self.shapes, strict=True
        ):
            mu = Strided(known.mu, known.mu.stride())
            gamma = Strided(known.gamma, known.gamma.stride())
            rows, programs = self.regions(shape, self.N)
            take_theta[programs](mu, gamma, own, planes, rows, SHAPE=shape, **ELEMENTWISE)

    @staticmethod
    def regions(
        shape: LayerShape, images: int, tile: int = ELEMENTWISE["M"]
    ) -> tuple[int, tuple[int]]:
        """Return how many regions these images have, and the grid of a kernel that takes them in
        tiles."""
        rows = images * shape.grid[0] * shape.grid[1]
        return rows, (triton.cdiv(rows, tile) * shape.chunks,)

    def choose_scale(self) -> None:
        """Choose the powers of two that keep float16 within its range, from what was loaded; see
        `weights`."""
        size = largest(self.images)
        unit = _to_unit(size if self.from_zero else torch.maximum(size, largest(self.p[-1])))
        weight = torch.ones_like(unit)
        if self.mask is not None:
            weight = _to_unit(largest(self.mask)).square()
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
        self.gradient_unit[0] = _to_unit(
            torch.stack([f.abs().sum((0, 2, 3)).amax() for f in upward]).prod()
        )
        for k, shape in enumerate(self.shapes):
            self.down[k].copy_(lay_out(model.filters[k], down_sources(shape, self.device)))
            self.up[k].copy_(lay_out(upward[k], up_sources(shape, self.device)))
        self.sources = [FilterSource(f, f._version) for f in self.both_passes(model)]

    def both_passes(self, model: DeconvNet) -> tuple[Tensor, ...]:
        """Return the filters of the pass down, then those of the pass up."""
        return model.filters[: self.top] + model.upward[: self.top]

    def holds(self, model: DeconvNet) -> bool:
        """Tell whether the filters of this model are here."""
        if not self.sources:
            return False
        known = zip(self.both_passes(model), self.sources, strict=True)
        return all(f is own.filters and f._version == own.version for f, own in known)

    def latents(self) -> Latents:
        """Make a copy of what was inferred, shaped as everywhere else; in memory the maps come
        last, as `load` likes it."""
        pooling = []
        for planes in self.theta:
            mu, gamma = planes.clone().permute(0, 3, 4, 1, 2).chunk(2, dim=1)
            pooling.append(PoolingParams(mu, gamma))
        return Latents(self.features.clone().permute(0, 3, 1, 2), tuple(pooling))

    def stats(self) -> Stats:
        return Stats(
            reconstruction=self.reconstruction.clone(),
            penalty=self.penalty.clone(),
            nonzeros=self.count.long(),
            step=self.beta[: self.spec.steps].clone(),
        )


def largest(x: Tensor) -> Tensor:
    """max |x|, in one pass."""
    return torch.linalg.vector_norm(x, torch.inf)


def _to_unit(size: Tensor) -> Tensor:
    """Return the power of two that brings a size to between ½ and 1."""
    return torch.exp2(-torch.frexp(size.where(size > 0, torch.ones_like(size)))[1].float())
