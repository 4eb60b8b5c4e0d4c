"""How the functions of this folder are compiled: Numba's decorators, with types, and the cache of machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

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
    """Compile the function that `define` returns, for Python to call, and keep its machine code on disk.

    Numba detects changes in the function's own file only. So `define` receives a hash of all source files of this
    folder, and the function refers to it: Numba looks up machine code by the constants of a function, too.
    """
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    compiled: Function = numba.njit(cache=True, **OPTIONS)(define(digest.hexdigest()))
    return compiled
