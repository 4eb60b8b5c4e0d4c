"""Whitened rows: columns decorrelated over the training images, so that a classifier weighs all
directions alike.

Rows come in blocks of columns, such as one for each model and layer. In each block x becomes L⁻¹ (x
- mean), where L Lᵀ is the covariance of the block with `share` of its mean variance added to the
diagonal, so that directions that hardly vary are not blown up; then it is scaled to unit length. No
label is used. The fewer labels there are, the larger the share should be: about 1 with all labels
of MNIST, 100 with a hundred (docs/results/best.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor

from whatwhere import DeconvNet, DescriptorSpec
from whatwhere.classification import Matrix, describe
from whatwhere.errors import SpecError

BATCH = 4096  # rows that are dense, or doubled, at a time


@dataclass(frozen=True)
class Whitening:
    """Whitens rows; `fit_whitening` makes it.

    means    of each block, [d], on the device that rows are whitened on
    factors  L of each block, [d, d]
    """

    means: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]

    def __call__(self, x: Matrix) -> Tensor:
        """Rows [N, D], whitened; of unit length in all, and each block of the same length."""
        out = torch.empty(tuple(x.shape), device=self.means[0].device)
        scale = len(self.means) ** -0.5
        for start, rows in dense_batches(x, out.device):
            for (first, last), mean, factor in zip(
                spans(map(len, self.means)), self.means, self.factors, strict=True
            ):
                block = torch.linalg.solve_triangular(
                    factor, (rows[:, first:last] - mean).T, upper=False
                ).T
                out[start : start + len(rows), first:last] = (
                    F.normalize(block, eps=torch.finfo(block.dtype).tiny) * scale
                )
        return out


def fit_whitening(
    x: Matrix, share: float, blocks: Sequence[int] = (), *, device: torch.device | str = "cpu"
) -> Whitening:
    """The whitening of rows like these.

    x       rows of the training images, [N, D], dense or sparse
    share   of the mean variance of a block that is added to each of its variances
    blocks  how many columns each block has; empty for one block of all
    device  where it runs
    """
    blocks = tuple(blocks) or (x.shape[1],)
    if sum(blocks) != x.shape[1]:
        raise SpecError(f"Got blocks of {sum(blocks):,} columns; the rows have {x.shape[1]:,}")
    if not 0 < share < float("inf"):
        raise SpecError(f"Got share = {share}; expected a finite number above 0")
    home = torch.device(device)
    mean = sum(rows.sum(0, dtype=torch.float64) for _, rows in dense_batches(x, home)) / x.shape[0]
    mean = mean.float()
    covariances = [torch.zeros(width, width, device=home) for width in blocks]
    for _, rows in dense_batches(x, home):
        centred = rows - mean
        for (first, last), covariance in zip(spans(blocks), covariances, strict=True):
            covariance.addmm_(
                centred[:, first:last].T, centred[:, first:last], alpha=1 / x.shape[0]
            )
    for (
        covariance
    ) in covariances:  # columns that never change have a variance, too, so that L exists
        covariance.diagonal().add_(
            share * covariance.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny)
        )
    factors = tuple(
        torch.linalg.cholesky(covariance.double()).float() for covariance in covariances
    )
    return Whitening(tuple(mean[first:last] for first, last in spans(blocks)), factors)


def spans(widths: Sequence[int] | Iterator[int]) -> Iterator[tuple[int, int]]:
    """The first column of every block, and the one after its last."""
    return pairwise(accumulate(widths, initial=0))


def dense_batches(x: Matrix, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Rows as dense tensors on a device, a batch at a time, each with the number of its
    first row."""
    for start in range(0, x.shape[0], BATCH):
        rows = x[start : start + BATCH]
        yield (
            start,
            torch.as_tensor(rows.toarray() if hasattr(rows, "toarray") else rows).to(device),
        )


def layer_columns(
    model: DeconvNet, spec: DescriptorSpec, height: int, width: int
) -> tuple[int, ...]:
    """How many numbers each described layer contributes to the descriptor of an image: blocks for
    `fit_whitening`."""
    grids = [
        (k, model.at(height, width).regions[k - 1].grid) for k in spec.layers or (model.spec.depth,)
    ]
    return tuple(describe([torch.zeros(1, *grid)], spec, [k]).shape[1] for k, grid in grids)


def side_by_side(parts: Sequence[Matrix]) -> Matrix:
    """Concatenate matrices along the columns, [N, D₁ + D₂ + …], scaled so that rows of unit length
    remain so."""
    if len(parts) == 1:
        return parts[0]
    scale = 1 / math.sqrt(len(parts))
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat([part * scale for part in parts], 1)
    # a Python float would turn a sparse matrix into float64
    scaled = [part * np.float32(scale) for part in parts]
    if any(sparse.issparse(part) for part in parts):
        return sparse.hstack(scaled, format="csr")
    return np.concatenate(scaled, 1)
