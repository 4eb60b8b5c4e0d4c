"""Labels that are suggested against labels at random: errors on all pictures, against the number of labels.

    python -m reproduction.studies.labelling ROWS.npz --out FILE.json [--sets digits fashion tiles] [--processes 1]

ROWS.npz holds descriptors NAME [N, r] and classes NAME_y [N] of every set (`describe_pictures`). A person is simulated
who always labels the first suggestion with its true class; the first picture of all is drawn at random, by the seed.
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import whatwhere as ww

COUNTS = (5, 10, 15, 20, 25, 30, 40, 50, 60)
ESTIMATED = (20, 30, 60)  # numbers of labels at which the session's own estimate of the error is kept


def simulate(rows: np.ndarray, y: np.ndarray, seed: int, suggested: bool, most: int = 60) -> dict:
    """Errors at some numbers of labels, the estimates of the error, and the longest time from a label to its update."""
    session, order = ww.Labelling(rows), np.random.default_rng(seed).permutation(len(y))
    errors, estimates, slowest = {}, {}, 0.0
    for count in range(1, most + 1):
        row = order[count - 1] if count == 1 or not suggested else session.suggest(1)[0]
        start = time.perf_counter()
        if suggested or count in COUNTS:
            session.label({int(r): str(y[r]) for r in (order[:count] if not suggested else [row])})
        slowest = max(slowest, time.perf_counter() - start)
        if count in COUNTS:
            errors[count] = float(np.mean(session.predict().classes != y.astype(str)))
            if count in ESTIMATED:
                estimates[count] = session.error()
    return {"errors": errors, "estimates": estimates, "slowest_update": slowest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["digits", "fashion", "tiles"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    jobs = [
        (options.rows, name, kind, seed)
        for name in options.sets
        for kind in ("suggested", "random")
        for seed in range(options.seeds)
    ]
    with get_context("spawn").Pool(options.processes) as pool:
        for key, found in pool.imap_unordered(run, jobs, chunksize=1):
            results[key] = found
            print(key, {k: round(100 * v, 2) for k, v in found["errors"].items()}, flush=True)
            options.out.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


def run(job: tuple[Path, str, str, int]) -> tuple[str, dict]:
    """One simulation, and its name in the file of results."""
    file, name, kind, seed = job
    data = np.load(file)
    rows, y = data[name].astype(np.float32), data[f"{name}_y"]
    return f"{name} {kind} {seed}", simulate(rows, y, seed, kind == "suggested")


if __name__ == "__main__":
    main()
