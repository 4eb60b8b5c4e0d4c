"""Support vectors found in a working set: those of the problem of all images, with far smaller kernel matrices."""

import numpy as np
import pytest
import torch

from reproduction.svm import working_set
from reproduction.svm.kernel_svm import kernel_rows, solve
from reproduction.svm.working_set import decision, fit_support_vectors


def clouds(count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Three clouds that overlap a little, and the targets of their classes."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % 3
    x = 3 * np.eye(3)[y] + rng.normal(0, 0.8, (count, 3))
    return torch.from_numpy(x), torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))


@pytest.mark.parametrize("width", [None, 2.0])
def test_the_minimum_is_that_of_all_images(width: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, t = clouds()
    expected = solve(kernel_rows(x, x, width), t, 10.0)
    sizes = []

    def rows(x: torch.Tensor, y: torch.Tensor, width: float | None = None) -> torch.Tensor:
        sizes.append((len(x), len(y)))
        return kernel_rows(x, y, width)

    monkeypatch.setattr(working_set, "QUARTERED", 60)
    monkeypatch.setattr(working_set, "SMALLEST", 5)
    monkeypatch.setattr(working_set, "kernel_rows", rows)
    found = fit_support_vectors(x, t, 10.0, width)
    assert torch.equal(found.rows, expected.ne(0).any(1).nonzero()[:, 0])
    torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
    assert max(min(size) for size in sizes) < 200, "no kernel matrix of all images"
    torch.testing.assert_close(decision(x, x[found.rows], found.a, width), kernel_rows(x, x, width) @ expected)


def test_a_start_for_another_C_or_for_some_images_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, t = clouds()
    expected = solve(kernel_rows(x, x), t, 1.0)
    for start in (fit_support_vectors(x, t, 100.0), fit_support_vectors(x[:50], t[:50], 1.0)):
        found = fit_support_vectors(x, t, 1.0, start=start)
        assert len(start.rows) < len(found.rows) < len(x)
        torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
        assert not expected.index_fill(0, found.rows, 0).any()


def test_with_room_for_all_images_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, t = clouds()
    start, expected = fit_support_vectors(x[:50], t[:50], 1.0), solve(kernel_rows(x, x), t, 1.0)
    monkeypatch.setattr(working_set, "room_for_all", lambda x: True)
    monkeypatch.setattr(working_set, "_enlarged", None)  # nothing is added later
    starts: list[torch.Tensor | None] = []

    def solved(kernel: torch.Tensor, t: torch.Tensor, C: float, a: torch.Tensor | None) -> torch.Tensor:
        starts.append(a)
        return solve(kernel, t, C, a)

    monkeypatch.setattr(working_set, "solve", solved)
    for given in (None, start):
        found = fit_support_vectors(x, t, 1.0, start=given)
        assert torch.equal(found.rows, expected.ne(0).any(1).nonzero()[:, 0])
        torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
    assert starts[0] is None, "with all rows inside the margin the first system would be that of all"
    assert starts[1] is not None
    torch.testing.assert_close(starts[1][start.rows], start.a)


def test_a_linear_svm_without_room_is_solved_in_the_primal(monkeypatch: pytest.MonkeyPatch) -> None:
    x, t = clouds()
    expected = fit_support_vectors(x, t, 1.0)
    monkeypatch.setattr(working_set, "in_primal", lambda x, width: width is None)
    monkeypatch.setattr(working_set, "solve", None)
    found = fit_support_vectors(x, t, 1.0)
    decisions = [decision(x, x[each.rows], each.a, None) for each in (expected, found)]
    torch.testing.assert_close(*decisions, atol=5e-3, rtol=0)
    assert 0 < len(found.rows) < len(x)
    assert len(set(found.rows.tolist()) ^ set(expected.rows.tolist())) <= 0.02 * len(x), "but for those on the margin"


def test_room_is_a_sixth_of_a_gpus_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 * 4 * 100**2, 10**12))

    class Rows(list[int]):
        device, element_size = torch.device("cuda"), staticmethod(lambda: 4)

    assert working_set.room_for_all(Rows(range(99)))  # type: ignore[arg-type]
    assert not working_set.room_for_all(Rows(range(100)))  # type: ignore[arg-type]
    assert not working_set.room_for_all(torch.zeros(9, 2)), "a CPU has none to spare"


def test_images_that_come_within_reach_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing counted as near, only the look at all images finds those that are missing."""
    x, t = clouds()
    expected = solve(kernel_rows(x, x, 2.0), t, 10.0)
    monkeypatch.setattr(working_set, "NEAR", -10.0)
    found = fit_support_vectors(x, t, 10.0, 2.0, start=fit_support_vectors(x[:50], t[:50], 10.0, 2.0))
    torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
