"""Other ways to describe an image, measured like the model: on the same splits, by the same linear
SVM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images
from whatwhere.errors import RunError

UNIT_ROWS = (0.1, 1.0, 10.0, 100.0)
# lower, since rows of standardised columns are longer
STANDARDISED_COLUMNS = (
    1e-4,
    1e-3,
    1e-2,
    1e-1,
)
Describe = Callable[[Images], np.ndarray]


@dataclass(frozen=True)
class Baseline(ABC):
    """A method: images in, a row of numbers for each out. It learns from training images, and never
    sees a label.

    Its fields are all settings that determine the rows. `C` is the grid for the SVM.
    """

    name: ClassVar[str]
    C: ClassVar[tuple[float, ...]]

    @abstractmethod
    def fit(self, training: Images) -> tuple[np.ndarray, Describe]:
        """Rows [N, D] of the training images, and the function that describes other images."""

    def describe(self, training: Images, test: Images) -> tuple[np.ndarray, np.ndarray]:
        """Rows [N, D] of the training images and of the test images."""
        rows, describe = self.fit(training)
        return rows, describe(test)

    def unavailable_reason(self) -> str | None:
        """Why it cannot run in this environment; None where it can."""
        return None


def choose_device(name: str) -> torch.device:
    """The device of this name; 'auto' is a GPU if there is one."""
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(auto if name == "auto" else name)


def standardise(rows: Describe, training: Images) -> tuple[np.ndarray, Describe]:
    """Every column with mean 0 and deviation 1 over the training images; columns that never change
    become 0."""
    x = rows(training)
    mean, deviation = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)

    def standardised(x: np.ndarray) -> np.ndarray:
        return np.asarray((x - mean) * scale, np.float32)

    return standardised(x), lambda images: standardised(rows(images))


@dataclass(frozen=True)
class RawPixels(Baseline):
    """Raw pixels, each image scaled to unit length, as the model's descriptors are."""

    name: ClassVar[str] = "raw pixels"
    C: ClassVar[tuple[float, ...]] = UNIT_ROWS
    rows: str = "unit length"

    def fit(self, training: Images) -> tuple[np.ndarray, Describe]:
        def rows(images: Images) -> np.ndarray:
            return F.normalize(images[:].flatten(1), dim=1).numpy()

        return rows(training), rows


@dataclass(frozen=True)
class KMeans(Baseline):
    """k-means on whitened patches: A. Coates, H. Lee, A. Y. Ng, AISTATS 2011.

    Every patch of an image answers to the centroids that are nearer than average; answers are
    averaged on a grid. The authors pool over quadrants; a 3×3 grid gives 3,600 columns, nearer to
    the model's 4,800.
    """

    name: ClassVar[str] = "k-means"
    C: ClassVar[tuple[float, ...]] = STANDARDISED_COLUMNS
    patch: int = 6
    centroids: int = 400
    patches: int = 100_000
    iterations: int = 20
    grid: int = 3
    whitening: float = 0.1
    seed: int = 0
    columns: str = "standardised"

    def fit(self, training: Images) -> tuple[np.ndarray, Describe]:
        generator = torch.Generator().manual_seed(self.seed)
        patches = random_patches(training, self.patch, self.patches, generator).to(
            choose_device("auto")
        )
        mean, whiten = zca(patches, self.whitening)
        centroids = lloyd((patches - mean) @ whiten, self.centroids, self.iterations, generator)
        return standardise(lambda images: self._rows(images, mean, whiten, centroids), training)

    def _rows(self, images: Images, mean: Tensor, whiten: Tensor, centroids: Tensor) -> np.ndarray:
        parts = []
        for rows in images.batches(64):
            unfolded, (height, width) = patches_of(images[rows].to(mean.device), self.patch)
            answers = triangle((unfolded - mean) @ whiten, centroids)  # [n, positions, centroids]
            maps = answers.transpose(1, 2).reshape(len(answers), -1, height, width)
            parts.append(F.adaptive_avg_pool2d(maps, self.grid).flatten(1))
        return torch.cat(parts).cpu().numpy()


def patches_of(v: Tensor, side: int) -> tuple[Tensor, tuple[int, int]]:
    """All patches [N, positions, C·side²], each with mean 0 and deviation about 1; and how many
    there are each way."""
    unfolded = F.unfold(v, side).transpose(1, 2)
    centred = unfolded - unfolded.mean(2, keepdim=True)
    lengths = (centred.square().mean(2, keepdim=True) + 10 / 255**2).sqrt()
    return centred / lengths, (v.shape[2] - side + 1, v.shape[3] - side + 1)


def random_patches(images: Images, side: int, count: int, generator: torch.Generator) -> Tensor:
    """Patches [count, C·side²] from random places of random images. Flat patches are left out."""
    parts: list[Tensor] = []
    while sum(map(len, parts)) < count:
        rows = torch.randint(len(images), (500,), generator=generator)
        unfolded, _ = patches_of(images[rows.numpy()], side)
        place = torch.randint(unfolded.shape[1], (500, 20), generator=generator)
        drawn = unfolded.gather(1, place[:, :, None].expand(-1, -1, unfolded.shape[2])).flatten(
            0, 1
        )
        parts.append(drawn[drawn.square().mean(1) > 0.1])
    return torch.cat(parts)[:count]


def zca(patches: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The mean [D] and the whitening map [D, D] that turns patches the least."""
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh((patches - mean).T.double().cov())
    return mean, (vectors * (values + epsilon).rsqrt() @ vectors.T).float()


def lloyd(points: Tensor, count: int, iterations: int, generator: torch.Generator) -> Tensor:
    """k-means by Lloyd's iterations: [n, D] → centroids [count, D]; an empty one is drawn again."""
    centroids = points[torch.randperm(len(points), generator=generator)[:count].to(points.device)]
    for _ in range(iterations):
        nearest = torch.cat(
            [torch.cdist(part, centroids).argmin(1) for part in torch.split(points, 10_000)]
        )
        sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
        members = nearest.bincount(minlength=count)[:, None]
        drawn = points[torch.randint(len(points), (count,), generator=generator).to(points.device)]
        centroids = torch.where(members > 0, sums / members.clamp(min=1), drawn)
    return centroids


def triangle(x: Tensor, centroids: Tensor) -> Tensor:
    """The authors' activation: how much nearer than average each centroid is, and 0 for those
    farther away."""
    distance = torch.cdist(x, centroids)
    return (distance.mean(-1, keepdim=True) - distance).clamp(min=0)


@dataclass(frozen=True)
class Scattering(Baseline):
    """Scattering coefficients by kymatio: J scales and L angles of the wavelets, up to this order.

    kymatio 0.3 needs scipy < 1.17, so it runs in an environment of its own (README.md says how).
    """

    name: ClassVar[str] = "scattering"
    C: ClassVar[tuple[float, ...]] = STANDARDISED_COLUMNS
    kymatio: str = "0.3"
    J: int = 3
    L: int = 8
    order: int = 2
    columns: str = "standardised"

    def fit(self, training: Images) -> tuple[np.ndarray, Describe]:
        if (reason := self.unavailable_reason()) is not None:
            raise RunError(f"the baseline {self.name!r} cannot run here: {reason}")
        from kymatio.torch import Scattering2D

        home = choose_device("auto")
        # a GPU has some thousand small kernels to start for each batch
        batch = 2000 if home.type == "cuda" else 250
        transform = Scattering2D(
            J=self.J, L=self.L, max_order=self.order, shape=training.shape[1:]
        ).to(home)

        def rows(images: Images) -> np.ndarray:
            with torch.no_grad():
                parts = (
                    transform(images[rows].to(home)).flatten(1).cpu()
                    for rows in images.batches(batch)
                )
                return torch.cat(list(parts)).numpy()

        return standardise(rows, training)

    def unavailable_reason(self) -> str | None:
        try:
            import kymatio.torch  # noqa: F401
        except ImportError as error:
            return (
                f"kymatio {self.kymatio} cannot be imported ({error}); reproduction/README.md says"
                " how to run it"
            )
        return None


BASELINES: dict[str, type[Baseline]] = {kind.name: kind for kind in (RawPixels, KMeans, Scattering)}
