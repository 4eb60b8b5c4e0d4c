"""Many small SVMs at once: all classes, folds and values of C of a cross-validation as one batch of problems.

The SVMs are those of `kernel_svm`, which has their mathematics. Here every problem has its own subset of the images,
so (K_SS + I / 2C) a_S = t_S is solved with the other rows and columns of K replaced by those of the identity.
Where K is large that costs more than it saves, and the problems are solved one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.kernel_svm import STEPS, cholesky, solve, targets_of
from whatwhere.classification.linear_svm import line_search

BATCH_BYTES = 3e9  # of the systems that are solved at a time; a few copies are needed
LARGE = 500  # images
UNCHANGED = 1e-9  # margins within this of 1 may lie on either side


def solve_batch(kernel: Tensor, t: Tensor, use: Tensor, C: Tensor, start: Tensor | None = None) -> Tensor:
    """The coefficients of P problems:  K [N, N] (float64), t [N, P], use [N, P], C [P] → a [N, P].

    use    which images a problem learns from
    start  coefficients near the solution, such as those for all images; used where problems are solved one by one
    """
    if len(kernel) > LARGE:
        starts = [None] * t.shape[1] if start is None else start.unbind(1)
        problems = zip(t.unbind(1), use.unbind(1), C.tolist(), starts, strict=True)
        return torch.stack([_solve_alone(kernel, *problem) for problem in problems], 1)
    most = max(1, int(BATCH_BYTES / (8 * len(kernel) ** 2)))
    parts = zip(t.split(most, 1), use.split(most, 1), C.split(most), strict=True)
    return torch.cat([_solve_some(kernel, *part) for part in parts], 1)


def _solve_alone(kernel: Tensor, t: Tensor, use: Tensor, C: float, start: Tensor | None) -> Tensor:
    rows = use.nonzero()[:, 0]
    near = None if start is None else start[rows, None]
    return torch.zeros_like(t).index_put((rows,), solve(kernel[rows][:, rows], t[rows, None], C, near)[:, 0])


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


@dataclass(frozen=True)
class ChosenFit:
    """The C that was chosen, how many images its cross-validation got wrong, coefficients [N, K], and the classes."""

    C: float
    wrong: int
    a: Tensor
    classes: np.ndarray


def choose_and_fit(kernel: Tensor, y: np.ndarray, fold: np.ndarray, grid: Sequence[float]) -> ChosenFit:
    """Choose C by cross-validation and fit all images.

    kernel  K of the labelled images, [N, N]
    y       their labels
    fold    of every image, for the cross-validation
    grid    the values of C; if errors are equal, the smallest wins
    """
    classes, folds, Cs = np.unique(y), np.unique(fold), sorted(grid)
    t, home = targets_of(y, classes, kernel.device), kernel.device
    K, count = kernel.double(), len(classes)
    weights = torch.tensor(Cs, dtype=K.dtype, device=home).repeat_interleave(count)
    everything = torch.ones(len(K), len(weights), dtype=torch.bool, device=home)
    full = solve_batch(K, t.repeat(1, len(Cs)), everything, weights)  # all images, for every C
    held = torch.from_numpy(fold[:, None] == folds).to(home)  # [N, folds]
    a = solve_batch(
        K,
        t.repeat(1, len(Cs) * len(folds)),
        (~held).repeat_interleave(count, 1).repeat(1, len(Cs)),
        weights.view(len(Cs), 1, count).expand(-1, len(folds), -1).flatten(),
        full.view(len(K), len(Cs), 1, count).expand(-1, -1, len(folds), -1).flatten(1),
    )
    f = (K @ a).view(len(K), len(Cs), len(folds), count)
    own = (f * held[:, None, :, None]).sum(2)  # of every image, by the SVMs that did not learn from it
    wrong = (own.argmax(2).cpu().numpy() != np.searchsorted(classes, y)[:, None]).sum(0)
    best = int(wrong.argmin())
    return ChosenFit(Cs[best], int(wrong[best]), full.view(len(K), len(Cs), count)[:, best], classes)
