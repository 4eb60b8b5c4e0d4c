"""Functions that Numba compiles to machine code: its decorators, with types (`simd`: vectors; `cache`: on disk)."""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

from whatwhere.inference.engines.jit.cache import use_cache
from whatwhere.ops import formulas

Array = np.ndarray
Function = TypeVar("Function", bound=Callable[..., Any])
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}


def jit(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    compiled: Function = numba.njit(**OPTIONS)(function)
    return compiled


def inline_jit(function: Function) -> Function:
    """Compile a function into each of its callers. (A separate function is optimised once more for each caller.)"""
    compiled: Function = numba.njit(inline="always", **OPTIONS)(function)
    return compiled


def cached_jit(define: Callable[[str], Function]) -> Function:
    """Compile the function that `define` returns, for Python to call, and cache its machine code on disk.

    Numba detects changes in the function's own file only. So `define` receives a hash of all source files that may be
    compiled into it, and the function refers to it: Numba looks up machine code by the constants of a function, too.
    """
    own = (Path(inspect.getfile(define)).parent, Path(__file__).parent)
    digest = hashlib.sha256()
    for file in [*(file for folder in own for file in sorted(folder.glob("*.py"))), Path(formulas.__file__)]:
        digest.update(file.read_bytes())
    compiled: Function = numba.njit(**OPTIONS)(define(digest.hexdigest()))
    use_cache(compiled)
    return compiled
