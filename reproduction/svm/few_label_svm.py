"""Many small SVMs at once: all classes, folds and values of C of a cross-validation as one batch of
problems.

The SVMs are those of `kernel_svm`, which has their mathematics. Here every problem has its own
subset of the images, so (K_SS + I / 2C) a_S = t_S is solved with the other rows and columns of K
replaced by those of the identity. Where K is large that costs too much, and the problems are solved
in the primal, by products with all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from reproduction.svm.kernel_svm import STEPS, cholesky, targets_of
from whatwhere.classification.linear_svm import SolverSettings, line_search, newton

BATCH_BYTES = 3e9
LARGE = 500  # images
PRIMAL_TOLERANCE = 1e-10  # of the objective
UNCHANGED = 1e-9  # margins within this of 1 may lie on either side


def solve_batch(
    kernel: Tensor,
    t: Tensor,
    use: Tensor,
    C: Tensor,
    *,
    large: int = LARGE,
    batch_bytes: float = BATCH_BYTES,
) -> Tensor:
    """The coefficients of P problems:  K [N, N] (float64), t [N, P], use [N, P], C [P] → a [N, P].

    use          which images a problem learns from
    large        number of images above which problems are solved in the primal
    batch_bytes  of the systems that are solved at a time; a few copies are needed
    """
    if len(kernel) > large:
        return _solve_primal(kernel, t, use, C)
    most = max(1, int(batch_bytes / (8 * len(kernel) ** 2)))
    parts = zip(t.split(most, 1), use.split(most, 1), C.split(most), strict=True)
    return torch.cat([_solve_some(kernel, *part) for part in parts], 1)


def _solve_primal(kernel: Tensor, t: Tensor, use: Tensor, C: Tensor) -> Tensor:
    """All problems by conjugate gradients, with rows L of which K = L Lᵀ is the kernel."""
    rows = cholesky(kernel.clone())
    f = rows @ newton(rows, t, C, use, how=SolverSettings(tolerance=PRIMAL_TOLERANCE))
    return 2 * C * t * (1 - t * f).clamp(min=0) * use


def _solve_some(kernel: Tensor, t: Tensor, use: Tensor, C: Tensor) -> Tensor:
    a, f = torch.zeros_like(t), torch.zeros_like(t)
    for _ in range(STEPS):
        inside = ((t * f < 1) & use).to(kernel)
        pairs = inside.T[:, :, None] * inside.T[:, None, :]
        system = kernel * pairs + torch.diag_embed((inside / (2 * C) + 1 - inside).T)
        target = (
            torch.cholesky_solve((inside * t).T[:, :, None], cholesky(system))[:, :, 0].T * inside
        )
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
    """The C that was chosen, how many images its cross-validation got wrong, coefficients [N, K],
    and the classes."""

    C: float
    wrong: int
    a: Tensor
    classes: np.ndarray


def choose_and_fit(
    kernel: Tensor, y: np.ndarray, fold: np.ndarray, grid: Sequence[float]
) -> ChosenFit:
    """Choose C by cross-validation and fit all images.

    kernel  K of the labelled images, [N, N]
    y       their labels
    fold    of every image, for the cross-validation
    grid    the values of C; if errors are equal, the smallest wins
    """
    classes, folds, Cs = np.unique(y), np.unique(fold), sorted(grid)
    t, home, count = targets_of(y, classes, kernel.device), kernel.device, len(classes)
    K = kernel.double()
    held = torch.from_numpy(fold[:, None] == folds).to(home)  # [N, folds]
    parts = torch.cat([held, torch.zeros_like(held[:, :1])], 1)  # the last one leaves out nothing
    problems = parts.shape[1] * count
    a = solve_batch(
        K,
        t.repeat(1, parts.shape[1] * len(Cs)),
        (~parts).repeat_interleave(count, 1).repeat(1, len(Cs)),
        torch.tensor(Cs, dtype=K.dtype, device=home).repeat_interleave(problems),
    ).view(len(K), len(Cs), parts.shape[1], count)
    f = (K @ a[:, :, :-1].flatten(1)).view(len(K), len(Cs), len(folds), count)
    # of every image, by the SVMs that did not learn from it
    own = (f * held[:, None, :, None]).sum(2)
    wrong = (own.argmax(2).cpu().numpy() != np.searchsorted(classes, y)[:, None]).sum(0)
    best = int(wrong.argmin())
    return ChosenFit(Cs[best], int(wrong[best]), a[:, best, -1], classes)
