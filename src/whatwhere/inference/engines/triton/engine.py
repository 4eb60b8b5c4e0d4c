"""The fast engine on the GPU: the steps of `ista.solve` as fused Triton kernels (docs/engines/triton.md).

Features, pooling variables and sums are float32; the tensor cores multiply float16.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whatwhere.inference.checks import check_filter_problem, check_problem, require_supported
from whatwhere.inference.ista import start_latents
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, SizedModel
from whatwhere.model.solution import Solution
from whatwhere.spec import Fixed, InferenceSpec, Phase

if TYPE_CHECKING:
    from whatwhere.inference.engines.triton.filters import TritonFilterMap
    from whatwhere.inference.engines.triton.workspace import Workspace

LARGEST = 64  # elements of a pooling region: the kernels are written out for each
FEW = 64  # images: the start of more would hold much memory for the graph
CACHED = 4  # prepared workspaces that are cached for the next call


class Prepared:
    """A workspace and, from its second use on, the CUDA graph of all its steps; of few images, of the start, too."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.used, self.started = workspace, False, False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.whole: WholeSolve | None = None

    def solve(self, problem: Problem) -> None:
        """Start from what is given and take all steps."""
        if self.started and problem.few and self.workspace.holds(problem.model.model):
            if self.whole is None or not self.workspace.holds(self.whole.problem.model.model):
                self.whole = WholeSolve(self.workspace, problem)
            self.whole.replay(problem.images)
            return
        problem.load(self.workspace)
        self.run()
        self.started |= problem.few  # what the start runs is compiled and loaded now, so it can be recorded

    def run(self) -> None:
        """The first run compiles the kernels, so that the second can be recorded; from then on it is replayed."""
        if not self.used or self.workspace.device.type != "cuda":
            self.workspace.run()
        else:
            self.recorded().replay()
        self.used = True

    def recorded(self) -> torch.cuda.CUDAGraph:
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with recording(self.graph):
                self.workspace.run()
        return self.graph


@dataclass(frozen=True)
class Problem:
    """What a solve is given."""

    model: SizedModel
    images: Tensor
    latents: Latents
    phase: Phase
    spec: InferenceSpec
    mask: Tensor | None

    @property
    def few(self) -> bool:
        """Whether fitting the start takes a good part of the time, and can be recorded: it then waits for nothing."""
        fresh = self.latents.p is None and not self.latents.pooling_params and self.mask is None
        waits = isinstance(self.spec.step, Fixed)  # for the bound on ‖R‖²
        return fresh and not waits and len(self.images) <= FEW and self.images.is_cuda

    @property
    def from_zero(self) -> bool:
        """Whether the first step of a schedule fits the pooling variables as well, which fitted apart take longer.

        Products of float16 leave no noise where there is no signal if nothing is negative.
        """
        spec, layers = self.model.spec, self.model.spec.layers[: self.phase.layer]
        unknown = self.latents.p is None and not self.latents.pooling_params
        regular = all(
            layer.pooling_kind == "gaussian" and layer.stride == layer.pool_size and layer.pool_maps == 1
            for layer in layers
        )
        return self.spec.schedule is not None and self.spec.steps > 0 and unknown and regular and spec.nonnegative

    def load(self, workspace: Workspace) -> None:
        if self.from_zero:
            workspace.load(self.model.model, self.images, None, (), self.mask)
            return
        p, theta = start_latents(self.model, self.images, self.latents, self.phase, self.spec, self.mask)
        workspace.load(self.model.model, self.images, p, theta, self.mask)


class WholeSolve:
    """One CUDA graph from the images of a fresh start to the end, for few images: it is launched once."""

    def __init__(self, workspace: Workspace, problem: Problem) -> None:
        self.problem = replace(problem, images=problem.images.clone())
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph):
            self.problem.load(workspace)
            workspace.run()

    def replay(self, images: Tensor) -> None:
        self.problem.images.copy_(images)
        self.graph.replay()


def recording(graph: torch.cuda.CUDAGraph) -> AbstractContextManager[None]:
    """Record launches: those on the way to a step size first, then those that run aside (`Workspace.aside`)."""
    return torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1))


_prepared: OrderedDict[tuple[object, ...], Prepared] = OrderedDict()


class TritonEngine:
    """The steps of `ista.solve` on the GPU: the same steps from the same start, with float16 products."""

    name = "triton"

    def solve(
        self,
        model: DeconvNet,
        images: Tensor,
        latents: Latents,
        phase: Phase,
        spec: InferenceSpec,
        mask: Tensor | None = None,
    ) -> Solution:
        """Run all steps of one phase for one batch of images."""
        sized = check_problem(model, images, latents, phase, mask)
        require_supported(self.name, unsupported(model, images, phase))
        problem = Problem(sized, images, latents, phase, spec, mask)
        prepared = prepare(model, images, phase, spec, masked=mask is not None, from_zero=problem.from_zero)
        prepared.solve(problem)
        return Solution(prepared.workspace.latents(), prepared.workspace.stats(), engine=self.name)

    def filter_map(
        self, model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
    ) -> TritonFilterMap:
        """`inference.filter_map.FilterMap`, the map from the filters of layer k to the reconstruction, on the GPU."""
        from whatwhere.inference.engines.triton.filters import TritonFilterMap

        phase = check_filter_problem(model, k, images, latents, mask)
        require_supported(self.name, unsupported(model, images, phase))
        spec = InferenceSpec(steps=0, step=Fixed())
        workspace = prepare(model, images, phase, spec, masked=mask is not None).workspace
        return TritonFilterMap(workspace, model, k, images, latents, mask)

    def unsupported_reason(self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        if find_spec("triton") is None:
            return "the package triton is not installed (pip install 'whatwhere[gpu]')"
        if torch.version.hip is not None:
            return "its kernels are tuned and tested for NVIDIA GPUs only"
        if images.device.type != "cuda":
            return f"the images are on {images.device}; its kernels run on a CUDA device"
        return unsupported(model, images, phase)


def prepare(
    model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec, *, masked: bool, from_zero: bool = False
) -> Prepared:
    """The workspace for batches like this one: the last few are cached."""
    from whatwhere.inference.engines.triton.workspace import Workspace

    key = (model.spec, phase, spec, images.shape, images.device, masked, from_zero)
    if key not in _prepared:
        while len(_prepared) >= CACHED:
            _prepared.popitem(last=False)
        _prepared[key] = Prepared(Workspace(model, images, phase, spec, masked, from_zero))
    _prepared.move_to_end(key)
    return _prepared[key]


def release() -> None:
    """Give back the memory of the cached workspaces."""
    _prepared.clear()


def unsupported(model: DeconvNet, images: Tensor, phase: Phase) -> str | None:
    """What the kernels do not support, by name."""
    if model.dtype != torch.float32 or images.dtype != torch.float32:
        return f"its kernels are for float32; the model is {model.dtype} and the images are {images.dtype}"
    for k, layer in enumerate(model.spec.layers[: phase.layer], start=1):
        if layer.stride > 4:
            return f"the pooling regions of layer {k} have a stride of {layer.stride}; at most 4"
        if layer.pool_maps * layer.pool_size**2 > LARGEST:
            size = f"{layer.pool_size} × {layer.pool_size} elements of {layer.pool_maps} maps"
            return f"the pooling regions of layer {k} hold {size}; at most {LARGEST} elements"
    return None
