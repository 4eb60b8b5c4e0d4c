"""Conjugate gradients beside dense solves."""

import pytest
import torch
from torch import Tensor

from whatwhere.ops.conjugate_gradient import conjugate_gradient


def system(seed: int = 0, size: int = 7, columns: int = 3) -> tuple[Tensor, Tensor]:
    """A positive definite matrix, and right-hand sides."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    b = torch.randn(size, columns, generator=generator, dtype=torch.float64)
    return root @ root.T + torch.eye(size, dtype=torch.float64), b


def test_as_many_steps_as_unknowns_solve_a_system() -> None:
    A, b = system(columns=1)
    x = torch.ones_like(b)
    found = conjugate_gradient(lambda v: A @ v, b - A @ x, x, 7)
    torch.testing.assert_close(found, torch.linalg.solve(A, b))


def test_every_column_is_a_system_of_its_own() -> None:
    A, b = system()
    found = conjugate_gradient(lambda v: A @ v, b, torch.zeros_like(b), 50, dim=0, tolerance=1e-9)
    torch.testing.assert_close(found, torch.linalg.solve(A, b))
    alone = conjugate_gradient(
        lambda v: A @ v, b[:, :1], torch.zeros_like(b[:, :1]), 50, dim=0, tolerance=1e-9
    )
    torch.testing.assert_close(found[:, :1], alone)


def test_a_column_that_is_solved_changes_no_more() -> None:
    A, b = system()
    b[:, 1] = 0
    found = conjugate_gradient(lambda v: A @ v, b, torch.zeros_like(b), 50, dim=0, tolerance=1e-9)
    assert (found[:, 1] == 0).all()
    assert found.isfinite().all()


@pytest.mark.parametrize(("tolerance", "floor"), [(1e-3, 0.0), (0.0, 1e-6)])
def test_it_stops_at_the_tolerance(tolerance: float, floor: float) -> None:
    A, b = system(columns=1)
    calls: list[int] = []

    def apply(v: Tensor) -> Tensor:
        calls.append(1)
        return A @ v

    found = conjugate_gradient(apply, b, torch.zeros_like(b), 50, tolerance=tolerance, floor=floor)
    left = (b - A @ found).square().sum()
    assert left <= max(tolerance**2 * b.square().sum(), floor) * (1 + 1e-6)
    assert len(calls) < 50


def test_nothing_to_gain_takes_no_step() -> None:
    x = torch.ones(3, dtype=torch.float64)
    zero = torch.zeros_like(x)
    assert torch.equal(conjugate_gradient(lambda v: v, zero, x, 5), x)
    assert torch.equal(conjugate_gradient(lambda v: 0 * v, x, x, 5), x), "no curvature"
