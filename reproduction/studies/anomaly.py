"""Anomaly detection compared: magnetic tiles, textures, and digits of an unknown class.

    python -m reproduction.studies.anomaly tiles magnetic-tiles.zip     # needs kymatio for one method
    python -m reproduction.studies.anomaly textures FOLDER              # brick.png, ... of scikit-image's data
    python -m reproduction.studies.anomaly digits [CLASSES]

Tiles: the photographs of Huang et al., *Saliency of magnetic tile surface defects*. A tile was photographed at about
six exposures, so the parts (fit, validation, test) are made by tile. Settings of all methods are chosen on the
validation part, by the AUROC of pictures; the test part is used once. All methods get the same 200 normal pictures.
Textures: settings are chosen on grass. Results are in reproduction/results/anomaly.json.
"""

from __future__ import annotations

import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

import whatwhere as ww

RESULTS = Path(__file__).parents[1] / "results" / "anomaly.json"
KINDS = ("fray", "crack", "uneven", "break", "blowhole")
QUANTILES = (0.9, 0.99, 1.0)  # of a map: the score of its picture
PATCH, STEP, BANK = 8, 4, 1500
Picture = dict[str, Any]
Maps = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]  # normal pictures, pictures → maps


# Tiles ----------------------------------------------------------------------------------------------------------


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
    """200 normal pictures to fit, then validation and test, each with half of the tiles of every defect."""
    part: dict[int, str] = {}
    for kind in KINDS:
        tiles = sorted({p["tile"] for p in pictures if p["kind"] == kind})
        for n, tile in enumerate(tile for tile in tiles if tile not in part):
            part[tile] = "validation" if n % 2 else "test"
    rest, total = sorted({p["tile"] for p in pictures if p["tile"] not in part}), 0
    for tile in np.random.default_rng(0).permutation(rest):
        part[int(tile)] = "fit" if total < 200 else "validation" if total < 310 else "test"
        total += sum(p["tile"] == tile for p in pictures)
    found = {name: [p for p in pictures if part[p["tile"]] == name] for name in ("fit", "validation", "test")}
    return {**found, "fit": found["fit"][:200]}


def aurocs(pictures: list[Picture], scores: np.ndarray, maps: list[np.ndarray] | None) -> dict[str, Any]:
    """Of pictures, all and by kind (against all normal ones), and of pixels."""
    kinds = np.array([p["kind"] for p in pictures])
    odd, found = kinds != "free", {}
    for kind in KINDS:
        some = (kinds == kind) | ~odd
        found[kind] = auroc(odd[some], scores[some])
    result: dict[str, Any] = {"image": auroc(odd, scores), "by kind": found}
    if maps is not None:
        truth = np.concatenate([p["mask"].ravel() for p in pictures])
        result["pixel"] = auroc(truth, np.concatenate([m.ravel() for m in maps]))
    return result


def auroc(truth: np.ndarray, scores: np.ndarray) -> float:
    return round(float(roc_auc_score(truth, scores)), 4)


def detector_result(normal: Sequence[np.ndarray], parts: dict[str, list[Picture]]) -> dict[str, Any]:
    """Of each part; seconds are those of the processor, for fit and for a picture."""
    start = time.process_time()
    detector = ww.AnomalyDetector().fit(normal)
    rows: dict[str, Any] = {"seconds of fit": round(time.process_time() - start, 1)}
    for part in parts:
        start, pictures = time.process_time(), parts[part]
        found = list(detector.detect(ww.anomaly.open_pictures([p["pixels"] for p in pictures])))
        seconds, scores = time.process_time() - start, np.array([one.score for one in found])
        over, odd = scores > detector.threshold_.value, np.array([p["kind"] != "free" for p in pictures])
        rows[part] = {
            **aurocs(pictures, scores, [one.anomaly_map.numpy() for one in found]),
            "false alarms": round(float(over[~odd].mean()), 4),
            "found": round(float(over[odd].mean()), 4),
            "seconds a picture": round(seconds / len(pictures), 4),
        }
    return {**rows, "threshold": vars(detector.threshold_)}


# The other methods ----------------------------------------------------------------------------------------------


def planes(picture: np.ndarray, scale: int) -> torch.Tensor:
    """The logarithm of the brightness without its mean, at a smaller size, [1, 1, H, W]."""
    x = torch.from_numpy(np.log(picture + 4 / 255))[None, None]
    x = F.avg_pool2d(x, scale, ceil_mode=True, count_include_pad=False)
    return F.pad(x - x.mean(), [0, max(0, PATCH - x.shape[3]), 0, max(0, PATCH - x.shape[2])], mode="replicate")


def raw_patches(picture: np.ndarray, scale: int) -> torch.Tensor:
    """[D, rows, columns]"""
    x = planes(picture, scale)
    rows, columns = ((side - PATCH) // STEP + 1 for side in x.shape[2:])
    return F.unfold(x, PATCH, stride=STEP)[0].unflatten(1, (rows, columns))


def scattering_patches(size: tuple[int, int], scale: int, octaves: int) -> Callable[[np.ndarray, int], torch.Tensor]:
    from kymatio.torch import Scattering2D

    height, width = (-(-side // scale) + PATCH for side in size)
    transform = Scattering2D(J=octaves, L=8, shape=(height, width))

    def patches(picture: np.ndarray, scale: int) -> torch.Tensor:
        x = planes(picture, scale)
        rows, columns = (-(-side // 2**octaves) for side in x.shape[2:])
        x = F.pad(x, [0, width - x.shape[3], 0, height - x.shape[2]], mode="replicate")
        found = transform(x)[0, 0, :, :rows, :columns]
        return F.avg_pool2d((found.abs() + 1e-3).log(), 3, 1, 1, count_include_pad=False)

    return patches


def up(values: torch.Tensor, size: tuple[int, ...]) -> np.ndarray:
    smooth = F.avg_pool2d(values[None, None], 3, 1, 1, count_include_pad=False)
    return F.interpolate(smooth, size, mode="bilinear")[0, 0].numpy()


def nearest(patches: Callable[[np.ndarray, int], torch.Tensor], scale: int, bank_size: int = BANK) -> Maps:
    """The distance of standardised patches from the nearest of `bank_size` normal ones."""

    def maps(normal: Sequence[np.ndarray], pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        known = torch.cat([patches(x, scale).flatten(1) for x in normal], 1).mT
        mean, deviation = known.mean(0), known.std(0) + 1e-6
        bank = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(0))[:bank_size]]
        found = []
        for x in pictures:
            p = patches(x, scale)
            far = torch.cdist((p.flatten(1).mT - mean) / deviation, (bank - mean) / deviation).amin(1)
            found.append(up(far.view(p.shape[1:]), x.shape))
        return found

    return maps


def principal(components: int, scale: int) -> Maps:
    """The error of patches in the plane of normal ones."""

    def maps(normal: Sequence[np.ndarray], pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
        plane = PCA(components, random_state=0).fit(
            np.concatenate([raw_patches(x, scale).flatten(1).mT for x in normal])
        )
        found = []
        for x in pictures:
            p = raw_patches(x, scale)
            flat = p.flatten(1).mT.numpy()
            error = np.square(flat - plane.inverse_transform(plane.transform(flat))).sum(1)
            found.append(up(torch.from_numpy(error.astype(np.float32)).view(p.shape[1:]), x.shape))
        return found

    return maps


def tile_methods(size: tuple[int, int]) -> dict[str, dict[str, Maps]]:
    methods = {
        "nearest raw patches": {f"scale {s}": nearest(raw_patches, s) for s in (2, 4)},
        "PCA of patches": {f"{n} components, scale {s}": principal(n, s) for n in (4, 12, 24) for s in (2, 4)},
    }
    try:
        scattering = {
            f"J {j}, scale {s}, bank {b}": nearest(scattering_patches(size, s, j), s, b)
            for j in (2, 3)
            for s in (2, 1, 4)
            for b in (1500, 10_000)
        }
    except ImportError:
        return methods
    return {**methods, "nearest scattering patches": scattering}


def map_methods(parts: dict[str, list[Picture]]) -> Iterator[tuple[str, Any]]:
    pixels = {name: [p["pixels"] for p in part] for name, part in parts.items()}
    every = [x.shape for part in pixels.values() for x in part]
    for method, settings in tile_methods((max(s[0] for s in every), max(s[1] for s in every))).items():
        tried = {}
        for setting, maps in settings.items():
            found = maps(pixels["fit"], pixels["validation"])
            for q in QUANTILES:
                scores = np.array([np.quantile(m, q) for m in found])
                tried[f"{setting}, quantile {q}"] = (aurocs(parts["validation"], scores, None)["image"], setting, q)
        best = max(tried, key=lambda name: tried[name][0])
        _, setting, q = tried[best]
        found = settings[setting](pixels["fit"], pixels["test"])
        test = aurocs(parts["test"], np.array([np.quantile(m, q) for m in found]), found)
        yield method, {"validation": {name: row[0] for name, row in tried.items()}, "setting": best, "test": test}


def descriptor_methods(parts: dict[str, list[Picture]]) -> Iterator[tuple[str, Any]]:
    """One-class SVM and isolation forest on means and maxima of the detector's energies."""
    filters = ww.AnomalyDetector().fit([p["pixels"] for p in parts["fit"]][::10]).filters_

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
        scores = {s: -model.fit(x["fit"]).score_samples(x["validation"]) for s, model in settings.items()}
        tried = {setting: aurocs(parts["validation"], score, None)["image"] for setting, score in scores.items()}
        best = max(tried, key=tried.__getitem__)
        test = aurocs(parts["test"], -settings[best].score_samples(x["test"]), None)
        yield method, {"validation": tried, "setting": best, "test": test}


def tiles(path: str) -> Iterator[tuple[str, Any]]:
    parts = parts_of(read_tiles(path))
    normal = [p["pixels"] for p in parts["fit"]]
    yield "pictures", {name: len(part) for name, part in parts.items()}
    few = np.random.default_rng(0).choice(200, 10, replace=False)
    seen = {name: parts[name] for name in ("validation", "test")}
    yield "AnomalyDetector", detector_result(normal, seen)
    yield "AnomalyDetector, 10 normal pictures", detector_result([normal[n] for n in few], seen)
    yield from descriptor_methods(parts)
    yield from map_methods(parts)


# Textures and digits of before ----------------------------------------------------------------------------------

SIDE, COUNT = 64, 24
DEFECTS = ("blurred", "scratched", "turned")


def texture_tiles(file: Path, half: int, seed: int) -> np.ndarray:
    """Tiles [N, H, W] at random places in the left (0) or right (1) half of a texture."""
    picture, generator = ww.data.load(file)[0].mean(0).numpy(), np.random.default_rng(seed)
    width = picture.shape[1] // 2
    side = picture[:, half * width : (half + 1) * width]
    places = generator.integers(0, np.array(side.shape) - SIDE + 1, (COUNT, 2))
    return np.stack([side[y : y + SIDE, x : x + SIDE] for y, x in places])


def damage(normal: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The tiles with a defect each (a blurred disc, a scratch, a disc turned by a quarter), and where it is."""
    from scipy.ndimage import gaussian_filter

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


def textures(folder: Path) -> dict[str, Any]:
    """AUROC of pixels."""
    rows = {}
    for name, seed in (("grass", 0), ("brick", 10), ("gravel", 10)):
        file = folder / f"{name}.png"
        pictures, masks = damage(texture_tiles(file, 1, seed), seed + 1)
        maps = np.stack(ww.AnomalyDetector().fit(texture_tiles(file, 0, seed + 2)).anomaly_map(pictures))
        parts = {"all": slice(None), **{kind: slice(n, None, 3) for n, kind in enumerate(DEFECTS)}}
        rows[name] = {kind: auroc(masks[p].ravel(), maps[p].ravel()) for kind, p in parts.items()}
        print(name, rows[name], flush=True)
    return rows


def digits(unknown: int) -> dict[str, Any]:
    """One class of the first 2,000 training digits unknown: AUROC on the 2,000 test digits."""
    known, test = ww.data.load("digits"), ww.data.load("digits", split="test")
    assert known.labels is not None
    assert test.labels is not None
    start = time.process_time()
    detector = ww.AnomalyDetector(aligned=True).fit(known[:2000][known.labels[:2000] != unknown])
    scores = -detector.score_samples(test[:2000])
    row = {"auroc": auroc(test.labels[:2000] == unknown, scores)}
    return {**row, "processor seconds": round(time.process_time() - start, 1)}


def main(part: str, rest: list[str]) -> None:
    def store(name: str, value: Any) -> None:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = {**results.get(name, {}), **value}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")

    if part == "tiles":
        for name, row in tiles(rest[0]):
            print(name, row, flush=True)
            store("tiles", {name: row})
    if part == "textures":
        store("textures, pixels", textures(Path(rest[0])))
    if part == "digits":
        for unknown in map(int, rest or range(10)):
            row = digits(unknown)
            print(unknown, row, flush=True)
            store("digits, one class unknown", {str(unknown): row})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
