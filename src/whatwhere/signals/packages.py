"""Recordings that other packages write: MATLAB's .mat, WFDB, seismograms (ObsPy), NWB
(PyNWB); and raw samples, whose form is in a file beside them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from whatwhere.data.stored_array import AnyArray, StoredArray, with_new_axis
from whatwhere.errors import ImageError, MissingExtra, listed, printable
from whatwhere.files import checked, open_regular, read_regular, readable, untrusted
from whatwhere.signals.matlab import read_arrays
from whatwhere.signals.recording import Signals, as_signals

_RATE_NAMES = ("fs", "rate", "sr", "srate", "sampling_rate", "samplerate", "sfreq", "frequency")
_RAW_FIELDS = ("dtype", "channels", "rate")
_RAW_TYPES = ("int16", "int32", "float32", "float64", "uint8", "uint16", "int8")


class UnusableRecording(ImageError):
    """A file of another package that holds no recording that can be read.

    path     the file
    found    what it holds
    expected what it should hold, and what to do
    """

    def __init__(self, path: Path, found: str, expected: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{printable(path)} {found}; expected {expected}.")


def _signals_of(values: AnyArray, name: str) -> Signals:
    """Return signals of values [C, T]."""
    return as_signals(with_new_axis(values, 0), name)


# MATLAB -------------------------------------------------------------------------------------------


def read_mat(path: Path, name: str) -> Signals:
    """Return the array of numbers of a .mat file; a number named fs or rate is its rate."""
    arrays = _arrays_of_mat(path)
    rates = [
        float(array.flat[0])
        for key, array in arrays.items()
        if array.size == 1 and key.lower() in _RATE_NAMES
    ]
    recordings = {
        key: array.squeeze() for key, array in arrays.items() if array.size > 1 and array.ndim <= 3
    }
    if len(recordings) != 1:
        held = f"has the arrays {listed(sorted(recordings)[:9])}" if recordings else "has no array"
        raise UnusableRecording(
            path, held, "one array of samples [channels, samples]; save it alone, with its rate fs"
        )
    (values,) = recordings.values()
    if values.dtype.kind in "iub" and values.dtype.itemsize > 2:
        values = values.astype(np.float32)
    return replace(as_signals(values, name), rate=rates[0] if rates else None)


def _arrays_of_mat(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of numbers of a .mat file by name."""
    remedy = "save it again with the option -v7 (version 7.3 is another format)"
    with readable(path, ".mat file", remedy, ImageError), untrusted(), open_regular(path) as file:
        return read_arrays(file)


# Raw samples and WFDB -----------------------------------------------------------------------------


def read_dat(path: Path, name: str) -> Signals:
    """Return a .dat or .bin file: of WFDB if a header .hea is beside it; otherwise raw samples,
    channel after channel in each moment, whose form a .json file gives."""
    if path.with_suffix(".hea").exists():
        return read_wfdb(path.with_suffix(".hea"), name)
    sidecar = path.with_suffix(".json")
    example = '{"dtype": "int16", "channels": 4, "rate": 30000}'
    if not sidecar.exists():
        raise UnusableRecording(
            path, "has raw samples and no form", f"{sidecar.name} beside it, such as {example}"
        )
    with readable(sidecar, "JSON file", example, ImageError), untrusted():
        content = read_regular(sidecar, 1 << 20)  # bytes
        fields: dict[str, object] = checked(json.loads(content), dict, "its content")
        missing = [field for field in _RAW_FIELDS if field not in fields]
        if missing:
            raise ValueError(f"it has no {listed(missing)}")
        if fields["dtype"] not in _RAW_TYPES:
            raise ValueError(f"it has dtype {fields['dtype']!r}, none of {listed(_RAW_TYPES)}")
        channels = checked(fields["channels"], int, "channels")
        rate = float(fields["rate"])  # type: ignore[arg-type]
        dtype = np.dtype(str(fields["dtype"])).newbyteorder("<")
        if channels < 1:
            raise ValueError("its channels must be above 0")
    with open_regular(path) as file, readable(path, "file of raw samples", example, ImageError):
        count, rest = divmod(os.fstat(file.fileno()).st_size, channels * dtype.itemsize)
        if rest or not count:
            raise ValueError(f"its bytes are not those of samples of {channels} channels")
        stored = StoredArray.of_map(path, np.memmap(file, dtype, "r", shape=(count, channels)))
    whole = stored if dtype.itemsize <= 2 or dtype.kind == "f" else stored[:].astype(np.float32)
    return _signals_of(whole.T, name).counted().with_rate(rate)


def read_along(path: Path) -> list[Path]:
    """Return the header and the samples, or the form, that are beside a file of samples."""
    if path.suffix.lower() not in (".dat", ".bin", ".hea"):
        return []
    beside = (path.with_suffix(suffix) for suffix in (".hea", ".dat", ".json"))
    return [file for file in beside if file != path and file.exists()]


def read_wfdb(path: Path, name: str) -> Signals:
    """Return a record of WFDB, in its units."""
    try:
        import wfdb
    except ImportError:
        raise MissingExtra("wfdb", "reading records of WFDB") from None
    open_regular(path).close()
    with readable(path, "header of WFDB", "download the record again", ImageError), untrusted():
        record = wfdb.rdrecord(str(path.with_suffix("")))
        values = np.asarray(record.p_signal, np.float32)
    units = set(record.units or [])
    return replace(
        _signals_of(values.T, name),
        rate=float(record.fs),
        unit=units.pop() if len(units) == 1 else "",
        channel_names=tuple(record.sig_name),
    )


# Seismograms and NWB ------------------------------------------------------------------------------


def read_seismogram(path: Path, name: str) -> Signals:
    """Return the traces of a file that ObsPy reads, as channels between the first and the last
    sample; pauses are gaps."""
    try:
        import obspy
    except ImportError:
        raise MissingExtra("obspy", f"reading {path.suffix} files") from None
    open_regular(path).close()
    with readable(path, "seismogram", "download it again", ImageError), untrusted():
        stream = obspy.read(str(path))
        stream.merge()
        rates = {float(trace.stats.sampling_rate) for trace in stream}
        if len(rates) != 1:
            raise ValueError(f"its traces have the rates {listed(map(str, sorted(rates)))} Hz")
        stream.trim(
            min(trace.stats.starttime for trace in stream),
            max(trace.stats.endtime for trace in stream),
            pad=True,
        )
        rows = [np.ma.filled(trace.data.astype(np.float32), np.nan) for trace in stream]
        length = min(map(len, rows))
        values = np.stack([row[:length] for row in rows])
    names = tuple(trace.stats.channel or trace.id for trace in stream)
    return replace(_signals_of(values, name), rate=rates.pop(), channel_names=names)


def read_nwb(path: Path, name: str) -> Signals:
    """Return the only time series of an NWB file's acquisition, in its units."""
    try:
        import pynwb
    except ImportError:
        raise MissingExtra("pynwb", "reading NWB files") from None
    open_regular(path).close()
    with (
        readable(path, "NWB file", "save it again", ImageError),
        untrusted(),
        pynwb.NWBHDF5IO(str(path), "r", load_namespaces=True) as file,
    ):
        acquired = file.read().acquisition
        series = {key: one for key, one in acquired.items() if hasattr(one, "conversion")}
        if len(series) != 1:
            raise ValueError(f"it has the time series {listed(sorted(series)) or 'none'}")
        (one,) = series.values()
        values = np.asarray(one.data, np.float32) * np.float32(one.conversion)
        rate = one.rate
        if rate is None and one.timestamps is not None:
            rate = 1 / float(np.median(np.diff(one.timestamps[:1000])))
        unit = one.unit or ""
    rows = values[:, None] if values.ndim == 1 else values
    return replace(_signals_of(rows.T, name), unit=unit).with_rate(rate)
