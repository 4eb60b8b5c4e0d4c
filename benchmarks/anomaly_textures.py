"""Defects on textures: AUROC of pixels for AnomalyDetector, PCA of patches and the nearest patch of pixels.

    python benchmarks/anomaly_textures.py           # writes results/anomaly_textures.json

Brick, grass and gravel of scikit-image. Tiles of 64×64 from the left half are normal; tiles from the right half get one
defect each: a blurred disc, a scratch, or a disc turned by a quarter. The share of the residual in the detector's map
and the settings of the others are chosen on grass; brick and gravel are the test. What the detector does for textures
(`aligned=False`) was found on grass, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import skimage.data
from scipy.ndimage import gaussian_filter, uniform_filter
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

import whatwhere as ww
from whatwhere.inference import machine

RESULTS = Path(__file__).parent / "results" / "anomaly_textures.json"
SIDE, NORMAL, TEST, PATCH = 64, 24, 24, 8
DEFECTS = ("blurred", "scratched", "turned")
Maps = Callable[[np.ndarray, np.ndarray], np.ndarray]  # normal tiles, tiles → how anomalous every pixel is


def tiles(name: str, half: int, count: int, seed: int) -> np.ndarray:
    """Tiles [N, H, W] at random places in the left (0) or right (1) half of a texture."""
    picture, generator = getattr(skimage.data, name)().astype(np.float32) / 255, np.random.default_rng(seed)
    width = picture.shape[1] // 2
    side = picture[:, half * width : (half + 1) * width]
    places = generator.integers(0, np.array(side.shape) - SIDE + 1, (count, 2))
    return np.stack([side[y : y + SIDE, x : x + SIDE] for y, x in places])


def damage(normal: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The tiles with a defect each, and where it is."""
    generator, damaged, masks = np.random.default_rng(seed), normal.copy(), np.zeros(normal.shape, bool)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for n, tile in enumerate(damaged):
        y, x = generator.integers(14, SIDE - 14, 2)
        disc = (rows - y) ** 2 + (columns - x) ** 2 <= 8**2
        if n % 3 == 0:
            masks[n], change = disc, gaussian_filter(tile, 2)
        elif n % 3 == 1:
            masks[n] = (abs((rows - y) - (columns - x)) <= 1) & (abs(rows - y) <= 12)
            change = np.full_like(tile, tile.max())
        else:
            masks[n], change = disc, np.roll(np.rot90(tile), (y // 2, x // 2), (0, 1))
        damaged[n] = np.where(masks[n], change, tile)
    return damaged, masks


def detector(residual_weight: float) -> Maps:
    model = ww.load("photographs")

    def maps(normal: np.ndarray, images: np.ndarray) -> np.ndarray:
        found = ww.AnomalyDetector(model, aligned=False, residual_weight=residual_weight).fit(normal[:, None])
        return np.asarray(found.anomaly_map(images[:, None]))

    return maps


def patches_of(images: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(images, (PATCH, PATCH), (1, 2))


def spread(values: np.ndarray) -> np.ndarray:
    """Of every pixel, the mean over the patches that see it."""
    padded = np.pad(values, ((0, 0), (PATCH // 2, PATCH // 2 - 1), (PATCH // 2, PATCH // 2 - 1)), mode="edge")
    return uniform_filter(padded, (1, PATCH, PATCH))


def pca(components: int, both_ways: bool) -> Maps:
    """The squared error of patches in the plane of normal ones; `both_ways`: how far its logarithm is from usual."""

    def maps(normal: np.ndarray, images: np.ndarray) -> np.ndarray:
        plane = PCA(components, random_state=0).fit(patches_of(normal)[:, ::2, ::2].reshape(-1, PATCH**2))

        def error(x: np.ndarray) -> np.ndarray:
            flat = patches_of(x).reshape(-1, PATCH**2)
            squares = np.square(flat - plane.inverse_transform(plane.transform(flat))).sum(1)
            return spread(squares.reshape(patches_of(x).shape[:3]))

        return abs(np.log(error(images)) - np.log(error(normal)).mean()) if both_ways else error(images)

    return maps


def nearest_patch(neighbours: int) -> Maps:
    """The distance of a patch of pixels from the nearest of 5,000 normal ones."""

    def maps(normal: np.ndarray, images: np.ndarray) -> np.ndarray:
        known, x = patches_of(normal).reshape(-1, PATCH**2), patches_of(images)
        known = known[np.random.default_rng(0).permutation(len(known))[:5000]]
        search = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(known)
        return spread(search.kneighbors(x.reshape(-1, PATCH**2))[0].mean(1).reshape(x.shape[:3]))

    return maps


METHODS: dict[str, dict[str, Maps]] = {
    "AnomalyDetector": {f"residual_weight {w}": detector(w) for w in (0.0, 0.3, 0.5, 0.7, 1.0)},
    "PCA of patches": {
        f"{n} components, {way}": pca(n, way == "both ways")
        for n in (4, 16, 32)
        for way in ("large errors", "both ways")
    },
    "nearest patch of pixels": {f"{k} neighbours": nearest_patch(k) for k in (1, 5)},
}


def auroc(name: str, maps: Maps, seed: int) -> dict[str, float]:
    """Of all pixels, and of those of the tiles with one kind of defect."""
    images, masks = damage(tiles(name, 1, TEST, seed), seed + 1)
    found = maps(tiles(name, 0, NORMAL, seed + 2), images)
    parts = {"all": slice(None), **{kind: slice(n, None, 3) for n, kind in enumerate(DEFECTS)}}
    return {kind: round(float(roc_auc_score(masks[p].ravel(), found[p].ravel())), 4) for kind, p in parts.items()}


def main() -> None:
    rows = {}
    for method, settings in METHODS.items():
        chosen = {setting: auroc("grass", maps, 0) for setting, maps in settings.items()}
        best = max(chosen, key=lambda setting: chosen[setting]["all"])
        test = {name: auroc(name, settings[best], 10) for name in ("brick", "gravel")}
        rows[method] = {"validation on grass": chosen, "setting": best, "test": test}
        print(method, json.dumps(rows[method], indent=1), flush=True)
    RESULTS.write_text(json.dumps({"machine": machine(), "pixel AUROC": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
