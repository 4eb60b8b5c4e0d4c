"""Scheduled steps of a batch of images that back-propagation passes through: the forward pass keeps
a tape, and `pull_back` turns gradients of the latents into gradients of everything that they follow
from."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.cpu.adjoint import Sums, Tape, pull_back
from whatwhere.engines.cpu.batch_solver import BatchSolver, pack_latents
from whatwhere.engines.cpu.records import Network
from whatwhere.engines.jit import is_compiled
from whatwhere.engines.jit.simd import LANES
from whatwhere.engines.threads import solver_pool
from whatwhere.errors import warn
from whatwhere.latents import Latents
from whatwhere.model import Problem

CHUNK = 16  # images whose gradients a thread adds up in one call
_free_tapes: list[Tensor] = []  # at most one: memory that is new costs as much as a step


class StepGradients(NamedTuple):
    """Gradients by what scheduled steps follow from.

    Parameters
    ----------
    images
        [N, C, H, W], after the input stage
    filters
        [B_{k-1}, B_k, K, L] of every layer
    steps
        [T, 3 + layers]  size, threshold, extrapolation, β_U of every layer
    scales
        [layers, 2]  of the fitted μ and γ
    rates
        [N]  the factors of β_U
    """

    images: Tensor
    filters: tuple[Tensor, ...]
    steps: Tensor
    scales: Tensor
    rates: Tensor


class UnrolledSteps:
    """The steps of one problem, whose latents all start from the images; `exact_fit` as in
    `CPUEngine.unrolled`."""

    def __init__(self, problem: Problem, exact_fit: bool) -> None:
        self.problem = problem.detach()
        self.solver = BatchSolver(self.problem)
        if exact_fit:
            self.solver.settings["fast_fit"] = False
        top = self.solver.layers[-1]
        self.code = int(top["rows"] * top["columns"] * top["maps"])
        self.tape: Tensor | None = None

    def solve(self) -> Latents:
        """Return the latents after the last step."""
        N, T = self.solver.all.beta.shape
        kept = int(self.solver.layers[0]["gain"])  # all that lies before it; see `layout`
        self.tape = _take_tape((N, T, kept + self.code), self.solver.dtype)
        self.solver.all = self.solver.all._replace(tape=self.tape.numpy())
        return self.solver.solve().latents

    def pull_back(self, gradients: Latents) -> StepGradients:
        """Turn gradients of the latents into gradients of the rest. It frees the tape; called
        again, it makes a new one."""
        _announce_compilation()
        if self.tape is None:
            self.solve()
        solver = self.solver
        N, T = solver.all.beta.shape
        L = len(solver.layers) - 1
        above = pack_latents(gradients).numpy()
        images = np.zeros_like(solver.all.images)
        rates = np.zeros(N)
        mirror = self._mirror()
        ends = np.cumsum([self._filter_sums(k) for k in range(1, L + 1)])
        starts = np.concatenate([[0], ends[:-1]])
        schedule, scales = solver.sizes

        def work(chunk: slice) -> Sums:
            totals = torch.zeros(int(ends[-1]), dtype=solver.dtype).numpy()
            steps = np.zeros((T, 3 + L))
            part = Sums(images[chunk], totals, starts, steps, np.zeros((L, 2)), rates[chunk])
            memory = torch.zeros(2 * solver.state_size + 3 * self.code, dtype=solver.dtype).numpy()
            pull_back(
                Tape(solver.all.tape[chunk], above[chunk], solver.all.rates[chunk]),
                memory,
                Network(solver.layers, solver.filters),
                mirror,
                solver.settings,
                (solver.all.beta[0], schedule, scales),
                part,
            )
            return part

        with solver_pool() as pool:
            parts = list(pool.map(work, [slice(i, i + CHUNK) for i in range(0, N, CHUNK)]))
        _free_tapes[:] = [] if self.tape is None else [self.tape]
        self.tape = None
        _, C, H, W = self.problem.images.shape
        sums = torch.stack([torch.from_numpy(part.filters) for part in parts])
        of_layers = sums.sum(0, dtype=torch.float64).tensor_split(ends[:-1].tolist())
        filters = [self._filters(k, total) for k, total in enumerate(of_layers, start=1)]
        return StepGradients(
            torch.from_numpy(images).view(N, H, W, C).permute(0, 3, 1, 2),
            tuple(filters),
            torch.from_numpy(np.sum([part.steps for part in parts], 0)),
            torch.from_numpy(np.sum([part.scales for part in parts], 0)),
            torch.from_numpy(rates),
        )

    def _mirror(self) -> np.ndarray:
        """Return the table of layers of the adjoints, in the second half of memory."""
        mirror: np.ndarray = self.solver.layers.copy()
        size = self.solver.state_size
        for row in mirror:
            for name in ("error", "gain", "z_error", "mu", "gamma"):
                row[name] += size
            row["features"] = row["error"]
            row["z"] = row["z_error"]
        mirror[-1]["features"] = 2 * size  # the adjoint of p
        return mirror

    def _filter_sums(self, k: int) -> int:
        """Return the length of the sums of layer k's filters; see `adjoint.Sums`."""
        row, below = self.solver.layers[k], self.solver.layers[k - 1]
        return int(row["maps"] * row["size_y"] * row["size_x"] * below["maps"])

    def _filters(self, k: int, total: Tensor) -> Tensor:
        """Return the sums of layer k as its filters, [C, B, K, L]."""
        row, below = self.solver.layers[k], self.solver.layers[k - 1]
        K, L, C, B = (int(n) for n in (row["size_y"], row["size_x"], below["maps"], row["maps"]))
        if C % LANES == 0:
            filters = total.view(B, K, L, C).permute(3, 0, 1, 2)
        else:
            filters = total.view(K, L, C, B).permute(2, 3, 0, 1)
        return filters[: int(below["real_maps"]), : int(row["real_maps"])]


@cache
def _announce_compilation() -> None:
    """Say, once, why the first training step takes long."""
    if not is_compiled(pull_back):
        warn(
            "The first training step of a sparse code on this machine compiles its kernels, which"
            " takes about 30 s, once per installation."
        )


def _take_tape(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for a tape: the last one's, if it has the same shape."""
    if _free_tapes:
        tape = _free_tapes.pop()
        if tape.shape == shape and tape.dtype == dtype:
            return tape
    return torch.empty(shape, dtype=dtype)
