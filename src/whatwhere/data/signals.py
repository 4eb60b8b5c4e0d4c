"""Signals: recordings of one or more channels. Users see them as [N, C, T]; the model sees images
of height 1."""

import io
import os
import re
import warnings
from dataclasses import dataclass, fields, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from whatwhere.data.arrays import read_array
from whatwhere.data.images import (
    Images,
    LazyPixels,
    PictureWindows,
    Pixels,
    Rows,
    check_finite,
    picture_of,
)
from whatwhere.data.stored_array import AnyArray, StoredArray, with_new_axis
from whatwhere.data.tables import (
    SECONDS,
    encode_table,
    read_table,
    split_unit,
    table_values,
    time_column,
    without_first_column,
)
from whatwhere.errors import ImageError, MissingExtra, SpecError, plural, warn
from whatwhere.files import open_regular, readable

SUFFIXES = (".csv", ".wav", ".edf", ".bdf", ".fif")
"""Files that hold nothing but signals."""

WINDOW = 2048  # samples, for learning from longer signals
CHECKED = 1 << 20  # samples that are checked at a time
MOST_PARTS = 1000  # chunks of a .wav file before its samples
WAV_DTYPES = ("uint8", "int16", "int32", "int64", "float32", "float64")
UNKNOWN_LENGTH = 2**32 - 1  # stands for an unknown length in a .wav file


@dataclass(frozen=True, eq=False, repr=False)
class Signals(Images):
    """Signals as the model expects them: `signals[rows]` is a float32 tensor [n, C, T], read when
    it is asked for.

    The other fields are those of `Images`: `pixels` [N, C, 1, T], `labels`, `name`, `classes`,
    `allow_nan`, `white`, `brightest`, `deep_white` and `all_pictures`.

    rate           samples per second; None if it is not known
    start          seconds at the first sample
    unit           unit of the values, such as 'mV'; '' if it is not known
    channel_names  names of the channels in the file; None if it has none
    recorded_as    the signals that these windows were cut from; None for signals as they were
                   recorded

    >>> ww.data.load(np.zeros((3, 2, 500)), signals=True)
    Signals('array', 3 of 2×500, unlabelled)
    >>> ww.data.load(np.zeros(500), signals=True, rate=250).rate
    250.0
    """

    rate: float | None = None
    start: float = 0.0
    unit: str = ""
    channel_names: tuple[str, ...] | None = None
    recorded_as: "Signals | None" = None

    def __getitem__(self, rows: Rows) -> torch.Tensor:
        if isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        return super().__getitem__(rows).squeeze(2)

    def as_images(self) -> Images:
        """The same signals as images of height 1."""
        return Images(**{field.name: getattr(self, field.name) for field in fields(Images)})

    def recording(self, row: int) -> PictureWindows:
        """One signal as a picture [C, 1, T] that is read window by window."""
        return PictureWindows(self, row)

    def with_rate(self, rate: float | None) -> "Signals":
        """The same signals with this many samples per second, if a number is given."""
        return self if rate is None else replace(self, rate=float(rate))


def long_gaps(known: np.ndarray, longest: int) -> list[slice]:
    """The gaps of more than `longest` samples in a signal, given which samples [T] are known."""
    edges = np.diff(np.concatenate([[1], known.astype(np.int8), [1]]))
    starts = np.flatnonzero(edges == -1)
    stops = np.flatnonzero(edges == 1)
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return [slice(first, last) for first, last in pairs if last - first > longest]


def unknown_gaps(signals: Signals, longest: int) -> list[slice]:
    """The gaps of more than `longest` samples in all channels of the signals, signal by signal;
    read part by part."""
    if signals.pixels.dtype.kind != "f":
        return []
    gaps: list[slice] = []
    for row in range(len(signals)):
        gaps += long_gaps(known_samples(signals, row), longest)
    return gaps


def known_samples(signals: Signals, row: int) -> np.ndarray:
    """Which samples of a signal are known in any channel, [T]; read part by part."""
    recording = signals.recording(row)
    length = recording.shape[2]
    parts = []
    for first in range(0, length, CHECKED):
        part = recording[:, :, first : first + CHECKED]
        parts.append((~part.isnan()).any(0)[0].numpy())
    return np.concatenate(parts)


def samples_of(length: str | int, rate: float | None) -> int:
    """A length such as '12ms', '0.5s' or '64', in samples.

    >>> samples_of("12ms", 2000), samples_of("64", None)
    (24, 64)
    """
    number, unit = read_length(length)
    if unit in SECONDS:
        if rate is None:
            raise SpecError(
                f"length = {length} needs the rate of the recording, which the file does not give."
                " Give the samples per second (--rate), or a length in samples."
            )
        number *= SECONDS[unit] * rate
    if round(number) < 2 or (unit not in SECONDS and number % 1):
        raise SpecError(f"Got length = {length}; expected a whole number of at least 2 samples.")
    return round(number)


def read_length(length: str | int) -> tuple[float, str]:
    """The number and the unit of a length; raises a SpecError for any other text."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(s|ms|us|µs|samples)?\s*", str(length))
    if match is None:
        raise SpecError(
            f"Got length = {str(length)[:40]!r}; expected samples, such as 64, or a time, such as"
            " 12ms or 0.5s."
        )
    return float(match[1]), match[2] or "samples"


def cut_windows(signals: Signals, size: int) -> Signals:
    """Windows of `size` samples, one after the other; the last window of a signal ends where the
    signal ends.

    An event at a cut is explained from both sides of it: a waveform may begin before a window and
    end after it. Windows in a gap, without any known sample, are left out.
    """
    count, _, _, length = signals.pixels.shape
    if size > length:
        raise ImageError(
            f"Cannot cut windows of {size:,} samples: {signals.name} has {length:,}. Give a"
            " shorter length."
        )
    each = np.append(np.arange(0, length - size, size), length - size)
    starts = np.stack([np.repeat(np.arange(count), len(each)), np.tile(each, count)], 1)
    if signals.pixels.dtype.kind == "f":
        starts = starts[[_has_known_sample(signals.pixels, row, at, size) for row, at in starts]]
    if not len(starts):
        raise ImageError(f"{signals.name} has no known sample: all values are NaN.")
    name = f"{len(starts):,} windows of {size:,} samples of {signals.name}"

    def read(rows: np.ndarray) -> np.ndarray:
        return np.stack(
            [picture_of(signals.pixels, row)[:, :, at : at + size] for row, at in starts[rows]]
        )

    pixels = LazyPixels((len(starts), signals.shape[0], 1, size), signals.pixels.dtype, read)
    return replace(signals, pixels=pixels, labels=None, name=name, recorded_as=signals)


def _has_known_sample(pixels: Pixels, row: int, first: int, size: int) -> bool:
    window = picture_of(pixels, row)[:, :, first : first + size]
    return not bool(np.isnan(window).all())


def training_windows(signals: Signals) -> Signals:
    """What to learn from: short signals as they are, others in windows."""
    is_long = signals.shape[2] >= 2 * WINDOW and not isinstance(signals.pixels, LazyPixels)
    return cut_windows(signals, WINDOW) if is_long else signals


def as_signals(values: AnyArray, name: str) -> Signals:
    """Signals of values [T], [C, T] or [N, C, T]; floats are checked once, window by window. NaN
    marks unknown samples.

    If the values are [T, C], with fewer channels than samples, the axes are swapped, and a warning
    says so.
    """
    shape = values.shape
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise ImageError(
            f"{name} has the shape {shape}; expected signals [T], [C, T] or [N, C, T]."
        )
    if is_transposed(shape):
        warn(
            f"{name} has {shape[0]:,} × {shape[1]:,} values. Reading"
            f" {plural(shape[1], 'channel')} of {shape[0]:,} samples."
        )
        values = values.T
        shape = values.shape
    for _ in range(3 - len(shape)):
        values = with_new_axis(values, 0)
    pixels = with_new_axis(values, 2)
    signals = Signals(pixels, None, name, allow_nan=True)
    if signals.shape[0] > signals.shape[2]:
        warn(
            f"{name} has {signals.shape[0]:,} channels of {plural(signals.shape[2], 'sample')};"
            " expected more samples than channels. If its axes are swapped, transpose it to [C, T]."
        )
    if values.dtype.kind == "f":
        for row in range(len(signals)):
            signal = picture_of(pixels, row)
            for first in range(0, shape[-1], CHECKED):
                check_finite(signal[:, :, first : first + CHECKED], name, allow_nan=True)
    return signals


def is_transposed(shape: tuple[int, ...]) -> bool:
    """Whether an array of two axes has more rows than columns, so that its rows are the samples."""
    return len(shape) == 2 and shape[0] > shape[1]


def read_signals(path: Path, name: str) -> Signals:
    """The recording of a .csv file, a row for each sample and a column for each channel, of a .wav
    file, or of an .edf or .fif file, for which `mne` is needed."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _signals_of_table(path, name)
    if suffix == ".wav":
        rate, values = _read_wav(path)
        return _quiet_signals(values.T, name).with_rate(rate)
    return from_mne(_open_mne(path), name)


def _quiet_signals(values: AnyArray, name: str) -> Signals:
    """Signals of values [C, T] of a file that says which axis is which."""
    return as_signals(with_new_axis(values, 0), name)


# Files that MNE reads -----------------------------------------------------------------------------


def _open_mne(path: Path) -> Any:
    """The recording of an .edf, .bdf or .fif file, as MNE's `Raw`."""
    try:
        import mne
    except ImportError:
        raise ImageError(f"Reading {path} needs MNE. Install it: pip install mne") from None
    open_regular(path).close()
    with readable(path, f"{path.suffix} file", "save it again", ImageError):
        return mne.io.read_raw(path, preload=False, verbose="error")


def from_mne(raw: Any, name: str = "Raw") -> Signals:
    """The data channels of MNE's `Raw`, in its units (V for EEG), with its rate and its names."""
    import mne

    picks = mne.pick_types(raw.info, meg=True, eeg=True, ecg=True, eog=True, emg=True, misc=True)
    if not len(picks):
        raise ImageError(f"{name} has no channel with data; expected EEG, MEG, ECG, EOG or EMG.")
    values = raw.get_data(picks=picks).astype(np.float32)
    kinds = {raw.get_channel_types([pick])[0] for pick in picks}
    return replace(
        _quiet_signals(values, name),
        rate=float(raw.info["sfreq"]),
        start=float(raw.first_time),
        unit="V" if kinds <= {"eeg", "ecg", "eog", "emg"} else "",
        channel_names=tuple(raw.ch_names[pick] for pick in picks),
    )


def _signals_of_table(path: Path, name: str) -> Signals:
    """The recording of a table; a first column of times gives its rate, a heading its units."""
    table = read_table(path)
    times = time_column(table)
    if times is not None:
        table = without_first_column(table)
    signals = _quiet_signals(table_values(path, table).T, name)
    if times is not None:
        signals = replace(signals, rate=times.rate, start=times.start)
    if table.heading is None:
        return signals
    names = [split_unit(field) for field in table.names]
    if len(names) != signals.shape[0]:
        return signals
    units = {unit for _, unit in names}
    return replace(
        signals,
        channel_names=tuple(channel for channel, _ in names),
        unit=units.pop() if len(units) == 1 else "",
    )


def _read_wav(path: Path) -> tuple[int, AnyArray]:
    """Samples per second, and values [T, C]; samples of 24, 32 and 64 bits as floats from -1 to
    1."""
    rate, samples = _open_wav(path)
    if samples.ndim == 1:
        samples = with_new_axis(samples, 1)
    if samples.dtype in (np.int32, np.int64):
        scaled = samples[:] / np.float32(2.0 ** (8 * samples.dtype.itemsize - 1))
        return rate, np.asarray(scaled, np.float32)
    if samples.dtype == np.uint8:
        return rate, (samples[:] ^ 128).view(np.int8)
    return rate, samples


def _open_wav(path: Path) -> tuple[int, AnyArray]:
    """Samples per second, and the samples [T] or [T, C], stored in the file where they can be."""
    try:
        from scipy.io import wavfile
    except ImportError:
        raise MissingExtra("scipy", "reading .wav files") from None
    with open_regular(path) as file, readable(path, ".wav file", "save it again", ImageError):
        _check_wav_length(file)
    with readable(path, ".wav file", "save it again", ImageError), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # about chunks without samples
        try:
            rate, samples = wavfile.read(path, mmap=True)
        except ValueError:  # samples of 24 bits cannot be mapped
            rate, samples = wavfile.read(path)
        if not samples.size:
            raise ValueError("it has no samples")
        _check_wav_format(rate, samples)
        if isinstance(samples, np.memmap):
            return rate, StoredArray.of_map(path, samples)
        return rate, samples


def _check_wav_format(rate: int, samples: np.ndarray) -> None:
    """Raise a ValueError for a format that could not be written to a .wav file again."""
    if samples.dtype.name not in WAV_DTYPES:
        raise ValueError(
            f"it has samples of {samples.dtype.name}; expected {', '.join(WAV_DTYPES)}"
        )
    bytes_per_second = rate * samples.itemsize * (samples.size // len(samples))
    if not 0 < bytes_per_second < 2**32:
        raise ValueError(f"its header gives an impossible rate, {rate:,} samples per second")


def _check_wav_length(file: BufferedReader) -> None:
    """Raise a ValueError unless the file has all the samples that it announces.

    A size of 2³² - 1 means that the writer did not know it: the samples end with the file, or a
    `ds64` part gives the size.
    """
    size = os.fstat(file.fileno()).st_size
    kind = file.read(12)[:4]
    if kind not in (b"RIFF", b"RIFX", b"RF64"):
        raise ValueError("it does not begin with the header of a .wav file")
    order: Literal["big", "little"] = "big" if kind == b"RIFX" else "little"
    announced_64 = None
    for _ in range(MOST_PARTS):
        head = file.read(8)
        if len(head) < 8:
            return
        length = int.from_bytes(head[4:], order)
        if head[:4] == b"ds64":
            announced_64 = int.from_bytes(file.read(16)[8:], order)
            file.seek(length - 16, os.SEEK_CUR)
            continue
        if head[:4] != b"data":
            file.seek(length + length % 2, os.SEEK_CUR)
            continue
        if length == UNKNOWN_LENGTH:
            length = announced_64 or 0
        rest = size - file.tell()
        if length > rest:
            raise ValueError(
                f"its header gives {length:,} bytes of samples, but only {rest:,} follow"
            )
        return
    raise ValueError(f"it has more than {MOST_PARTS:,} chunks before its samples")


def encode_signals(values: np.ndarray, source: Path) -> bytes:
    """The content of a file of signals [N, C, T] in the form of `source`, the .npy, .csv or .wav
    file that they come from.

    The result keeps the type of the samples (24 bits become 32) and the shape of an array. A table
    keeps the names of its columns, its separator, decimal mark and encoding; a .wav file keeps its
    rate.
    """
    suffix = source.suffix.lower()
    if suffix == ".csv":
        return encode_table(values[0].T, read_table(source))
    if suffix not in (".wav", ".npy"):
        raise ImageError(f"Cannot write a recording to {source}. Expected .npy, .csv or .wav.")
    file = io.BytesIO()
    if suffix == ".wav":
        from scipy.io import wavfile

        rate, given = _open_wav(source)
        is_bytes = given.dtype == np.uint8  # whose silence is 128
        samples = _as_samples(values[0].T, np.dtype(np.int8) if is_bytes else given.dtype)
        wavfile.write(file, rate, samples.view(np.uint8) ^ 128 if is_bytes else samples)
    else:
        array = read_array(source, largest=0)
        samples = _as_samples(values, array.dtype)
        if is_transposed(array.shape):
            samples = samples[0].T
        np.save(file, samples.reshape(array.shape))
    return file.getvalue()


def holds_unknown_samples(source: Path) -> bool:
    """Whether a file like `source` can mark samples as unknown: whole numbers have no NaN."""
    suffix = source.suffix.lower()
    if suffix == ".wav":
        return _open_wav(source)[1].dtype.kind == "f"
    return suffix != ".npy" or read_array(source, largest=0).dtype.kind not in "iu"


def _as_samples(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values as samples of this type; whole numbers are scaled, and cut off at the largest."""
    if dtype.kind not in "iu":
        return values.astype(dtype if dtype.kind == "f" else np.float32)
    limits = np.iinfo(dtype)
    scaled = np.rint(values.astype(np.float64) * (limits.max + (dtype.kind == "i")))
    largest = float(limits.max)
    if largest > limits.max:  # 64 bits, more than a float has
        largest = np.nextafter(largest, 0)
    return scaled.clip(limits.min, largest).astype(dtype)
