"""Anomaly detection by five folds over magnetic tiles, and on steel surfaces, all on equal terms.

    python -m benchmarks.defects.anomaly_folds magnetic-tiles.zip steel-surfaces.zip [PROCESSES]

The pretrained network is that of `examples/pretrained_features.py`; without its packages its rows
are left out. PCA and nearest raw patches get the settings that are best in the inner folds: for a
fold k, detectors of normal pictures outside of k and k' score k', for every other k'. Results go to
benchmarks/defects/results/anomaly_folds.json as they come, with the score of every picture. What
was measured before an interruption is kept in a file beside it (.jobs) and not measured again.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import (
    QUANTILES,
    Picture,
    nearest,
    pixels,
    principal,
    raw_patches,
    read_tiles,
)
from benchmarks.defects.tile_folds import (
    FOLDS,
    auroc,
    folds_of,
    measures,
    normal_pictures,
    region_overlap,
)

RESULTS = Path(__file__).parent / "results" / "anomaly_folds.json"
ODD = (0.0, 0.05, 0.1)  # shares of odd pictures among those that are fitted to
CONTAMINATION = 0.1  # what the detector is told
STEEL_SETTINGS = {
    "nearest raw patches": ("scale 2",),
    "PCA of patches": ("12 components, scale 2", "24 components, scale 2"),
}
EVERY = 40.0  # seconds between the tables that are written
STEEL_FIT = 60  # pictures of a kind of steel that are fitted to; the other 40 are scored

Maps = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]


# Methods ------------------------------------------------------------------------------------------


def detector(features: str, **settings: Any) -> ww.AnomalyDetector:
    """With its own features, those of the network, or both."""
    given = {"own": None, "network": network, "joined": ["own", network]}[features]
    return ww.AnomalyDetector(features=given, **settings)


@cache
def _example() -> Any:
    file = Path(__file__).parents[2] / "examples" / "pretrained_features.py"
    spec = importlib.util.spec_from_file_location("pretrained_features", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network(pictures: torch.Tensor) -> list[torch.Tensor]:
    return list(_example().efficientnet(pictures))


def has_network() -> bool:
    return importlib.util.find_spec("efficientnet_lite_pytorch") is not None


def baselines() -> dict[str, dict[str, Maps]]:
    """Method → setting → maps of pictures by normal ones."""
    return {
        "nearest raw patches": {f"scale {s}": nearest(raw_patches, s) for s in (2, 4)},
        "PCA of patches": {
            f"{n} components, scale {s}": principal(n, s) for n in (4, 12, 24) for s in (2, 4)
        },
    }


# Tiles --------------------------------------------------------------------------------------------


@cache
def tiles() -> list[Picture]:
    return read_tiles(os.environ["TILES"])


@cache
def tile_folds() -> np.ndarray:
    return folds_of(tiles())


def fold_result(pictures: list[Picture], scores: np.ndarray, maps: Any) -> dict[str, Any]:
    """What the table needs of a fold: scores, and the AUROC of pixels and PRO of its maps."""
    truth = [p["mask"] for p in pictures]
    joined = np.concatenate([t.ravel() for t in truth])
    heat = np.concatenate([m.ravel() for m in maps])
    return {
        "scores": [round(float(score), 4) for score in scores],
        "pixel": round(auroc(joined, heat), 4),
        "PRO": round(region_overlap(truth, maps), 4),
    }


def detect_fold(features: str, fold: int, odd: float = 0.0, told: float = 0.0) -> dict[str, Any]:
    """A fold scored by a detector of 200 pictures of the others.

    odd   share of the 200 that have a defect
    told  the detector's `contamination`
    """
    torch.set_num_threads(1)
    pictures, folds = tiles(), tile_folds()
    fitted = normal_pictures(pictures, folds, {fold})
    replaced = round(odd * len(fitted))
    if replaced:
        others = [n for n, p in enumerate(pictures) if p["kind"] != "free" and folds[n] != fold]
        drawn = np.random.default_rng(fold).choice(others, replaced, replace=False)
        places = np.random.default_rng(fold).choice(len(fitted), replaced, replace=False)
        for place, number in zip(places, drawn, strict=True):
            fitted[place] = int(number)
    new = [pictures[n] for n in np.flatnonzero(folds == fold)]
    start = time.process_time()
    model = detector(features, contamination=told).fit([pictures[n]["pixels"] for n in fitted])
    middle = time.process_time()
    found = list(model.detect(ww.anomaly.open_pictures(pixels(new))))
    seconds = time.process_time() - middle
    scores = np.array([one.score for one in found])
    normal = np.array([p["kind"] == "free" for p in new])
    left_out = set(range(len(fitted))) - set(model.fitted_.tolist())
    return {
        **fold_result(new, scores, [one.anomaly_map.numpy() for one in found]),
        "evidence": {
            kind: [round(o.evidence[kind], 3) for o in found] for kind in found[0].evidence
        },
        "false alarms": round(float((scores[normal] > model.threshold_.value).mean()), 4),
        "found": round(float((scores[~normal] > model.threshold_.value).mean()), 4),
        "odd left out": sum(pictures[fitted[n]]["kind"] != "free" for n in left_out),
        "processor seconds of fit": round(middle - start, 1),
        "processor seconds a picture": round(seconds / len(new), 4),
    }


def baseline_scores(method: str, setting: str, left_out: tuple[int, ...]) -> dict[str, Any]:
    """All pictures of the folds that are left out, by every quantile of their maps."""
    torch.set_num_threads(1)
    pictures, folds = tiles(), tile_folds()
    fitted = [pictures[n]["pixels"] for n in normal_pictures(pictures, folds, left_out)]
    rows: dict[str, Any] = {}
    for fold in left_out:
        new = [pictures[n] for n in np.flatnonzero(folds == fold)]
        maps = baselines()[method][setting](fitted, pixels(new))
        scores = {str(q): np.array([np.quantile(m, q) for m in maps]) for q in QUANTILES}
        odd = np.array([p["kind"] != "free" for p in new])
        rows[str(fold)] = {
            "image": {q: round(auroc(odd, values), 4) for q, values in scores.items()},
            "by quantile": {q: fold_result(new, v, maps) for q, v in scores.items()}
            if len(left_out) == 1
            else {},
        }
    return rows


def chosen(results: dict[tuple[str, tuple[int, ...]], Any], settings: Sequence[str]) -> list[Any]:
    """The result of every fold with the setting and the quantile that are best in its inner
    folds."""
    found = []
    for fold in range(FOLDS):
        others = [k for k in range(FOLDS) if k != fold]
        inner = {
            (setting, str(q)): np.mean(
                [results[setting, pair(fold, k)][str(k)]["image"][str(q)] for k in others]
            )
            for setting in settings
            for q in QUANTILES
        }
        setting, q = max(inner, key=inner.__getitem__)
        row = results[setting, (fold,)][str(fold)]["by quantile"][q]
        found.append({**row, "setting": f"{setting}, quantile {q}"})
    return found


def pair(a: int, b: int) -> tuple[int, int]:
    return (min(a, b), max(a, b))


def table_row(by_fold: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The line of a table, from the results of the folds."""
    pictures, folds = tiles(), tile_folds()
    scores = np.zeros(len(pictures))
    for fold, row in enumerate(by_fold):
        scores[folds == fold] = row["scores"]
    result = measures(pictures, folds, scores, None)
    for name in ("pixel", "PRO", "false alarms", "found", "odd left out"):
        values = [row[name] for row in by_fold if name in row]
        if values:
            result |= {name: round(float(np.mean(values)), 4), f"{name}, folds": values}
    return result


def ways_to_join(own: Sequence[Any], network: Sequence[Any]) -> dict[str, float]:
    """AUROC of images by other ways than the detector's to join the scores of both sources."""

    def ranks(values: np.ndarray) -> np.ndarray:
        return values.argsort().argsort() / len(values)

    ways: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "sum": np.add,
        "maximum": np.maximum,
        "ranks within the fold": lambda a, b: ranks(a) + ranks(b),
        "soft maximum": np.logaddexp,
    }
    found = {}
    for name, way in ways.items():
        rows = [
            {"scores": way(np.array(a["scores"]), np.array(b["scores"]))}
            for a, b in zip(own, network, strict=True)
        ]
        found[name] = table_row(rows)["image"]
    return found


# Steel --------------------------------------------------------------------------------------------


@cache
def steel() -> dict[str, list[np.ndarray]]:
    """The pictures of every kind, in an order that is drawn once."""
    from PIL import Image

    archive = zipfile.ZipFile(os.environ["STEEL"])
    found: dict[str, list[np.ndarray]] = {}
    for name in sorted(archive.namelist()):
        if name.endswith(".jpg"):
            picture = Image.open(io.BytesIO(archive.read(name))).convert("L")
            values = np.asarray(picture).astype(np.float32) / 255
            found.setdefault(name.split("/")[0], []).append(values)
    order = np.random.default_rng(0).permutation(100)
    return {kind: [pictures[n] for n in order] for kind, pictures in found.items()}


def steel_row(method: str, normal: str) -> dict[str, dict[str, float]]:
    """One kind is normal: AUROC of the 40 others of it against 40 of each other kind, by the
    setting of the method."""
    torch.set_num_threads(1)
    pictures = steel()
    fitted = pictures[normal][:STEEL_FIT]
    new = {kind: some[STEEL_FIT:] for kind, some in pictures.items()}
    if method in ("own", "network", "joined"):
        model = detector(method).fit(fitted)
        return {"": steel_aurocs({k: -model.score_samples(p) for k, p in new.items()}, normal)}
    found = {}
    for setting in STEEL_SETTINGS[method]:
        maps = {k: baselines()[method][setting](fitted, p) for k, p in new.items()}
        for q in QUANTILES:
            scores = {k: np.array([np.quantile(m, q) for m in some]) for k, some in maps.items()}
            found[f"{setting}, quantile {q}"] = steel_aurocs(scores, normal)
    return found


def steel_aurocs(scores: dict[str, np.ndarray], normal: str) -> dict[str, float]:
    truth = np.repeat([0, 1], len(scores[normal]))
    return {
        kind: round(float(roc_auc_score(truth, np.concatenate([scores[normal], values]))), 4)
        for kind, values in scores.items()
        if kind != normal
    }


def steel_table(rows: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The table of a method with the setting that is best on average: a bound for it, since the
    pictures that are scored choose."""
    means = {
        setting: np.mean([value for row in rows.values() for value in row[setting].values()])
        for setting in next(iter(rows.values()))
    }
    best = max(means, key=means.__getitem__)
    table: dict[str, Any] = {normal: row[best] for normal, row in rows.items()}
    return {**table, "mean": round(float(means[best]), 4), "setting": best}


# All of it ----------------------------------------------------------------------------------------


def jobs() -> Iterator[tuple[tuple[Any, ...], Callable[..., Any], tuple[Any, ...]]]:
    """(key, function, arguments), the long ones first."""
    methods = ("joined", "network", "own") if has_network() else ("own",)
    for method in methods:
        for fold in range(FOLDS):
            yield ("tiles", method, fold), detect_fold, (method, fold)
    for odd in ODD:
        for told in (CONTAMINATION, 0.0) if odd else (CONTAMINATION,):
            for fold in range(FOLDS):
                yield ("unsorted", odd, told, fold), detect_fold, ("own", fold, odd, told)
    for method in (*methods, *baselines()):
        for kind in steel():
            yield ("steel", method, kind), steel_row, (method, kind)
    left_out = [(k,) for k in range(FOLDS)]
    left_out += [(a, b) for a in range(FOLDS) for b in range(a + 1, FOLDS)]
    for method, settings in baselines().items():
        for setting in settings:
            for some in left_out:
                yield ("baseline", method, setting, some), baseline_scores, (method, setting, some)


def summary(found: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """The tables of what is there so far, and the raw results that they come from."""
    result: dict[str, Any] = {"tiles": {}, "unsorted": {}, "steel": {}, "raw": {}}

    def folds(*key: Any) -> list[Any] | None:
        rows = [found.get((*key, fold)) for fold in range(FOLDS)]
        return None if any(row is None for row in rows) else rows

    for method in ("own", "network", "joined"):
        if rows := folds("tiles", method):
            result["tiles"][method] = table_row(rows)
            result["raw"][method] = rows
    if "own" in result["raw"] and "network" in result["raw"]:
        result["ways to join"] = ways_to_join(result["raw"]["own"], result["raw"]["network"])
    for method, settings in baselines().items():
        some = {key[2:]: value for key, value in found.items() if key[:2] == ("baseline", method)}
        if len(some) == 15 * len(settings):
            rows = chosen(some, list(settings))
            result["tiles"][method] = table_row(rows)
            result["raw"][method] = rows
    for odd in ODD:
        for told in (0.0, CONTAMINATION):
            if rows := folds("unsorted", odd, told):
                name = f"{odd:.0%} odd, contamination {told}"
                result["unsorted"][name] = table_row(rows)
                result["raw"][name] = rows
    for key, row in found.items():
        if key[0] == "steel":
            result["steel"].setdefault(key[1], {})[key[2]] = row
    complete = {m: rows for m, rows in result["steel"].items() if len(rows) == len(steel())}
    result["steel"] = {method: steel_table(rows) for method, rows in complete.items()}
    return result


def key_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """A key as it was before JSON made lists of its tuples."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def measured_before(file: Path) -> dict[tuple[Any, ...], Any]:
    """Results of jobs by their keys, from an earlier run that was interrupted."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {key_of(key): value for key, value in map(json.loads, lines)}


def main(tile_file: str, steel_file: str, processes: str = "2", out: str = str(RESULTS)) -> None:
    os.environ.update(TILES=tile_file, STEEL=steel_file, OMP_NUM_THREADS="1")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    kept = Path(out).with_suffix(".jobs")
    found = measured_before(kept)
    due = time.monotonic() + EVERY
    with ProcessPoolExecutor(int(processes), get_context("spawn")) as pool:
        waiting: dict[Future[Any], tuple[Any, ...]] = {
            pool.submit(work, *arguments): key
            for key, work, arguments in jobs()
            if key not in found
        }
        for done in as_completed(waiting):
            key = waiting[done]
            found[key] = done.result()
            with kept.open("a") as file:
                file.write(json.dumps([key, found[key]]) + "\n")
            print(*key, flush=True)
            # Tables take seconds: now and then is enough, so that an interruption keeps most.
            if time.monotonic() > due:
                Path(out).write_text(json.dumps(summary(found)) + "\n")
                due = time.monotonic() + EVERY
    Path(out).write_text(json.dumps(summary(found)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
