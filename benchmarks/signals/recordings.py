"""Events of recordings: the documented commands, with nothing set by hand, next to a threshold with
clustering and to alphacsc.

    pip install alphacsc
    python -m benchmarks.signals.recordings --seed 5318 --out
    benchmarks/signals/results/recordings.json
    python -m benchmarks.signals.recordings --out benchmarks/signals/results/recordings.json --table

Twenty simulated recordings (`simulated_recordings.py`). Settings were chosen on the seeds 0 and 11
to 13; the results are those of a fresh seed, run once. An event is found if a detected one lies
within a tenth of its waveform's length (at least 2 samples), each counted once. `sorted` counts
only those of the right waveform, where every detected waveform stands for the true one that it is
found at most often.

whatwhere  `whatwhere train FILE --out RUN`, then `whatwhere events FILE RUN --out EVENTS`; a
           .npy file has no rate, so that `--rate` is given
threshold  as in spike sorting: a Butterworth band-pass of the third order whose edges are chosen
           for the true length of the waveforms, peaks above 4.5 deviations of the noise (median),
           pieces in 5 principal components, a Gaussian mixture with the number of components
           by BIC. It is given the true length
alphacsc   dictionary of the true number of waveforms, of the true length, after the same band-pass;
           `lgcd`, 20 iterations, reg = 0.1 of its largest useful. Events are activations above a
           share of the largest of their waveform: the share, of those in SHARES, that gives the
           largest F1 with the true events. Gaps are filled with 0

Times are those of a process with `--threads` threads, after one run on a small recording; seconds
of the processor are disturbed less by other programs. With
NumPy 2.4 or later alphacsc 0.4.1 needs `norm_Dk[k, 0]` in place of `norm_Dk[k]` in `_init_beta`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import commit, machine
from benchmarks.signals.simulated_recordings import SCENES, Recording, recording

TOLERANCE = 0.1  # of a waveform's length
WARM_UP = "short spikes"  # a small recording
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # of alphacsc's largest activation


class Found(NamedTuple):
    """Detected events: the sample and the waveform of each."""

    sample: np.ndarray
    waveform: np.ndarray


# The methods --------------------------------------------------------------------------------------


def by_commands(given: Recording, folder: Path) -> Found:
    folder.mkdir(parents=True)
    file = write_file(given, folder)
    rate = ["--rate", str(given.scene.rate)] if file.suffix == ".npy" else []
    run_command("train", str(file), *rate, "--out", str(folder / "run"), "--quiet")
    events = folder / "events.csv"
    run_command("events", str(file), str(folder / "run"), "--out", str(events))
    table = np.genfromtxt(events, delimiter=",", names=True)
    table = np.atleast_1d(table)
    # seconds are what people use; the first sample is at 0
    return Found(table["seconds"] * given.scene.rate, table["waveform"].astype(int))


def table_by_commands(values: np.ndarray, rate: float, *options: str) -> np.ndarray:
    """The table of events of an array of a recording, by `train` with some options and `events`."""
    with tempfile.TemporaryDirectory() as folder:
        file, run, out = f"{folder}/recording.npy", f"{folder}/run", f"{folder}/events.csv"
        np.save(file, values.astype(np.float32))
        given = ["--rate", str(rate), "--quiet"]
        run_command("train", file, "--out", run, *given, *options)
        run_command("events", file, run, "--out", out, *given)
        return np.atleast_1d(np.genfromtxt(out, delimiter=",", names=True))


def run_command(*words: str) -> None:
    from typer.testing import CliRunner

    from whatwhere.app import app

    result = CliRunner().invoke(app, words)
    if result.exit_code:
        raise SystemExit(f"whatwhere {' '.join(words)}: {result.output} {result.exception!r}")


def write_file(given: Recording, folder: Path) -> Path:
    """The recording as its scene says: .npy [C, T]; .wav of 16 bits; .csv with times."""
    file = folder / f"recording{given.scene.file}"
    if given.scene.file == ".npy":
        np.save(file, given.values)
    elif given.scene.file == ".wav":
        from scipy.io import wavfile

        largest = np.abs(given.values).max()
        samples = np.rint(given.values / largest * 32767).astype(np.int16)
        wavfile.write(file, int(given.scene.rate), samples.T)
    else:
        seconds = np.arange(given.values.shape[1]) / given.scene.rate
        names = ",".join(["time (s)", *(f"channel {c} (mV)" for c in range(len(given.values)))])
        np.savetxt(
            file, np.vstack([seconds, given.values]).T, "%.6g", ",", header=names, comments=""
        )
    return file


def by_threshold(given: Recording, folder: Path) -> Found:
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    x = band_passed(given)
    length = given.scene.length
    noise = np.median(np.abs(x), axis=1, keepdims=True) / 0.6745
    strength = np.abs(x / noise).max(0)
    peaks = local_peaks(strength, 4.5, length // 2)
    peaks = peaks[(peaks > length) & (peaks < x.shape[1] - length)]
    place = peaks[:, None] + np.arange(-length // 2, length // 2)
    pieces = x[:, place].transpose(1, 0, 2).reshape(len(peaks), -1)
    parts = PCA(5, random_state=0).fit_transform(pieces)
    mixtures = [GaussianMixture(n, random_state=0, n_init=2).fit(parts) for n in range(1, 8)]
    best = min(mixtures, key=lambda mixture: mixture.bic(parts))
    return Found(peaks.astype(float), best.predict(parts))


def by_alphacsc(given: Recording, folder: Path) -> Found:
    from alphacsc import BatchCDL

    x = band_passed(given)
    length = given.scene.length
    atoms = len(given.truth.shapes)
    size = min(x.shape[1], 1 << 15)
    windows = [x[:, at : at + size] for at in range(0, x.shape[1] - size + 1, size)]
    learned = BatchCDL(
        n_atoms=atoms,
        n_times_atom=length,
        rank1=False,
        uv_constraint="auto",
        n_iter=20,
        reg=0.1,
        lmbd_max="scaled",
        solver_z="lgcd",
        solver_z_kwargs={"tol": 1e-2, "max_iter": 10**6},
        window=True,
        D_init="chunk",
        random_state=0,
        n_jobs=1,
        verbose=0,
    )
    learned.fit(np.stack(windows))
    z = learned.transform(x[None])[0]
    tables = [activations_above(share, z, learned.D_hat_, length) for share in SHARES]
    return max(tables, key=partial(f1_of, given))


def activations_above(share: float, z: np.ndarray, shapes: np.ndarray, length: int) -> Found:
    """Peaks of activations [n, T] above a share of the largest, at the peaks of the waveforms."""
    samples = []
    numbers = []
    for number, activation in enumerate(z):
        peak = np.abs(shapes[number]).max(0).argmax()
        places = local_peaks(activation, share * activation.max(), length // 2)
        samples.append(places + peak)
        numbers.append(np.full(len(places), number))
    return Found(np.concatenate(samples).astype(float), np.concatenate(numbers))


def band_passed(given: Recording) -> np.ndarray:
    """Without what is slower than 8 lengths of a waveform or faster than a twelfth of one."""
    from scipy.signal import butter, sosfiltfilt

    x = np.nan_to_num(given.values.astype(float) - np.nanmedian(given.values, 1, keepdims=True))
    high = min(0.9, 2 * 12 / given.scene.length)
    edges = [2 / (8 * given.scene.length), high]
    filtered: np.ndarray = sosfiltfilt(butter(3, edges, "bandpass", output="sos"), x)
    return filtered


def local_peaks(values: np.ndarray, least: float, distance: int) -> np.ndarray:
    from scipy.signal import find_peaks

    return find_peaks(values, height=least, distance=max(1, distance))[0]


METHODS = {"whatwhere": by_commands, "threshold": by_threshold, "alphacsc": by_alphacsc}


# Against the truth --------------------------------------------------------------------------------


def compare(given: Recording, found: Found) -> dict[str, float]:
    """Precision and recall of the events, and of those of the right waveform."""
    near = max(2.0, TOLERANCE * given.scene.length)
    true = given.truth
    pairs = match(true.sample, found.sample, near)
    count = len(pairs)
    waveforms = len(true.shapes)
    table = np.zeros((int(found.waveform.max(initial=0)) + 1, waveforms), int)
    for i, j in pairs:
        table[found.waveform[j], true.waveform[i]] += 1
    right = int(table.max(1).sum())
    return {
        "true": len(true.sample),
        "found": len(found.sample),
        "precision": count / max(1, len(found.sample)),
        "recall": count / len(true.sample),
        "sorted_precision": right / max(1, len(found.sample)),
        "sorted_recall": right / len(true.sample),
        "waveforms": len(np.unique(found.waveform)),
        "error_samples": float(
            np.median([abs(true.sample[i] - found.sample[j]) for i, j in pairs] or [np.nan])
        ),
    }


def f1_of(given: Recording, found: Found) -> float:
    scores = compare(given, found)
    both = scores["precision"] + scores["recall"]
    return 2 * scores["precision"] * scores["recall"] / both if both else 0.0


def match(true: np.ndarray, found: np.ndarray, near: float) -> list[tuple[int, int]]:
    """Pairs of a true and a detected event, the nearest first, each in one pair."""
    distance = np.abs(true[:, None] - found)
    i, j = np.nonzero(distance <= near)
    pairs = []
    used_i = set[int]()
    used_j = set[int]()
    for k in np.argsort(distance[i, j]):
        if i[k] not in used_i and j[k] not in used_j:
            pairs.append((int(i[k]), int(j[k])))
            used_i.add(i[k])
            used_j.add(j[k])
    return pairs


class Job(NamedTuple):
    """One method on one recording."""

    method: str
    name: str
    seed: int


@cache
def warm_up(method: str) -> None:
    """Run a method once in this process on a small recording, so that compiled code is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        METHODS[method](recording(WARM_UP), Path(folder) / "warm-up")


def run_job(job: Job) -> dict[str, Any]:
    """A row of the table."""
    given = recording(job.name, job.seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm_up(job.method)
        begun = time.perf_counter()
        begun_processor = time.process_time()
        found = METHODS[job.method](given, Path(folder) / "timed")
        seconds = time.perf_counter() - begun
        processor_seconds = time.process_time() - begun_processor
    row = {"recording": job.name, "method": job.method, **compare(given, found)}
    row |= {"samples": given.values.size, "seconds": seconds}
    return row | {"processor_seconds": processor_seconds, "commit": commit()}


# The table ----------------------------------------------------------------------------------------

HEADING = [
    "recording",
    "`whatwhere`",
    "right waveform",
    "threshold",
    "alphacsc",
    "processor seconds",
]


def table_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Precision and recall of all methods in per cent, as a table of Markdown; seconds are those of
    the methods in the same order. A dash stands for what was not measured."""
    found = {(row["recording"], row["method"]): row for row in rows}
    lines = [f"| {' | '.join(HEADING)} |", "|" + " --- |" * len(HEADING)]
    for name in SCENES:
        cells = [name]
        times = []
        for method in METHODS:
            row = found.get((name, method))
            if row is None:
                cells.append("–")
                times.append("–")
                continue
            cells.append(f"{100 * row['precision']:.1f} / {100 * row['recall']:.1f}")
            times.append(f"{row['processor_seconds']:.1f}")
            if method == "whatwhere":
                cells.append(f"{100 * row['sorted_recall']:.1f}")
        cells.append(", ".join(times))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--names", nargs="+", default=list(SCENES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with its recordings")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--table", action="store_true", help="print the table of OUT, run nothing")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table_lines(json.loads(args.out.read_text())["rows"])))
        return
    # the largest first, so that processes end at about the same time
    names = sorted(args.names, key=lambda name: -SCENES[name].length * SCENES[name].channels)
    jobs = [Job(method, name, args.seed) for method in args.methods for name in names]
    rows: list[dict[str, Any]] = []
    if args.out and args.out.exists():
        done = {(job.name, job.method) for job in jobs}
        rows = json.loads(args.out.read_text())["rows"]
        rows = [row for row in rows if (row["recording"], row["method"]) not in done]
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.jobs, limit_threads, (args.threads,)) as pool:
        for row in pool.imap_unordered(run_job, jobs):
            rows.append(row)
            print({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()})
            sys.stdout.flush()
            if args.out:
                settings = {"seed": args.seed, "jobs": args.jobs, "threads": args.threads}
                table = {"machine": machine(), **settings, "rows": rows}
                args.out.write_text(json.dumps(table, indent=1))


def limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
