"""Orthogonal matching pursuit: few atoms of a dictionary for a patch, with coefficients that are solved for.

An atom at a time, the one that fits what is left best; then the coefficients of all chosen atoms are the least-squares
solution, so that they have no bias, unlike those of an ℓ1 penalty. It stops where what is left is as strong as noise.
With the Gram matrix G = D Dᵀ only products with atoms are needed (Rubinstein, Zibulevsky and Elad 2008).
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor


def pursue(atoms: Tensor, patches: Tensor, goal: float, most: int) -> Tensor:
    """Coefficients [P, M] of patches [P, n] for atoms [M, n]: a squared error of at most `goal`, or `most` atoms."""
    products, energy = patches @ atoms.T, patches.square().sum(1)
    gram = atoms @ atoms.T
    if patches.device.type == "cpu" and find_spec("numba") is not None:
        from whatwhere.restoration.kernels import pursue_compiled

        return pursue_compiled(gram, products, energy, goal, most)
    return pursue_together(gram, products, energy, goal, most)


def pursue_together(gram: Tensor, products: Tensor, energy: Tensor, goal: float, most: int) -> Tensor:
    """All patches at once, an atom in every round; gram [M, M], products with atoms [P, M], squared norms [P]."""
    result = torch.zeros_like(products)
    chosen = products.new_zeros(len(products), 0, dtype=torch.long)
    rows = (energy > goal).nonzero()[:, 0]
    rest = products.clone()
    for _ in range(most):
        if not len(rows):
            break
        best = rest[rows].abs().scatter(1, chosen[rows], -1).argmax(1)
        chosen = torch.cat([chosen, chosen.new_zeros(len(chosen), 1).index_copy(0, rows, best[:, None])], 1)
        support = chosen[rows]
        local = gram[support[:, :, None], support[:, None, :]]
        target = products[rows].gather(1, support)
        solution = torch.linalg.solve(local, target)
        result[rows] = torch.zeros_like(products[rows]).scatter(1, support, solution)
        rest[rows] = products[rows] - result[rows] @ gram
        rows = rows[energy[rows] - (target * solution).sum(1) > goal]
    return result
