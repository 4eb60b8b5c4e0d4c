"""The disk cache of machine code: Numba's, made robust.

Numba raises an error if no folder is writable and fails for ever on a damaged file. Here functions are then compiled
without a cache, and a damaged file is deleted and written again. Every file starts with the checksum of its content and
holds one signature of one function, so processes that compile at the same time cannot mix up their results.
"""

import hashlib
import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from whatwhere.files import write_atomic

NOT_WRITABLE = (
    "no folder for compiled machine code is writable, so each process compiles again (about 20 s); "
    "set NUMBA_CACHE_DIR to a writable folder of your own"
)


class CodeFiles:
    """One file per key in a folder: the SHA-256 of the content, then the content."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def path(self, key: tuple[Any, ...]) -> Path:
        """The file of a key: Numba's signature, processor, and hashes of the bytecode and of the source files."""
        signature = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()
        return self.folder / f"{self.name}.{key[2][1][:12]}.{signature[:24]}.nbc"

    def load(self, key: tuple[Any, ...]) -> Any:
        path = self.path(key)
        if not path.exists():
            return None
        stored = path.read_bytes()
        if hashlib.sha256(stored[32:]).digest() != stored[:32]:
            raise ValueError("the checksum differs")
        return pickle.loads(stored[32:])

    def save(self, key: tuple[Any, ...], data: Any) -> None:
        """Write a file, and delete those of the same function that were compiled from other source files."""
        content, path = dumps(data), self.path(key)
        of_these_sources = path.name.rsplit(".", 2)[0]
        for other in self.folder.glob(f"{self.name}.*.nbc"):
            if not other.name.startswith(of_these_sources):
                other.unlink(missing_ok=True)
        write_atomic(path, hashlib.sha256(content).digest() + content)


class MachineCodeCache(FunctionCache):
    """Numba's cache of one function with files that are checked, and with disk errors as warnings."""

    _cache_file: Any

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # raises RuntimeError if no folder is writable
        self.folder = Path(self.cache_path)
        self._cache_file = CodeFiles(self.folder, self._impl.filename_base)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(sig, target_context)
        except Exception:  # whatever reading, unpickling or linking raises, the file is useless
            path = self._cache_file.path(self._index_key(sig, target_context.codegen()))
            warnings.warn(f"damaged machine code in {path} was deleted; it is compiled again", stacklevel=2)
            path.unlink(missing_ok=True)
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            warnings.warn(f"compiled machine code was not cached in {self.folder}: {error}", stacklevel=2)


def use_cache(compiled: Any) -> None:
    """Let a compiled function use the cache; if no folder is writable, leave it without one and warn once."""
    try:
        compiled._cache = MachineCodeCache(compiled.py_func)
    except (RuntimeError, OSError):
        warn_not_writable()


@cache
def warn_not_writable() -> None:
    warnings.warn(f"whatwhere: {NOT_WRITABLE}", stacklevel=2)


def describe_cache(compiled: Any) -> str:
    """Where the machine code of a compiled function is cached, or why it is not."""
    folder = getattr(compiled._cache, "folder", None)
    return f"machine code cached in {folder}" if folder else NOT_WRITABLE
