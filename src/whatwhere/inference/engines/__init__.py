"""The engines: the same inference, slower and simpler or faster. The solution records which one ran."""

from whatwhere.inference.engines.base import (
    ENGINES,
    REFERENCE,
    Engine,
    get_engine,
    resolve,
    unsupported_reasons,
)

__all__ = ["ENGINES", "REFERENCE", "Engine", "get_engine", "resolve", "unsupported_reasons"]
