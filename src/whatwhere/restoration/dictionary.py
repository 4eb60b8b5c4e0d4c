"""Denoising without pairs: every overlapping patch as a few atoms of a dictionary, and the mean of all patches.

The dictionary may be learned from clean pictures, or from the noisy picture itself: patches are coded, then atoms are
fitted to what they have to explain, batch by batch (Mairal et al. 2009). Noise fits no atom, so that it is not learned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files

import torch
from safetensors.torch import load
from torch import Tensor

from whatwhere.restoration.denoiser import reflect
from whatwhere.restoration.planes import Progress
from whatwhere.restoration.pursuit import pursue

EXCESS = 1.06  # a patch is coded until what is left has this many times the standard deviation of the noise
MOST_ATOMS = 32  # for a patch
ROWS = 16  # of patches that are coded together
FORGET = 0.95  # weight of all batches before, at each new one


@dataclass(frozen=True)
class Dictionary:
    """Patterns whose sums explain patches; the mean of a patch is kept.

    atoms  [M, K, K], of mean 0 and length 1

    >>> dictionary = ww.restoration.load_dictionary()
    >>> dictionary.denoise(torch.rand(24, 32), noise=0.1).shape
    torch.Size([24, 32])
    """

    atoms: Tensor

    @property
    def device(self) -> torch.device:
        """Where the atoms are."""
        return self.atoms.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the pictures that it takes."""
        return self.atoms.dtype

    def to(self, device: torch.device | str) -> Dictionary:
        """The same on another device."""
        return replace(self, atoms=self.atoms.to(device))

    def denoise(self, plane: Tensor, noise: float, progress: Progress | None = None) -> Tensor:
        """A picture [H, W] without its noise of standard deviation `noise`, in any units.

        A patch that needs fewer atoms is more certain: patches are averaged with weights 1 / (1 + atoms).
        progress is called with the number of pixels just done.
        """
        K, (H, W) = self.atoms.shape[1], plane.shape
        padded = reflect(plane, K - 1)[: H + 2 * K - 2, : W + 2 * K - 2]
        total, weights = torch.zeros_like(padded), torch.zeros_like(padded)
        for top in range(0, H + K - 1, ROWS):
            rows = padded[top : top + ROWS + K - 1]
            clean, certainty = self._denoise_patches(patches(rows, K), noise)
            for i in range(K):
                for j in range(K):
                    place = slice(top + i, top + i + clean.shape[0]), slice(j, j + clean.shape[1])
                    total[place] += clean[:, :, i * K + j] * certainty
                    weights[place] += certainty
            if progress is not None:
                progress(W * max(0, min(ROWS, H - top)))
        inside = slice(K - 1, K - 1 + H), slice(K - 1, K - 1 + W)
        return total[inside] / weights[inside]

    def _denoise_patches(self, noisy: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        """Patches [h, w, K²] of the atoms that explain them, and their certainty [h, w]."""
        mean = noisy.mean(2, keepdim=True)
        codes = self.code((noisy - mean).flatten(0, 1), noise)
        clean = (codes @ self.atoms.flatten(1)).view_as(noisy) + mean
        return clean, 1 / (1 + (codes != 0).sum(1).view(noisy.shape[:2]))

    def code(self, centred: Tensor, noise: float) -> Tensor:
        """Coefficients [P, M] of patches [P, K²] of mean 0, by orthogonal matching pursuit."""
        goal = centred.shape[1] * (EXCESS * noise) ** 2
        return pursue(self.atoms.flatten(1), centred, goal, MOST_ATOMS)

    def learn(self, plane: Tensor, noise: float, batches: int = 20, size: int = 4000, seed: int = 0) -> Dictionary:
        """The dictionary adapted to a noisy picture [H, W], from batches of `size` random patches of it."""
        K = self.atoms.shape[1]
        every = patches(reflect(plane, K - 1), K).flatten(0, 1)
        random = torch.Generator().manual_seed(seed)
        adapted, A, B = self, self.atoms.new_zeros(2 * self.atoms.shape[:1]), torch.zeros_like(self.atoms.flatten(1))
        for _ in range(batches):
            x = every[torch.randint(len(every), (size,), generator=random).to(every.device)]
            x = x - x.mean(1, keepdim=True)
            z = adapted.code(x, noise)
            A, B = FORGET * A + z.T @ z, FORGET * B + z.T @ x
            adapted = replace(self, atoms=fit_atoms(adapted.atoms.flatten(1), A, B).view_as(self.atoms))
        return adapted


def fit_atoms(atoms: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Atoms [M, n], one after the other, that explain patches X best by codes Z; A = Zᵀ Z [M, M], B = Zᵀ X [M, n]."""
    atoms = atoms.clone()
    for m in range(len(atoms)):
        if A[m, m] > 0:
            atom = atoms[m] + (B[m] - A[m] @ atoms) / A[m, m]
            if (length := float(atom.norm())) > 0:
                atoms[m] = atom / length
    return atoms


def patches(plane: Tensor, K: int) -> Tensor:
    """All patches [h, w, K²] of a picture [H, W]."""
    return plane.unfold(0, K, 1).unfold(1, K, 1).flatten(2)


def load_dictionary() -> Dictionary:
    """The dictionary that ships with the package: 512 atoms of 9 × 9 pixels, learned from photographs.

    >>> noisy = 0.5 + 0.1 * torch.randn(1, 1, 40, 40)
    >>> bool(ww.restoration.denoise(ww.restoration.load_dictionary(), noisy, 0.1).std() < 0.05)
    True
    """
    return Dictionary(load((files("whatwhere.restoration") / "dictionary.safetensors").read_bytes())["atoms"].float())
