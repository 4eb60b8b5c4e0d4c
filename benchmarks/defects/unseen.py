"""Defects on real pictures: three splits of solar cells, ball screws and roads, five folds of
tiles.

    python -m benchmarks.defects.unseen defects.zip magnetic-tiles.zip [--roads roads.zip]
        [--version NAME] [--sets …] [--features own,network]

`defects.zip` has the folders `solar-mono`, `solar-poly` and `screws`, each with `good`, `bad` and,
for screws, `masks`; `roads.zip`, which `benchmarks.defects.roads` writes, has the same for crops of
photographs of roads with cracks. Of the good pictures, 90 are fitted to, drawn anew for each split;
the others and the bad ones are scored. Screws are split by picture, and in the rows "screws, whole
places" so that those of one place of the spindle in one month stay together: a place was never in
both parts. Crops of one photograph of a road stay together. The folds of tiles are those of
`tile_folds.py`. Results go to benchmarks/defects/results/unseen.json as they come; what is there
is not measured again.
"""

from __future__ import annotations

import argparse
import io
import json
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import beta

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import Picture, pixels, read_tiles
from benchmarks.defects.tile_folds import FOLDS, auroc, folds_of, normal_pictures, region_overlap
from whatwhere.anomaly.evidence import soft_maximum

RESULTS = Path(__file__).parent / "results" / "unseen.json"
FITTED = 90  # normal pictures
SPLITS = 3


def read_set(archive: zipfile.ZipFile, name: str) -> dict[str, dict[str, np.ndarray]]:
    """Pictures by their names, of the parts good, bad and masks."""
    from PIL import Image

    parts: dict[str, dict[str, np.ndarray]] = {"good": {}, "bad": {}, "masks": {}}
    for file in sorted(archive.namelist()):
        folder, _, rest = file.partition("/")
        if folder == name and not file.endswith("/"):
            part, picture = rest.split("/")
            with Image.open(io.BytesIO(archive.read(file))) as opened:
                parts[part][picture.rsplit(".", 1)[0]] = np.asarray(opened)
    return parts


def itself(name: str) -> str:
    """Nothing else stays together with a picture."""
    return name


def place_of_screw(name: str) -> str:
    """The place of a screw in a month."""
    words = name.split("_")
    return f"{words[2]}_{words[3]}_{words[1][:4]}"


def photograph_of_road(name: str) -> str:
    """The photograph that a crop comes from."""
    return name.split("_")[0]


PLACES: dict[str, Callable[[str], str]] = {
    "screws, whole places": place_of_screw,
    "roads": photograph_of_road,
}


def split_of(
    names: Sequence[str], seed: int, place_of: Callable[[str], str] = itself
) -> tuple[list[str], list[str]]:
    """About `FITTED` names to fit to, in whole places, and the others."""
    places = sorted({place_of(name) for name in names})
    fitted: list[str] = []
    for place in np.random.default_rng(seed).permutation(places):
        inside = [name for name in names if place_of(name) == place]
        if len(fitted) + len(inside) <= FITTED:
            fitted += inside
    return fitted, [name for name in names if name not in set(fitted)]


def rate(hits: np.ndarray) -> dict[str, Any]:
    """A share with its interval of 95 % (Clopper and Pearson)."""
    k, n = int(hits.sum()), len(hits)
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return {"count": k, "of": n, "interval": [round(low, 4), round(high, 4)]}


@dataclass(frozen=True)
class Split:
    """Normal pictures to fit to, pictures to score, which of them are odd, and masks of defects."""

    fitted: list[np.ndarray]
    pictures: list[np.ndarray]
    odd: np.ndarray
    masks: list[np.ndarray] | None


def split_set(archive: zipfile.ZipFile, name: str, seed: int) -> Split:
    """A split of solar cells, screws or roads."""
    parts = read_set(archive, name.split(",")[0])
    place_of = PLACES.get(name, itself)
    fitted, rest = split_of(list(parts["good"]), seed, place_of)
    good = [parts["good"][n] for n in rest]
    bad = list(parts["bad"])
    if name == "roads":
        photographs = {place_of(n) for n in fitted}
        bad = [n for n in bad if place_of(n) not in photographs]
    masks = None
    if parts["masks"]:
        masks = [np.zeros(x.shape[:2], bool) for x in good]
        masks += [parts["masks"][n] > 127 for n in bad]
    pictures = good + [parts["bad"][n] for n in bad]
    odd = np.arange(len(pictures)) >= len(rest)
    return Split([parts["good"][n] for n in fitted], pictures, odd, masks)


def fold_of_tiles(tiles: list[Picture], fold: int) -> Split:
    """A fold of tiles to score, and 200 normal tiles of the others."""
    folds = folds_of(tiles)
    normal = normal_pictures(tiles, folds, {fold})
    new = [tiles[n] for n in np.flatnonzero(folds == fold)]
    odd = np.array([p["kind"] != "free" for p in new])
    return Split([tiles[n]["pixels"] for n in normal], pixels(new), odd, [p["mask"] for p in new])


def measured(split: Split, **settings: Any) -> dict[str, Any]:
    """A detector of one split."""
    pictures, odd = split.pictures, split.odd
    start = time.process_time()
    model = ww.AnomalyDetector(**settings).fit(split.fitted)
    middle = time.process_time()
    found = list(model.detect(ww.anomaly.open_pictures(pictures)))
    end = time.process_time()
    scores = np.array([one.score for one in found])
    alarms = scores > model.threshold_.value
    low, high = model.threshold_.interval
    row: dict[str, Any] = {
        "fitted": len(split.fitted),
        "image": round(auroc(odd, scores), 4),
        "false alarms": rate(alarms[~odd]),
        "promised": [round(low, 4), round(model.threshold_.false_alarms, 4), round(high, 4)],
        "recall": rate(alarms[odd]),
        "processor seconds of fit": round(middle - start, 1),
        "processor seconds a picture": round((end - middle) / len(found), 3),
    }
    row |= kinds_of(odd, found)
    maps = [one.anomaly_map.numpy() for one in found]
    inside = [values > model.outline_ for values in maps]
    good = [i for i, o in zip(inside, odd, strict=True) if not o]
    row["false area"] = round(float(np.mean([i.mean() for i in good])), 5)
    row["promised area"] = model.false_area
    if split.masks is not None:
        row |= places(split.masks, maps, inside)
    return row


def kinds_of(odd: np.ndarray, found: Sequence[ww.anomaly.Detection]) -> dict[str, Any]:
    """AUROC of each kind of evidence, of a score without curves, and of one in which each kind
    counts alone."""
    kinds = list(found[0].evidence)
    evidence = torch.tensor([list(one.evidence.values()) for one in found]).mT
    without = [n for n, kind in enumerate(kinds) if kind != "curves"]
    return {
        "kinds": {k: round(auroc(odd, e.numpy()), 4) for k, e in zip(kinds, evidence, strict=True)},
        "image without curves": round(auroc(odd, soft_maximum(evidence[without]).numpy()), 4),
        "image, each kind alone": round(auroc(odd, soft_maximum(evidence).numpy()), 4),
    }


def places(
    truth: Sequence[np.ndarray], maps: Sequence[np.ndarray], inside: Sequence[np.ndarray]
) -> dict[str, float]:
    """Pixels, regions, and how well outlines lie on defects."""
    pixel = auroc(
        np.concatenate([t.ravel() for t in truth]), np.concatenate([m.ravel() for m in maps])
    )
    pairs = [(t, i) for t, i in zip(truth, inside, strict=True) if t.any()]
    return {
        "pixel": round(pixel, 4),
        "PRO": round(region_overlap(truth, maps), 4),
        "defects inside outlines": round(float(np.mean([i[t].mean() for t, i in pairs])), 4),
        "IoU": round(float(np.mean([(i & t).sum() / (i | t).sum() for t, i in pairs])), 4),
        "outlines over half of a picture": sum(int(i.mean() > 0.5) for _, i in pairs),
        "touched": round(float(np.mean([bool(i[t].any()) for t, i in pairs])), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("tiles")
    parser.add_argument("--version", default="now", help="the row of results")
    parser.add_argument("--roads")
    parser.add_argument("--sets", default="tiles;screws;screws, whole places;solar-mono;solar-poly")
    parser.add_argument("--features", help="such as own,network; default: the own features")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    features = arguments.features.split(",") if arguments.features else None
    torch.set_num_threads(1)
    archive = zipfile.ZipFile(arguments.archive)
    roads = zipfile.ZipFile(arguments.roads) if arguments.roads else None
    names = [n for n in arguments.sets.split(";") if n] + ["roads"] * (roads is not None)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    rows = results.setdefault(arguments.version, {})
    tiles = read_tiles(arguments.tiles) if "tiles" in names else []
    for seed in range(FOLDS):
        for name in names:
            key = f"{name}, split {seed}"
            if key in rows or (name != "tiles" and seed >= SPLITS):
                continue
            is_tiles = name == "tiles"
            if is_tiles:
                split = fold_of_tiles(tiles, seed)
            else:
                split = split_set(roads if name == "roads" else archive, name, seed)
            rows[key] = measured(split, features=features)
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")
            print(key, json.dumps(rows[key]), flush=True)


if __name__ == "__main__":
    main()
