"""Inference for one batch of images: its memory, and the threads that share its images."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.cpu.layout import pack_model
from whatwhere.engines.cpu.loop import Images, Memory, advance
from whatwhere.engines.cpu.records import Network, pack_settings
from whatwhere.engines.cpu.start import FITS, KNOWN
from whatwhere.engines.reference.ista import start_features
from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.engines.reference.step_size import batch_sample, known_sizes, pooling_rate
from whatwhere.engines.threads import chunks, flushed_denormals, solver_pool
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import Problem
from whatwhere.model.solution import Solution, Stats
from whatwhere.spec import InferenceSpec


def _fit_of(problem: Problem, k: int) -> int:
    """Return where the pooling variables of layer k come from at the start: a value of
    `layer.fit`."""
    pooling = problem.model.spec.layers[k - 1].pooling
    fit = FITS.get(type(pooling), KNOWN)  # see `with_known_start`
    known = pooling.moves and k <= len(problem.latents.pooling_params)
    return KNOWN if known else fit


def _pooling_rates(problem: Problem) -> np.ndarray:
    """Return the factors of every image's steps of θ, [N], which depend on its contrast in a
    schedule."""
    schedule = problem.spec.schedule
    if schedule is None:
        return np.ones(len(problem.images))
    return pooling_rate(problem.images.double(), problem.mask, schedule.contrast).numpy()


def _known_steps(problem: Problem) -> np.ndarray:
    """β of every step of every image, [N, T], if it is known in advance; otherwise 0."""
    beta = np.zeros((len(problem.images), problem.spec.steps))
    sizes = known_sizes(problem)
    if sizes is not None:
        beta[:] = sizes
    return beta


def with_known_start(problem: Problem) -> Problem:
    """Return the problem unchanged or, if the kernels cannot fit a kind of pooling, with the
    latents that the reference starts from."""
    layers = problem.model.spec.layers[: problem.phase.layer]
    if all(type(layer.pooling) in FITS for layer in layers):
        return problem
    return replace(problem, latents=Latents(start_features(problem), start_pooling(problem)))


class BatchSolver:
    """A batch of images with its latents, settings and filters in the order in which the kernels
    read them."""

    def __init__(self, problem: Problem, tape: np.ndarray | None = None) -> None:
        problem = with_known_start(problem)
        model = problem.model
        images = problem.images
        top = problem.phase.layer
        spec = problem.spec
        N = len(images)
        T = spec.steps
        self.spec = spec
        self.lam = problem.lam
        self.dtype = images.dtype
        packed = pack_model(model, images.shape[2], images.shape[3], top, problem.moving)
        self.layers = packed.table
        self.filters = packed.filters
        self.state_size = packed.state_size
        self.kept_memory = packed.kept_memory
        for k in range(1, top + 1):
            self.layers[k]["fit"] = _fit_of(problem, k)
        self.settings = pack_settings(model, spec)
        if N == 1 and spec.per_batch:
            self.settings["line_search"] = self.settings["own_step"] = True
        self.settings["from_zero"] = T > 0 and problem.is_fresh
        self.settings["fast_fit"] = spec.schedule is not None and T > 0 and problem.is_fresh
        self.initial = initial_latents(problem)
        self.packed = pack_latents(self.initial, known=not problem.is_fresh)
        scales = np.array([spec.start_scales(k) for k in range(1, top + 1)])
        self.sizes = (_pack_schedule(spec, top), scales)
        self.all = Images(
            images=pack_images(images),
            masks=pack_mask(problem.mask, images),
            packed=self.packed.numpy(),
            rates=_pooling_rates(problem),
            beta=_known_steps(problem),
            norms=np.zeros((N, 2)),
            trace=np.zeros((N, T + 1, 3)),
            fista=np.ones(N),
            tape=self.packed.new_empty(N, T, 0).numpy() if tape is None else tape,
        )

    def solve(self) -> Solution:
        """Take all steps of all images."""
        if len(self.packed) == 1:
            self.solve_one()
            return self.solution()
        with solver_pool() as pool:
            if self.spec.per_batch:
                self.solve_with_shared_step(pool.map, batch_sample(len(self.packed)))
            else:
                self.solve_each(pool.map, 0)
        return self.solution()

    def solve_one(self) -> None:
        """Take all steps of a single image, in the calling thread and in the memory of the last
        solve, because new memory costs time."""
        try:
            memory = self.kept_memory.pop()
        except IndexError:
            memory = self.new_memory(1)
        with flushed_denormals():
            self.advance(0, self.spec.steps, slice(0, 1), memory)
        if self.state_size <= 2**20:  # numbers that are kept for the next solve
            self.kept_memory[:] = [memory]

    def solve_each(self, parallel_map: Callable[..., Iterable[object]], first: int) -> None:
        """Take all steps of each image from number `first` on, one image after the other in each
        thread."""

        # memory that is new to a thread costs more time than the steps of an image
        local = threading.local()

        def work(chunk: slice) -> None:
            if not hasattr(local, "memory"):
                local.memory = self.new_memory(1)
            self.advance(0, self.spec.steps, chunk, local.memory)

        list(parallel_map(work, chunks(first, len(self.packed))))

    def solve_with_shared_step(
        self, parallel_map: Callable[..., Iterable[object]], sample: int
    ) -> None:
        """Follow the batch rule: the first `sample` images take each step together and give β; the
        others then use this β."""
        T, parts = self.spec.steps, chunks(0, sample)
        memories = [self.new_memory(part.stop - part.start) for part in parts]
        self.settings["line_search"] = True
        for t in range(T + 1):
            list(parallel_map(self.advance, [t] * len(parts), [t] * len(parts), parts, memories))
            if t < T:
                squares, gained = self.all.norms[:sample].sum(0)
                self.all.beta[:, t] = squares / (self.lam * gained) if gained > 0 else 0
        self.settings["line_search"] = False
        self.solve_each(parallel_map, sample)

    def new_memory(self, images: int) -> Memory:
        """Zeroed memory for the states of this many images, and for the codes that
        momentum needs."""
        top = self.layers[-1]
        codes = 2 * int(top["rows"] * top["columns"] * top["maps"])
        return Memory(
            *(torch.zeros(images, n, dtype=self.dtype).numpy() for n in (self.state_size, codes))
        )

    def advance(self, first: int, last: int, chunk: slice, memory: Memory) -> None:
        """Advance these images from point `first` to point `last`."""
        part = Images(*(array[chunk] for array in self.all))
        advance(
            (first, last),
            part,
            memory,
            Network(self.layers, self.filters),
            self.settings,
            self.sizes,
        )

    def solution(self) -> Solution:
        latents = _unpack_latents(self.packed, self.initial)
        trace = torch.from_numpy(self.all.trace).permute(2, 1, 0)
        reconstruction, penalty = trace[:2].to(self.dtype)
        stats = Stats(
            reconstruction,
            penalty,
            trace[2].long(),
            torch.from_numpy(self.all.beta).T.to(self.dtype),
        )
        return Solution(latents, stats, engine="cpu")


def _pack_schedule(spec: InferenceSpec, layers: int) -> np.ndarray:
    """Return the threshold, the extrapolation and β_U of every layer, a row for each step; no rows
    without a schedule."""
    if spec.schedule is None:
        return np.zeros((0, 2 + layers))
    rows = []
    for sizes in spec.schedule.steps[: spec.steps]:
        pooling_steps = [sizes.pooling_step_of(k) for k in range(1, layers + 1)]
        rows.append([sizes.threshold, sizes.extrapolation, *pooling_steps])
    return np.array(rows).reshape(len(rows), 2 + layers)


def initial_latents(problem: Problem) -> Latents:
    """Return the latents that are given, as `ista.start` takes them; zeros for those that the
    kernels will fit."""
    latents = problem.latents
    phase = problem.phase
    N = len(problem.images)
    zero = problem.images.new_zeros(1)
    regions = problem.sized.regions[: phase.layer]
    missing = [zero.expand(N, len(r.axes), *r.grid) for r in regions[len(latents.pooling_params) :]]
    thetas = [PoolingParams(variable, variable) for variable in missing]
    of_this_layer = latents.p is not None and len(latents.pooling_params) == phase.layer
    p = latents.p if of_this_layer else zero.expand(N, *regions[-1].grid)
    return Latents(p, (*latents.pooling_params[: phase.layer], *thetas))


def pack_latents(latents: Latents, *, known: bool = True) -> Tensor:
    """Return all latents of each image in one row [N, …], the maps innermost; if none is known,
    memory for them."""
    if not known:
        first = latents.tensors()[0]
        return first.new_zeros(
            len(first), sum(tensor.shape[1:].numel() for tensor in latents.tensors())
        )
    return torch.cat(
        [tensor.movedim((-2, -1), (1, 2)).flatten(1) for tensor in latents.tensors()], 1
    )


def _unpack_latents(packed: Tensor, like: Latents) -> Latents:
    """Return the latents in the rows of `pack_latents`, with the shapes of others."""
    parts = iter(torch.split(packed, [tensor.shape[1:].numel() for tensor in like.tensors()], 1))

    def unpacked(tensor: Tensor) -> Tensor:
        N, *maps, height, width = tensor.shape
        return next(parts).view(N, height, width, *maps).permute(0, *range(3, tensor.dim()), 1, 2)

    return like.map(unpacked)


def pack_images(images: Tensor) -> np.ndarray:
    """Return the images with channels innermost, one row each: [N, H W C]."""
    return images.permute(0, 2, 3, 1).reshape(len(images), -1).contiguous().numpy()


def pack_mask(mask: Tensor | None, images: Tensor) -> np.ndarray:
    """Make a weight for every number of `pack_images`, [N, H W C]; without a mask, rows of length
    0."""
    if mask is None:
        return images.new_empty(len(images), 0).numpy()
    return pack_images(mask.expand_as(images))
