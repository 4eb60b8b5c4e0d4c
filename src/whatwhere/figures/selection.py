"""A varied choice of images for figures: neighbours in a file are often alike (fourteen tiles of one sky)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.data import Images

MAX_CANDIDATES = 2000  # images that are compared with each other
VALUES = 100_000  # values (pixels × channels) of all images together, which bounds the time of inference
MIN_IMAGES, MAX_IMAGES = 24, 200
THUMBNAIL = 8  # side of the small versions that are compared


def default_count(images: Images) -> int:
    """How many images figures infer if no number is given: fewer if they are large."""
    channels, height, width = images.shape
    return min(len(images), max(MIN_IMAGES, min(MAX_IMAGES, VALUES // (channels * height * width))))


def spread(images: Images, count: int, seed: int = 0) -> np.ndarray:
    """Indices of `count` images that differ from each other; those at the front differ most.

    Candidates are evenly spaced over the whole set. Each next image is drawn with a probability proportional to its
    squared distance from the nearest one chosen so far, as k-means++ draws its centres: unlike the farthest image,
    this is rarely an outlier. Distances are those of thumbnails.
    """
    candidates = np.unique(np.linspace(0, len(images) - 1, min(len(images), MAX_CANDIDATES)).astype(int))
    if count >= len(candidates):
        candidates = np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).astype(int))
        count = len(candidates)
    thumbnails = np.concatenate(
        [_thumbnails(images[rows]) for rows in np.array_split(candidates, 1 + len(candidates) // 256)]
    )
    generator = np.random.default_rng(seed)
    chosen = [int(generator.integers(len(candidates)))]
    available = np.ones(len(candidates), bool)
    distance = np.full(len(candidates), np.inf)
    while len(chosen) < count:
        available[chosen[-1]] = False
        distance = np.minimum(distance, np.square(thumbnails - thumbnails[chosen[-1]]).sum(1))
        weights = np.where(available, distance, 0.0)
        if weights.sum() == 0:  # only copies of chosen images are left
            weights = available.astype(float)
        chosen.append(int(generator.choice(len(candidates), p=weights / weights.sum())))
    return candidates[chosen]


def _thumbnails(images: torch.Tensor) -> np.ndarray:
    """Small versions of images [N, C, H, W] as rows [N, D]."""
    size = min(THUMBNAIL, images.shape[2]), min(THUMBNAIL, images.shape[3])
    return F.adaptive_avg_pool2d(images, size).flatten(1).double().numpy()
