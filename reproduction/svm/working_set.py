"""The SVMs of `kernel_svm` without a kernel matrix of all images: solved for the few that can be
support vectors.

An image beyond the margin of every class has no coefficient, and leaving it out changes nothing. So
the problem is solved for some of the images; those of the others that lie inside a margin of this
solution are added, and it is solved again, until there are none. The minimum is that of all images.
60,000 digits have 5,000 to 10,000 support vectors: their kernel matrix takes 0.1 to 0.4 GB, and
that of all digits would take 14.4 GB. A GPU with room for that computes it within a second, and all
images are solved for at once; without room for it, a linear SVM is solved in the primal there,
where a step is a few passes over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from reproduction.svm.kernel_svm import QUARTERED, ROUNDING, kernel_rows, solve
from whatwhere.classification.linear_svm import SolverSettings, newton, with_intercept

Method = Literal["all", "some", "primal"]
# share of a GPU's free memory that K of all images may take: its rows, K and a factor in double,
# too
MEMORY_SHARE = 1 / 6


@dataclass(frozen=True)
class Search:
    """How support vectors are searched for.

    method     all images at once, some of them at a time, or in the primal; None takes what
               `choose_method` says
    quartered  number of images above which the solution for a quarter of them is the start
    smallest   number of images that are added at a time, or half as many as there are if that is
               more
    near       beyond the margin: images farther away are looked at again only when no others are
               left to add
    """

    method: Method | None = None
    quartered: int = QUARTERED
    smallest: int = 500
    near: float = 0.25


DEFAULT = Search()


@dataclass(frozen=True)
class SupportVectors:
    """The rows [S] that have a coefficient in some class, in ascending order, and the coefficients
    [S, K]."""

    rows: Tensor
    a: Tensor


def fit_support_vectors(
    x: Tensor,
    t: Tensor,
    C: float,
    width: float | None = None,
    start: SupportVectors | None = None,
    search: Search = DEFAULT,
) -> SupportVectors:
    """The support vectors of every class:  x [N, D], t [N, K] (float64).

    x       descriptors
    t       1 for images of a class and -1 for others
    C       weight of the loss against the regularisation
    width   of a Gaussian kernel; None for a linear SVM
    start   a solution that may be near, such as that for another C or for some of the images
    search  how they are searched for

    >>> x, t = torch.tensor([[-9.0], [-1.0], [1.0], [9.0]]), torch.tensor([[-1.0], [-1.0], [1.0], [1.0]]).double()
    >>> fit_support_vectors(x, t, C=10.0).rows
    tensor([1, 2])
    """  # noqa: E501
    a: Tensor | None
    method = search.method or choose_method(x, width)
    if method == "primal":
        return _fit_primal(x, t, C)
    if method == "all":
        rows = torch.arange(len(x), device=x.device)
        a = None if start is None else torch.zeros_like(t).index_put((start.rows,), start.a)
    elif start is not None:
        rows, a = start.rows, start.a
    elif len(x) > search.quartered:
        part = fit_support_vectors(x[: len(x) // 4], t[: len(x) // 4], C, width, search=search)
        rows, a = part.rows, part.a
    else:
        rows, a = torch.arange(len(x), device=x.device), torch.zeros_like(t)
    near = torch.ones(len(x), dtype=torch.bool, device=x.device)
    some = x if len(rows) == len(x) else x[rows]  # a copy of all rows may not fit in memory
    kernel = kernel_rows(some, some, width)
    del some
    while True:  # it ends, since images are only added
        a = solve(kernel, t[rows], C, a)
        looked_at = near.nonzero()[:, 0]
        missing, near = _missing(x, t, width, rows, a, looked_at, search.near)
        if not len(missing):
            others = torch.ones_like(near).index_fill(0, looked_at, False).nonzero()[:, 0]
            missing, nearer = _missing(x, t, width, rows, a, others, search.near)
            near |= nearer
        if not len(missing):
            order = rows.argsort()
            rows, a = rows[order], a[order]
            used = a.ne(0).any(1)
            return SupportVectors(rows[used], a[used])
        # most of the others will be outside once these are added
        missing = missing[: max(search.smallest, len(rows) // 2)]
        kernel = _enlarged(kernel, x[rows], x[missing], width)
        rows, a = torch.cat([rows, missing]), torch.cat([a, a.new_zeros(len(missing), a.shape[1])])


def choose_method(x: Tensor, width: float | None) -> Method:
    """All images at once where a GPU has room for their kernel matrix; without room, a linear SVM
    is solved in the primal there."""
    if room_for_all(x):
        return "all"
    return "primal" if width is None and x.device.type == "cuda" else "some"


def _fit_primal(x: Tensor, t: Tensor, C: float) -> SupportVectors:
    """The support vectors of linear SVMs by their weights: a = 2C t max(0, 1 - t f)."""
    rows = with_intercept(x, x.device)
    # in a an error of f is multiplied by up to 2C times the norm of K
    w = newton(rows, t, C, how=SolverSettings(tolerance=1e-10))
    f = torch.cat([(part @ w.to(part)).double() for part in rows.split(4096)])
    a = 2 * C * t * (1 - t * f).clamp(min=0)
    used = a.ne(0).any(1)
    return SupportVectors(used.nonzero()[:, 0], a[used])


def room_for_all(x: Tensor) -> bool:
    """Whether the kernel matrix of all rows fits in the memory of their GPU, so that no images
    need be left out."""
    if x.device.type != "cuda":
        return False
    torch.cuda.empty_cache()  # or what was used before counts as taken
    free, _ = torch.cuda.mem_get_info(x.device)
    return x.element_size() * len(x) ** 2 < MEMORY_SHARE * free


def _enlarged(kernel: Tensor, x: Tensor, added: Tensor, width: float | None) -> Tensor:
    """The kernel matrix of rows x with those of further rows."""
    n = len(kernel)
    out = kernel.new_empty(n + len(added), n + len(added))
    out[:n, :n] = kernel
    out[:n, n:] = kernel_rows(x, added, width)
    out[n:, :n] = out[:n, n:].T
    out[n:, n:] = kernel_rows(added, added, width)
    return out


def _missing(
    x: Tensor,
    t: Tensor,
    width: float | None,
    rows: Tensor,
    a: Tensor,
    among: Tensor,
    reach: float,
) -> tuple[Tensor, Tensor]:
    """The images inside a margin that are not in `rows`, the farthest inside first, and all that
    are near one."""
    used = a.ne(0).any(1)
    margin = (t[among] * decision(x, x[rows[used]], a[used], width, among)).amin(1)
    outside = torch.ones(len(x), dtype=torch.bool, device=x.device)
    outside[rows] = False
    missing = ((margin < 1 - ROUNDING[x.dtype]) & outside[among]).nonzero()[:, 0]
    near = torch.zeros_like(outside).index_put((among,), margin < 1 + reach)
    return among[missing[margin[missing].argsort()]], near


def decision(
    x: Tensor,
    support: Tensor,
    a: Tensor,
    width: float | None,
    among: Tensor | None = None,
    batch: int = 4096,
) -> Tensor:
    """The decision function of each class, [N, K]: of rows x, or only of those `among` them, by
    support vectors."""
    among = torch.arange(len(x), device=x.device) if among is None else among
    if width is None:
        w, intercept = support.T @ a.to(x), a.sum(0).to(x)
        return torch.cat([x[part] @ w + intercept for part in among.split(batch)])
    return torch.cat(
        [kernel_rows(x[part], support, width) @ a.to(x) for part in among.split(batch)]
    )
