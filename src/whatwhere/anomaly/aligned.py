"""How much an object in a fixed position differs from normal ones: each place is compared with the
same place of normal pictures.

places  a place that is far from the nearest normal one at the same place, by more than usual there
whole   the distance of the whole picture from the nearest normal picture
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.anomaly.evidence import LEAST, Each, Kind
from whatwhere.anomaly.filters import Cells
from whatwhere.errors import ImageError

OBJECT = {"places": Kind(weight=0.5), "whole": Kind(weight=2.0)}
"""The kinds of evidence, as in `evidence.SURFACE`."""

ONE_SIZE = "Resize them, or leave out --aligned (in Python: aligned=False)."


@dataclass(frozen=True, kw_only=True)
class ObjectSpec:
    """Settings of aligned objects.

    Parameters
    ----------
    usual
        the smallest number of pictures that show which distances are usual
    near
        share of the squared length of a picture; smaller distances count as equal
    """

    usual: int = 250
    near: float = 1e-4


_OBJECT = ObjectSpec()


@dataclass(frozen=True)
class NormalObject:
    """What normal objects are like; it gives the kinds of evidence of `OBJECT`.

    Parameters
    ----------
    bank
        [P, M, D]: the energies of every place of M normal pictures
    squares
        [P, M]: their squared lengths
    usual
        [2, P]: mean and deviation of the evidence of each place in normal pictures
    size
        [2]: rows and columns
    """

    bank: Tensor
    squares: Tensor
    usual: Tensor
    size: Tensor

    def on(self, device: torch.device) -> "NormalObject":
        """Return itself: objects are compared on the CPU, with few pictures at each place."""
        return self

    def maps(self, cells: Cells, each: Each = map) -> dict[str, Tensor]:
        """Return the evidence of each kind at every cell, [rows, columns]."""
        size = cells.known.shape
        if list(size) != (expected := self.size.tolist()):
            raise ImageError(
                f"Got a picture of {list(size)} cells; expected {expected}, as in fit. Aligned"
                f" pictures need one size. {ONE_SIZE}"
            )
        places, whole = self.log_nearest_distance(cells)
        mean, deviation = self.usual
        return {"places": ((places - mean) / deviation).view(size), "whole": whole.expand(size)}

    def log_nearest_distance(self, cells: Cells, but: int = -1) -> tuple[Tensor, Tensor]:
        """Return the logarithm of the squared distance of every place [P] and of the whole [] from
        the nearest normal one.

        Parameters
        ----------
        but
            number of a picture that is left out
        """
        x = cells.energy.flatten(1).mT[:, None]
        squares = x.square().sum(2) + self.squares - 2 * (self.bank @ x.mT)[..., 0]  # [P, M]
        if but >= 0 and squares.shape[1] > 1:
            squares = squares[:, torch.arange(squares.shape[1]) != but]
        known = cells.known.flatten()[:, None]
        whole = (squares * known).sum(0).amin() / known.float().mean().clamp_min(_OBJECT.near)
        return (len(known) * squares.amin(1)).clamp_min(_OBJECT.near).log(), whole.clamp_min(
            _OBJECT.near
        ).log()

    def nearest_places(self, cells: Cells, row: int, column: int) -> Tensor:
        """Return the picture, the row and the column [3, M] of normal places, the most alike to a
        place first."""
        number = row * cells.known.shape[1] + column
        order = (self.bank[number] - cells.energy[:, row, column]).square().sum(1).argsort()
        place = torch.tensor([[row], [column]]).expand(-1, len(order))
        return torch.cat([order[None], place])


def learn_object(pictures: Sequence[Cells], each: Each = map) -> NormalObject:
    """Return what these normal pictures, which have one size, are like."""
    bank = torch.stack([cells.energy.flatten(1).mT for cells in pictures], 1)
    normal = NormalObject(
        bank, bank.square().sum(2), torch.empty(0), torch.tensor(pictures[0].known.shape)
    )
    some = range(0, len(pictures), max(1, len(pictures) // _OBJECT.usual))
    places = torch.stack(
        [
            places
            for places, _ in each(normal.log_nearest_distance, [pictures[n] for n in some], some)
        ]
    )
    return replace(
        normal, usual=torch.stack([places.mean(0), places.std(0, correction=0).clamp_min(LEAST)])
    )
