"""Heart beats in records of the MIT-BIH Arrhythmia Database: the documented commands, with nothing
set by hand, next to published detectors.

    python -m benchmarks.signals.heart_beats mit-bih.npz \\
        --out benchmarks/signals/results/heart_beats.json
    python benchmarks/signals/heart_beats.py mit-bih.npz --method xqrs     # with wfdb alone

The .npz file has both leads of each record, `NNN` [2, T] in int16 with mV = (x - 1024) / 200, and
the beats of the experts, `NNN_beats`. Every event counts as a beat; a beat is found if an event
lies within 150 ms of it, after the median delay, each counted once. The other detectors get the
lead on which they score better.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

RATE = 360.0
NEAR = 0.150  # seconds


def by_commands(millivolts: np.ndarray, run: Path | None = None) -> list[np.ndarray]:
    """Train and find events with the commands; a trained `run` is not trained again."""
    from benchmarks.signals.recordings import run_command

    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/record.npy"
        np.save(file, millivolts.astype(np.float32))
        run = run or Path(folder) / "run"
        if not run.exists():
            run_command("train", file, "--rate", str(RATE), "--out", str(run), "--quiet")
        out = f"{folder}/events.csv"
        run_command("events", file, str(run), "--rate", str(RATE), "--out", out, "--quiet")
        table = np.genfromtxt(f"{folder}/events.csv", delimiter=",", names=True)
    return [np.sort(np.atleast_1d(table)["seconds"])]


def by_xqrs(millivolts: np.ndarray) -> list[np.ndarray]:
    from wfdb.processing import xqrs_detect

    return [xqrs_detect(lead, fs=RATE, verbose=False) / RATE for lead in millivolts]


def by_neurokit(millivolts: np.ndarray) -> list[np.ndarray]:
    import neurokit2

    found = []
    for lead in millivolts:
        clean = neurokit2.ecg_clean(lead, sampling_rate=int(RATE))
        peaks = neurokit2.ecg_findpeaks(clean, sampling_rate=int(RATE))["ECG_R_Peaks"]
        found.append(np.asarray(peaks) / RATE)
    return found


METHODS: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
    "whatwhere": by_commands,
    "xqrs": by_xqrs,
    "neurokit2": by_neurokit,
}


def compare(beats: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 against the beats, both sorted."""
    scores = moved_and_matched(beats, seconds, NEAR)
    return {key: scores[key] for key in ("precision", "recall", "f1")}


def moved_and_matched(true: np.ndarray, found: np.ndarray, near: float) -> dict[str, float]:
    """Precision, recall and F1 of sorted times within `near` of the true ones, after the median
    delay, each counted once."""
    scores = {"true": len(true), "found": len(found), "delay": 0.0}
    if not len(found) or not len(true):
        return {**scores, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    nearest = found[np.abs(found[:, None] - true).argmin(0)]
    scores["delay"] = float(np.median(nearest - true))
    moved = found - scores["delay"]
    both = 0
    at = 0
    for time_of_one in true:
        while at < len(moved) and moved[at] < time_of_one - near:
            at += 1
        if at < len(moved) and moved[at] <= time_of_one + near:
            both += 1
            at += 1
    precision = both / len(found)
    recall = both / len(true)
    f1 = 2 * both / (len(found) + len(true))
    return {**scores, "precision": precision, "recall": recall, "f1": f1}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--records", nargs="+")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--method", default="whatwhere", choices=list(METHODS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, help="folder that keeps the run of each record")
    args = parser.parse_args()
    with np.load(args.file) as file:
        names = sorted(name for name in file.files if name.isdigit())
        for name in args.records or names:
            stop = round(args.minutes * 60 * RATE)
            values = file[name]
            if values.shape[0] > values.shape[1]:
                values = values.T
            beats = file[f"{name}_beats"]
            beats = beats[beats < stop] / RATE
            begun = time.process_time()
            method = METHODS[args.method]
            if args.method == "whatwhere" and args.runs:
                method = partial(by_commands, run=args.runs / name)
            found = method((values[:, :stop] - 1024.0) / 200)
            scores = max((compare(beats, own) for own in found), key=lambda score: score["f1"])
            row: dict[str, Any] = {"record": name, "method": args.method, "minutes": args.minutes}
            row |= {"beats": len(beats), **scores}
            row |= {"processor_seconds": time.process_time() - begun}
            print(row, flush=True)
            if args.out:
                rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
                key = ("record", "method", "minutes")
                rows = [old for old in rows if any(old[k] != row[k] for k in key)]
                args.out.write_text(json.dumps({"rows": [*rows, row]}, indent=1))


if __name__ == "__main__":
    main()
