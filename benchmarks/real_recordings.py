"""Heart beats and earthquakes in real recordings: the documented commands, with nothing set by
hand, next to the detectors of the packages that the recordings come with.

    pip install heartpy PyWavelets obspy
    python benchmarks/real_recordings.py --out benchmarks/results/real_recordings.json

Beats are compared with those of heartpy (those that it accepts), within 75 ms; the beats of a
recording are the events of the waveform that agrees with them best, and all others are reported.
`pywt.data.ecg()` is 1,024 samples of an ECG of 360 Hz (MIT-BIH); heartpy's files are a pulse
recording of 100 Hz, one of 117 Hz and one with noise. The seismogram of obspy is compared with the
trigger of short and long averages (recursive STA/LTA, 0.5 s and 10 s).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import machine
from recordings import match, run_command

NEAR = 0.075  # seconds


class Recorded(NamedTuple):
    """Samples [T], samples per second, and the seconds of the events of another detector."""

    values: np.ndarray
    rate: float
    others: np.ndarray
    near: float = NEAR


def pywt_ecg() -> Recorded:
    import pywt

    values = np.asarray(pywt.data.ecg(), float)
    return Recorded(values, 360.0, heartpy_beats(values, 360.0))


def heartpy_file(number: int) -> Recorded:
    import heartpy

    values, timer = heartpy.load_exampledata(number)
    rate = 100.0
    if number == 1:
        rate = heartpy.get_samplerate_mstimer(timer)
    elif number == 2:
        rate = heartpy.get_samplerate_datetime(timer, timeformat="%Y-%m-%d %H:%M:%S.%f")
    values = np.asarray(values, float)
    return Recorded(values, float(rate), heartpy_beats(values, float(rate)))


def heartpy_beats(values: np.ndarray, rate: float) -> np.ndarray:
    import heartpy

    work, _ = heartpy.process(heartpy.scale_data(values), rate)
    accepted = np.array(work["binary_peaklist"], bool)
    return np.asarray(work["peaklist"])[accepted] / rate


def seismogram() -> Recorded:
    import obspy
    from obspy.signal.trigger import recursive_sta_lta, trigger_onset

    trace = obspy.read()[0]
    trace.detrend("constant")
    rate = float(trace.stats.sampling_rate)
    ratio = recursive_sta_lta(trace.data, int(0.5 * rate), int(10 * rate))
    onsets = np.array([first for first, _ in trigger_onset(ratio, 3.5, 0.5)])
    return Recorded(np.asarray(trace.data, float), rate, onsets / rate, near=1.0)


RECORDINGS = {
    "pywt ECG": pywt_ecg,
    "heartpy 0": lambda: heartpy_file(0),
    "heartpy 1": lambda: heartpy_file(1),
    "heartpy 2 (noise)": lambda: heartpy_file(2),
    "obspy seismogram": seismogram,
}


def by_commands(given: Recorded, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and waveforms of all events."""
    file = folder / "recording.npy"
    np.save(file, given.values.astype(np.float32))
    run = str(folder / "run")
    run_command("train", str(file), "--rate", str(given.rate), "--out", run, "--quiet")
    run_command("encode", run, str(file), "--events", str(folder / "events.csv"))
    table = np.genfromtxt(folder / "events.csv", delimiter=",", names=True)
    table = np.atleast_1d(table)
    return table["seconds"], table["waveform"].astype(int)


def compare(given: Recorded, seconds: np.ndarray, waveform: np.ndarray) -> dict[str, Any]:
    """F1 of all events, and of the waveform that agrees best; the delay is the median one."""
    rows = {}
    numbers: list[Any] = [None, *np.unique(waveform)]
    for number in numbers:
        own = seconds if number is None else seconds[waveform == number]
        # the peak of a waveform need not be the peak that a detector takes: one delay is allowed
        delay = 0.0
        if len(own) and len(given.others):
            nearest = own[np.abs(own[:, None] - given.others).argmin(0)]
            delay = float(np.median(nearest - given.others))
        pairs = len(match(given.others, own - delay, given.near))
        name = "all" if number is None else f"waveform {number}"
        total = len(own) + len(given.others)
        rows[name] = {"events": len(own), "f1": 2 * pairs / max(1, total), "delay": delay}
    best = max(rows, key=lambda name: rows[name]["f1"])
    return {"others": len(given.others), "best": best, **rows[best], "waveforms": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for name, read in RECORDINGS.items():
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                given = read()
                begun = time.perf_counter()
                found = by_commands(given, Path(folder))
                row = {"recording": name, **compare(given, *found)}
                row |= {
                    "seconds": time.perf_counter() - begun,
                    "duration": len(given.values) / given.rate,
                }
            except (Exception, SystemExit) as error:  # a detector that fails is a result
                row = {"recording": name, "error": repr(error)[:300]}
        rows.append(row)
        print(row, flush=True)
        if args.out:
            args.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
