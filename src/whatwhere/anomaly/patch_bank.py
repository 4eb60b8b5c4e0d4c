"""Code surprise: how far the patches of a code are from those of normal images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SAME = 1e-6  # a squared distance below which a patch is taken for the same one
DISTANCES = 1 << 24  # held in memory at a time


@dataclass(frozen=True)
class PatchBank:
    """Patches of normal images, [places, M, D]: of every place its own, or of all places together (places = 1)."""

    patches: Tensor
    neighbours: int

    @classmethod
    def of(cls, patches: Tensor, *, aligned: bool, size: int, neighbours: int, generator: torch.Generator) -> PatchBank:
        """From patches [N, rows, columns, D], at most `size` of them for each place, drawn at random.

        aligned   patches are compared with those at the same place only
        """
        by_place = group_by_place(patches, aligned)
        if by_place.shape[1] > size:
            rows = torch.randperm(by_place.shape[1], generator=generator)[:size]
            by_place = by_place[:, rows]
        return cls(by_place.contiguous(), neighbours)

    @property
    def aligned(self) -> bool:
        return len(self.patches) > 1

    def surprise(self, patches: Tensor) -> Tensor:
        """The mean squared distance of patches [N, rows, columns, D] from their nearest neighbours, [N, rows, columns].

        A neighbour that is the patch itself does not count, so that images of the bank are not less surprising than
        others of their kind.
        """
        N, rows, columns, _ = patches.shape
        by_place = group_by_place(patches, self.aligned)
        chunk = max(1, DISTANCES // self.patches.shape[:2].numel())
        parts = [self._surprise(part) for part in by_place.split(chunk, dim=1)]
        found = torch.cat(parts, 1)
        return (found.T if self.aligned else found).reshape(N, rows, columns)

    def image_surprise(self, patches: Tensor) -> Tensor:
        """The same for entire images of an aligned bank, [N]: all patches of an image have the same neighbours."""
        whole = PatchBank(self.patches.transpose(0, 1).flatten(1)[None], self.neighbours)
        return whole.surprise(patches.flatten(1)[:, None, None])[:, 0, 0] / len(self.patches)

    def _surprise(self, by_place: Tensor) -> Tensor:
        """The same for patches [places, n, D]:  [places, n]."""
        lengths = by_place.square().sum(2)[:, :, None] + self.patches.square().sum(2)[:, None, :]
        count = min(self.neighbours + 1, self.patches.shape[1])
        rows = (lengths - 2 * by_place @ self.patches.mT).topk(count, dim=2, largest=False).indices
        place = torch.arange(len(rows))[:, None, None]
        near = (by_place[:, :, None] - self.patches[place, rows]).square().sum(3).sort(dim=2).values  # without rounding
        if count == 1:
            return near[:, :, 0]
        itself = near[:, :, :1] < SAME
        return torch.where(itself, near[:, :, 1:], near[:, :, :-1]).mean(2)


def group_by_place(patches: Tensor, aligned: bool) -> Tensor:
    """[N, rows, columns, D] → [rows · columns, N, D], or [1, N · rows · columns, D] if all places are one."""
    flat = patches.flatten(1, 2)
    return flat.transpose(0, 1) if aligned else flat.flatten(0, 1)[None]
