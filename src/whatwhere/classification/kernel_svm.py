"""A Gaussian-kernel SVM with squared hinge loss, one class against the rest, by Newton's method in torch.

For each class with targets t = ±1 and the function f = K a that it learns,

    min_a  ½ aᵀK a + C Σ_i max(0, 1 - t_i f_i)²,        K_ij = exp(-‖x_i - x_j‖² / (2 width²)) + 1

where the 1 is the intercept, regularised as that of `linear_svm`. At the minimum a_i = 2C t_i max(0, 1 - t_i f_i), so a
differs from 0 only at the support vectors S, where it solves (K_SS + I / 2C) a_S = t_S. Newton's method guesses S,
solves, and guesses again (O. Chapelle, "Training a support vector machine in the primal", 2007).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.linear_svm import check_labels, line_search
from whatwhere.errors import SpecError

STEPS = 50  # of Newton's method, for each class; about ten are needed
QUARTERED = 4000  # images: with more, the solution for a quarter of them is the start
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-9}  # of f, by the dtype of K: coefficients reach 2 C


@dataclass(frozen=True)
class KernelSVM:
    """A classifier with a Gaussian kernel, one against the rest.

    classes  the labels, [K]
    x        the support vectors of all classes, [S, D]
    a        their coefficients, [S, K]
    width    of the kernel

    >>> svm = fit_kernel_svm(torch.tensor([[0.0], [1.0], [2.0]]), np.array([3, 7, 3]), C=10.0, width=0.5)
    >>> svm.predict(torch.tensor([[0.9], [2.2]]))
    array([7, 3])
    """

    classes: np.ndarray
    x: Tensor
    a: Tensor
    width: float

    def decision(self, x: Tensor, batch: int = 4096) -> np.ndarray:
        """The decision function of each class for each row, [N, K]."""
        parts = [(gaussian(rows, self.x, self.width) + 1) @ self.a for rows in torch.split(x.to(self.x), batch)]
        return torch.cat(parts).cpu().numpy()

    def predict(self, x: Tensor) -> np.ndarray:
        """The class of each row, [N]."""
        return np.asarray(self.classes[self.decision(x).argmax(1)])


def gaussian(x: Tensor, y: Tensor, width: float) -> Tensor:
    """exp(-‖x_i - y_j‖² / (2 width²)),  [N, D], [M, D] → [N, M]."""
    squares = x.square().sum(1)[:, None] + y.square().sum(1)
    return torch.exp((x @ y.T * 2 - squares).clamp(max=0) / (2 * width**2))


def fit_kernel_svm(x: Tensor, y: np.ndarray, C: float, width: float, *, memory: float = 60e9) -> KernelSVM:
    """Fit a Gaussian-kernel SVM with squared hinge loss, one against the rest, on the device of x.

    x       descriptors [N, D]
    y       labels [N]
    C       weight of the loss against the regularisation
    width   of the kernel, in units of x; rows of unit length are at most √2 apart if they are not negative
    memory  limit of the size of the kernel matrix, in bytes: 4 N²

    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 6.28, 60)
    >>> x = np.stack([np.cos(angle), np.sin(angle)], 1) * np.repeat([1, 3], 30)[:, None]    # a ring in a ring
    >>> y = np.repeat([0, 1], 30)
    >>> x = torch.from_numpy(x).float()
    >>> float((fit_kernel_svm(x, y, C=10.0, width=1.0).predict(x) == y).mean())
    1.0
    """
    check_labels(x, y)
    for name, value in (("C", C), ("width", width)):
        if not 0 < value < float("inf"):
            raise SpecError(f"{name} = {value} was given; expected a finite number above 0")
    if 4 * len(x) ** 2 > memory:
        raise SpecError(
            f"the kernel matrix of {len(x):,} images needs {4 * len(x) ** 2 / 1e9:.1f} GB; {memory / 1e9:.1f} GB are"
            " allowed (raise `memory`, or use fewer images)"
        )
    kernel = torch.cat([gaussian(rows, x, width) for rows in torch.split(x, 4096)]).add_(1)
    classes = np.unique(y)
    targets = torch.from_numpy(np.where(y[:, None] == classes, 1.0, -1.0)).to(x.device)
    a = solve(kernel, targets, C)
    support = a.ne(0).any(1)
    return KernelSVM(classes, x[support], a[support].to(x), width)


def solve(kernel: Tensor, t: Tensor, C: float, start: Tensor | None = None) -> Tensor:
    """The coefficients of every class:  K [N, N], t [N, K] (float64) → a [N, K].

    start  coefficients near the solution, such as those for another C
    """
    if start is None:
        start = torch.zeros_like(t)
        if len(t) > QUARTERED:  # the solution for a quarter of the images names most of the support vectors
            part = len(t) // 4
            start[:part] = solve(kernel[:part, :part], t[:part], C)
    f = (kernel @ start.to(kernel)).double()
    return torch.stack([_solve_class(kernel, t[:, k], C, start[:, k], f[:, k]) for k in range(t.shape[1])], 1)


def _solve_class(kernel: Tensor, t: Tensor, C: float, a: Tensor, f: Tensor) -> Tensor:
    """One class. It ends when the solution has the support vectors that were guessed, up to rounding of the margin."""
    for _ in range(STEPS):
        inside = t * f < 1
        support = inside.nonzero()[:, 0]
        rows = kernel[support]
        system = rows[:, support].double()
        system.diagonal().add_(1 / (2 * C))
        solved = torch.cholesky_solve(t[support, None], torch.linalg.cholesky(system))[:, 0]
        target = torch.zeros_like(a).index_put((support,), solved)
        reached = (solved.to(kernel) @ rows).double()
        wrong = (t * reached < 1) != inside
        if not bool((wrong & ((t * reached - 1).abs() > ROUNDING[kernel.dtype])).any()):
            return target
        d, along = target - a, reached - f
        step = line_search((a * along).sum()[None], (d * along).sum()[None], f[:, None], along[:, None], t[:, None], C)
        a, f = a + step * d, f + step * along
    return a
