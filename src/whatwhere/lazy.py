"""Load the names of a package on first use, so that `whatwhere --help` does not wait for torch."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

_NAME = re.compile(r"^from (whatwhere\S*) import (\w+) as", re.MULTILINE)
_MODULE = re.compile(r"^from \.(\w*) import (\w+) as", re.MULTILINE)

_Loaders = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def attach_stub(package: str, file: str) -> _Loaders:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Its `__init__.pyi` says where its names are: `from whatwhere.module import name as name`, or
    `from .package import module as module` for a module.

    Parameters
    ----------
    file
        the package's `__file__`
    """
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {name: home for home, name in _NAME.findall(stub)}
    modules = {
        name: ".".join(filter(None, (package, home, name))) for home, name in _MODULE.findall(stub)
    }

    def load(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name in modules:
            return importlib.import_module(modules[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    public = sorted([*homes, *modules])
    return load, lambda: public, public
