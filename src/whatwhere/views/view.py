"""The protocol of a view, and views whose rows are averages of maps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.inference.target import ImageSource
from whatwhere.progress import no_op
from whatwhere.spec.checks import Checked, Count, NotEmpty

Advance = Callable[[int], object]
"""Is called with the number of pictures just done."""


@runtime_checkable
class View(Protocol):
    """A description of pictures: similar pictures have similar rows.

    Parameters
    ----------
    name
        a word for it, as in "colour 0.7, shapes 0.3"
    cost
        seconds of one processor core for a picture of 64 × 64 pixels
    """

    @property
    def name(self) -> str: ...
    @property
    def cost(self) -> float: ...
    def rows(self, images: ImageSource, progress: Advance = no_op) -> Tensor:
        """Describe each picture by a row, [N, d], float32 on the CPU."""
        ...


@dataclass(frozen=True)
class MapView(Checked):
    """A view that describes each place of a picture, and its rows by averages over parts of it.

    It is also a callable from pictures to maps, as `AnomalyDetector(features=…)` takes them. The
    description of a picture does not depend on other pictures.

    Parameters
    ----------
    cells
        parts of the height and of the width; 1 is the whole picture. Each division gives some of
        the columns
    batch_size
        pictures that are described together
    """

    cells: Annotated[tuple[Count, ...], NotEmpty()] = (1, 2)
    batch_size: Count = 32

    @property
    def name(self) -> str:
        """Return a word for the view."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """Return the seconds of one processor core for a picture of 64 × 64 pixels."""
        raise NotImplementedError

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        """Describe each place of pictures [n, C, H, W] from 0 to 1, as maps [n, D, h, w]."""
        raise NotImplementedError

    def rows(self, images: ImageSource, progress: Advance = no_op) -> Tensor:
        """Describe each picture by a row, [N, d], float32 on the CPU."""
        rows = []
        for start in range(0, len(images), self.batch_size):
            pictures = filled(images[start : start + self.batch_size].float())
            rows.append(self.joined(self(pictures)))
            progress(len(pictures))
        return torch.cat(rows)

    def joined(self, maps: list[Tensor]) -> Tensor:
        """Average maps over the parts of the pictures; each map and division has unit length."""
        parts = [
            F.normalize(F.adaptive_avg_pool2d(one, cells).flatten(1), dim=1)
            for one in maps
            for cells in self.cells
        ]
        return torch.cat(parts, 1).float().cpu()


def filled(pictures: Tensor) -> Tensor:
    """Replace unknown pixels by the mean of the known ones of their channel."""
    known = pictures.isfinite()
    if known.all():
        return pictures
    means = pictures.nanmean((2, 3), keepdim=True).nan_to_num(0)
    return torch.where(known, pictures, means)


def at_most(pictures: Tensor, side: int) -> Tensor:
    """Reduce pictures [n, C, H, W] whose sides are longer than `side`; smaller ones stay."""
    height, width = pictures.shape[2:]
    if max(height, width) <= side:
        return pictures
    return F.adaptive_avg_pool2d(pictures, (min(height, side), min(width, side)))
