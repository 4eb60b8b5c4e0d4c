"""What Numba compiles: a step of the denoiser, and pursuit.

Nine in ten features are 0 at σ = 25, so the product with B skips them: rows of B, a column of CHUNK
numbers at a time, are summed in registers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.jit import Array, cached_jit
from whatwhere.engines.jit.simd import LANES, load, splat, store
from whatwhere.engines.jit.vector_math import fma
from whatwhere.engines.threads import share

CHUNK = 4 * LANES


def shrink_product(z: Tensor, u: Tensor, t: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """As `denoiser.shrink_product`; z [S, h, w, M] is overwritten."""
    parts = z.new_empty(*z.shape[:-1], B.shape[1])
    codes = z.view(-1).numpy(), u.reshape(-1).numpy(), parts.view(-1).numpy()
    threshold, matrix = t.contiguous().numpy(), B.contiguous().view(-1).numpy()
    share(
        lambda first, last: shrink_product_of(codes, threshold, matrix, first, last),
        z.shape[:-1].numel(),
        torch.get_num_threads(),
    )
    return z, parts


@cached_jit
def shrink_product_of(source: str) -> Any:
    def shrink_product_of(
        codes: tuple[Array, Array, Array], t: Array, B: Array, first: int, last: int
    ) -> None:
        """The squares from `first` to `last`; codes = (z, u, parts), flat."""
        source  # noqa: B018
        z, u, parts = codes
        M = len(t)
        size = len(B) // M
        active, row = np.empty(M, np.int64), np.empty(M, z.dtype)
        for n in range(first, last):
            for m in range(M):
                value = z[n * M + m] + u[n * M + m]
                row[m] = value - min(max(value, -t[m]), t[m])
                z[n * M + m] = row[m]
            count = 0
            for m in range(M):
                active[count] = m
                count += row[m] != 0
            for c in range(0, size, CHUNK):
                s0, s1, s2, s3 = splat(B, 0.0), splat(B, 0.0), splat(B, 0.0), splat(B, 0.0)
                for i in range(count):
                    at, value = active[i] * size + c, splat(B, row[active[i]])
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


def pursue(atoms: Tensor, patches: Tensor, goal: float, most: int) -> Tensor:
    """Coefficients [P, M] of patches [P, n] for atoms [M, n]: a squared error of at most `goal`, or
    `most` atoms.

    Orthogonal matching pursuit: an atom at a time, the one that fits what is left best; then the
    coefficients of all chosen atoms are the least-squares solution, so that they have no bias,
    unlike those of an ℓ1 penalty. With the Gram matrix of the atoms only products with atoms are
    needed (Rubinstein, Zibulevsky and Elad 2008).
    """
    products, energy = patches @ atoms.T, patches.square().sum(1)
    result = torch.zeros_like(products)
    arrays = (atoms @ atoms.T).numpy(), products.numpy(), energy.numpy(), result.numpy()
    share(
        lambda first, last: pursue_each(arrays, goal, most, first, last),
        len(products),
        torch.get_num_threads(),
    )
    return result


@cached_jit
def pursue_each(source: str) -> Any:
    def pursue_each(
        arrays: tuple[Array, Array, Array, Array], goal: float, most: int, first: int, last: int
    ) -> None:
        """The patches from `first` to `last`; L is the Cholesky factor of the Gram matrix of the
        chosen atoms."""
        source  # noqa: B018
        gram, products, energy, result = arrays
        M, dtype = len(gram), gram.dtype
        rest, chosen, solution = np.empty(M, dtype), np.empty(most, np.int64), np.empty(most, dtype)
        L, forward = np.empty((most, most), dtype), np.empty(most, dtype)
        for n in range(first, last):
            left, count = energy[n], 0
            rest[:] = products[n]
            while left > goal and count < most:
                best, largest = 0, rest.dtype.type(0)
                for m in range(M):
                    if abs(rest[m]) > largest:
                        best, largest = m, abs(rest[m])
                square = gram[best, best]
                for i in range(count):  # a row of L
                    value = gram[best, chosen[i]]
                    for j in range(i):
                        value -= L[i, j] * L[count, j]
                    L[count, i] = value / L[i, i]
                    square -= L[count, i] * L[count, i]
                if square <= 1e-6:  # it is a combination of those chosen
                    break
                L[count, count] = np.sqrt(square)
                chosen[count] = best
                value = products[n, best]
                for j in range(count):
                    value -= L[count, j] * forward[j]
                forward[count] = value / L[count, count]
                left -= forward[count] * forward[count]
                count += 1
                for i in range(count - 1, -1, -1):
                    value = forward[i]
                    for j in range(i + 1, count):
                        value -= L[j, i] * solution[j]
                    solution[i] = value / L[i, i]
                rest[:] = products[n]
                for i in range(count):
                    atom, value = gram[chosen[i]], solution[i]
                    for m in range(M):
                        rest[m] -= value * atom[m]
            for i in range(count):
                result[n, chosen[i]] = solution[i]

    return pursue_each
