"""Five folds over magnetic tiles, each tile whole in one fold.

A detector of 200 normal pictures of the other folds scores a fold. The photographs are those of
Huang et al., *Saliency of magnetic tile surface defects*. A tile was photographed at about six
exposures: a split by picture would have the same tile in both parts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from scipy.ndimage import label
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from benchmarks.defects.anomaly_tiles import KINDS, Picture

FOLDS = 5
NORMAL = 200  # pictures that a detector is fitted to
RESAMPLES = 300  # of the tiles, for standard errors
LARGEST_RATE = 0.3  # of false alarms of pixels, up to which regions are measured
THRESHOLDS = 100  # at which regions are measured


def folds_of(pictures: Sequence[Picture]) -> np.ndarray:
    """The fold of every picture; the tiles of each kind of defect are dealt out in turn."""
    generator = np.random.default_rng(0)
    fold: dict[int, int] = {}
    turn = 0
    for kind in (*KINDS, "free"):
        tiles = sorted({p["tile"] for p in pictures if p["kind"] == kind} - set(fold))
        for tile in generator.permutation(tiles):
            fold[int(tile)] = turn % FOLDS
            turn += 1
    return np.array([fold[p["tile"]] for p in pictures])


def normal_pictures(
    pictures: Sequence[Picture], fold: np.ndarray, left_out: Collection[int], count: int = NORMAL
) -> list[int]:
    """Numbers of `count` normal pictures of the other folds, tile after tile in a random order."""
    allowed = [n for n, p in enumerate(pictures) if p["kind"] == "free" and fold[n] not in left_out]
    tiles = sorted({pictures[n]["tile"] for n in allowed})
    order = {int(t): at for at, t in enumerate(np.random.default_rng(1).permutation(tiles))}
    allowed.sort(key=lambda n: (order[pictures[n]["tile"]], n))
    return allowed[:count]


def measures(
    pictures: Sequence[Picture],
    fold: np.ndarray,
    scores: np.ndarray,
    maps: Sequence[np.ndarray] | None,
) -> dict[str, Any]:
    """AUROC of pictures, tiles and pixels, and PRO: means over folds, and of pictures by kind."""
    kinds = np.array([p["kind"] for p in pictures])
    tiles = np.array([p["tile"] for p in pictures])
    by_fold = [fold == k for k in range(FOLDS)]
    image = [auroc(kinds[some] != "free", scores[some]) for some in by_fold]
    result: dict[str, Any] = {
        "image": mean(image),
        "standard error": standard_error(kinds, tiles, fold, scores),
        "folds": rounded(image),
        "tile": mean([tile_auroc(kinds[some], tiles[some], scores[some]) for some in by_fold]),
        "by kind": {},
    }
    for kind in KINDS:
        parts = [some & ((kinds == kind) | (kinds == "free")) for some in by_fold]
        parts = [some for some in parts if (kinds[some] == kind).any()]
        result["by kind"][kind] = mean([auroc(kinds[p] == kind, scores[p]) for p in parts])
    if maps is not None:
        numbers = [np.flatnonzero(some) for some in by_fold]
        truth = [[pictures[n]["mask"] for n in some] for some in numbers]
        heat = [[maps[n] for n in some] for some in numbers]
        pixel = [auroc(joined(t), joined(h)) for t, h in zip(truth, heat, strict=True)]
        regions = [region_overlap(t, h) for t, h in zip(truth, heat, strict=True)]
        result |= {"pixel": mean(pixel), "pixel folds": rounded(pixel)}
        result |= {"PRO": mean(regions), "PRO folds": rounded(regions)}
    return result


def tile_auroc(kinds: np.ndarray, tiles: np.ndarray, scores: np.ndarray) -> float:
    """Each tile counts once, by the mean score of its pictures (of one kind)."""
    groups = sorted({(str(kind), int(tile)) for kind, tile in zip(kinds, tiles, strict=True)})
    means = [scores[(kinds == kind) & (tiles == tile)].mean() for kind, tile in groups]
    return auroc(np.array([kind != "free" for kind, _ in groups]), np.array(means))


def standard_error(
    kinds: np.ndarray, tiles: np.ndarray, fold: np.ndarray, scores: np.ndarray
) -> float:
    """Of the mean AUROC: the tiles of each fold are resampled, with defects and without."""
    generator = np.random.default_rng(0)
    groups = [
        [
            [np.flatnonzero(part & (tiles == tile)) for tile in sorted(set(tiles[part]))]
            for part in ((fold == k) & (kinds == "free"), (fold == k) & (kinds != "free"))
        ]
        for k in range(FOLDS)
    ]
    found = []
    for _ in range(RESAMPLES):
        values = []
        for normal, odd in groups:
            drawn = [
                np.concatenate([part[n] for n in generator.integers(0, len(part), len(part))])
                for part in (normal, odd)
            ]
            ranks = rankdata(scores[np.concatenate(drawn)])[len(drawn[0]) :]
            above = ranks.sum() - len(ranks) * (len(ranks) + 1) / 2
            values.append(above / (len(drawn[0]) * len(drawn[1])))
        found.append(np.mean(values))
    return round(float(np.std(found)), 4)


def region_overlap(truth: Sequence[np.ndarray], maps: Sequence[np.ndarray]) -> float:
    """PRO: the mean share of a region of defects that is found, over rates of false alarms of
    pixels of up to `LARGEST_RATE`."""
    clean = np.sort(np.concatenate([m[~t] for m, t in zip(maps, truth, strict=True)]))[::-1]
    rates = np.linspace(0, LARGEST_RATE, THRESHOLDS + 1)[1:]
    thresholds = clean[(rates * len(clean)).astype(int).clip(max=len(clean) - 1)]
    shares = []
    for mask, heat in zip(truth, maps, strict=True):
        regions, count = label(mask, np.ones((3, 3)))
        for number in range(1, count + 1):
            inside = np.sort(heat[regions == number])
            shares.append(1 - np.searchsorted(inside, thresholds, side="right") / len(inside))
    return float(np.mean(shares))


def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays])


def auroc(truth: np.ndarray, scores: np.ndarray) -> float:
    return float(roc_auc_score(truth, scores))


def mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


def rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
