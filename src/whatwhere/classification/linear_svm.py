"""A linear SVM with squared hinge loss, one class against the rest, by Newton's method in torch.

For each class with targets t = ±1 it solves

    min_w  ½ ‖w‖² + C Σ_i max(0, 1 - t_i wᵀx_i)²,        with a 1 appended to x, so that w ends in
           the intercept

The intercept is regularised, as in LIBLINEAR, so that both have the same minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.descriptors import Matrix
from whatwhere.errors import ImageError, SpecError, plural
from whatwhere.ops.conjugate_gradient import conjugate_gradient


@dataclass(frozen=True)
class SolverSettings:
    """How the minimum is found; none of it changes where it is.

    Parameters
    ----------
    tolerance
        of every objective: the decrease that Newton's model still predicts
    steps
        of Newton's method, at most
    cg_steps
        of conjugate gradients in each of them, at most
    cg_share
        of the residual of Newton's equation that may be left
    line_steps
        of a line search, at most
    near
        share of the rows; if fewer are near the margin of any class, they are copied
    """

    tolerance: float = 1e-6
    steps: int = 100
    cg_steps: int = 200
    cg_share: float = 0.1
    line_steps: int = 30
    near: float = 0.8


_SOLVER = SolverSettings()


@dataclass(frozen=True)
class LinearSVM:
    """A linear classifier, one against the rest.

    Parameters
    ----------
    classes
        the labels, [K]
    weights
        weights of each class, [K, D]
    intercepts
        intercept of each class, [K]

    Examples
    --------
    >>> svm = LinearSVM(np.array([3, 7]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    >>> svm.predict(np.array([[0.2, 0.9]]))
    array([7])
    """

    classes: np.ndarray
    weights: np.ndarray
    intercepts: np.ndarray

    def decision(self, x: Matrix) -> np.ndarray:
        """Return the decision function of each class for each row, [N, K]."""
        given = tuple(getattr(x, "shape", ()))
        D = self.weights.shape[1]
        if given[1:] != (D,):
            raise ImageError(f"Got rows of shape {given}; expected (N, {D}), as in the fit.")
        if isinstance(x, Tensor):
            product = (x @ torch.from_numpy(self.weights.T).to(x)).cpu().numpy()
        else:
            product = x @ self.weights.T
        return np.asarray(product + self.intercepts)

    def predict(self, x: Matrix) -> np.ndarray:
        """Return the class of each row, [N]."""
        return np.asarray(self.classes[self.decision(x).argmax(1)])


def fit_svm(
    x: Matrix,
    y: np.ndarray,
    C: float,
    *,
    start: LinearSVM | None = None,
    device: torch.device | str = "cpu",
) -> LinearSVM:
    """Fit a linear SVM with squared hinge loss, one against the rest.

    Parameters
    ----------
    x
        descriptors [N, D]
    y
        labels [N]
    C
        weight of the loss against the regularisation
    start
        an SVM to start the fit from, such as one for another C or for some of the rows. It saves
        time and does not change the minimum. None starts from 0
    device
        device to compute on

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> x = rng.normal(y[:, None], 0.2, (40, 3)).astype(np.float32)
    >>> float((fit_svm(x, y, C=1.0).predict(x) == y).mean())
    1.0
    """
    check_labels(x, y)
    if not 0 < C < float("inf"):
        raise SpecError(f"Got C = {C}; expected a finite number above 0.")
    classes = np.unique(y)
    home = torch.device(device)
    # with two classes, one is the negative of the other
    fitted = classes if len(classes) > 2 else classes[1:]
    targets = torch.from_numpy(np.where(y[:, None] == fitted, np.float32(1), np.float32(-1))).to(
        home
    )
    first = None
    if start is not None:
        first = start_weights(start, fitted, x.shape[1]).to(home)
    w = newton(with_intercept(x, home), targets, C, start=first).T.cpu().numpy()
    if len(classes) == 2:
        w = np.concatenate([-w, w])
    return LinearSVM(classes, w[:, :-1], w[:, -1])


def start_weights(start: LinearSVM, classes: np.ndarray, columns: int) -> Tensor:
    """Return the weights that a fit of these classes starts from, with the intercepts at the end,
    [D + 1, K]; a class that `start` does not have starts from 0."""
    if start.weights.shape[1] != columns:
        raise ImageError(
            f"Cannot start from an SVM of {plural(start.weights.shape[1], 'column')}; expected"
            f" {columns:,}, as in the fit."
        )
    w = torch.zeros(columns + 1, len(classes), dtype=torch.float64)
    known = np.isin(classes, start.classes)
    rows = np.searchsorted(start.classes, classes[known])
    w[:-1, known] = torch.from_numpy(start.weights[rows].T).double()
    w[-1, known] = torch.from_numpy(start.intercepts[rows]).double()
    return w


def check_labels(x: Matrix, y: np.ndarray) -> None:
    """Raise an error if no classifier can be fitted to these rows and labels."""
    if x.shape[0] == 0:
        raise ImageError("Got an empty set; expected at least one image of each of two classes.")
    if y.ndim != 1 or len(y) != x.shape[0]:
        raise ImageError(
            f"Got {plural(x.shape[0], 'image')} and labels of shape {list(y.shape)}; expected one"
            " label per image."
        )
    if len(np.unique(y)) < 2:
        raise ImageError(f"All {len(y):,} labels are {y[0]}; expected at least two classes.")


def with_intercept(x: Matrix, device: torch.device) -> Tensor:
    return F.pad(torch.as_tensor(x).to(device, torch.float32), (0, 1), value=1.0)


def newton(
    x: Tensor,
    t: Tensor,
    C: float | Tensor,
    use: Tensor | None = None,
    *,
    start: Tensor | None = None,
    how: SolverSettings = _SOLVER,
) -> Tensor:
    """Minimise ½‖w‖² + C Σ max(0, 1 - t xᵀw)² for all classes at once:  x [N, D], t [N, K], C [K] →
    w [D, K].

    Parameters
    ----------
    use
        the rows that each class learns from, [N, K]; None for all
    start
        initial weights, [D, K] in float64; None for 0

    Every step solves H d = -g by conjugate gradients, followed by an exact line search along d for
    each class. The iteration ends when the decrease predicted by Newton's model, -½ gᵀd, is at most
    `how.tolerance` of every objective. Matrix products are float32, sums float64. If there are few
    rows, w lies in the space that they span, and the problem is solved there, in an orthonormal
    basis: x = Rᵀ Qᵀ, w = Q w'.
    """
    if 2 * x.shape[0] <= x.shape[1]:
        Q, R = torch.linalg.qr(x.T)
        inside = None if start is None else Q.double().T @ start
        w = newton(R.T.contiguous(), t, C, use, start=inside, how=how)
        return Q.double() @ w

    # Written so that x is read row by row: a third faster than rows @ v and rows.T @ s.
    def product(rows: Tensor, v: Tensor) -> Tensor:
        return F.linear(rows, v.to(x.dtype).T.contiguous())  # x v

    def transposed_product(rows: Tensor, s: Tensor) -> Tensor:
        return (s.to(x.dtype).T @ rows).T.double()  # xᵀ s

    w = x.new_zeros(x.shape[1], t.shape[1], dtype=torch.float64)
    margin = torch.zeros_like(t, dtype=torch.float64)
    if start is not None:
        w = start
        margin = product(x, w).double()
    if use is not None:
        margin = margin.where(use, 2 * t)  # rows that are not used stay beyond the margin
    for _ in range(how.steps):
        active = (t * margin < 1).to(x.dtype)
        residual = active * (margin - t)
        objective = w.square().sum(0) / 2 + C * residual.square().sum(0)
        g = w + 2 * C * transposed_product(x, residual)

        near = active.any(1)  # near the margin of some class; no Hessian needs the other rows
        few = int(near.sum()) < how.near * len(x)
        rows, share = (x[near], active[near]) if few else (x, active)

        def hessian(v: Tensor, rows: Tensor = rows, share: Tensor = share) -> Tensor:
            return v + 2 * C * transposed_product(rows, share * product(rows, v))

        d = conjugate_gradient(
            hessian, -g, torch.zeros_like(g), how.cg_steps, dim=0, tolerance=how.cg_share
        )
        if bool((-(g * d).sum(0) / 2 <= how.tolerance * objective).all()):
            break
        along = product(x, d).double()
        along = along if use is None else along * use
        step = line_search((w * d).sum(0), d.square().sum(0), margin, along, t, C, how.line_steps)
        w = w + step * d
        margin = margin + step * along
    return w


def line_search(
    wd: Tensor,
    dd: Tensor,
    margin: Tensor,
    along: Tensor,
    t: Tensor,
    C: float | Tensor,
    steps: int = _SOLVER.line_steps,
) -> Tensor:
    """Return the step that minimises the objective along d, [K]: Newton's method on the piecewise
    linear derivative.

    Parameters
    ----------
    wd, dd
        the products of d with the weights and with itself, [K]
    margin, along
        the decision function and its change along d, [N, K]

    `low` and `high` bracket the minimum; if a Newton step leaves the bracket, it is replaced by the
    midpoint.
    """
    step = torch.ones_like(wd)
    low = torch.zeros_like(wd)
    high = torch.full_like(wd, torch.inf)
    for _ in range(steps):
        at = margin + step * along
        active = (t * at < 1).double()
        slope = wd + step * dd + 2 * C * (active * along * (at - t)).sum(0)
        curvature = dd + 2 * C * (active * along.square()).sum(0)
        low = torch.where(slope < 0, step, low)
        high = torch.where(slope > 0, step, high)
        change = (slope / curvature).where(curvature > 0, torch.zeros_like(slope))
        if bool((change.abs() <= 1e-6 * step).all()):
            break
        inside = (step - change >= low) & (step - change <= high)
        step = torch.where(inside, step - change, (low + high) / 2)
    return step
