"""The engines: the same `solve`, slower and plainer or faster. The choice is explicit, and recorded in the solution.

An engine is a module with

    solve(model, images, latents, phase, spec) -> Solution
    filter_map(model, k, images, latents) -> LinearMap       of layer k's filters, for learning
    unsupported_reason(model, images, phase, spec) -> str | None        why it cannot serve; None where it can
"""

from __future__ import annotations

import importlib
from types import ModuleType

from torch import Tensor

from whatwhere.errors import EngineError
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

# fastest first; `auto` takes the first that can serve
ENGINES = {
    "triton": "whatwhere.inference.engines.triton_engine",
    "cpu": "whatwhere.inference.engines.cpu",
    "reference": "whatwhere.inference.engines.reference",
}


def engine(name: str) -> ModuleType:
    """The engine of this name."""
    if name not in ENGINES:
        raise EngineError(f"engine {name!r} was given; expected 'auto' or one of {', '.join(ENGINES)}")
    return importlib.import_module(ENGINES[name])


def choose(name: str, model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> tuple[str, str]:
    """The engine to run and why: the one asked for, or with 'auto' the fastest that can serve.

    Asking by name for an engine that cannot serve is an error that says why.
    """
    if name != "auto":
        why_not = engine(name).unsupported_reason(model, images, phase, spec)
        if why_not is not None:
            raise EngineError(f"engine {name!r} cannot serve: {why_not} (engine='auto' takes one that can)")
        return name, "asked for"
    refused: list[str] = []
    for candidate in ENGINES:
        why_not = engine(candidate).unsupported_reason(model, images, phase, spec)
        if why_not is None:
            return candidate, "; ".join(refused) or "the fastest there is"
        refused.append(f"{candidate}: {why_not}")
    raise EngineError("no engine can serve: " + "; ".join(refused))
