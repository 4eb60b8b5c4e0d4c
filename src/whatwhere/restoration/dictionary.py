"""Denoise without pairs: explain every overlapping patch by a few atoms of a dictionary, and take
the mean of all patches.

Atoms may be adapted to the noisy picture itself, which is better than the denoiser where it is
unlike photographs but like itself, such as text and lattices: patches are coded, then atoms are
fitted to what they have to explain, batch by batch (Mairal et al. 2009). Noise fits no atom, so it
is not learned.
"""

from dataclasses import dataclass
from importlib.resources import files

import torch
from safetensors.torch import load
from torch import Tensor

from whatwhere.restoration.denoiser import reflect
from whatwhere.restoration.planes import PLANE_NOISE, Progress, to_opponent


@dataclass(frozen=True, kw_only=True)
class DictionarySettings:
    """Settings of patches as sums of atoms.

    Parameters
    ----------
    excess
        a patch is coded until what is left has this many times the deviation of the noise
    most_atoms
        atoms for a patch, at most
    rows
        rows of patches that are coded together: memory
    batches
        batches of random patches from which atoms are learned
    size
        patches in a batch
    forget
        weight of all batches before, at each new one
    """

    excess: float = 1.06
    most_atoms: int = 32
    rows: int = 16
    batches: int = 20
    size: int = 4000
    forget: float = 0.95


_DEFAULT = DictionarySettings()


def load_dictionary() -> Tensor:
    """Return the dictionary that ships with the package: 512 atoms of 9 × 9 pixels, learned from
    photographs.

    >>> atoms = ww.restoration.load_dictionary()
    >>> noisy = 0.5 + 0.1 * torch.randn(1, 1, 40, 40)
    >>> bool(ww.restoration.denoise(noisy, atoms, 0.1).std() < 0.05)
    True
    """
    return load((files("whatwhere.restoration") / "dictionary.safetensors").read_bytes())[
        "atoms"
    ].float()


def learn_dictionary(
    atoms: Tensor, image: Tensor, noise: float, settings: DictionarySettings = _DEFAULT
) -> Tensor:
    """Adapt atoms to the brightness, or the first channel, of a noisy image [C, H, W]."""
    if len(image) == 3:
        return _learn_atoms(atoms, to_opponent(image)[0], PLANE_NOISE[0] * noise, settings)
    return _learn_atoms(atoms, image[0], noise, settings)


def denoise_plane(
    atoms: Tensor,
    plane: Tensor,
    noise: float,
    progress: Progress | None = None,
    settings: DictionarySettings = _DEFAULT,
) -> Tensor:
    """Return a picture [H, W] without its noise of standard deviation `noise`, in any units.

    A patch that needs fewer atoms is more certain: patches are averaged with weights 1 / (1 +
    atoms). progress is called with the number of pixels just done.
    """
    K, (H, W) = atoms.shape[1], plane.shape
    padded = reflect(plane, K - 1)[: H + 2 * K - 2, : W + 2 * K - 2]
    total = torch.zeros_like(padded)
    weights = torch.zeros_like(padded)
    for top in range(0, H + K - 1, settings.rows):
        noisy = _patches(padded[top : top + settings.rows + K - 1], K)
        mean = noisy.mean(2, keepdim=True)
        codes = _code(atoms, (noisy - mean).flatten(0, 1), noise, settings)
        clean = (codes @ atoms.flatten(1)).view_as(noisy) + mean
        certainty = 1 / (1 + (codes != 0).sum(1).view(noisy.shape[:2]))
        for i in range(K):
            for j in range(K):
                place = slice(top + i, top + i + clean.shape[0]), slice(j, j + clean.shape[1])
                total[place] += clean[:, :, i * K + j] * certainty
                weights[place] += certainty
        if progress is not None:
            progress(W * max(0, min(settings.rows, H - top)))
    inside = slice(K - 1, K - 1 + H), slice(K - 1, K - 1 + W)
    return total[inside] / weights[inside]


def _code(atoms: Tensor, centred: Tensor, noise: float, settings: DictionarySettings) -> Tensor:
    """Return coefficients [P, M] of patches [P, K²] of mean 0, by orthogonal matching pursuit."""
    from whatwhere.restoration.pursuit import pursue

    left = centred.shape[1] * (settings.excess * noise) ** 2
    return pursue(atoms.flatten(1), centred, left, settings.most_atoms)


def _learn_atoms(
    atoms: Tensor, plane: Tensor, noise: float, settings: DictionarySettings
) -> Tensor:
    every = _patches(reflect(plane, atoms.shape[1] - 1), atoms.shape[1]).flatten(0, 1)
    random = torch.Generator().manual_seed(0)
    A = atoms.new_zeros(2 * atoms.shape[:1])
    B = torch.zeros_like(atoms.flatten(1))
    for _ in range(settings.batches):
        x = every[torch.randint(len(every), (settings.size,), generator=random)]
        x = x - x.mean(1, keepdim=True)
        z = _code(atoms, x, noise, settings)
        A = settings.forget * A + z.T @ z
        B = settings.forget * B + z.T @ x
        atoms = fit_atoms(atoms.flatten(1), A, B).view_as(atoms)
    return atoms


def fit_atoms(atoms: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Return atoms [M, n], one after the other, that explain patches X best by codes Z; A = Zᵀ Z
    [M, M], B = Zᵀ X [M, n]."""
    atoms = atoms.clone()
    for m in range(len(atoms)):
        if A[m, m] > 0:
            atom = atoms[m] + (B[m] - A[m] @ atoms) / A[m, m]
            if (length := float(atom.norm())) > 0:
                atoms[m] = atom / length
    return atoms


def _patches(plane: Tensor, K: int) -> Tensor:
    return plane.unfold(0, K, 1).unfold(1, K, 1).flatten(2)
