"""Orthogonal matching pursuit against a literal one, and its two forms against each other."""

import numpy as np
import pytest
import torch

from whatwhere.restoration.pursuit import pursue, pursue_together

RANDOM = np.random.default_rng(0)
ATOMS = RANDOM.standard_normal((24, 16))
ATOMS /= np.linalg.norm(ATOMS, axis=1, keepdims=True)
PATCHES = RANDOM.standard_normal((40, 16))
PATCHES[0] = 0


def literal(patch: np.ndarray, goal: float, most: int) -> np.ndarray:
    """The atom that fits what is left best, then least squares, in float64."""
    code, support = np.zeros(len(ATOMS)), []
    while np.sum((patch - code @ ATOMS) ** 2) > goal and len(support) < most:
        support.append(int(np.argmax(np.abs(ATOMS @ (patch - code @ ATOMS)))))
        code[support] = np.linalg.lstsq(ATOMS[support].T, patch, rcond=None)[0]
    return code


@pytest.mark.parametrize(("goal", "most"), [(1.0, 12), (6.0, 12), (0.0, 4), (1e9, 4)])
def test_both_forms_agree_with_the_definition(goal: float, most: int) -> None:
    expected = np.stack([literal(patch, goal, most) for patch in PATCHES])
    atoms, patches = torch.from_numpy(ATOMS), torch.from_numpy(PATCHES)
    together = pursue_together(atoms @ atoms.T, patches @ atoms.T, patches.square().sum(1), goal, most)
    np.testing.assert_allclose(together.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(pursue(atoms, patches, goal, most).numpy(), expected, atol=1e-9)


def test_copies_of_an_atom_do_no_harm() -> None:
    atoms = torch.eye(4).repeat(3, 1)
    patches = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    torch.testing.assert_close(pursue(atoms, patches, 1e-9, 10) @ atoms, patches)
