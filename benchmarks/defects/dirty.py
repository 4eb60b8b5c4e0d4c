"""Thresholds from normal pictures among which some have a defect: 5 % mixed in, against none.

    python -m benchmarks.defects.dirty defects.zip [--sets solar-mono,solar-poly] [--splits 3]

Each detector is fitted to the 90 normal pictures of a split of `unseen.py`, once as they are and
once with 4 pictures with a defect among them, which are scored nowhere. "trusted" counts them in
the threshold, "dirty" leaves out the pictures that `fit` names, as it does by default, and
"contamination 0.05" does not learn from the least normal twentieth. Results go to
results/dirty.json as they come; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from benchmarks.defects.tile_folds import auroc
from benchmarks.defects.unseen import rate, split_set

RESULTS = Path(__file__).parent / "results" / "dirty.json"


def measured(archive: zipfile.ZipFile, name: str, seed: int) -> dict[str, Any]:
    """The share of defects found, and false alarms, with clean and with dirty normal pictures."""
    split = split_set(archive, name, seed)
    odd = np.flatnonzero(split.odd)
    dirt = np.random.default_rng(seed).choice(odd, round(0.05 * len(split.fitted)), replace=False)
    kept = np.setdiff1d(np.arange(len(split.odd)), dirt)
    truth = split.odd[kept]
    new = [split.pictures[n] for n in kept]
    dirty = [*split.fitted, *(split.pictures[n] for n in dirt)]

    def row(scores: np.ndarray, threshold: float) -> dict[str, Any]:
        alarms = scores > threshold
        return {"recall": rate(alarms[truth]), "false alarms": rate(alarms[~truth])}

    def scored(model: ww.AnomalyDetector) -> np.ndarray:
        return -model.score_samples(new)

    clean = ww.AnomalyDetector().fit(split.fitted)
    scores = scored(clean)
    rows = {
        "clean": row(scores, clean.threshold_.value) | {"image": round(auroc(truth, scores), 4)}
    }
    mixed = ww.AnomalyDetector().fit(dirty)
    scores = scored(mixed)
    named = mixed.odd_pictures_
    numbers = () if named is None else named.numbers
    rows["dirty"] = row(scores, mixed.threshold_.value) | {
        "image": round(auroc(truth, scores), 4),
        "named": len(numbers),
        "with a defect": sum(number >= len(split.fitted) for number in numbers),
    }
    together = mixed.threshold_ if named is None else named.threshold
    rows["trusted"] = row(scores, together.value)
    trimmed = ww.AnomalyDetector(contamination=0.05).fit(dirty)
    rows["contamination 0.05"] = row(scored(trimmed), trimmed.threshold_.value)
    return rows


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("--sets", default="solar-mono,solar-poly")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    archive = zipfile.ZipFile(arguments.archive)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for seed in range(arguments.splits):
        for name in arguments.sets.split(","):
            key = f"{name}, split {seed}"
            if key not in results:
                results[key] = measured(archive, name, seed)
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")
                print(key, json.dumps(results[key]), flush=True)


if __name__ == "__main__":
    main()
