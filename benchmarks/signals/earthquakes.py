"""Arrivals of earthquakes in seismograms with picks by experts: the documented commands with the
option of the page, next to STA/LTA.

    python -m benchmarks.signals.earthquakes FOLDER/waveform_train \\
        --out benchmarks/signals/results/earthquakes.json

The files are those of the PhaseNet repository (Zhu and Beroza 2019), folder
`dataset/waveform_train`: 90 s of three channels at 100 Hz, with the sample of the P wave. They are
drawn in groups of seven by a seed, one recording [7, 3, 9001] each; the settings were chosen on
other seeds of the same files. A P wave is found if an event
begins within 0.5 s of it; all other events count as false, also those of an S wave or of another
earthquake in the same file.

whatwhere  `whatwhere train --louder 2s`, then `whatwhere events`; its column `onset_seconds`
sta/lta    power of the differences of all channels over 1 s, divided by that over 10 s before; on
           above 5, off below 1.5
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

RATE = 100.0
NEAR = 0.5  # seconds
GROUP = 7


def group_of(files: list[Path], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return recordings [7, 3, T] and the seconds of their P waves."""
    chosen = np.random.default_rng(seed).choice(len(files), GROUP, replace=False)
    recordings, arrivals = [], []
    for number in chosen:
        with np.load(files[number]) as file:
            recordings.append(file["data"].T)
            arrivals.append(int(file["itp"]) / RATE)
    return np.stack(recordings).astype(np.float32), np.array(arrivals)


def by_commands(recordings: np.ndarray) -> list[np.ndarray]:
    from benchmarks.signals.recordings import table_by_commands

    table = table_by_commands(recordings, RATE, "--louder", "2s")
    return [table["onset_seconds"][table["signal"] == n] for n in range(len(recordings))]


def by_sta_lta(recordings: np.ndarray) -> list[np.ndarray]:
    short, long = round(RATE), round(10 * RATE)
    found = []
    for recording in recordings:
        power = np.square(np.diff(recording, axis=1, prepend=recording[:, :1])).sum(0)
        sums = np.append(0, power.cumsum())
        at = np.arange(long, recording.shape[1] - short)
        before = (sums[at] - sums[at - long]) / long
        ratio = (sums[at + short] - sums[at]) / short / np.maximum(before, 1e-30)
        begins = []
        on = False
        for place, value in zip(at, ratio, strict=True):
            if not on and value > 5:
                begins.append((place + short / 2) / RATE)
            on = value > (1.5 if on else 5)
        found.append(np.array(begins))
    return found


METHODS = {"whatwhere": by_commands, "sta/lta": by_sta_lta}


def compare(arrivals: np.ndarray, found: list[np.ndarray]) -> dict[str, int]:
    """Count the P waves that were found, and the other events."""
    hits = 0
    for arrival, own in zip(arrivals, found, strict=True):
        hits += bool(len(own)) and bool(np.abs(own - arrival).min() <= NEAR)
    return {"found": hits, "false": sum(map(len, found)) - hits}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(200, 208)))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.npz"))
    rows: list[dict[str, Any]] = []
    for seed in args.seeds:
        recordings, arrivals = group_of(files, seed)
        for method, find in METHODS.items():
            begun = time.process_time()
            row: dict[str, Any] = {"seed": seed, "method": method, "earthquakes": GROUP}
            row |= compare(arrivals, find(recordings))
            row |= {"processor_seconds": time.process_time() - begun}
            rows.append(row)
            print(row, flush=True)
            if args.out:
                args.out.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
