"""Steps of inference with gradients on a GPU: the reference's steps and their derivative, each
recorded once as a CUDA graph.

A training step of 100 digits calls thousands of small kernels, and calling them takes six times as
long as they run. A recording calls all of them at once. It has memory of its own, so inputs are
copied in and results out; where another forward pass came in between, the backward pass repeats its
own forward pass first.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.functional import vjp

from whatwhere.nn.fused import is_transformed
from whatwhere.nn.operators import is_traced

Steps = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class ReplaySettings:
    """When steps are recorded.

    Parameters
    ----------
    most_pixels
        pixels of a batch above which kernels run longer than their calls take; a recording keeps
        the memory of all its intermediate results
    warm_up
        calls before the recording, in which libraries choose their kernels
    """

    most_pixels: int = 1 << 20
    warm_up: int = 2


_USUAL = ReplaySettings()


def supports(v: Tensor, *more: Tensor, settings: ReplaySettings = _USUAL) -> bool:
    """Tell whether the steps from images v [N, C, H, W] can be recorded, and are worth it."""
    if not v.is_cuda or is_traced((v, *more)) or is_transformed(v, *more):
        return False
    if not any(t.requires_grad for t in (v, *more)):
        return False
    if torch.is_autocast_enabled() or torch.cuda.is_current_stream_capturing():
        return False
    return len(v) > 0 and len(v) * v.shape[2] * v.shape[3] <= settings.most_pixels


def run(
    owner: nn.Module, make: Callable[[], Steps], key: Hashable, inputs: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Return the steps of some inputs, from a recording if the last call had the same shapes, too:
    the last batch of an epoch, which is smaller, is not worth one.

    Parameters
    ----------
    owner
        the layer; the recording lives as long as it does, and there is one at a time
    make
        makes the steps, a function of tensors
    key
        what the steps depend on besides their inputs
    """
    shapes = tuple((t.shape, t.dtype, t.device, t.requires_grad) for t in inputs)
    with _lock:
        last = _memory.setdefault(owner, _Memory())
        seen, last.seen = last.seen, (key, shapes)
        if last.recording is not None and last.recorded == last.seen:
            recording = last.recording
        elif seen == last.seen:
            last.recording = None  # frees its memory
            recording = last.recording = Recording(make(), inputs)
            last.recorded = last.seen
        else:
            return make()(*inputs)
    return tuple(_Replayed.apply(recording, *inputs))  # type: ignore[no-untyped-call]


class Recording:
    """A function of tensors and its derivative, as two CUDA graphs.

    Parameters
    ----------
    function
        the function, whose work does not depend on values
    inputs
        its inputs; those of later calls have the same shapes
    """

    def __init__(
        self, function: Steps, inputs: Sequence[Tensor], settings: ReplaySettings = _USUAL
    ) -> None:
        self.function = function
        self.calls = 0
        self._inputs = tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)
        self._wanted = tuple(t for t in self._inputs if t.requires_grad)
        self._forward = torch.cuda.CUDAGraph()
        self._backward = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.enable_grad(), torch.cuda.stream(stream):
            for _ in range(settings.warm_up):
                outputs = function(*self._inputs)
                self._pull_back(outputs, tuple(torch.zeros_like(o) for o in outputs))
                del outputs
        torch.cuda.current_stream().wait_stream(stream)
        with torch.enable_grad():
            # other threads, such as those that load pictures, go on
            mode = "thread_local"
            with torch.cuda.graph(self._forward, capture_error_mode=mode):
                self._outputs = function(*self._inputs)
            self._above = tuple(torch.zeros_like(o) for o in self._outputs)
            pool = self._forward.pool()
            with torch.cuda.graph(self._backward, pool=pool, capture_error_mode=mode):
                self._gradients = self._pull_back(self._outputs, self._above)

    def _pull_back(
        self, outputs: Sequence[Tensor], above: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs that have one."""
        pairs = [(o, a) for o, a in zip(outputs, above, strict=True) if o.requires_grad]
        given, along = zip(*pairs, strict=True)
        return torch.autograd.grad(given, self._wanted, along, allow_unused=True)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs."""
        self.calls += 1
        with torch.no_grad():
            for static, given in zip(self._inputs, inputs, strict=True):
                static.copy_(given)
        self._forward.replay()
        return tuple(output.detach().clone() for output in self._outputs)

    def backward(
        self, call: int, inputs: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs of a call, from those of its outputs."""
        if call != self.calls:  # another call has used the memory
            self.forward(inputs)
        for static, given in zip(self._above, gradients, strict=True):
            static.copy_(given)
        self._backward.replay()
        found = iter(self._gradients)
        each = (next(found) if t.requires_grad else None for t in self._inputs)
        return tuple(None if g is None else g.clone() for g in each)


class _Replayed(Function):
    """A recording as a function of autograd; a derivative that is differentiated again calls the
    function itself."""

    @staticmethod
    def forward(ctx: Any, recording: Recording, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.recording = recording
        ctx.save_for_backward(*inputs)
        outputs = recording.forward(inputs)
        ctx.call = recording.calls
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = vjp(ctx.recording.function, inputs, gradients, create_graph=True)[1]
            return None, *again
        return None, *ctx.recording.backward(ctx.call, inputs, gradients)


@dataclass
class _Memory:
    """What a layer's last calls were, and its recording."""

    seen: Hashable = None
    recorded: Hashable = None
    recording: Recording | None = None


_memory: "WeakKeyDictionary[nn.Module, _Memory]" = WeakKeyDictionary()
_lock = Lock()
