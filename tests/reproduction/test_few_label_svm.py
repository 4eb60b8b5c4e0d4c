"""Many small SVMs at once: each is the one that is solved alone, and C is that of a plain cross-validation."""

import numpy as np
import torch

from reproduction.svm import few_label_svm
from reproduction.svm.few_label_svm import choose_and_fit, solve_batch
from reproduction.svm.kernel_svm import kernel_rows, solve, targets_of
from whatwhere.classification import fit_svm
from whatwhere.classification.protocol import folds


def drawn(count: int = 45, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    return torch.from_numpy(np.eye(3)[y] + rng.normal(0, 0.6, (count, 3))), y


def test_every_problem_is_solved_as_if_it_were_alone(monkeypatch) -> None:
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
    monkeypatch.setattr(few_label_svm, "BATCH_BYTES", 8 * 45**2 * 4)  # four problems at a time
    np.testing.assert_allclose(solve_batch(K, t.repeat(1, 2), use, C), found, atol=1e-9)
    monkeypatch.setattr(few_label_svm, "LARGE", 44)
    monkeypatch.setattr(few_label_svm, "_solve_some", None)  # now in the primal
    primal = solve_batch(K, t.repeat(1, 2), use, C)
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
