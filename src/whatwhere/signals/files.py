"""Files of recordings: `read` finds the reader of a file by its suffix; `encode` writes a result in
the form of its source.

`data.formats` loads this module on first use. A new format is one more entry of `_READERS`.
"""

import io
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.data.arrays import check_dtype, read_array
from whatwhere.data.stored_array import AnyArray, StoredArray, with_new_axis
from whatwhere.errors import ImageError, MissingExtra, plural, printable, warn
from whatwhere.files import open_regular, readable, untrusted
from whatwhere.signals.packages import read_along as read_along  # of the `Format`
from whatwhere.signals.packages import read_dat, read_mat, read_nwb, read_seismogram, read_wfdb
from whatwhere.signals.recording import Signals, as_signals, is_transposed
from whatwhere.signals.tables import (
    channel_table,
    counts_rows,
    encode_table,
    holds_times,
    read_table,
    split_unit,
    table_values,
)

if TYPE_CHECKING:
    import mne

_MOST_PARTS = 1000  # chunks of a .wav file before its samples
_WAV_DTYPES = ("uint8", "int16", "int32", "int64", "float32", "float64")
_UNKNOWN_LENGTH = 2**32 - 1  # stands for an unknown length in a .wav file


def read(path: Path, name: str) -> Signals:
    """Read the recording of a file whose suffix says that it holds nothing but a recording."""
    return _READERS[path.suffix.lower()](path, name)


def of_values(values: AnyArray, name: str) -> Signals:
    """Return signals of values [T], [C, T] or [N, C, T]; whole numbers of more than 16 bits stay
    counts, as floats."""
    if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
        return as_signals(np.asarray(values[:], np.float32), name)
    check_dtype(values.dtype, name)
    return as_signals(values, name).counted()


def of_object(source: object) -> Signals | None:
    """Return signals of MNE's `Raw`, which is not imported for it; None for another object."""
    is_raw = hasattr(source, "get_data") and hasattr(source, "ch_names")
    return from_mne(source) if is_raw else None


def _quiet_signals(values: AnyArray, name: str) -> Signals:
    """Return signals of values [C, T] of a file that says which axis is which."""
    return as_signals(with_new_axis(values, 0), name)


# Files that MNE reads -----------------------------------------------------------------------------


def _open_mne(path: Path) -> "mne.io.BaseRaw":
    """Return the recording of an .edf, .bdf or .fif file, as MNE's `Raw`."""
    try:
        import mne
    except ImportError:
        raise ImageError(f"Reading {path} needs MNE. Install it: pip install mne") from None
    open_regular(path).close()
    with readable(path, f"{path.suffix} file", "save it again", ImageError), untrusted():
        return mne.io.read_raw(path, preload=False, verbose="error")


def _read_with_mne(path: Path, name: str) -> Signals:
    return from_mne(_open_mne(path), name)


def from_mne(raw: "mne.io.BaseRaw", name: str = "Raw") -> Signals:
    """Return the data channels of MNE's `Raw`, in its units (V for EEG), with its rate and its
    names."""
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


def _read_table(path: Path, name: str) -> Signals:
    """Return the recording of a table; a first column of times gives its rate, a heading its
    units."""
    whole = read_table(path)
    table, times = channel_table(whole)
    values = table_values(path, table)
    names = [split_unit(field) for field in table.names]
    values, names = _without_empty_columns(path, values, names)
    if counts_rows(whole):
        warn(f"{printable(path)}: leaving out the first column, which counts the rows.")
    elif times is None and holds_times(whole):
        warn(
            f"{printable(path)}: the column {whole.names[0].strip()!r} shows no usual step of time,"
            " so the rate is not known. Give --rate."
        )
    if times is not None:
        values = times.spread(values)
    signals = _quiet_signals(values.T, name)
    if times is not None:
        column = whole.names[0].strip(" \"'") if whole.names else "1"
        signals = replace(signals, rate=times.rate, start=times.start, rate_from=column)
    if len(names) != signals.shape[0]:
        return signals
    units = {unit for _, unit in names}
    return replace(
        signals,
        channel_names=tuple(channel for channel, _ in names),
        unit=units.pop() if len(units) == 1 else "",
    )


def _without_empty_columns(
    path: Path, values: np.ndarray, names: list[tuple[str, str]]
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return the columns of values [T, C] that have a value, with their names: not the one after a
    separator at the end of every line. All stay if none has.

    A column that never changes, such as a lead that came off, stays a channel: a model of several
    channels then fits every recording with these columns.
    """
    empty = np.isnan(values).all(0)
    if not empty.any() or empty.all():
        return values, names
    if any(n < len(names) and names[n][0] for n in np.flatnonzero(empty)):
        count = plural(int(empty.sum()), "column")
        warn(f"{printable(path)}: leaving out {count} without values.")
    kept = [one for one, out in zip(names, empty, strict=False) if not out]
    return values[:, ~empty], kept


def _read_wav(path: Path, name: str) -> Signals:
    rate, values = _wav_values(path)
    return _quiet_signals(values.T, name).with_rate(rate)


def _wav_values(path: Path) -> tuple[int, AnyArray]:
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
            with untrusted():
                rate, samples = wavfile.read(path, mmap=True)
        except ValueError:  # samples of 24 bits cannot be mapped
            with untrusted():
                rate, samples = wavfile.read(path)
        if not samples.size:
            raise ValueError("it has no samples")
        _check_wav_format(rate, samples)
        if isinstance(samples, np.memmap):
            return rate, StoredArray.of_map(path, samples)
        return rate, samples


def _check_wav_format(rate: int, samples: np.ndarray) -> None:
    """Raise a ValueError for a format that could not be written to a .wav file again."""
    if samples.dtype.name not in _WAV_DTYPES:
        raise ValueError(
            f"it has samples of {samples.dtype.name}; expected {', '.join(_WAV_DTYPES)}"
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
    for _ in range(_MOST_PARTS):
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
        if length == _UNKNOWN_LENGTH:
            length = announced_64 or 0
        rest = size - file.tell()
        if length > rest:
            raise ValueError(
                f"its header gives {length:,} bytes of samples, but only {rest:,} follow"
            )
        return
    raise ValueError(f"it has more than {_MOST_PARTS:,} chunks before its samples")


def encode(values: np.ndarray, source: Path) -> bytes:
    """Return the content of a file of signals [N, C, T] in the form of `source`, the .npy or .wav
    file or the table that they come from.

    The result keeps the type of the samples (24 bits become 32) and the shape of an array. A table
    keeps the names of its columns, its separator, decimal mark and encoding; a .wav file keeps its
    rate.
    """
    suffix = source.suffix.lower()
    if _READERS.get(suffix) is _read_table:
        table = read_table(source)
        return encode_table(values[0].T, table)
    if suffix not in (".wav", ".npy"):
        raise ImageError(f"Cannot write a recording to {source}. Expected .npy, .wav or a table.")
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


def holds_unknown(source: Path) -> bool:
    """Tell whether a file like `source` can mark samples as unknown: whole numbers have no NaN."""
    suffix = source.suffix.lower()
    if suffix == ".wav":
        return _open_wav(source)[1].dtype.kind == "f"
    return suffix != ".npy" or read_array(source, largest=0).dtype.kind not in "iu"


def _as_samples(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values as samples of this type; whole numbers are scaled, and cut off at the
    largest."""
    if dtype.kind not in "iu":
        return values.astype(dtype if dtype.kind == "f" else np.float32)
    limits = np.iinfo(dtype)
    scaled = np.rint(values.astype(np.float64) * (limits.max + (dtype.kind == "i")))
    largest = float(limits.max)
    if largest > limits.max:  # 64 bits, more than a float has
        largest = np.nextafter(largest, 0)
    return scaled.clip(limits.min, largest).astype(dtype)


_READERS: dict[str, Callable[[Path, str], Signals]] = {
    ".csv": _read_table,
    ".tsv": _read_table,
    ".txt": _read_table,
    ".wav": _read_wav,
    ".edf": _read_with_mne,
    ".bdf": _read_with_mne,
    ".fif": _read_with_mne,
    ".mat": read_mat,
    ".dat": read_dat,
    ".bin": read_dat,
    ".hea": read_wfdb,
    ".mseed": read_seismogram,
    ".sac": read_seismogram,
    ".nwb": read_nwb,
}
SUFFIXES = tuple(_READERS)
"""Files that hold nothing but a recording."""
