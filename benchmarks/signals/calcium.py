"""Transients of calcium in cells whose spikes are known: the documented commands, with nothing set
by hand and with the option of the page, next to peaks of the smoothed derivative.

    python -m benchmarks.signals.calcium FOLDER/*.mat \\
        --out benchmarks/signals/results/calcium.json

The files are those of the Cascade repository (Rupprecht et al. 2021), such as its folder
`DS09-GCaMP6f-m-V1`: the mean fluorescence of a cell and the times of its spikes. A recording is
(F - F0) / F0 with F0 its median, at the rate of its times. Spikes less than 0.25 s after the one
before are one event, at its first spike. An event is found if a detection lies within 0.25 s of it,
after the median delay, each counted once.

rise        `whatwhere train --rise 150ms`, then `whatwhere events`; its column `onset_seconds`
whatwhere   the same without the option
derivative  peaks of the derivative of the trace, smoothed by a Gaussian of 50 ms, above three
            deviations of its noise (by the median), at least 0.25 s apart
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NEAR = 0.25  # seconds
SPIKES_PER_SECOND = 1e4  # unit of the files' times of spikes
SMOOTH = 0.05  # seconds


class Trace(NamedTuple):
    """A recording [T], its rate, and the seconds of the true spikes since its first sample."""

    name: str
    values: np.ndarray
    rate: float
    spikes: np.ndarray


def traces(file: Path) -> Iterator[Trace]:
    from scipy.io import loadmat

    for number, cell in enumerate(loadmat(file)["CAttached"][0]):
        one = cell[0, 0]
        seconds = one["fluo_time"].ravel()
        values = one["fluo_mean"].ravel().astype(float)
        known = np.isfinite(seconds[: len(values)]) & np.isfinite(values)
        seconds, values = seconds[known], values[known]
        usual = np.median(values)
        spikes = one["events_AP"].ravel() / SPIKES_PER_SECOND
        inside = (spikes > seconds[0]) & (spikes < seconds[-1])
        rate = 1 / float(np.median(np.diff(seconds)))
        name = f"{file.stem} {number}"
        yield Trace(name, (values - usual) / usual, rate, np.sort(spikes[inside]) - seconds[0])


def by_commands(trace: Trace, options: tuple[str, ...] = ()) -> np.ndarray:
    from benchmarks.signals.recordings import table_by_commands

    return np.sort(table_by_commands(trace.values, trace.rate, *options)["onset_seconds"])


def by_derivative(trace: Trace) -> np.ndarray:
    from scipy.ndimage import gaussian_filter1d
    from scipy.signal import find_peaks

    slope = gaussian_filter1d(trace.values, SMOOTH * trace.rate, order=1)
    noise = np.median(np.abs(slope - np.median(slope))) / 0.6745
    peaks = find_peaks(slope, height=3 * noise, distance=round(NEAR * trace.rate))[0]
    return peaks / trace.rate


METHODS = {
    "rise": partial(by_commands, options=("--rise", "150ms")),
    "whatwhere": by_commands,
    "derivative": by_derivative,
}


def compare(spikes: np.ndarray, found: np.ndarray) -> dict[str, Any]:
    from benchmarks.signals.heart_beats import moved_and_matched

    events = spikes[np.append(True, np.diff(spikes) > NEAR)]
    return {"spikes": len(spikes), **moved_and_matched(events, found, NEAR)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for file in args.files:
        for trace in traces(file):
            for method in args.methods:
                begun = time.process_time()
                found = METHODS[method](trace)
                row = {"trace": trace.name, "method": method, **compare(trace.spikes, found)}
                row |= {"processor_seconds": time.process_time() - begun}
                rows.append(row)
                print(row, flush=True)
                if args.out:
                    args.out.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
