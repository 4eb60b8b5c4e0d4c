"""How the functions of this folder become machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

Array = np.ndarray
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
compiled = numba.njit(**OPTIONS)
spliced = numba.njit(inline="always", **OPTIONS)  # into its caller: every function of its own is optimised anew there


def kept(define: Callable[[str], Any]) -> Any:
    """The function that `define` defines, for Python to call; its machine code is kept on disk.

    Numba would look for changes in its file alone. So `define` gets a fingerprint of the whole folder, which the
    function names: a constant of a function is a part of what its machine code is found by.
    """
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return numba.njit(cache=True, **OPTIONS)(define(digest.hexdigest()))
