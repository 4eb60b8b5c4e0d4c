"""The fast engine on the GPU: the steps of `ista.solve` as fused Triton kernels (docs/engines/triton.md).

Features, pooling variables and sums are float32; the tensor cores multiply float16.
"""

from __future__ import annotations

from collections import OrderedDict
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whatwhere.inference.checks import check_filter_problem, check_problem, require_supported
from whatwhere.inference.ista import start
from whatwhere.latents import Latents, Solution
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

if TYPE_CHECKING:
    from whatwhere.inference.engines.triton.filters import TritonFilterMap
    from whatwhere.inference.engines.triton.workspace import Workspace

CACHED = 4  # prepared workspaces that are cached for the next call


class Prepared:
    """A workspace and, from its second use on, the CUDA graph of all its steps."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.used = workspace, False
        self.graph: torch.cuda.CUDAGraph | None = None

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
            with torch.cuda.graph(self.graph):
                self.workspace.run()
        return self.graph


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
        state = start(sized, images, latents, phase, spec, mask)
        prepared = prepare(model, images, phase, spec, masked=mask is not None)
        workspace = prepared.workspace
        workspace.load(model, images, state.p, state.theta, mask)
        prepared.run()
        return Solution(workspace.latents(), workspace.stats(), engine=self.name)

    def filter_map(
        self, model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
    ) -> TritonFilterMap:
        """`inference.filter_map.FilterMap`, the map from the filters of layer k to the reconstruction, on the GPU."""
        from whatwhere.inference.engines.triton.filters import TritonFilterMap

        phase = check_filter_problem(model, k, images, latents, mask)
        require_supported(self.name, unsupported(model, images, phase))
        spec = InferenceSpec(steps=0, step_size="fixed")
        workspace = prepare(model, images, phase, spec, masked=mask is not None).workspace
        return TritonFilterMap(workspace, model, k, images, latents, mask)

    def unsupported_reason(self, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
        """Why this engine does not support the problem; None if it does."""
        if find_spec("triton") is None:
            return "the package triton is not installed (pip install 'whatwhere[gpu]')"
        if images.device.type != "cuda":
            return f"the images are on {images.device}; its kernels run on a CUDA device"
        return unsupported(model, images, phase)


def prepare(model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec, masked: bool) -> Prepared:
    """The workspace for batches like this one: the last few are cached."""
    from whatwhere.inference.engines.triton.workspace import Workspace

    key = (model.spec, phase, spec, images.shape, images.device, masked)
    if key not in _prepared:
        while len(_prepared) >= CACHED:
            _prepared.popitem(last=False)
        _prepared[key] = Prepared(Workspace(model, images, phase, spec, masked))
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
        if layer.pool_maps > 1:
            return f"layer {k} pools {layer.pool_maps} maps together (3-D pooling)"
        if layer.stride != layer.pool_size:
            return f"the pooling regions of layer {k} overlap"
        if layer.pool_size > 4:
            return f"the pooling regions of layer {k} are {layer.pool_size} × {layer.pool_size}; at most 4 × 4"
    return None
