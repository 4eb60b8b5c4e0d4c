"""A large matrix, collected row by row: dense, or sparse if that is smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import MissingExtra, SpecError

try:
    from scipy import sparse
except ImportError:
    raise MissingExtra("SciPy", "sklearn", "classification") from None

Matrix: TypeAlias = Any  # np.ndarray, scipy.sparse.csr_array (which has no types) or a tensor, [N, D]
SPARSE_BELOW = 0.5  # share of non-zeros: each takes 8 bytes in CSR, and each entry of a dense array 4


def collect_rows(
    rows: Callable[[slice], np.ndarray],
    count: int,
    batch_size: int,
    *,
    memory: float = 6e9,
    progress: Callable[[int], Any] = lambda count: None,
) -> Matrix:
    """Collect `rows(batch)`, float32 [n, D], of every batch: a dense array, or CSR with int32 indices.

    The density of the first batch decides which. The matrix, including temporary copies, takes at most `memory`
    bytes; a larger one raises an error before the memory is used up.
    """
    first = rows(slice(0, min(batch_size, count)))
    kind = _SparseRows if np.count_nonzero(first) < SPARSE_BELOW * first.size else _DenseRows
    collected = kind(count, first.shape[1], memory)
    collected.add(first)
    progress(len(first))
    for start in range(len(first), count, batch_size):
        batch = rows(slice(start, min(start + batch_size, count)))
        collected.add(batch)
        progress(len(batch))
    return collected.matrix()


def side_by_side(parts: Sequence[Matrix]) -> Matrix:
    """Concatenate matrices along the columns, [N, D₁ + D₂ + …], scaled so that rows of unit length remain so.

    parts  matrices [N, D₁], [N, D₂], …

    >>> side_by_side([np.ones((2, 1), np.float32), np.zeros((2, 3), np.float32)]).shape
    (2, 4)
    """
    if len(parts) == 1:
        return parts[0]
    scale = 1 / math.sqrt(len(parts))
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat([part * scale for part in parts], 1)
    scaled = [part * np.float32(scale) for part in parts]  # a Python float would turn a sparse matrix into float64
    if any(sparse.issparse(part) for part in parts):
        return sparse.hstack(scaled, format="csr")
    return np.concatenate(scaled, 1)


class _DenseRows:
    """One array, allocated at the beginning."""

    def __init__(self, count: int, width: int, memory: float) -> None:
        _require_memory(4 * count * width, count, width, memory)
        self.array, self.filled = np.empty((count, width), np.float32), 0

    def add(self, rows: np.ndarray) -> None:
        self.array[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)

    def matrix(self) -> np.ndarray:
        return self.array


class _SparseRows:
    """Parts in CSR, concatenated at the end; then every value is in memory twice for a short time."""

    def __init__(self, count: int, width: int, memory: float) -> None:
        self.shape, self.memory, self.nonzeros = (count, width), memory, 0
        self.parts: list[sparse.csr_array] = []

    def add(self, rows: np.ndarray) -> None:
        part = _csr(rows)
        self.nonzeros += part.nnz
        _require_memory(2 * 8 * self.nonzeros, *self.shape, self.memory)
        self.parts.append(part)

    def matrix(self) -> sparse.csr_array:
        return sparse.vstack(self.parts, format="csr")


def _csr(rows: np.ndarray) -> sparse.csr_array:
    """`sparse.csr_array(rows)`, in a quarter of the time."""
    used = rows != 0
    positions = np.flatnonzero(used)
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.count_nonzero(used, axis=1), out=ends[1:])
    columns = (positions % rows.shape[1]).astype(np.int32)
    return sparse.csr_array((rows.reshape(-1)[positions], columns, ends), shape=rows.shape)


def _require_memory(needed: int, count: int, width: int, memory: float) -> None:
    if needed > memory:
        raise SpecError(
            f"{count:,} descriptors of {width:,} numbers need {needed / 1e9:.1f} GB or more; {memory / 1e9:.1f} GB are"
            " allowed (raise `memory`, use fewer images, or describe fewer layers)"
        )
