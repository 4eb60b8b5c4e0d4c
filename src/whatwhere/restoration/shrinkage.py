"""A step of the denoiser, as Numba compiles it.

Nine in ten features are 0 at σ = 25, so the product with B skips them: rows of B, a column of CHUNK
numbers at a time, are summed in registers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.jit import Array, allocating_cached_jit
from whatwhere.engines.jit.simd import LANES, load, splat, store
from whatwhere.engines.jit.vector_math import fma
from whatwhere.engines.threads import share

CHUNK = 4 * LANES


def shrink_product(z: Tensor, u: Tensor, t: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """As `denoiser.shrink_product`; z [S, h, w, M] is overwritten."""
    parts = z.new_empty(*z.shape[:-1], B.shape[1])
    codes = Codes(z.view(-1).numpy(), u.reshape(-1).numpy(), parts.view(-1).numpy())
    threshold = t.contiguous().numpy()
    matrix = B.contiguous().view(-1).numpy()
    share(
        lambda first, last: shrink_product_of(codes, threshold, matrix, first, last),
        z.shape[:-1].numel(),
        torch.get_num_threads(),
    )
    return z, parts


class Codes(NamedTuple):
    """The features z, what is added to them, and the products with B: flat, square by square."""

    z: Array
    u: Array
    parts: Array


@allocating_cached_jit
def shrink_product_of(source: str) -> Callable[..., None]:
    def shrink_product_of(codes: Codes, t: Array, B: Array, first: int, last: int) -> None:
        """The squares from `first` to `last`."""
        source  # noqa: B018
        z, u, parts = codes
        M = len(t)
        size = len(B) // M
        active = np.empty(M, np.int64)
        row = np.empty(M, z.dtype)
        for n in range(first, last):
            # shrink: what is within ± t becomes 0
            for m in range(M):
                value = z[n * M + m] + u[n * M + m]
                row[m] = value - min(max(value, -t[m]), t[m])
                z[n * M + m] = row[m]
            # the features that are left, without a branch that would be mispredicted
            count = 0
            for m in range(M):
                active[count] = m
                count += row[m] != 0
            for c in range(0, size, CHUNK):
                # four sums at once: each waits for its own last addition only
                s0 = splat(B, 0.0)
                s1 = splat(B, 0.0)
                s2 = splat(B, 0.0)
                s3 = splat(B, 0.0)
                for i in range(count):
                    at = active[i] * size + c
                    value = splat(B, row[active[i]])
                    s0 = fma(value, load(B, at), s0)
                    s1 = fma(value, load(B, at + LANES), s1)
                    s2 = fma(value, load(B, at + 2 * LANES), s2)
                    s3 = fma(value, load(B, at + 3 * LANES), s3)
                to = n * size + c
                store(parts, to, s0)
                store(parts, to + LANES, s1)
                store(parts, to + 2 * LANES, s2)
                store(parts, to + 3 * LANES, s3)

    return shrink_product_of
