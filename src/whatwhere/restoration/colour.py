"""Colour for models of grey images: red, green and blue as brightness and two differences of colour.

The transform is orthonormal, so that noise which is the same and independent in every channel stays so. Most of a
picture is in its brightness; the differences are smooth, and little of them is left to be mistaken for noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

OPPONENT = torch.tensor(
    [[1, 1, 1], [1, 0, -1], [1, -2, 1]], dtype=torch.float64, device="cpu"
)  # brightness, red against blue, green against both
OPPONENT = OPPONENT / OPPONENT.norm(dim=1, keepdim=True)


def to_opponent(images: Tensor) -> Tensor:
    """[N, 3, H, W] in red, green and blue → brightness and two differences of colour."""
    return torch.einsum("oc,nchw->nohw", OPPONENT.to(images), images)


def from_opponent(images: Tensor) -> Tensor:
    """The inverse of `to_opponent`, which is its adjoint."""
    return torch.einsum("oc,nohw->nchw", OPPONENT.to(images), images)
