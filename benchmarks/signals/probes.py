"""Spikes on a probe of 32 channels, with known times: `whatwhere train --probe` and `events`, next
to a threshold with clustering on each channel.

    python -m benchmarks.signals.probes --seeds 0 1 2 --out benchmarks/signals/results/probes.json

A recording is drawn here: 60 s at 30 kHz of two columns of sixteen contacts, 20 µm apart (32 µm
between the columns), in noise of 10 µV, half of which all channels share within 0.1 mm. Twenty
units lie up to 25 µm beside the probe and fire at 1 to 8 Hz, at least 2 ms apart. A spike has 60 to
250 µV at its source, half of it 30 µm away, and arrives later the farther away it is (0.4 m/s).
A unit counts as visible if its largest peak exceeds five deviations of the noise; precision counts
spikes of all units, recall those of visible ones. Accuracy is as in `tetrodes.py`. Training and the
mixture see 60 s; the events of the first 20 s are compared.

whatwhere  the documented commands, with the probe as a .csv file and nothing else
mixture    on each channel: a band-pass of 300 to 6,000 Hz; peaks above 4.5 deviations that no peak
           of a channel within 50 µm exceeds within 0.5 ms; pieces of 2 ms of the channels within
           50 µm in ten principal components; and a Gaussian mixture with up to six components, by
           BIC
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Drawn:
    """How a recording is drawn; lengths in µm, times in seconds, sizes in µV."""

    rate: float = 30_000.0
    seconds: float = 60.0
    searched: float = 20.0
    rows: int = 16
    units: int = 20
    noise: float = 10.0
    visible: float = 5.0
    near: float = 0.4e-3


class Probe(NamedTuple):
    """A recording [C, T] of a probe, its places [C, 2], and its spikes."""

    values: np.ndarray
    places: np.ndarray
    sample: np.ndarray
    unit: np.ndarray
    visible: np.ndarray  # of each unit


def places_of(how: Drawn) -> np.ndarray:
    rows = np.arange(how.rows) * 20.0
    return np.array([(x, y) for y in rows for x in (0.0, 32.0)])


def template(
    place: np.ndarray, places: np.ndarray, how: Drawn, rng: np.random.Generator
) -> np.ndarray:
    """A spike on all channels, [C, K]: a trough and a slower peak."""
    distance = np.sqrt(((places - place[:2]) ** 2).sum(1) + place[2] ** 2)
    size = rng.uniform(60, 250) * 0.5 ** (distance / 30)
    t = np.arange(-30, 60) / how.rate
    since = t - (distance[:, None] - distance.min()) * 1e-6 / 0.4
    width, later, share = rng.uniform((0.08e-3, 0.3e-3, 0.2), (0.2e-3, 0.6e-3, 0.5))
    trough = np.exp(-0.5 * (since / width) ** 2)
    peak = share * np.exp(-0.5 * ((since - later) / (2 * width)) ** 2)
    shape: np.ndarray = size[:, None] * (peak - trough)
    return shape


def draw(seed: int, how: Drawn) -> Probe:
    rng = np.random.default_rng(seed)
    places = places_of(how)
    length = round(how.seconds * how.rate)
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    shared = np.linalg.cholesky(np.exp(-distance / 100) + 1e-9 * np.eye(len(places)))
    values = np.empty((len(places), length), np.float32)
    for first in range(0, length, 1 << 16):
        size = min(1 << 16, length - first)
        own = rng.standard_normal((len(places), size))
        both = shared @ rng.standard_normal((len(places), size))
        values[:, first : first + size] = how.noise * 0.5**0.5 * (own + both)
    samples, units, visible = [], [], []
    for unit in range(how.units):
        low, high = (-15.0, -10.0, 5.0), (47.0, places[:, 1].max() + 10, 25.0)
        shape = template(rng.uniform(low, high), places, how, rng)
        visible.append(np.abs(shape).max() > how.visible * how.noise)
        interval = 2e-3 + rng.exponential(1 / rng.uniform(1, 8), round(10 * how.seconds))
        at = (np.cumsum(interval) * how.rate).astype(int)
        at = at[at < length - 100]
        at = at[at > 50]
        for one in at:
            values[:, one - 30 : one + 60] += shape * rng.normal(1, 0.05)
        samples.append(at)
        units.append(np.full(len(at), unit))
    sample, unit_of = np.concatenate(samples), np.concatenate(units)
    order = np.argsort(sample, kind="stable")
    return Probe(values, places, sample[order], unit_of[order], np.array(visible))


# The methods --------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The sample and the number of each event, and processor seconds of the two steps."""

    sample: np.ndarray
    unit: np.ndarray
    seconds: tuple[float, float]


def by_commands(given: Probe, how: Drawn) -> Found:
    from benchmarks.signals.recordings import run_command

    with tempfile.TemporaryDirectory() as folder:
        file, probe, out = (f"{folder}/{name}" for name in ("p.npy", "probe.csv", "events.csv"))
        np.save(file, given.values)
        rows = [f"{n},{x},{y}" for n, (x, y) in enumerate(given.places)]
        Path(probe).write_text("\n".join(["channel,x,y", *rows]) + "\n")
        rate = ["--rate", str(how.rate), "--quiet"]
        begun = time.process_time()
        run_command("train", file, "--probe", probe, "--out", f"{folder}/run", *rate)
        trained = time.process_time()
        run_command(
            "events", file, f"{folder}/run", "--out", out, "--end", str(how.searched), *rate
        )
        done = time.process_time()
        table = np.atleast_1d(np.genfromtxt(out, delimiter=",", names=True))
    order = np.argsort(table["sample"])
    waveform = table["waveform"].astype(int)
    return Found(table["sample"][order], waveform[order], (trained - begun, done - trained))


def by_mixture(given: Probe, how: Drawn) -> Found:
    from scipy.ndimage import maximum_filter1d
    from scipy.signal import butter, sosfiltfilt
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    begun = time.process_time()
    band = butter(3, [300, 6000], "bandpass", fs=how.rate, output="sos")
    x = sosfiltfilt(band, given.values.astype(np.float32), axis=1).astype(np.float32)
    noise = np.median(np.abs(x), axis=1, keepdims=True) / 0.6745
    x /= noise
    strength = np.abs(x)
    around = maximum_filter1d(strength, 31, axis=1)
    distance = np.linalg.norm(given.places[:, None] - given.places, axis=2)
    samples, numbers = [], []
    for channel in range(len(x)):
        near = np.flatnonzero(distance[channel] <= 50)
        is_peak = (strength[channel] > 4.5) & (strength[channel] == around[near].max(0))
        at = np.flatnonzero(is_peak)
        at = at[(at > 30) & (at < x.shape[1] - 40)]
        if len(at) < 20:
            continue
        pieces = x[near[:, None, None], at[:, None] + np.arange(-24, 36)]
        parts = PCA(10, random_state=0).fit_transform(
            pieces.transpose(1, 0, 2).reshape(len(at), -1)
        )
        fits = [GaussianMixture(n, random_state=0).fit(parts) for n in range(1, 7)]
        best = min(fits, key=lambda fit: fit.bic(parts))
        samples.append(at)
        numbers.append(10 * channel + best.predict(parts))
    sample, number = np.concatenate(samples), np.concatenate(numbers)
    order = np.argsort(sample)
    return Found(sample[order], number[order], (0.0, time.process_time() - begun))


METHODS = {"whatwhere": by_commands, "mixture": by_mixture}


# Against the truth --------------------------------------------------------------------------------


def compare(given: Probe, found: Found, how: Drawn) -> dict[str, Any]:
    from scipy.optimize import linear_sum_assignment

    from benchmarks.signals.recordings import match
    from benchmarks.signals.tetrodes import match_in_parts

    pairs = partial(match_in_parts, match, near=how.near * how.rate)
    last = how.searched * how.rate
    given = given._replace(sample=given.sample[given.sample < last])
    given = given._replace(unit=given.unit[: len(given.sample)])
    inside = found.sample < last
    found = found._replace(sample=found.sample[inside], unit=found.unit[inside])
    right = len(pairs(given.sample, found.sample))
    seen = given.visible[given.unit]
    recalled = len(pairs(given.sample[seen], found.sample))
    units, numbers = np.flatnonzero(given.visible), np.unique(found.unit)
    accuracy = np.zeros((len(units), len(numbers)))
    for row, unit in enumerate(units):
        own = given.sample[given.unit == unit]
        for column, number in enumerate(numbers):
            other = found.sample[found.unit == number]
            both = len(pairs(own, other))
            accuracy[row, column] = both / max(1, len(own) + len(other) - both)
    rows, columns = linear_sum_assignment(-accuracy)
    best = np.zeros(len(units))
    best[rows] = accuracy[rows, columns]
    return {
        "spikes": len(given.sample),
        "of_visible_units": int(seen.sum()),
        "visible_units": len(units),
        "found": len(found.sample),
        "precision": right / max(1, len(found.sample)),
        "recall": recalled / int(seen.sum()),
        "waveforms": len(numbers),
        "accuracy": float(best.mean()),
        "accuracy_of_units": best.round(3).tolist(),
        "processor_seconds": found.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    how = Drawn(seconds=args.seconds)
    rows = []
    for seed in args.seeds:
        given = draw(seed, how)
        for method in args.methods:
            row = {"seed": seed, "method": method, "seconds": args.seconds}
            row |= compare(given, METHODS[method](given, how), how)
            rows.append(row)
            print(row, flush=True)
            if args.out:
                args.out.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
