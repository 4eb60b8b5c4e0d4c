"""Every public name of the package: what the reference has to document."""

import importlib
import inspect
import types
from collections.abc import Iterator

MODULES = (
    "whatwhere",
    "whatwhere.classification",
    "whatwhere.classification.protocol",
    "whatwhere.data",
    "whatwhere.errors",
    "whatwhere.figures",
    "whatwhere.learning",
    "whatwhere.model",
    "whatwhere.data.models",
    "whatwhere.nn",
    "whatwhere.nn.functional",
    "whatwhere.ops.input_stage",
    "whatwhere.restoration",
    "whatwhere.signals",
)
WITHOUT_LIST = {  # modules without __all__, and what is public in them
    "whatwhere.classification.protocol": ("choose", "evaluate"),
    "whatwhere.nn.functional": ("gaussian_pool2d", "gaussian_unpool2d"),
}


def public_names() -> dict[str, object]:
    """Functions, classes and errors by their full names; one that several modules export is listed
    once."""
    things: dict[str, object] = {}
    for module in MODULES:
        for name, thing in exported(module):
            if not any(thing is other for other in things.values()):
                things[f"{module}.{name}"] = thing
    return things


def exported(name: str) -> Iterator[tuple[str, object]]:
    module = importlib.import_module(name)
    for each in WITHOUT_LIST.get(name) or getattr(module, "__all__", None) or defined(module):
        thing = getattr(module, each)
        if inspect.isfunction(thing) or (
            inspect.isclass(thing) and thing.__module__.startswith("whatwhere")
        ):
            yield each, thing


def is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def defined(module: types.ModuleType) -> list[str]:
    """The errors of a module of errors."""
    return [name for name, thing in vars(module).items() if is_error(thing)]
