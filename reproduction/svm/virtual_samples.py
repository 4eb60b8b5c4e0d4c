"""Virtual samples: support vectors moved a little, so that a classifier minds small moves less.

Only the images on or inside the margin shape an SVM, so only they are moved (D. DeCoste and B.
Schölkopf, "Training invariant support vector machines", 2002).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Move:
    """A move of an image: pixels down and to the right, degrees anticlockwise."""

    down: float = 0.0
    right: float = 0.0
    degrees: float = 0.0


def moves(shift: int, degrees: float) -> tuple[Move, ...]:
    """Shifts by `shift` pixels in the four directions, and turns by `degrees` to either side; 0
    leaves them out."""
    shifts = (
        [Move(down=a * shift, right=b * shift) for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        if shift
        else []
    )
    turns = [Move(degrees=degrees), Move(degrees=-degrees)] if degrees else []
    return (*shifts, *turns)


def moved(images: Tensor, move: Move) -> Tensor:
    """Images [N, C, H, W] moved; what comes in from outside is 0.

    >>> moved(torch.eye(3)[None, None], Move(down=1))[0, 0].round()
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [0., 1., 0.]])
    """
    height, width = images.shape[2:]
    cos, sin = math.cos(math.radians(move.degrees)), math.sin(math.radians(move.degrees))
    # a pixel of the result is read at the place that it came from, in units of half the frame
    rows = [
        [cos, -sin * height / width, -2 * move.right / width],
        [sin * width / height, cos, -2 * move.down / height],
    ]
    grid = torch.tensor([rows], dtype=images.dtype, device=images.device).expand(len(images), 2, 3)
    return F.grid_sample(
        images, F.affine_grid(grid, list(images.shape), align_corners=False), align_corners=False
    )
