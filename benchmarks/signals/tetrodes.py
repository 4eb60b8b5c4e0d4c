"""Spikes of ten units on a tetrode, with known times: the documented commands, with nothing set by
hand, next to published sorters.

    pip install spikeinterface
    python -m benchmarks.signals.tetrodes draw --folder tetrodes --seeds 0 1 2
    python -m benchmarks.signals.tetrodes sort --folder tetrodes --method whatwhere \\
        --out benchmarks/signals/results/tetrodes.json

`generate_ground_truth_recording` of SpikeInterface draws 30 s of four channels at 30 kHz. A spike
is found if an event lies within 0.4 ms. Precision and recall count events of any waveform. The
accuracy of a unit is TP / (TP + FN + FP) of the waveform that the Hungarian method gives it; the
table has the mean over units, with 0 for a unit without a waveform.

whatwhere  `whatwhere train FILE --rate 30000 --out RUN`, then `encode RUN FILE --events EVENTS`
mixture    a band-pass of 300 to 6,000 Hz, peaks above 4.5 deviations, pieces of 2 ms in ten
           principal components, and a Gaussian mixture with the number of components by BIC
simple     the sorter of that name in SpikeInterface

The settings of whatwhere were chosen on the seeds 10 to 12.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DURATION = 30.0  # seconds
RATE = 30_000.0
UNITS = 10
CHANNELS = 4
NEAR = 0.4e-3  # seconds


class Spikes(NamedTuple):
    """The sample and the unit of each spike, sorted by time."""

    sample: np.ndarray
    unit: np.ndarray


def draw(folder: Path, seed: int) -> None:
    """Write a recording as .npy, in µV, and the true spikes as .npz."""
    from spikeinterface.core import generate_ground_truth_recording

    recording, sorting = generate_ground_truth_recording(
        durations=[DURATION],
        sampling_frequency=RATE,
        num_channels=CHANNELS,
        num_units=UNITS,
        seed=seed,
    )
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{seed}.npy", recording.get_traces().T.astype(np.float32))
    spikes = sorting.to_spike_vector()
    np.savez(folder / f"{seed}.npz", sample=spikes["sample_index"], unit=spikes["unit_index"])


# The methods --------------------------------------------------------------------------------------


def by_commands(file: Path) -> Spikes:
    from benchmarks.signals.recordings import run_command

    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        run_command("train", str(file), "--rate", str(RATE), "--out", run, "--quiet")
        run_command("events", str(file), run, "--out", f"{folder}/events.csv")
        table = np.genfromtxt(f"{folder}/events.csv", delimiter=",", names=True)
    return Spikes(table["sample"], table["waveform"].astype(int))


def by_mixture(file: Path) -> Spikes:
    from scipy.signal import butter, find_peaks, sosfiltfilt
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    band = butter(3, [300, 6000], "bandpass", fs=RATE, output="sos")
    x = sosfiltfilt(band, np.load(file).astype(float))
    noise = np.median(np.abs(x), axis=1, keepdims=True) / 0.6745
    strength = np.abs(x / noise).max(0)
    peaks = find_peaks(strength, height=4.5, distance=15)[0]
    peaks = peaks[(peaks > 30) & (peaks < x.shape[1] - 30)]
    pieces = x[:, peaks[:, None] + np.arange(-24, 36)].transpose(1, 0, 2).reshape(len(peaks), -1)
    parts = PCA(10, random_state=0).fit_transform(pieces)
    mixtures = [GaussianMixture(n, random_state=0, n_init=2).fit(parts) for n in range(1, 17)]
    best = min(mixtures, key=lambda mixture: mixture.bic(parts))
    return Spikes(peaks, best.predict(parts))


def by_simple(file: Path) -> Spikes:
    import spikeinterface.sorters
    from probeinterface import generate_multi_columns_probe
    from spikeinterface.core import NumpyRecording

    probe = generate_multi_columns_probe(2, 2, xpitch=20, ypitch=20)
    probe.set_device_channel_indices(np.arange(CHANNELS))
    recording = NumpyRecording([np.load(file).T], RATE).set_probe(probe)
    recording.set_channel_gains(1.0)
    recording.set_channel_offsets(0.0)
    with tempfile.TemporaryDirectory() as folder:
        sorting = spikeinterface.sorters.run_sorter(
            "simple", recording, folder=f"{folder}/sorter", raise_error=True
        )
        spikes = sorting.to_spike_vector()
    return Spikes(spikes["sample_index"], spikes["unit_index"])


METHODS = {"whatwhere": by_commands, "mixture": by_mixture, "simple": by_simple}


# Against the truth --------------------------------------------------------------------------------


def compare(true: Spikes, found: Spikes) -> dict[str, Any]:
    """Precision and recall of the events, and the accuracy of each unit."""
    from scipy.optimize import linear_sum_assignment

    from benchmarks.signals.recordings import match

    near = NEAR * RATE
    count = len(match_in_parts(match, true.sample, found.sample, near))
    waveforms = np.unique(found.unit)
    accuracy = np.zeros((UNITS, len(waveforms)))
    for unit in range(UNITS):
        own = true.sample[true.unit == unit]
        for column, waveform in enumerate(waveforms):
            other = found.sample[found.unit == waveform]
            both = len(match_in_parts(match, own, other, near))
            accuracy[unit, column] = both / max(1, len(own) + len(other) - both)
    rows, columns = linear_sum_assignment(-accuracy)
    best = np.zeros(UNITS)
    best[rows] = accuracy[rows, columns]
    return {
        "true": len(true.sample),
        "found": len(found.sample),
        "precision": count / max(1, len(found.sample)),
        "recall": count / len(true.sample),
        "waveforms": len(waveforms),
        "accuracy": float(best.mean()),
        "accuracy_of_units": best.round(3).tolist(),
    }


def match_in_parts(
    match: Any, true: np.ndarray, found: np.ndarray, near: float, size: float = 30_000
) -> list[tuple[int, int]]:
    """Pairs of `match`, part by part, in little memory; a pair over a cut is lost."""
    pairs = []
    last = max(true.max(initial=0), found.max(initial=0))
    for first in np.arange(0, last + 1, size):
        own = np.flatnonzero((true >= first) & (true < first + size))
        other = np.flatnonzero((found >= first) & (found < first + size))
        pairs += [(own[i], other[j]) for i, j in match(true[own], found[other], near)]
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=["draw", "sort"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--method", default="whatwhere", choices=list(METHODS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for seed in args.seeds:
        if args.do == "draw":
            draw(args.folder, seed)
            continue
        with np.load(args.folder / f"{seed}.npz") as file:
            true = Spikes(file["sample"], file["unit"])
        begun = time.process_time()
        found = METHODS[args.method](args.folder / f"{seed}.npy")
        row = {"seed": seed, "method": args.method, **compare(true, found)}
        row |= {"processor_seconds": time.process_time() - begun}
        print(row, flush=True)
        if args.out:
            rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
            rows = [old for old in rows if (old["seed"], old["method"]) != (seed, args.method)]
            args.out.write_text(json.dumps({"rows": [*rows, row]}, indent=1))


if __name__ == "__main__":
    main()
