"""Learn the mixture of patches that the view *patches* compares pictures with.

    python -m benchmarks.labels.learn_patches PHOTOGRAPHS --out FILE.safetensors

PHOTOGRAPHS is a folder of photographs; those in the package are the 432 of BSDS500 that are not in
BSD68. As many patches of each photograph are drawn at random, from a square of full height or
width.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.mixture import GaussianMixture

import whatwhere as ww
from whatwhere.views import Patches

GAUSSIANS = 32
DIRECTIONS = 24
OF_A_PHOTOGRAPH = 250  # patches
NOISE = 0.1  # added to the variance of each direction before whitening, as a share of their mean


def patches_of(folder: Path) -> torch.Tensor:
    """Draw patches [m, p] of the photographs of a folder."""
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for file in sorted(folder.rglob("*.jpg")):
        image = torch.as_tensor(ww.data.load([file])[:]).float()
        side = min(image.shape[2:])
        top, left = ((extent - side) // 2 for extent in image.shape[2:])
        square = image[:, :, top : top + side, left : left + side]
        parts = [part.flatten(2)[0].T for part in Patches().patches(square)]
        every = torch.cat(parts)
        drawn.append(every[torch.randperm(len(every), generator=generator)[:OF_A_PHOTOGRAPH]])
    return torch.cat(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    patches = patches_of(given.photographs).double()
    mean = patches.mean(0)
    variances, directions = torch.linalg.eigh(torch.cov(patches.T))
    strongest = variances[-DIRECTIONS:]
    whitening = directions[:, -DIRECTIONS:] / (strongest + NOISE * strongest.mean()).sqrt()
    rows = ((patches - mean) @ whitening).numpy()
    how = GaussianMixture(GAUSSIANS, covariance_type="diag", reg_covar=1e-3, random_state=0)
    mixture = how.fit(rows)
    tensors = {
        "mean": mean,
        "directions": whitening,
        "shares": torch.from_numpy(mixture.weights_),
        "centres": torch.from_numpy(mixture.means_),
        "variances": torch.from_numpy(np.maximum(mixture.covariances_, 0.05)),
    }
    save_file({k: v.float().contiguous() for k, v in tensors.items()}, given.out)
    print(f"{len(patches):,} patches, mean log likelihood {mixture.lower_bound_:.2f}")


if __name__ == "__main__":
    main()
