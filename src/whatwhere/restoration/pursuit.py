"""Orthogonal matching pursuit, as Numba compiles it.

An atom at a time, the one that fits what is left best; then the coefficients of all chosen atoms
are the least-squares solution, so that they have no bias, unlike those of an ℓ1 penalty. With the
Gram matrix of the atoms only products with atoms are needed (Rubinstein, Zibulevsky and Elad 2008).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.jit import Array, allocating_cached_jit, jit
from whatwhere.engines.threads import share

DEPENDENT = 1e-6  # the square of the part of a unit atom that the chosen ones do not explain


def pursue(atoms: Tensor, patches: Tensor, goal: float, most: int) -> Tensor:
    """Coefficients [P, M] of patches [P, n] for atoms [M, n]: a squared error of at most `goal`, or
    `most` atoms."""
    products = patches @ atoms.T
    result = torch.zeros_like(products)
    patches_given = Patches(
        (atoms @ atoms.T).numpy(),
        products.numpy(),
        patches.square().sum(1).numpy(),
        result.numpy(),
    )
    share(
        lambda first, last: pursue_each(patches_given, goal, most, first, last),
        len(products),
        torch.get_num_threads(),
    )
    return result


class Patches(NamedTuple):
    """What pursuit is given, and its result.

    Parameters
    ----------
    gram
        products of atoms with atoms, [M, M]
    products
        products of patches with atoms, [P, M]
    energy
        squared lengths of patches, [P]
    result
        coefficients, [P, M]
    """

    gram: Array
    products: Array
    energy: Array
    result: Array


class Chosen(NamedTuple):
    """The atoms of one patch.

    Parameters
    ----------
    atoms
        their numbers
    L
        the Cholesky factor of their Gram matrix
    forward
        L⁻¹ of their products with the patch
    solution
        their coefficients
    """

    atoms: Array
    L: Array
    forward: Array
    solution: Array


@allocating_cached_jit
def pursue_each(source: str) -> Callable[..., None]:
    def pursue_each(patches: Patches, goal: float, most: int, first: int, last: int) -> None:
        """The patches from `first` to `last`."""
        source  # noqa: B018
        gram = patches.gram
        M = len(gram)
        dtype = gram.dtype
        rest = np.empty(M, dtype)
        chosen = Chosen(
            np.empty(most, np.int64),
            np.empty((most, most), dtype),
            np.empty(most, dtype),
            np.empty(most, dtype),
        )
        for n in range(first, last):
            products = patches.products[n]
            left = patches.energy[n]
            count = 0
            rest[:] = products
            while left > goal and count < most:
                best = largest(rest)
                if not add_to_factor(chosen, gram, count, best):
                    break
                value = products[best]
                for j in range(count):
                    value -= chosen.L[count, j] * chosen.forward[j]
                chosen.forward[count] = value / chosen.L[count, count]
                left -= chosen.forward[count] * chosen.forward[count]
                count += 1
                solve(chosen, count)
                subtract(chosen, gram, count, products, rest)
            for i in range(count):
                patches.result[n, chosen.atoms[i]] = chosen.solution[i]

    return pursue_each


@jit
def largest(values: Array) -> int:
    """The number of the value of the largest size; the first of equals."""
    best = 0
    size = values.dtype.type(0)
    for m in range(len(values)):
        if abs(values[m]) > size:
            best = m
            size = abs(values[m])
    return best


@jit
def add_to_factor(chosen: Chosen, gram: Array, count: int, atom: int) -> bool:
    """A row of the Cholesky factor for one more atom; False if the others explain it."""
    L = chosen.L
    square = gram[atom, atom]
    for i in range(count):
        value = gram[atom, chosen.atoms[i]]
        for j in range(i):
            value -= L[i, j] * L[count, j]
        L[count, i] = value / L[i, i]
        square -= L[count, i] * L[count, i]
    if square <= DEPENDENT:
        return False
    L[count, count] = np.sqrt(square)
    chosen.atoms[count] = atom
    return True


@jit
def solve(chosen: Chosen, count: int) -> None:
    """The coefficients by back substitution, Lᵀ x = forward."""
    for i in range(count - 1, -1, -1):
        value = chosen.forward[i]
        for j in range(i + 1, count):
            value -= chosen.L[j, i] * chosen.solution[j]
        chosen.solution[i] = value / chosen.L[i, i]


@jit
def subtract(chosen: Chosen, gram: Array, count: int, products: Array, rest: Array) -> None:
    """What is left of the products with all atoms."""
    # a slice would be copied by a function that counts arrays
    for m in range(len(rest)):
        rest[m] = products[m]
    for i in range(count):
        atom = gram[chosen.atoms[i]]
        value = chosen.solution[i]
        for m in range(len(rest)):
            rest[m] -= value * atom[m]
