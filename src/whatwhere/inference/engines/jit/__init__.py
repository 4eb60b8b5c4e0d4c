"""Functions that Numba compiles to machine code: its decorators, with types, and its cache on disk (`simd`: vectors).

Numba raises an error if no folder for the cache is writable, and fails for ever on a damaged file. Here functions are
then compiled without a cache, and the files of a function are deleted and written again.
"""

import hashlib
import inspect
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache

from whatwhere.ops import formulas

Array = np.ndarray
Function = TypeVar("Function", bound=Callable[..., Any])
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
NOT_WRITABLE = (
    "no folder for compiled machine code is writable, so each process compiles again (about 20 s); "
    "set NUMBA_CACHE_DIR to a writable folder of your own"
)


def jit(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    return numba.njit(**OPTIONS)(function)


def inline_jit(function: Function) -> Function:
    """Compile a function into each of its callers. (A separate function is optimised once more for each caller.)"""
    return numba.njit(inline="always", **OPTIONS)(function)


def cached_jit(define: Callable[[str], Function]) -> Function:
    """Compile the function that `define` returns, for Python to call, and cache its machine code on disk.

    Numba detects changes in the function's own file only. So `define` receives a hash of all source files that may be
    compiled into it, and the function refers to it: Numba looks up machine code by the constants of a function, too.
    """
    own = (Path(inspect.getfile(define)).parent, Path(__file__).parent)
    digest = hashlib.sha256()
    for file in [*(file for folder in own for file in sorted(folder.glob("*.py"))), Path(formulas.__file__)]:
        digest.update(file.read_bytes())
    compiled: Any = numba.njit(**OPTIONS)(define(digest.hexdigest()))
    try:
        compiled._cache = MachineCodeCache(compiled.py_func)
    except (RuntimeError, OSError):
        warn_not_writable()
    return compiled


class MachineCodeCache(FunctionCache):
    """Numba's cache of one function, with damaged files and disk errors as warnings."""

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        with suppress(Exception):  # whatever reading, unpickling or linking raises, the files are useless
            loaded = super()._load_overload(sig, target_context)
            if loaded is None or loaded.signature.args == sig:  # another one if two processes wrote at the same time
                return loaded
        warnings.warn(f"damaged machine code in {self.cache_path} was deleted; it is compiled again", stacklevel=2)
        with suppress(OSError):
            self.flush()
        return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            warnings.warn(f"compiled machine code was not cached in {self.cache_path}: {error}", stacklevel=2)


@cache
def warn_not_writable() -> None:
    warnings.warn(f"whatwhere: {NOT_WRITABLE}", stacklevel=2)
