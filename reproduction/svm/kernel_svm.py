"""SVMs with squared hinge loss by their support vectors, one class against the rest: Newton's
method in torch.

For each class with targets t = ±1 and the function f = K a that it learns,

    min_a  ½ aᵀK a + C Σ_i max(0, 1 - t_i f_i)²

K is that of a Gaussian kernel, exp(-‖x_i - x_j‖² / (2 width²)) + 1, or of a linear SVM, x_iᵀx_j +
1; the 1 is the intercept, regularised as that of `linear_svm`. At the minimum a_i = 2C t_i max(0, 1
- t_i f_i), so a differs from 0 only at the support vectors S, where it solves (K_SS + I / 2C) a_S =
t_S. Newton's method guesses S, solves, and guesses again (O. Chapelle, "Training a support vector
machine in the primal", 2007). K is computed once for all C.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.linear_svm import line_search

STEPS = 50  # of Newton's method, for each class; about ten are needed
QUARTERED = 4000  # images
# of f, by the dtype of K: coefficients reach 2 C
ROUNDING = {
    torch.float32: 1e-3,
    torch.float64: 1e-9,
}


def kernel_rows(x: Tensor, y: Tensor, width: float | None = None, batch: int = 4096) -> Tensor:
    """K between two sets of rows, [N, D], [M, D] → [N, M]: of a Gaussian kernel of this width, or
    of a linear SVM.

    On a GPU factors are rounded to TF32, 11 significant bits, and sums are float32: K is that of
    rounded rows.
    """
    out = x.new_empty(len(x), len(y))
    norms = None if width is None else torch.cat([rows.square().sum(1) for rows in y.split(batch)])
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    try:
        for start in range(0, len(x), batch):
            rows, part = x[start : start + batch], out[start : start + batch]
            torch.mm(rows, y.T, out=part)
            if width is not None and norms is not None:
                part.mul_(2).sub_(norms).sub_(rows.square().sum(1)[:, None])
                part.clamp_(max=0).div_(2 * width**2).exp_()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    return out.add_(1)


def targets_of(y: np.ndarray, classes: np.ndarray, device: torch.device) -> Tensor:
    """1 for images of a class and -1 for others, [N, K], float64."""
    return torch.from_numpy(np.where(y[:, None] == classes, 1.0, -1.0)).to(device)


def solve(
    kernel: Tensor,
    t: Tensor,
    C: float,
    start: Tensor | None = None,
    quartered: int = QUARTERED,
) -> Tensor:
    """The coefficients of every class:  K [N, N], t [N, K] (float64) → a [N, K].

    start      coefficients near the solution, such as those for another C
    quartered  number of images above which the solution for a quarter of them is the start
    """
    if start is None:
        start = torch.zeros_like(t)
        # the solution for a quarter of the images names most of the support vectors
        if len(t) > quartered:
            part = len(t) // 4
            start[:part] = solve(kernel[:part, :part], t[:part], C, quartered=quartered)
    f = (kernel @ start.to(kernel)).double()
    return torch.stack(
        [_solve_class(kernel, t[:, k], C, start[:, k], f[:, k]) for k in range(t.shape[1])], 1
    )


def _solve_class(kernel: Tensor, t: Tensor, C: float, a: Tensor, f: Tensor) -> Tensor:
    """One class. It ends when the solution has the support vectors that were guessed, up to
    rounding of the margin."""
    for _ in range(STEPS):
        inside = t * f < 1
        support = inside.nonzero()[:, 0]
        rows = kernel[support]
        system = rows[:, support].double()
        system.diagonal().add_(1 / (2 * C))
        solved = torch.cholesky_solve(t[support, None], cholesky(system))[:, 0]
        target = torch.zeros_like(a).index_put((support,), solved)
        reached = (solved.to(kernel) @ rows).double()
        wrong = (t * reached < 1) != inside
        if not bool((wrong & ((t * reached - 1).abs() > ROUNDING[kernel.dtype])).any()):
            return target
        d, along = target - a, reached - f
        step = line_search(
            (a * along).sum()[None],
            (d * along).sum()[None],
            f[:, None],
            along[:, None],
            t[:, None],
            C,
        )
        a, f = a + step * d, f + step * along
    return a


def cholesky(system: Tensor) -> Tensor:
    """The factors of matrices that are positive definite but for the rounding of their float32
    kernel."""
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(system)
    raised = 1e-6 * system.diagonal(dim1=-2, dim2=-1).mean()
    while bool(failed.any()):
        system.diagonal(dim1=-2, dim2=-1).add_(raised)
        factor, failed = torch.linalg.cholesky_ex(system)
        raised *= 10
    return factor
