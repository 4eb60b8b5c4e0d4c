"""The Gaussian-kernel SVM: its minimum against a general optimiser, its linear relative, its
limits."""

import numpy as np
import pytest
import torch

from reproduction.svm import working_set
from reproduction.svm.few_label_svm import choose_and_fit, solve_batch
from reproduction.svm.kernel_svm import kernel_rows, solve, targets_of
from reproduction.svm.virtual_samples import Move, moved, moves
from reproduction.svm.working_set import Search, decision, fit_support_vectors
from whatwhere.classification import fit_svm
from whatwhere.classification.protocol import folds


def ring(seed: int = 0, count: int = 60) -> tuple[torch.Tensor, np.ndarray]:
    """Three classes around one another: no linear classifier separates them."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    angle, radius = rng.uniform(0, 2 * np.pi, count), 1 + y + rng.normal(0, 0.25, count)
    return torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], 1) * radius[:, None]), y


@pytest.mark.parametrize("C", [0.3, 30.0])
def test_the_coefficients_minimise_the_objective(C: float) -> None:
    """The objective as the docstring writes it is convex: a point where its gradient is 0 is the
    minimum."""
    x, y = ring()
    K = torch.exp(-(x[:, None] - x[None]).square().sum(2) / (2 * 0.7**2)) + 1
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    a = solve(K, t, C).requires_grad_()
    slack = (1 - t * (K @ a)).clamp(min=0)
    objective = (a * (K @ a)).sum() / 2 + C * slack.square().sum()
    (gradient,) = torch.autograd.grad(objective, a)
    assert gradient.abs().max() < 1e-8 * C
    assert (slack > 1e-3).any(), "some images are inside the margin"


def test_kernels_are_what_their_formulas_say() -> None:
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    for i, j in np.ndindex(5, 4):
        distance = float((x[i] - y[j]).square().sum())
        assert float(kernel_rows(x, y, 0.7, batch=2)[i, j]) == pytest.approx(
            np.exp(-distance / (2 * 0.7**2)) + 1
        )
        assert float(kernel_rows(x, y)[i, j]) == pytest.approx(float(x[i] @ y[j]) + 1)


def test_it_separates_what_no_linear_svm_does() -> None:
    x, y = ring()
    other, labels = ring(seed=1)
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    a = solve(kernel_rows(x, x, 0.7), t, 10.0)
    predicted = (kernel_rows(other, x, 0.7) @ a).argmax(1).numpy()
    assert (predicted != labels).mean() < 0.15
    assert (
        fit_svm(x.float().numpy(), y, C=10.0).predict(other.float().numpy()) != labels
    ).mean() > 0.4


def test_with_the_kernel_of_dot_products_it_is_the_linear_svm() -> None:
    rng = np.random.default_rng(3)
    y = np.arange(90) % 3
    x = (np.eye(3)[y] + rng.normal(0, 0.6, (90, 3))).astype(np.float32)
    linear = fit_svm(x, y, C=2.0)
    K = torch.from_numpy(x @ x.T + 1).double()
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    np.testing.assert_allclose((x.T @ solve(K, t, 2.0).numpy()).T, linear.weights, atol=2e-3)


def test_a_start_and_a_quarter_of_the_images_lead_to_the_same_solution() -> None:
    x, y = ring(count=90)
    K = kernel_rows(x, x, 0.7, batch=7)
    t = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    plain = solve(K, t, 5.0)
    np.testing.assert_allclose(solve(K, t, 5.0, start=solve(K, t, 50.0)), plain, atol=1e-8)
    np.testing.assert_allclose(solve(K, t, 5.0, quartered=30), plain, atol=1e-8)


# Virtual samples: moves of images -----------------------------------------------------------------


def test_whole_shifts_move_pixels_and_lose_what_leaves() -> None:
    images = torch.rand(2, 1, 5, 7)
    np.testing.assert_allclose(moved(images, Move(down=1))[:, :, 1:], images[:, :, :-1], atol=1e-5)
    np.testing.assert_allclose(moved(images, Move(right=-2))[..., :-2], images[..., 2:], atol=1e-5)
    assert moved(images, Move(down=1))[:, :, 0].abs().max() < 1e-5


@pytest.mark.parametrize(("height", "width"), [(7, 7), (5, 9)])
def test_a_quarter_turn_is_anticlockwise(height: int, width: int) -> None:
    images = torch.zeros(1, 1, height, width)
    images[0, 0, height // 2, width // 2 + 2] = 1.0
    turned = moved(images, Move(degrees=90.0))[0, 0]
    assert turned[height // 2 - 2, width // 2] == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(moved(images, Move(degrees=360.0)), images, atol=1e-4)


def test_the_moves_of_a_spec() -> None:
    assert moves(0, 0) == ()
    assert set(moves(1, 0)) == {Move(1, 0), Move(-1, 0), Move(0, 1), Move(0, -1)}
    assert set(moves(0, 7.5)) == {Move(degrees=7.5), Move(degrees=-7.5)}
    assert len(moves(2, 5.0)) == 6


# Many small SVMs at once: each is the one that is solved alone, and C is that of a plain cross-vali


def drawn(count: int = 45, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    return torch.from_numpy(np.eye(3)[y] + rng.normal(0, 0.6, (count, 3))), y


def test_every_problem_is_solved_as_if_it_were_alone() -> None:
    x, y = drawn()
    K, t = kernel_rows(x, x, 1.0), targets_of(y, np.arange(3), x.device)
    use = torch.rand(45, 6, generator=torch.Generator().manual_seed(0)) < 0.7
    C = torch.tensor([0.3, 0.3, 0.3, 30.0, 30.0, 30.0], dtype=torch.float64)
    found = solve_batch(K, t.repeat(1, 2), use, C)
    assert not found[~use].any()
    for p in range(6):
        rows = use[:, p].nonzero()[:, 0]
        alone = solve(K[rows][:, rows], t[rows, p % 3, None], float(C[p]))
        np.testing.assert_allclose(found[rows, p], alone[:, 0], atol=1e-7)
    four_at_a_time = solve_batch(K, t.repeat(1, 2), use, C, batch_bytes=8 * 45**2 * 4)
    np.testing.assert_allclose(four_at_a_time, found, atol=1e-9)
    primal = solve_batch(K, t.repeat(1, 2), use, C, large=44)
    assert not torch.equal(primal, found), "another method has other roundings"
    assert not primal[~use].any()
    np.testing.assert_allclose(primal, found, atol=1e-3)


def test_c_is_that_of_a_cross_validation_with_separate_fits() -> None:
    x, y = drawn(60, seed=2)
    fold, grid = folds(y), (0.001, 0.03, 1.0)
    errors = []
    for C in grid:
        wrong = 0
        for turn in range(6):
            rows, held = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
            svm = fit_svm(x[rows].float().numpy(), y[rows], C)
            wrong += int((svm.predict(x[held].float().numpy()) != y[held]).sum())
        errors.append(wrong)
    assert len(set(errors)) > 1, "the values of C differ"
    chosen = choose_and_fit(kernel_rows(x, x), y, fold, grid)
    C = chosen.C
    assert (C, chosen.wrong) == (grid[int(np.argmin(errors))], min(errors))
    svm = fit_svm(x.float().numpy(), y, C)
    np.testing.assert_allclose(x.T @ chosen.a, svm.weights.T, atol=2e-3)
    assert chosen.classes.tolist() == [0, 1, 2]


# Support vectors found in a working set: those of the problem of all images, with far smaller
# kernel matrices ----


def clouds(count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Three clouds that overlap a little, and the targets of their classes."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % 3
    x = 3 * np.eye(3)[y] + rng.normal(0, 0.8, (count, 3))
    return torch.from_numpy(x), torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))


@pytest.mark.parametrize("width", [None, 2.0])
def test_the_minimum_is_that_of_all_images(
    width: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, t = clouds()
    expected = solve(kernel_rows(x, x, width), t, 10.0)
    sizes = []

    def rows(x: torch.Tensor, y: torch.Tensor, width: float | None = None) -> torch.Tensor:
        sizes.append((len(x), len(y)))
        return kernel_rows(x, y, width)

    monkeypatch.setattr(working_set, "kernel_rows", rows)
    found = fit_support_vectors(x, t, 10.0, width, search=Search(quartered=60, smallest=5))
    assert torch.equal(found.rows, expected.ne(0).any(1).nonzero()[:, 0])
    torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
    assert max(min(size) for size in sizes) < 200, "no kernel matrix of all images"
    torch.testing.assert_close(
        decision(x, x[found.rows], found.a, width), kernel_rows(x, x, width) @ expected
    )


def test_a_start_for_another_C_or_for_some_images_changes_nothing() -> None:
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
    monkeypatch.setattr(working_set, "_enlarged", None)  # nothing is added later
    starts: list[torch.Tensor | None] = []

    def solved(
        kernel: torch.Tensor, t: torch.Tensor, C: float, a: torch.Tensor | None
    ) -> torch.Tensor:
        starts.append(a)
        return solve(kernel, t, C, a)

    monkeypatch.setattr(working_set, "solve", solved)
    for given in (None, start):
        found = fit_support_vectors(x, t, 1.0, start=given, search=Search(method="all"))
        assert torch.equal(found.rows, expected.ne(0).any(1).nonzero()[:, 0])
        torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
    assert starts[0] is None, (
        "with all rows inside the margin the first system would be that of all"
    )
    assert starts[1] is not None
    torch.testing.assert_close(starts[1][start.rows], start.a)


def test_a_linear_svm_without_room_is_solved_in_the_primal() -> None:
    x, t = clouds()
    expected = fit_support_vectors(x, t, 1.0)
    found = fit_support_vectors(x, t, 1.0, search=Search(method="primal"))
    assert not torch.equal(found.a, expected.a), "another method has other roundings"
    decisions = [decision(x, x[each.rows], each.a, None) for each in (expected, found)]
    torch.testing.assert_close(*decisions, atol=5e-3, rtol=0)
    assert 0 < len(found.rows) < len(x)
    assert len(set(found.rows.tolist()) ^ set(expected.rows.tolist())) <= 0.02 * len(x), (
        "but for those on the margin"
    )


def test_room_is_a_sixth_of_a_gpus_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 * 4 * 100**2, 10**12))

    class Rows(list[int]):
        device, element_size = torch.device("cuda"), staticmethod(lambda: 4)

    assert working_set.room_for_all(Rows(range(99)))  # type: ignore[arg-type]
    assert not working_set.room_for_all(Rows(range(100)))  # type: ignore[arg-type]
    assert not working_set.room_for_all(torch.zeros(9, 2)), "a CPU has none to spare"
    many, few = Rows(range(100)), Rows(range(99))
    assert working_set.choose_method(few, None) == "all"  # type: ignore[arg-type]
    assert working_set.choose_method(many, None) == "primal"  # type: ignore[arg-type]
    assert working_set.choose_method(many, 2.0) == "some"  # type: ignore[arg-type]
    assert working_set.choose_method(torch.zeros(9, 2), None) == "some"


def test_images_that_come_within_reach_later_are_found() -> None:
    """With nothing counted as near, only the look at all images finds those that are missing."""
    x, t = clouds()
    expected = solve(kernel_rows(x, x, 2.0), t, 10.0)
    start = fit_support_vectors(x[:50], t[:50], 10.0, 2.0)
    found = fit_support_vectors(x, t, 10.0, 2.0, start, Search(near=-10.0))
    torch.testing.assert_close(found.a, expected[found.rows], atol=1e-6, rtol=0)
