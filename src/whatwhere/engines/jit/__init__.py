"""Functions that Numba compiles to machine code: its decorators, with types, and its cache on disk
(`simd`: vectors).

Numba raises an error if no folder for the cache is writable, and fails every time if a file is
damaged. Here, functions are compiled without a cache in the first case, and in the second the files
of a function are deleted and written again. Machine code is executed, so it is kept in a folder
that belongs to this user and that nobody else may write.
"""

import hashlib
import inspect
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile

from whatwhere.engines.compiled import COMPILED
from whatwhere.errors import RunError, warn
from whatwhere.files import locked
from whatwhere.formulas import SOURCES

Array = np.ndarray
Function = TypeVar("Function", bound=Callable[..., object])
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    # arrays are not counted: Python holds those that it gives, and a call for every vector would
    # take as long to count its arrays as to compute. Functions that make arrays: `allocating_jit`
    "_nrt": False,
}
ALLOCATING = OPTIONS | {"_nrt": True}
NOT_WRITABLE = (
    "Cannot write to any folder for machine code, so each process compiles it again (about 20 s)."
    " Set NUMBA_CACHE_DIR to a writable folder of your own."
)


def jit(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    return numba.njit(**OPTIONS)(function)


def allocating_jit(function: Function) -> Function:
    """Compile a function that makes arrays, which only functions of the same kind may receive from
    it."""
    return numba.njit(**ALLOCATING)(function)


def inline_jit(function: Function) -> Function:
    """Compile a function into each of its callers. (A separate function is optimised once more for
    each caller.)"""
    return numba.njit(inline="always", **OPTIONS)(function)


def cached_jit(define: Callable[[str], Function]) -> Function:
    """Compile the function that `define` returns, for Python to call, and cache its machine code on
    disk.

    Numba detects changes in the function's own file only. So `define` receives a hash of all source
    files that may be compiled into it, and the function refers to it: Numba looks up machine code
    by the constants of a function, too.
    """
    return _cached(define, OPTIONS)


def allocating_cached_jit(define: Callable[[str], Function]) -> Function:
    """`cached_jit` for a function that makes arrays."""
    return _cached(define, ALLOCATING)


def _cached(define: Callable[[str], Function], options: dict[str, Any]) -> Function:
    own = (Path(inspect.getfile(define)).parent, Path(__file__).parent)
    digest = hashlib.sha256()
    for file in [
        *(file for folder in own for file in sorted(folder.glob("*.py"))),
        *SOURCES,
    ]:
        digest.update(file.read_bytes())
    compiled: Any = numba.njit(**options)(define(digest.hexdigest()))
    try:
        compiled._cache = known = MachineCodeCache(compiled.py_func)
    except (RuntimeError, OSError):
        warn_once(NOT_WRITABLE)
    else:
        compiled.compile = known.in_one_process(compiled.compile)
    return compiled


def _own_folder(parent: Path) -> Path:
    """Make a folder for the machine code of this user alone, in `parent` or, if another user has
    taken its name, in the home folder."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    for folder in (parent / f"whatwhere-{user}", Path.home() / ".cache" / f"whatwhere-{user}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(folder)
        if stat.S_ISDIR(status.st_mode) and (
            os.name == "nt" or (status.st_uid == user and not status.st_mode & 0o022)
        ):
            return folder
        warn_once(
            f"Cannot use the folder {folder} for machine code: it belongs to another user, or"
            " other users may write to it. Remove it."
        )
    raise RuntimeError("No folder for machine code belongs to this user alone.")


def is_compiled(compiled: Any) -> bool:
    """Tell whether a function has machine code of its sources, for any types: in this process or on
    disk."""
    if compiled.overloads or not isinstance(compiled._cache, MachineCodeCache):
        return bool(compiled.overloads)
    sources = compiled._cache._index_key(None, compiled.targetctx.codegen())[1:]
    with suppress(Exception):
        return any(key[1:] == sources for key in compiled._cache._cache_file._load_index())
    return False


def cache_folder(compiled: Any) -> Path | None:
    """Return the folder of a function's machine code; None if none is writable."""
    known = compiled._cache
    return known.folder if isinstance(known, MachineCodeCache) else None


class MachineCodeCache(FunctionCache):
    """Numba's cache of one function, in a folder of this user's own, with damaged files and disk
    errors as warnings."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)  # raises RuntimeError if no folder is writable
        self.folder, stamp = (
            _own_folder(Path(self.cache_path)),
            self._impl.locator.get_source_stamp(),
        )
        self._cache_file = IndexDataCacheFile(str(self.folder), self._impl.filename_base, stamp)

    def in_one_process(
        self, compile_signature: Callable[[object], object]
    ) -> Callable[[object], object]:
        """Let one process at a time find or compile the code for some types: those that start
        together wait for the first one, and load what it has compiled.

        Parameters
        ----------
        compile_signature
            Numba's `compile`, which looks into the cache first
        """

        def compile_alone(signature: object) -> object:
            of_types = hashlib.sha256(str(signature).encode()).hexdigest()[:16]
            lock = self.folder / f"{self._impl.filename_base}-{of_types}.lock"
            with ExitStack() as held:
                # a disk that is read-only, or a process that takes too long: do it as well
                with suppress(OSError, RunError):
                    lock.touch()
                    held.enter_context(locked(lock, str(lock), patience=300))
                return compile_signature(signature)

        return compile_alone

    def _load_overload(self, sig: object, target_context: object) -> object:
        # whatever reading, unpickling or linking raises, the files are useless
        with suppress(Exception):
            loaded = super()._load_overload(sig, target_context)
            # another one if two processes wrote at the same time
            if loaded is None or loaded.signature.args == sig:
                return loaded
        warn(f"Deleted damaged machine code in {self.folder}; compiling it again.")
        with suppress(OSError):
            self.flush()
        return None

    def _save_overload(self, sig: object, data: object) -> None:
        COMPILED.functions += 1  # Numba saves what it has just compiled
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            warn(
                f"Cannot cache machine code in {self.folder}: {error}. The next process compiles"
                " it again."
            )


@cache
def warn_once(message: str) -> None:
    warn(f"whatwhere: {message}")
