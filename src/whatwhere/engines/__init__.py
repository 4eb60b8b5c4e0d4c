"""The engines: implementations of the same inference, from simple to fast. The solution records
which one ran."""

from whatwhere.engines.base import Engine, require_supported
from whatwhere.engines.cpu import CPUEngine, GreedyEngine
from whatwhere.engines.cpu.first_use import FirstUse
from whatwhere.engines.cpu.greedy_choice import is_sparse
from whatwhere.engines.reference import ReferenceEngine
from whatwhere.engines.triton.engine import TritonEngine
from whatwhere.errors import NoFastEngine, UnknownEngine, warn
from whatwhere.model import Problem

__all__ = ["ENGINES", "REFERENCE", "Engine", "get_engine", "resolve", "unsupported_reasons"]


REFERENCE, FIRST_USE = ReferenceEngine(), FirstUse()
_FASTEST_FIRST: tuple[Engine, ...] = (TritonEngine(), GreedyEngine(), CPUEngine(), REFERENCE)
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _FASTEST_FIRST}


def get_engine(name: str) -> Engine:
    """Return the engine of this name."""
    if name not in ENGINES:
        raise UnknownEngine("engine", name, ["auto", *ENGINES])
    return ENGINES[name]


def resolve(name: str, problem: Problem, images: int | None = None) -> Engine:
    """Return the engine of this name, or with 'auto' the fastest that supports the problem.

    A name of an engine that does not support the problem raises an EngineError with the reason. If
    only the reference is left for 'auto', a NoFastEngine warning says why. If `images` is given,
    'auto' takes the reference for a few small images until there is machine code.
    """
    if name != "auto":
        engine = get_engine(name)
        require_supported(name, engine.unsupported_reason(problem))
        return engine
    reasons = unsupported_reasons(problem)
    supported = [name for name, reason in reasons.items() if reason is None]
    if supported[0] == "greedy" and not is_sparse(problem):
        supported.pop(0)
    chosen = ENGINES[supported[0]]
    if chosen is REFERENCE:
        warn(NoFastEngine({name: why for name, why in reasons.items() if why is not None}))
    elif chosen.name == "cpu" and images is not None and FIRST_USE.is_small(problem, images):
        return FIRST_USE.engine
    return chosen


def unsupported_reasons(problem: Problem) -> dict[str, str | None]:
    """For every engine, fastest first, why it does not support the problem; None if it does."""
    return {name: engine.unsupported_reason(problem) for name, engine in ENGINES.items()}
