"""Heart beats and earthquakes in real recordings: the documented commands, with nothing set by
hand, next to published detectors.

    pip install heartpy PyWavelets obspy
    python -m benchmarks.signals.real_recordings --out
    benchmarks/signals/results/real_recordings.json

Every event of the table counts as a beat. Beats are compared with those of heartpy (those that it
accepts) for its pulse recordings, and with those of Pan and Tompkins (1985) for the ECG, within
75 ms, after the median delay, since the peak of a waveform need not be the one that a detector
takes. `pywt.data.ecg()` is 1,024 samples of an ECG of 360 Hz (MIT-BIH); heartpy's files are a clean
pulse of 100 Hz, one of 117 Hz that begins before the sensor is put on, and one that is clipped and
has artefacts. `clean` gives F1 in the stretches of 10 s in which two other detectors (heartpy and
plain peaks of SciPy) agree on every beat: those are clean. `clean_usual_waveform` counts only the
events of the most frequent waveform as beats: others are movements of the sensor. `stretches` gives
the counts every 10 s.

An earthquake is a burst of large events: events of three times the usual amplitude, with less than
2 s between them, are one burst. The bursts of obspy's seismograms are compared with the triggers of
short and long averages (recursive STA/LTA of 0.5 s and 10 s, of the short BW.RJOB 4 s, after a
band-pass of 2 to 20 Hz), within 2 s of their onset; nothing counts before the long average is
known.

Settings were chosen with the first and the third of heartpy's files and with BW.RJOB. After the
first results of the others (F1 1.00 of the ECG, 0.62 of the second file of heartpy) two changes
were made: no events that are small in comparison with the usual one (0.74; no recording lost by
it), and no waveforms of less than a twentieth of the events, for spikes that overlap (0.73); bursts
became those of large events.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import machine
from benchmarks.signals.recordings import match, table_by_commands

NEAR = 0.075  # seconds between two detections of one beat
BURST = 2.0  # seconds without an event that end a burst
LARGE = 3.0  # usual amplitudes of the events of a burst
LONG = 10.0  # seconds of the long average
SHORT_RECORDING = 60.0  # seconds; its long average has 4
STRETCH = 10.0  # seconds of a recording that are clean or not


class Recorded(NamedTuple):
    """Samples [C, T], samples per second, and how the seconds of events are compared."""

    values: np.ndarray
    rate: float
    compare: Callable[[Recorded, Table], dict[str, Any]]


class Table(NamedTuple):
    """Seconds, waveforms and amplitudes of all events."""

    seconds: np.ndarray
    waveform: np.ndarray
    amplitude: np.ndarray

    def of_the_usual_waveform(self) -> Table:
        """The events of the waveform that has most."""
        usual = self.waveform == np.bincount(self.waveform).argmax()
        return Table(*(column[usual] for column in self))


# Heart beats --------------------------------------------------------------------------------------


def pywt_ecg() -> Recorded:
    import pywt

    return Recorded(np.asarray(pywt.data.ecg(), float)[None], 360.0, compare_ecg)


def heartpy_file(number: int) -> Recorded:
    import heartpy

    values, timer = heartpy.load_exampledata(number)
    rate = 100.0
    if number == 1:
        rate = heartpy.get_samplerate_mstimer(timer)
    elif number == 2:
        rate = heartpy.get_samplerate_datetime(timer, timeformat="%Y-%m-%d %H:%M:%S.%f")
    return Recorded(np.asarray(values, float)[None], float(rate), compare_pulse)


class Beats(NamedTuple):
    """Seconds of the peaks that heartpy accepts as beats, and of those that it rejects."""

    accepted: np.ndarray
    rejected: np.ndarray


def heartpy_peaks(x: np.ndarray, rate: float) -> Beats:
    import heartpy

    work, _ = heartpy.process(heartpy.scale_data(x), rate)
    accepted = np.array(work["binary_peaklist"], bool)
    seconds = np.asarray(work["peaklist"]) / rate
    return Beats(seconds[accepted], seconds[~accepted])


def heartpy_beats(x: np.ndarray, rate: float) -> np.ndarray:
    """Seconds of the beats that heartpy accepts."""
    return heartpy_peaks(x, rate).accepted


def plain_peaks(x: np.ndarray, rate: float) -> np.ndarray:
    """Seconds of the peaks of a pulse between 0.5 and 8 Hz: at least 0.4 s apart, and half as
    prominent as the usual ones."""
    from scipy.signal import butter, find_peaks, sosfiltfilt

    smooth = sosfiltfilt(butter(2, [0.5, 8], "bandpass", fs=rate, output="sos"), x)
    distance = 0.4 * rate
    _, peaks = find_peaks(smooth, distance=distance, prominence=0)
    usual = np.median(peaks["prominences"])
    return find_peaks(smooth, distance=distance, prominence=0.5 * usual)[0] / rate


def pan_tompkins(x: np.ndarray, rate: float) -> np.ndarray:
    """Seconds of the R peaks by Pan and Tompkins (1985): band-pass of 5 to 15 Hz, slope, square,
    mean of 150 ms, and two thresholds that follow the peaks of signal and noise."""
    from scipy.signal import butter, find_peaks, sosfiltfilt

    band = sosfiltfilt(butter(2, [5, 15], "bandpass", fs=rate, output="sos"), x)
    width = round(0.15 * rate)
    energy = np.convolve(np.gradient(band) ** 2, np.full(width, 1 / width), "same")
    peaks, _ = find_peaks(energy, distance=round(0.2 * rate))
    signal = energy[: round(2 * rate)].max() / 3
    noise = energy[: round(2 * rate)].mean() / 2
    beats = []
    for peak in peaks:
        if energy[peak] > noise + 0.25 * (signal - noise):
            signal = 0.125 * energy[peak] + 0.875 * signal
            first = max(0, peak - width)
            beats.append(first + int(x[first : peak + width].argmax()))
        else:
            noise = 0.125 * energy[peak] + 0.875 * noise
    return np.unique(beats) / rate


def compare_ecg(given: Recorded, found: Table) -> dict[str, Any]:
    x = given.values[0]
    scores = {
        "Pan and Tompkins": f1(pan_tompkins(x, given.rate), found.seconds),
        "heartpy": f1(heartpy_beats(x, given.rate), found.seconds),
    }
    return {"f1": scores["Pan and Tompkins"]["f1"], "against": scores}


def compare_pulse(given: Recorded, found: Table) -> dict[str, Any]:
    x = given.values[0]
    both = heartpy_peaks(x, given.rate)
    beats = both.accepted
    peaks = plain_peaks(x, given.rate)
    scores = {"heartpy": f1(beats, found.seconds), "plain peaks": f1(peaks, found.seconds)}
    row = {"f1": scores["heartpy"]["f1"], "against": scores, "others": f1(beats, peaks)}
    row |= {"rejected": len(both.rejected)}
    row |= {"stretches": stretches(given, both, found.seconds)}
    row |= {"clean": of_clean_stretches(given, beats, peaks, found.seconds)}
    usual = found.of_the_usual_waveform().seconds
    return row | {"clean_usual_waveform": of_clean_stretches(given, beats, peaks, usual)}


def stretches(given: Recorded, beats: Beats, seconds: np.ndarray) -> list[dict[str, float]]:
    """Every 10 s: our events, the peaks that heartpy accepts and rejects, and the accepted ones
    that are events of ours."""
    delay = f1(beats.accepted, seconds)["delay"]
    rows = []
    for first in np.arange(0, given.values.shape[1] / given.rate, STRETCH):
        own = within(seconds - delay, first)
        accepted = within(beats.accepted, first)
        rows.append(
            {
                "first_second": float(first),
                "events": len(own),
                "accepted": len(accepted),
                "rejected": len(within(beats.rejected, first)),
                "both": len(match(accepted, own, NEAR)),
            }
        )
    return rows


def of_clean_stretches(
    given: Recorded, beats: np.ndarray, peaks: np.ndarray, seconds: np.ndarray
) -> dict[str, Any]:
    """F1 against heartpy in the stretches in which it agrees with plain peaks on every beat."""
    delay = f1(beats, seconds)["delay"]
    kept_beats = []
    kept_events = []
    stretches = 0
    duration = given.values.shape[1] / given.rate
    count = int(duration // STRETCH)
    for first in STRETCH * np.arange(count):
        own = within(beats, first)
        others = within(peaks, first)
        if len(own) < 2 or len(match(own, others, NEAR)) < max(len(own), len(others)):
            continue
        stretches += 1
        kept_beats.append(own)
        kept_events.append(within(seconds - delay, first))
    if not stretches:
        return {"stretches": 0, "of": count}
    score = f1(np.concatenate(kept_beats), np.concatenate(kept_events))
    return {"stretches": stretches, "of": count, **score}


def within(seconds: np.ndarray, first: float) -> np.ndarray:
    return seconds[(seconds >= first) & (seconds < first + STRETCH)]


def f1(others: np.ndarray, seconds: np.ndarray, near: float = NEAR) -> dict[str, Any]:
    """F1 of seconds against those of another detector, less the median delay."""
    delay = 0.0
    if len(seconds) and len(others):
        nearest = seconds[np.abs(seconds[:, None] - others).argmin(0)]
        delay = float(np.median(nearest - others))
    pairs = len(match(others, seconds - delay, near))
    return {
        "others": len(others),
        "events": len(seconds),
        "f1": 2 * pairs / max(1, len(seconds) + len(others)),
        "delay": delay,
    }


# Earthquakes --------------------------------------------------------------------------------------


def seismogram(*names: str) -> Recorded:
    """The example of obspy, or traces of its folder of test data, as channels."""
    import obspy

    folder = Path(obspy.__file__).parent / "signal" / "tests" / "data"
    stream = obspy.Stream()
    for name in names:
        stream += obspy.read(str(folder / name))
    if not names:
        stream = obspy.read()
    rate = float(stream[0].stats.sampling_rate)
    return Recorded(np.stack([trace.data for trace in stream]).astype(float), rate, compare_bursts)


def triggers(given: Recorded) -> np.ndarray:
    """Seconds of the onsets in any channel, those within 2 s as one."""
    from obspy.signal.trigger import recursive_sta_lta, trigger_onset
    from scipy.signal import butter, sosfiltfilt

    band = butter(4, [2, 20], "bandpass", fs=given.rate, output="sos")
    onsets = []
    for x in given.values:
        smooth = sosfiltfilt(band, x - x.mean())
        ratio = recursive_sta_lta(
            smooth, round(0.5 * given.rate), round(long_average(given) * given.rate)
        )
        onsets += [first / given.rate for first, _ in trigger_onset(ratio, 3.5, 0.5)]
    return bursts(np.sort(onsets))


def long_average(given: Recorded) -> float:
    """Seconds of the long average."""
    is_short = given.values.shape[1] / given.rate < SHORT_RECORDING
    return 4.0 if is_short else LONG


def bursts(seconds: np.ndarray) -> np.ndarray:
    """The first of all that follow each other within BURST seconds."""
    if not len(seconds):
        return seconds
    return seconds[np.append(True, np.diff(seconds) > BURST)]


def compare_bursts(given: Recorded, found: Table) -> dict[str, Any]:
    others = triggers(given)
    large = found.amplitude > LARGE * np.median(found.amplitude)
    own = bursts(np.sort(found.seconds[large]))
    late = own[own >= long_average(given)]
    pairs = match(others, late, BURST)
    return {
        "triggers": others.round(2).tolist(),
        "bursts": own.round(2).tolist(),
        "both": len(pairs),
    }


RECORDINGS: dict[str, Callable[[], Recorded]] = {
    "pywt ECG": pywt_ecg,
    "heartpy 0": lambda: heartpy_file(0),
    "heartpy 1 (sensor put on)": lambda: heartpy_file(1),
    "heartpy 2 (clipped, artefacts)": lambda: heartpy_file(2),
    "obspy BW.RJOB, three channels": seismogram,
    "obspy BW.UH3, three channels": lambda: seismogram(
        *(f"BW.UH3._.SH{axis}.D.2010.147.cut.slist.gz" for axis in "ZNE")
    ),
    "obspy BW.UH4": lambda: seismogram("BW.UH4._.EHZ.D.2010.147.cut.slist.gz"),
}


def by_commands(given: Recorded) -> Table:
    table = table_by_commands(given.values, given.rate)
    return Table(table["seconds"], table["waveform"].astype(int), table["amplitude"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", nargs="+", default=list(RECORDINGS), choices=list(RECORDINGS))
    args = parser.parse_args()
    rows = []
    for name in args.names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = RECORDINGS[name]()
            begun = time.perf_counter()
            begun_processor = time.process_time()
            found = by_commands(given)
            seconds = time.perf_counter() - begun
            processor_seconds = time.process_time() - begun_processor
            counts = np.bincount(found.waveform).tolist() if len(found.waveform) else []
            row = {"recording": name, "events_of_waveforms": counts}
            row |= given.compare(given, found)
            row |= {"duration": given.values.shape[1] / given.rate, "seconds": seconds}
            row |= {"processor_seconds": processor_seconds}
        rows.append(row)
        print(row, flush=True)
        if args.out:
            args.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
