"""Anomaly detection on magnetic tiles: `AnomalyDetector` and other methods, all from the same 200
normal pictures.

The photographs of Huang et al., *Saliency of magnetic tile surface defects*. A tile was
photographed at about six exposures, so the parts (fit, validation, test) are made by tile. Settings
of all methods are chosen on the validation part, by the AUROC of pictures.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

import whatwhere as ww

KINDS = ("fray", "crack", "uneven", "break", "blowhole")
QUANTILES = (0.5, 0.9, 0.99, 1.0)  # of a map: the score of its picture
PATCH, STEP, BANK = 8, 4, 1500
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of the patches' methods
RESAMPLES = 1000  # of the tiles, for standard errors
Picture = dict[str, Any]
# normal pictures, pictures → maps
Maps = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]


def read_tiles(path: str) -> list[Picture]:
    from PIL import Image

    archive, pictures = zipfile.ZipFile(path), []
    names = set(archive.namelist())

    def grey(name: str) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("L"))

    for name in archive.namelist():
        if name.endswith(".jpg"):
            kind, file = name.split("/")
            match = re.match(r"tile(\d+)_", file)
            assert match
            pixels, mask = grey(name).astype(np.float32) / 255, name[:-4] + ".mask.png"
            truth = grey(mask) > 127 if mask in names else np.zeros(pixels.shape, bool)
            pictures.append({"kind": kind, "tile": int(match[1]), "pixels": pixels, "mask": truth})
    return pictures


def parts_of(pictures: list[Picture]) -> dict[str, list[Picture]]:
    """200 normal pictures to fit, then validation and test, each with half of the tiles of every
    defect."""
    part: dict[int, str] = {}
    for kind in KINDS:
        tiles = sorted({p["tile"] for p in pictures if p["kind"] == kind})
        for n, tile in enumerate(tile for tile in tiles if tile not in part):
            part[tile] = "validation" if n % 2 else "test"
    rest, total = sorted({p["tile"] for p in pictures if p["tile"] not in part}), 0
    for tile in np.random.default_rng(0).permutation(rest):
        part[int(tile)] = "fit" if total < 200 else "validation" if total < 310 else "test"
        total += sum(p["tile"] == tile for p in pictures)
    found = {
        name: [p for p in pictures if part[p["tile"]] == name]
        for name in ("fit", "validation", "test")
    }
    return {**found, "fit": found["fit"][:200]}


@cache
def tile_parts() -> dict[str, list[Picture]]:
    return parts_of(read_tiles(os.environ["TILES"]))


def pixels(pictures: list[Picture]) -> list[np.ndarray]:
    return [p["pixels"] for p in pictures]


def aurocs(
    pictures: list[Picture], scores: np.ndarray, maps: list[np.ndarray] | None
) -> dict[str, Any]:
    """Of pictures, all and by kind (against all normal ones), and of pixels."""
    kinds = np.array([p["kind"] for p in pictures])
    odd, found = kinds != "free", {}
    for kind in KINDS:
        some = (kinds == kind) | ~odd
        found[kind] = auroc(odd[some], scores[some])
    error = standard_error(kinds, np.array([p["tile"] for p in pictures]), scores)
    result: dict[str, Any] = {
        "image": auroc(odd, scores),
        "standard error": error,
        "by kind": found,
    }
    if maps is not None:
        truth = np.concatenate([p["mask"].ravel() for p in pictures])
        result["pixel"] = auroc(truth, np.concatenate([m.ravel() for m in maps]))
    return result


def standard_error(kinds: np.ndarray, tiles: np.ndarray, scores: np.ndarray) -> float:
    """Of the AUROC of pictures: the tiles of each kind are resampled, since pictures of one tile
    are alike."""
    random, found = np.random.default_rng(0), []
    groups = [
        [np.flatnonzero((kinds == k) & (tiles == t)) for t in set(tiles[kinds == k])]
        for k in ("free", *KINDS)
    ]
    for _ in range(RESAMPLES):
        some = np.concatenate(
            [group[n] for group in groups for n in random.integers(0, len(group), len(group))]
        )
        found.append(auroc(kinds[some] != "free", scores[some]))
    return round(float(np.std(found)), 4)


def auroc(truth: np.ndarray, scores: np.ndarray) -> float:
    return round(float(roc_auc_score(truth, scores)), 4)


def detector_result(count: int) -> dict[str, Any]:
    """Of each part, fitted to `count` normal pictures; seconds are those of the processor."""
    parts = tile_parts()
    normal = pixels(parts["fit"])
    few = np.random.default_rng(0).choice(len(normal), count, replace=False)
    start = time.process_time()
    detector = ww.AnomalyDetector().fit(
        normal if count == len(normal) else [normal[n] for n in few]
    )
    rows: dict[str, Any] = {"seconds of fit": round(time.process_time() - start, 1)}
    for part in ("validation", "test"):
        start, pictures = time.process_time(), parts[part]
        found = list(detector.detect(ww.anomaly.open_pictures(pixels(pictures))))
        seconds, scores = time.process_time() - start, np.array([one.score for one in found])
        over, odd = (
            scores > detector.threshold_.value,
            np.array([p["kind"] != "free" for p in pictures]),
        )
        rows[part] = {
            **aurocs(pictures, scores, [one.anomaly_map.numpy() for one in found]),
            "false alarms": round(float(over[~odd].mean()), 4),
            "found": round(float(over[odd].mean()), 4),
            "seconds a picture": round(seconds / len(pictures), 4),
        }
    return {**rows, "threshold": vars(detector.threshold_)}


# The other methods --------------------------------------------------------------------------------


def planes(picture: np.ndarray, scale: int) -> torch.Tensor:
    """The logarithm of the brightness without its mean, at a smaller size, [1, 1, H, W]."""
    x = torch.from_numpy(np.log(picture + 4 / 255))[None, None].to(DEVICE)
    x = F.avg_pool2d(x, scale, ceil_mode=True, count_include_pad=False)
    return F.pad(
        x - x.mean(),
        [0, max(0, PATCH - x.shape[3]), 0, max(0, PATCH - x.shape[2])],
        mode="replicate",
    )


def raw_patches(picture: np.ndarray, scale: int) -> torch.Tensor:
    """[D, rows, columns]"""
    x = planes(picture, scale)
    rows, columns = ((side - PATCH) // STEP + 1 for side in x.shape[2:])
    return F.unfold(x, PATCH, stride=STEP)[0].unflatten(1, (rows, columns))


@cache
def scattering(scale: int, octaves: int) -> tuple[Any, int, int]:
    """The transform for all tiles at a scale, and the height and width that it needs."""
    from kymatio.torch import Scattering2D

    sizes = np.array([p["pixels"].shape for part in tile_parts().values() for p in part])
    height, width = (-(-int(side) // scale) + PATCH for side in sizes.max(0))
    return Scattering2D(J=octaves, L=8, shape=(height, width)).to(DEVICE), height, width


def scattering_patches(picture: np.ndarray, scale: int, octaves: int) -> torch.Tensor:
    x, (transform, height, width) = planes(picture, scale), scattering(scale, octaves)
    rows, columns = (-(-side // 2**octaves) for side in x.shape[2:])
    x = F.pad(x, [0, width - x.shape[3], 0, height - x.shape[2]], mode="replicate")
    found: torch.Tensor = transform(x)[0, 0, :, :rows, :columns]
    return F.avg_pool2d((found.abs() + 1e-3).log(), 3, 1, 1, count_include_pad=False)


def up(values: torch.Tensor, size: tuple[int, ...]) -> np.ndarray:
    smooth = F.avg_pool2d(values[None, None], 3, 1, 1, count_include_pad=False)
    return F.interpolate(smooth, size, mode="bilinear")[0, 0].cpu().numpy()


def nearest(
    patches: Callable[[np.ndarray, int], torch.Tensor], scale: int, bank_size: int = BANK
) -> Maps:
    """The distance of standardised patches from the nearest of `bank_size` normal ones."""

    def maps(normal: Sequence[np.ndarray], pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        known = torch.cat([patches(x, scale).flatten(1) for x in normal], 1).mT
        mean, deviation = known.mean(0), known.std(0) + 1e-6
        bank = known[
            torch.randperm(len(known), generator=torch.Generator().manual_seed(0))[:bank_size].to(
                DEVICE
            )
        ]
        found = []
        for x in pictures:
            p = patches(x, scale)
            far = torch.cdist((p.flatten(1).mT - mean) / deviation, (bank - mean) / deviation).amin(
                1
            )
            found.append(up(far.view(p.shape[1:]), x.shape))
        return found

    return maps


def principal(components: int, scale: int) -> Maps:
    """The error of patches in the plane of normal ones."""

    def maps(normal: Sequence[np.ndarray], pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        plane = PCA(components, random_state=0).fit(
            np.concatenate([raw_patches(x, scale).flatten(1).mT.cpu() for x in normal])
        )
        found = []
        for x in pictures:
            p = raw_patches(x, scale)
            flat = p.flatten(1).mT.cpu().numpy()
            error = np.square(flat - plane.inverse_transform(plane.transform(flat))).sum(1)
            found.append(up(torch.from_numpy(error.astype(np.float32)).view(p.shape[1:]), x.shape))
        return found

    return maps


def tile_methods() -> dict[str, dict[str, Maps]]:
    """Method → setting → maps."""
    return {
        "nearest raw patches": {f"scale {s}": nearest(raw_patches, s) for s in (2, 4)},
        "PCA of patches": {
            f"{n} components, scale {s}": principal(n, s) for n in (4, 12, 24) for s in (2, 4)
        },
        "nearest scattering patches": {
            f"J {j}, scale {s}, bank {b}": nearest(partial(scattering_patches, octaves=j), s, b)
            for j, s, b in itertools.product((2, 3), (1, 2, 4), (1500, 10_000))
        },
    }


def validate_maps(method: str, setting: str) -> dict[str, float]:
    """AUROC of pictures of the validation part, by the quantile of a map that is a picture's
    score."""
    parts = tile_parts()
    maps = tile_methods()[method][setting](pixels(parts["fit"]), pixels(parts["validation"]))
    odd = np.array([p["kind"] != "free" for p in parts["validation"]])
    return {
        f"{setting}, quantile {q}": auroc(odd, np.array([np.quantile(m, q) for m in maps]))
        for q in QUANTILES
    }


def test_maps(method: str, best: str) -> dict[str, Any]:
    parts, (setting, q) = tile_parts(), best.rsplit(", quantile ", 1)
    maps = tile_methods()[method][setting](pixels(parts["fit"]), pixels(parts["test"]))
    return aurocs(parts["test"], np.array([np.quantile(m, float(q)) for m in maps]), maps)


def descriptor_methods() -> dict[str, Any]:
    """One-class SVM and isolation forest on means and maxima of the detector's energies."""
    parts, rows = tile_parts(), {}
    filters = ww.AnomalyDetector().fit(pixels(parts["fit"])[::10]).scorers_[0].extract

    def describe(part: list[Picture]) -> np.ndarray:
        energies = [filters(torch.from_numpy(p["pixels"])[None]).energy.flatten(1) for p in part]
        return np.stack([torch.cat([e.mean(1), e.amax(1)]).numpy() for e in energies])

    x = {name: describe(part) for name, part in parts.items()}
    mean, deviation = x["fit"].mean(0), x["fit"].std(0) + 1e-6
    x = {name: (values - mean) / deviation for name, values in x.items()}
    methods: dict[str, dict[str, Any]] = {
        "one-class SVM on our descriptors": {
            f"nu {nu}, gamma {g:.4f}": OneClassSVM(nu=nu, gamma=g)
            for nu in (0.01, 0.1, 0.5)
            for g in (0.001, 0.01, 0.05)
        },
        "isolation forest on our descriptors": {
            f"{n} trees": IsolationForest(n_estimators=n, random_state=0) for n in (100, 300)
        },
    }
    for method, settings in methods.items():
        scores = {
            s: -model.fit(x["fit"]).score_samples(x["validation"]) for s, model in settings.items()
        }
        tried = {
            setting: aurocs(parts["validation"], score, None)["image"]
            for setting, score in scores.items()
        }
        best = max(tried, key=tried.__getitem__)
        test = aurocs(parts["test"], -settings[best].score_samples(x["test"]), None)
        rows[method] = {"validation": tried, "setting": best, "test": test}
    return rows
