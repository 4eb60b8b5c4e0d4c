"""Patches: which small pieces a picture is made of, compared with those of photographs.

F. Perronnin, J. Sánchez, T. Mensink, "Improving the Fisher kernel for large-scale image
classification", ECCV 2010.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor

from whatwhere.spec.checks import Count, Positive, Within
from whatwhere.views.colour import opponent
from whatwhere.views.view import MapView


@dataclass(frozen=True)
class Patches(MapView):
    """How the patches of a picture differ from those of photographs, at several scales (Fisher
    vectors).

    A mixture of Gaussians describes the patches of photographs; it is in the package. A row says,
    for each Gaussian, how many patches of the picture belong to it, and how far their means and
    variances are from its own. What is not special to the picture drops out.

    Parameters
    ----------
    cells
        parts of the height and of the width
    side
        side of the squares to which pictures are scaled, in pixels
    scales
        how often the picture is halved, less one
    step
        distance of patches, in pixels of each scale
    dark
        sum of squares that is added to a patch's contrast before it is divided by it, so that flat
        patches stay flat

    Examples
    --------
    >>> from whatwhere.views import Patches
    >>> Patches().rows(torch.rand(5, 1, 40, 40)).shape
    torch.Size([5, 1568])
    """

    cells: tuple[int, ...] = (1,)
    side: Annotated[int, Within(16)] = 96
    scales: Count = 4
    step: Count = 3
    dark: Positive = 0.05

    @property
    def name(self) -> str:
        return "patches"

    @property
    def cost(self) -> float:
        return 0.006

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        """Describe each patch by its whitened principal components."""
        mixture = _photographs()
        maps = []
        for patches in self.patches(pictures):
            of_places = torch.einsum("npyx,pd->ndyx", patches, mixture.directions.to(patches))
            maps.append(of_places - (mixture.mean @ mixture.directions).to(patches)[:, None, None])
        return maps

    def patches(self, pictures: Tensor) -> list[Tensor]:
        """Return the patches of pictures [n, C, H, W] at each scale, [n, 3 · 6 · 6, h, w]: without
        their means, and of about unit length."""
        v = F.interpolate(
            pictures, (self.side, self.side), mode="bilinear", antialias=True, align_corners=False
        )
        v = opponent(v) if v.shape[1] == 3 else _without_colour(v)
        parts = []
        for scale in range(self.scales):
            if scale:
                v = F.avg_pool2d(v, 2)
            if v.shape[2] < _SIDE:
                break
            columns = F.unfold(v, _SIDE, stride=self.step).unflatten(1, (3, _SIDE * _SIDE))
            columns = columns - columns.mean(2, keepdim=True)
            contrast = (columns.square().sum((1, 2), keepdim=True) + self.dark).sqrt()
            across = (v.shape[3] - _SIDE) // self.step + 1
            parts.append((columns / contrast).flatten(1, 2).unflatten(2, (-1, across)))
        return parts

    def joined(self, maps: list[Tensor]) -> Tensor:
        """Fisher vectors of the parts of the pictures, [n, D]; with roots, so that patches that
        repeat do not outweigh all others."""
        mixture = _photographs()
        rows = []
        for cells in self.cells:
            for number in range(cells * cells):
                here = [_part(one, cells, number) for one in maps]
                patches = torch.cat([one.flatten(2) for one in here], 2).transpose(1, 2)
                vector = mixture.fisher_vectors(patches)
                rows.append(F.normalize(vector.sign() * vector.abs().sqrt(), dim=1))
        return torch.cat(rows, 1).float().cpu()


class Mixture(NamedTuple):
    """A mixture of K Gaussians of patches [p], in D principal directions.

    Parameters
    ----------
    mean
        of all patches, [p]
    directions
        from patches to whitened components, [p, D]
    shares
        of the Gaussians, [K]
    centres
        means of the Gaussians, [K, D]
    variances
        of the Gaussians, [K, D]
    """

    mean: Tensor
    directions: Tensor
    shares: Tensor
    centres: Tensor
    variances: Tensor

    def fisher_vectors(self, patches: Tensor) -> Tensor:
        """Return the gradients of the log likelihood of patches [n, m, D], [n, K (1 + 2 D)]: by
        shares, centres and deviations, each divided by its usual size."""
        shares, centres, variances = (
            one.to(patches) for one in (self.shares, self.centres, self.variances)
        )
        memberships = self.memberships(patches)
        count = patches.shape[1]
        sums = memberships.mean(1)[:, :, None]
        firsts = memberships.transpose(1, 2) @ patches / count
        seconds = memberships.transpose(1, 2) @ patches.square() / count
        root = shares.sqrt()
        by_share = (sums[:, :, 0] - shares) / root
        by_centre = (firsts - sums * centres) / (root[:, None] * variances.sqrt())
        moved = seconds - 2 * centres * firsts + (centres.square() - variances) * sums
        by_deviation = moved / (variances * (2 * shares).sqrt()[:, None])
        return torch.cat([by_share, by_centre.flatten(1), by_deviation.flatten(1)], 1)

    def memberships(self, patches: Tensor) -> Tensor:
        """Return the probabilities that patches [n, m, D] belong to the Gaussians, [n, m, K]."""
        shares, centres, variances = (
            one.to(patches) for one in (self.shares, self.centres, self.variances)
        )
        distances = patches.square() @ (1 / variances).T
        distances = distances - 2 * patches @ (centres / variances).T
        constants = (centres.square() / variances + variances.log()).sum(1) - 2 * shares.log()
        return (-0.5 * (distances + constants)).softmax(2)


_SIDE = 6
"""Side of a patch in pixels: that of the mixture in the package."""


@lru_cache(maxsize=1)
def _photographs() -> Mixture:
    """Return the mixture of patches of photographs (benchmarks/labels/learn_patches.py)."""
    content = (files("whatwhere.views") / "patches.safetensors").read_bytes()
    return Mixture(**{name: tensor.float() for name, tensor in load(content).items()})


def _without_colour(pictures: Tensor) -> Tensor:
    """Return the brightness of pictures [n, C, h, w], and two differences of colours that are 0."""
    bright = pictures.mean(1, keepdim=True)
    return torch.cat([bright, torch.zeros_like(bright), torch.zeros_like(bright)], 1)


def _part(maps: Tensor, cells: int, number: int) -> Tensor:
    """Return one of the cells × cells parts of maps [n, D, h, w]; at least one place."""
    row, column = divmod(number, cells)
    height, width = maps.shape[2:]
    top = min(row * height // cells, height - 1)
    left = min(column * width // cells, width - 1)
    bottom = max(top + 1, (row + 1) * height // cells)
    right = max(left + 1, (column + 1) * width // cells)
    return maps[:, :, top:bottom, left:right]
