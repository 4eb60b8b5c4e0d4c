"""Many small SVMs at once: all classes, folds and values of C of a cross-validation as one batch of problems.

The SVMs are those of `kernel_svm`, which has their mathematics. Here every problem has its own subset of the images,
so (K_SS + I / 2C) a_S = t_S is solved with the other rows and columns of K replaced by those of the identity.
Where K is large that costs more than it saves, and the problems are solved one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.kernel_svm import STEPS, cholesky, solve, targets_of
from whatwhere.classification.linear_svm import line_search

BATCH_BYTES = 3e9  # of the systems that are solved at a time; a few copies are needed
LARGE = 500  # images
UNCHANGED = 1e-9  # margins within this of 1 may lie on either side


def solve_batch(kernel: Tensor, t: Tensor, use: Tensor, C: Tensor) -> Tensor:
    """The coefficients of P problems:  K [N, N] (float64), t [N, P], use [N, P], C [P] → a [N, P].

    use  which images a problem learns from
    """
    if len(kernel) > LARGE:
        problems = zip(t.unbind(1), use.unbind(1), C.tolist(), strict=True)
        return torch.stack([_solve_alone(kernel, *problem) for problem in problems], 1)
    most = max(1, int(BATCH_BYTES / (8 * len(kernel) ** 2)))
    parts = zip(t.split(most, 1), use.split(most, 1), C.split(most), strict=True)
    return torch.cat([_solve_some(kernel, *part) for part in parts], 1)


def _solve_alone(kernel: Tensor, t: Tensor, use: Tensor, C: float) -> Tensor:
    rows = use.nonzero()[:, 0]
    return torch.zeros_like(t).index_put((rows,), solve(kernel[rows][:, rows], t[rows, None], C)[:, 0])


def _solve_some(kernel: Tensor, t: Tensor, use: Tensor, C: Tensor) -> Tensor:
    a, f = torch.zeros_like(t), torch.zeros_like(t)
    for _ in range(STEPS):
        inside = ((t * f < 1) & use).to(kernel)
        pairs = inside.T[:, :, None] * inside.T[:, None, :]
        system = kernel * pairs + torch.diag_embed((inside / (2 * C) + 1 - inside).T)
        target = torch.cholesky_solve((inside * t).T[:, :, None], cholesky(system))[:, :, 0].T * inside
        reached = kernel @ target
        wrong = (((t * reached < 1) & use) != inside.bool()) & ((t * reached - 1).abs() > UNCHANGED)
        if not bool(wrong.any()):
            return target
        d, along = target - a, reached - f
        outside = (~use).to(kernel)  # images of other folds: beyond the margin, and not moving
        margin, moving = f * use + 2 * t * outside, along * use
        step = line_search((a * along).sum(0), (d * along).sum(0), margin, moving, t, C)
        a, f = a + step * d, f + step * along
    return a


def choose_and_fit(
    kernel: Tensor, y: np.ndarray, fold: np.ndarray, grid: Sequence[float]
) -> tuple[float, Tensor, np.ndarray]:
    """Choose C by cross-validation, then fit all images: C, coefficients [N, K] and the classes.

    kernel  K of the labelled images, [N, N]
    y       their labels
    fold    of every image, for the cross-validation
    grid    the values of C; if errors are equal, the smallest wins
    """
    classes, folds = np.unique(y), np.unique(fold)
    t, home = targets_of(y, classes, kernel.device), kernel.device
    K = kernel.double()
    held = torch.from_numpy(fold[:, None] == folds).to(home)  # [N, folds]
    count = len(folds) * len(classes)
    use = (~held).repeat_interleave(len(classes), 1)
    a = solve_batch(
        K,
        t.repeat(1, len(folds) * len(grid)),
        use.repeat(1, len(grid)),
        torch.tensor(sorted(grid), dtype=K.dtype, device=home).repeat_interleave(count),
    )
    f = (K @ a).view(len(K), len(grid), len(folds), len(classes))
    own = (f * held[:, None, :, None]).sum(2)  # of every image, by the SVMs that did not learn from it
    wrong = own.argmax(2).cpu().numpy() != np.searchsorted(classes, y)[:, None]
    C = sorted(grid)[int(wrong.sum(0).argmin())]
    everything = torch.ones_like(t, dtype=torch.bool)
    final = solve_batch(K, t, everything, torch.full((len(classes),), C, dtype=K.dtype, device=home))
    return C, final, classes
