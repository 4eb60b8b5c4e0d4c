"""Other ways to describe an image, measured beside the model: on the same splits, by the same linear SVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images

Describe = Callable[[Images, Images], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Baseline:
    """A method: training and test images in, a row of numbers for each out; labels are never seen.

    settings  everything else that determines the rows
    C         the grid for the SVM; lower where columns are standardised, since rows are longer then
    describe  None where another program measures it
    """

    describe: Describe | None
    C: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


def pixels(training: Images, test: Images) -> tuple[np.ndarray, np.ndarray]:
    """Raw pixels, each image scaled to unit length, as the model's descriptors are."""
    first, second = (F.normalize(images[:].flatten(1), dim=1).numpy() for images in (training, test))
    return first, second


def standardise(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every column with mean 0 and deviation 1 over the training images; columns that never change become 0."""
    mean, deviation = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    first, second = (((part - mean) * scale).astype(np.float32) for part in (x, x_test))
    return first, second


# k-means on whitened patches: A. Coates, H. Lee, A. Y. Ng, AISTATS 2011 ------------------------------------------

KMEANS: dict[str, Any] = {
    "patch": 6,
    "centroids": 400,
    "patches": 100_000,
    "iterations": 20,
    "grid": 3,
    "whitening": 0.1,
    "seed": 0,
    "columns": "standardised",
}


def kmeans(training: Images, test: Images, settings: Mapping[str, Any] = KMEANS) -> tuple[np.ndarray, np.ndarray]:
    """Centroids of whitened patches; every patch of an image answers to those nearer than average; pooled on a grid.

    The authors pool over quadrants; a 3×3 grid gives 3,600 columns, nearer to the model's 4,800.
    """
    generator = torch.Generator().manual_seed(settings["seed"])
    patches = random_patches(training, settings["patch"], settings["patches"], generator)
    mean, whiten = zca(patches, settings["whitening"])
    centroids = lloyd((patches - mean) @ whiten, settings["centroids"], settings["iterations"], generator)

    def describe(images: Images) -> np.ndarray:
        parts = []
        for rows in images.batches(64):
            unfolded, (height, width) = patches_of(images[rows], settings["patch"])
            answers = triangle((unfolded - mean) @ whiten, centroids)  # [n, positions, centroids]
            maps = answers.transpose(1, 2).unflatten(2, (height, width))
            parts.append(F.adaptive_avg_pool2d(maps, settings["grid"]).flatten(1))
        return torch.cat(parts).numpy()

    return standardise(describe(training), describe(test))


def patches_of(v: Tensor, side: int) -> tuple[Tensor, tuple[int, int]]:
    """All patches [N, positions, C·side²], each with mean 0 and about unit deviation; and how they lie."""
    unfolded = F.unfold(v, side).transpose(1, 2)
    centred = unfolded - unfolded.mean(2, keepdim=True)
    lengths = (centred.square().mean(2, keepdim=True) + 10 / 255**2).sqrt()
    return centred / lengths, (v.shape[2] - side + 1, v.shape[3] - side + 1)


def random_patches(images: Images, side: int, count: int, generator: torch.Generator) -> Tensor:
    """Patches [count, C·side²] from random places of random images; flat ones, of which digits are full, not."""
    found: list[Tensor] = []
    while sum(map(len, found)) < count:
        rows = torch.randint(len(images), (500,), generator=generator)
        unfolded, _ = patches_of(images[rows.numpy()], side)
        place = torch.randint(unfolded.shape[1], (500, 20), generator=generator)
        drawn = unfolded.gather(1, place[:, :, None].expand(-1, -1, unfolded.shape[2])).flatten(0, 1)
        found.append(drawn[drawn.square().mean(1) > 0.1])
    return torch.cat(found)[:count]


def zca(patches: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The mean [D] and the whitening map [D, D] that turns patches the least."""
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh((patches - mean).T.double().cov())
    return mean, (vectors * (values + epsilon).rsqrt() @ vectors.T).float()


def lloyd(points: Tensor, count: int, iterations: int, generator: torch.Generator) -> Tensor:
    """k-means by Lloyd's iterations: [n, D] → centroids [count, D]; one that no point is nearest to is drawn anew."""
    centroids = points[torch.randperm(len(points), generator=generator)[:count]]
    for _ in range(iterations):
        nearest = torch.cat([torch.cdist(part, centroids).argmin(1) for part in points.split(10_000)])
        sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
        members = nearest.bincount(minlength=count)[:, None]
        drawn = points[torch.randint(len(points), (count,), generator=generator)]
        centroids = torch.where(members > 0, sums / members.clamp(min=1), drawn)
    return centroids


def triangle(x: Tensor, centroids: Tensor) -> Tensor:
    """The authors' activation: how much nearer than average each centroid is, and 0 for those farther away."""
    distance = torch.cdist(x, centroids)
    return (distance.mean(-1, keepdim=True) - distance).clamp(min=0)


# J and L are the scales and angles of the wavelets; benchmarks/scattering.py measures it, in an environment of its own.
SCATTERING: dict[str, Any] = {"kymatio": "0.3", "J": 3, "L": 8, "order": 2, "columns": "standardised"}

UNIT_ROWS = (0.1, 1.0, 10.0, 100.0)
STANDARDISED_COLUMNS = (1e-4, 1e-3, 1e-2, 1e-1)

BASELINES = {
    "raw pixels": Baseline(pixels, UNIT_ROWS, {"rows": "unit length"}),
    "k-means": Baseline(kmeans, STANDARDISED_COLUMNS, KMEANS),
    "scattering": Baseline(None, STANDARDISED_COLUMNS, SCATTERING),
}
