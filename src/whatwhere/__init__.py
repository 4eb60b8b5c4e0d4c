"""whatwhere: sparse, layered representations of images without labels.

import whatwhere as ww

model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
solution = ww.infer(model, images, ww.InferenceSpec(lam=5.0))   # .latents .stats .features
"""

import importlib
import re
from pathlib import Path
from typing import Any

__version__ = "0.3.0"

# Names are loaded on first use, so that `whatwhere --help` does not wait for torch. __init__.pyi
# says where each is: `from whatwhere.module import name`, or `from .package import module` for a
# module.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {
    name: home
    for home, name in re.findall(r"^from (whatwhere\S*) import (\w+) as", _STUB, re.MULTILINE)
}
_PARTS = {
    name: f"whatwhere.{home}.{name}".replace("..", ".")
    for home, name in re.findall(r"^from \.(\w*) import (\w+) as", _STUB, re.MULTILINE)
}

__all__ = sorted([*_HOME, *_PARTS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PARTS:
        return importlib.import_module(_PARTS[name])
    raise AttributeError(f"module 'whatwhere' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
