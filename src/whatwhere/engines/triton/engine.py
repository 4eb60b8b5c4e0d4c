"""The fast engine on the GPU: the steps of `ista.solve` as fused Triton kernels
(docs/engines/triton.md).

Features, pooling variables and sums are float32; the tensor cores multiply float16.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from whatwhere.engines.base import require_supported
from whatwhere.engines.fast import FAST
from whatwhere.engines.reference.ista import start_features
from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.engines.triton.shapes import cell_sides
from whatwhere.latents import Latents
from whatwhere.model import Problem
from whatwhere.model.deconvnet import times
from whatwhere.model.solution import Solution
from whatwhere.spec import Fixed, Gaussian, InferenceSpec, LineSearch, Schedule

if TYPE_CHECKING:
    from whatwhere.engines.triton.filters import TritonFilterMap
    from whatwhere.engines.triton.workspace import Workspace


@dataclass(frozen=True)
class Limits:
    """What the engine supports, records and keeps, at most.

    Parameters
    ----------
    region
        elements of a pooling region: loops over them are unrolled
    cell
        elements from one region to the next, which a program holds in registers
    recorded
        images for which a CUDA graph also records the start; for more, it would need much memory
    cached
        workspaces that are kept for the next call
    compiler
        the oldest version of Triton that compiles the kernels, major and minor
    """

    region: int = 64
    cell: int = 16
    recorded: int = 64
    cached: int = 4
    compiler: tuple[int, int] = (3, 6)


_LIMITS = Limits()


class Prepared:
    """A workspace and, from its second use on, the CUDA graph of all its steps; for few images,
    also the graph of the start."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.used, self.started = workspace, False, False
        self.steps: torch.cuda.CUDAGraph | None = None
        self.whole: tuple[Problem, torch.cuda.CUDAGraph] | None = (
            None  # from the images of this problem to the end
        )

    def solve(self, problem: Problem) -> None:
        """Start from what is given and take all steps. The first run compiles what the second can
        then record."""
        workspace = self.workspace
        if self.started and _is_recordable(problem) and workspace.holds(problem.model):
            if self.whole is None or not workspace.holds(self.whole[0].model):
                own = replace(problem, images=problem.images.clone())
                self.whole = own, record(partial(self.load_and_run, own))
            own, graph = self.whole
            own.images.copy_(problem.images)
            graph.replay()
            return
        self.load(problem)
        if self.used and workspace.device.type == "cuda":
            self.steps = self.steps or record(workspace.run)
            self.steps.replay()
        else:
            workspace.run()
        self.used = True
        self.started |= _is_recordable(problem)

    def load_and_run(self, problem: Problem) -> None:
        self.load(problem)
        self.workspace.run()

    def load(self, problem: Problem) -> None:
        """Give the workspace the problem and where it starts."""
        start = (
            None
            if self.workspace.from_zero
            else Latents(start_features(problem), start_pooling(problem))
        )
        self.workspace.load(problem, start)


def record(launches: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Make a graph of launches; launches on the way to a step size have priority over launches of
    `Workspace.side_stream`."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1)):
        launches()
    return graph


def _is_recordable(problem: Problem) -> bool:
    """Tell whether fitting the start takes much of the time and can be recorded, because it waits
    for nothing."""
    # other rules may need numbers of the filters, which wait for the device
    waits = not isinstance(problem.spec.step, LineSearch | Schedule)
    few = len(problem.images) <= _LIMITS.recorded and problem.images.is_cuda
    return problem.is_fresh and problem.mask is None and not waits and few


def _starts_from_zero(problem: Problem) -> bool:
    """Tell whether the first step of a schedule fits the pooling variables as well, because fitting
    them separately takes longer.

    Products of float16 leave no noise where there is no signal if nothing is negative.
    """
    spec = problem.model.spec
    regular = all(
        isinstance(layer.pooling, Gaussian) and layer.strides == layer.pool_shape
        for layer in spec.layers[: problem.phase.layer]
    )
    scheduled = problem.spec.schedule is not None and problem.spec.steps > 0
    return scheduled and problem.is_fresh and regular and spec.nonnegative


_prepared: OrderedDict[tuple[object, ...], Prepared] = OrderedDict()


class TritonEngine:
    """The steps of `ista.solve` on the GPU: the same steps from the same start, with float16
    products."""

    name = "triton"
    converges = False

    def solve(self, problem: Problem) -> Solution:
        """Run all steps of one phase for one batch of images."""
        require_supported(self.name, unsupported(problem))
        prepared = prepare(problem, from_zero=_starts_from_zero(problem))
        prepared.solve(problem)
        return Solution(prepared.workspace.latents(), prepared.workspace.stats(), engine=self.name)

    def filter_map(self, problem: Problem, k: int) -> TritonFilterMap:
        """`engines.reference.filter_map.FilterMap`, the map from the filters of layer k to the
        reconstruction, on the GPU."""
        from whatwhere.engines.triton.filters import TritonFilterMap

        problem.require_latents(k)
        require_supported(self.name, unsupported(problem))
        without_steps = replace(problem, spec=InferenceSpec(steps=0, step=Fixed()))
        return TritonFilterMap(prepare(without_steps).workspace, without_steps, k)

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why this engine does not support the problem; None if it does."""
        if why := compiler_reason():
            return why
        if torch.version.hip is not None:
            return "its kernels are tuned and tested for NVIDIA GPUs only"
        if problem.images.device.type != "cuda":
            return f"the images are on {problem.images.device}, but its kernels run on CUDA devices"
        return unsupported(problem)


def compiler_reason() -> str | None:
    """Return why Triton cannot compile kernels here; None if it can."""
    if find_spec("triton") is None:
        return "the package triton is not installed (pip install triton)"
    return outdated(_installed_version())


@cache
def _installed_version() -> str:
    """Return the version of the package triton; '' if another package brings the module."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""


def outdated(version: str) -> str | None:
    """Return why this version of Triton is too old for the kernels; None if it is not.

    >>> outdated("3.3.1")
    'triton 3.3.1 is installed, but its kernels need 3.6, which torch 2.10 brings, or newer'
    """
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if not numbers or numbers >= _LIMITS.compiler:
        return None
    oldest = ".".join(map(str, _LIMITS.compiler))
    return (
        f"triton {version} is installed, but its kernels need {oldest}, which torch 2.10 brings,"
        " or newer"
    )


def prepare(problem: Problem, *, from_zero: bool = False) -> Prepared:
    """Return the workspace for batches like this one: the last few are cached."""
    from whatwhere.engines.triton.workspace import Workspace

    v, masked = problem.images, problem.mask is not None
    key = (problem.model.spec, problem.phase, problem.spec, v.shape, v.device, masked, from_zero)
    if key not in _prepared:
        while len(_prepared) >= _LIMITS.cached:
            _prepared.popitem(last=False)
        _prepared[key] = Prepared(Workspace(problem, from_zero=from_zero))
    _prepared.move_to_end(key)
    return _prepared[key]


def unsupported(problem: Problem) -> str | None:
    """Return what the kernels do not support, by name."""
    if problem.model.dtype != torch.float32:
        return f"its kernels are for float32, but the model is {problem.model.dtype}"
    return FAST.unsupported_reason(problem) or unsupported_size(problem)


def unsupported_size(problem: Problem) -> str | None:
    """Return the regions that are too large for the kernels."""
    for k, layer in enumerate(problem.model.spec.layers[: problem.phase.layer], start=1):
        if math.prod(layer.pool_shape) > _LIMITS.region:
            return (
                f"the pooling regions of layer {k} hold {times(layer.pool_shape)} elements (it"
                f" supports at most {_LIMITS.region})"
            )
        if math.prod(cell_sides(layer.pool_shape, layer.strides)) > _LIMITS.cell:
            strides = f"{times(layer.strides)} elements"
            return (
                f"the pooling regions of layer {k} have a stride of {strides} (it supports at most"
                f" {_LIMITS.cell})"
            )
    return None
