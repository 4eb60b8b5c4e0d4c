"""The disk cache of machine code: Numba's, made robust.

Numba raises an error if no folder is writable and fails for ever on a damaged file. Here functions are then compiled
without a cache, and a damaged file is deleted and written again. Every file starts with the checksum of its content and
holds one signature of one function, so processes that compile at the same time cannot mix up their results.

Machine code is executed, so it is loaded only from a folder and a file that belong to this user and that nobody else
may write. The checksum detects damage, the owner and the permissions prevent attacks.
"""

import hashlib
import os
import pickle
import stat
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

NOT_WRITABLE = (
    "no folder for compiled machine code is writable, so each process compiles again (about 20 s); "
    "set NUMBA_CACHE_DIR to a writable folder of your own"
)
NOT_OWN = "belongs to another user, or others may write to it"


class CodeFiles:
    """One file per key in a folder: the SHA-256 of the content, then the content."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def path(self, key: tuple[Any, ...]) -> Path:
        """The file of a key: Numba's signature, processor, and hashes of the bytecode and of the source files."""
        signature = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()
        return self.folder / f"{self.name}.{source_stamp(key)}.{signature[:24]}.nbc"

    def load(self, key: tuple[Any, ...]) -> Any:
        path = self.path(key)
        try:
            with open(path, "rb") as file:
                if not is_own(os.fstat(file.fileno())):
                    warnings.warn(f"machine code in {path} {NOT_OWN}; it is compiled again", stacklevel=2)
                    return None
                stored = file.read()
        except OSError:
            return None
        checksum, content = stored[:32], stored[32:]
        if hashlib.sha256(content).digest() != checksum:
            self.discard(key)
            return None
        return pickle.loads(content)

    def save(self, key: tuple[Any, ...], data: Any) -> None:
        content = dumps(data)
        self.delete_outdated(key)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=self.name, suffix=".tmp", delete=False) as file:
            try:
                file.write(hashlib.sha256(content).digest() + content)
                file.close()
                os.replace(file.name, self.path(key))
            except BaseException:
                os.unlink(file.name)
                raise

    def discard(self, key: tuple[Any, ...]) -> None:
        path = self.path(key)
        warnings.warn(f"damaged machine code in {path} was deleted; it is compiled again", stacklevel=2)
        path.unlink(missing_ok=True)

    def delete_outdated(self, key: tuple[Any, ...]) -> None:
        """Delete files of the same function that were compiled from other source files."""
        for path in self.folder.glob(f"{self.name}.*.nbc"):
            if not path.name.startswith(f"{self.name}.{source_stamp(key)}."):
                path.unlink(missing_ok=True)


def source_stamp(key: tuple[Any, ...]) -> str:
    return str(key[2][1])[:12]


def is_own(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user and nobody else may write to it."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def own_folder(parent: Path) -> Path:
    """A folder for this user's machine code alone, in `parent` or, where another user has taken its name, at home."""
    name = f"whatwhere-{os.geteuid()}" if hasattr(os, "geteuid") else "whatwhere"
    for folder in (parent / name, Path.home() / ".cache" / name):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(folder)
        if stat.S_ISDIR(status.st_mode) and is_own(status):
            return folder
        warn_once(f"the folder {folder} for machine code {NOT_OWN}, so it is not used; remove it")
    raise RuntimeError("no folder of this user's own")


class MachineCodeCache(FunctionCache):
    """Numba's cache of one function with files that are checked, and with disk errors as warnings."""

    _cache_file: Any

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # raises RuntimeError if no folder is writable
        self.folder = own_folder(Path(self.cache_path))
        self._cache_file = CodeFiles(self.folder, self._impl.filename_base)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(sig, target_context)
        except Exception:  # whatever unpickling or linking raises, the file is useless
            self._cache_file.discard(self._index_key(sig, target_context.codegen()))
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
        warn_once(NOT_WRITABLE)


@cache
def warn_once(message: str) -> None:
    warnings.warn(f"whatwhere: {message}", stacklevel=2)


def folder_of(compiled: Any) -> Path | None:
    """Where the machine code of a compiled function is cached; None if no folder is writable."""
    return getattr(compiled._cache, "folder", None)


def has_code(compiled: Any) -> bool:
    """Whether a function was compiled for any types: in this process, or its machine code is cached."""
    folder = folder_of(compiled)
    if compiled.overloads or folder is None:
        return bool(compiled.overloads)
    stamp = source_stamp(compiled._cache._index_key(None, compiled.targetctx.codegen()))
    return any(folder.glob(f"{compiled._cache._cache_file.name}.{stamp}.*.nbc"))


def describe_cache(compiled: Any) -> str:
    """Where the machine code of a compiled function is cached, or why it is not."""
    folder = folder_of(compiled)
    return f"machine code cached in {folder}" if folder else NOT_WRITABLE
