"""Recordings that other packages wrote: the values, rate, names and units that went in come out."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import whatwhere as ww
from raising import raises
from whatwhere.errors import ImageError, MissingExtra
from whatwhere.signals.packages import UnusableRecording
from whatwhere.signals.recording import UnusableRate

X = np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)


def loaded(path: Path) -> ww.data.Signals:
    signals = ww.data.load(path)
    assert isinstance(signals, ww.data.Signals)
    return signals


def test_a_mat_file_with_its_rate(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    path = tmp_path / "a.mat"
    io.savemat(path, {"ecg": X, "fs": 250.0, "comment": "none"})
    signals = loaded(path)
    np.testing.assert_array_equal(signals[0], X)
    assert signals.rate == 250
    io.savemat(path, {"ecg": X, "other": X})
    with pytest.raises(UnusableRecording) as raised:
        ww.data.load(path)
    assert "ecg" in raised.value.found
    assert "other" in raised.value.found


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_raw_samples_with_their_form_beside_them(tmp_path: Path, dtype: str) -> None:
    counts = np.rint(1000 * X).astype(dtype)
    path = tmp_path / "a.dat"
    counts.T.tofile(path)
    with pytest.raises(UnusableRecording):
        ww.data.load(path)
    form = {"dtype": dtype, "channels": 2, "rate": 30_000}
    (tmp_path / "a.json").write_text(json.dumps(form))
    signals = loaded(path)
    assert signals.rate == 30_000
    np.testing.assert_allclose(signals[0] * signals.full_scale, counts, rtol=1e-6)
    for wrong in ({"dtype": "object"}, {"channels": 7}, {"channels": 0}, {"rate": -1}):
        (tmp_path / "a.json").write_text(json.dumps(form | wrong))
        with pytest.raises(ImageError):
            ww.data.load(path)
    for damaged in ("{}", "[" * 200_000, "1" * (1 << 21)):
        (tmp_path / "a.json").write_text(damaged)
        with pytest.raises(ImageError):
            ww.data.load(path)


@pytest.mark.parametrize("rate", [0.0, -250.0, math.nan, math.inf])
def test_a_rate_that_gives_no_sample_a_time_is_an_error(tmp_path: Path, rate: float) -> None:
    io = pytest.importorskip("scipy.io")
    io.savemat(tmp_path / "a.mat", {"ecg": X, "fs": rate})
    with raises(UnusableRate, rate=pytest.approx(rate, nan_ok=True)):
        ww.data.load(tmp_path / "a.mat")
    with raises(UnusableRate, rate=pytest.approx(rate, nan_ok=True)):
        ww.data.load(X, signals=True, rate=rate)


def test_a_record_of_wfdb(tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    wfdb.wrsamp(
        "a",
        fs=360,
        units=["mV", "mV"],
        sig_name=["MLII", "V5"],
        p_signal=X.T.astype(float),
        fmt=["16", "16"],
        write_dir=str(tmp_path),
    )
    for name in ("a.hea", "a.dat"):
        signals = loaded(tmp_path / name)
        np.testing.assert_allclose(signals[0], X, atol=1e-3)
        assert (signals.rate, signals.unit, signals.channel_names) == (360, "mV", ("MLII", "V5"))


def test_seismograms_with_a_pause(tmp_path: Path) -> None:
    obspy = pytest.importorskip("obspy")
    start = obspy.UTCDateTime(2020, 1, 1)
    traces = []
    for channel, first, values in (
        ("HHZ", 0, X[0]),
        ("HHN", 0, X[1, :100]),
        ("HHN", 200, X[1, 200:]),
    ):
        header = {"sampling_rate": 100.0, "channel": channel, "starttime": start + first / 100}
        traces.append(obspy.Trace(np.ascontiguousarray(values), header))
    obspy.Stream(traces).write(str(tmp_path / "a.mseed"), format="MSEED")
    signals = loaded(tmp_path / "a.mseed")
    names = list(signals.channel_names or ())
    values = signals[0].numpy()
    np.testing.assert_array_equal(values[names.index("HHZ")], X[0])
    pause = values[names.index("HHN")]
    assert np.isnan(pause[100:200]).all()
    np.testing.assert_array_equal(pause[200:], X[1, 200:])
    assert signals.rate == 100


def test_a_time_series_of_nwb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is replaced by one with its names, because it is seldom installed."""
    series = SimpleNamespace(data=1000 * X.T, conversion=1e-3, rate=30_000.0, unit="volts")

    class File:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> "File":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self) -> SimpleNamespace:
            return SimpleNamespace(acquisition={"raw": series, "table": object()})

    monkeypatch.setitem(sys.modules, "pynwb", SimpleNamespace(NWBHDF5IO=File))
    path = tmp_path / "a.nwb"
    path.write_bytes(b"0")
    signals = loaded(path)
    np.testing.assert_allclose(signals[0], X, rtol=1e-6)
    assert (signals.rate, signals.unit) == (30_000, "volts")


@pytest.mark.parametrize(
    ("suffix", "module"),
    [(".hea", "wfdb"), (".mseed", "obspy"), (".nwb", "pynwb")],
)
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"0")
    with pytest.raises(MissingExtra) as raised:
        ww.data.load(path)
    assert module.split(".")[0] in str(raised.value)


@pytest.mark.parametrize(
    ("suffix", "package"), [(".mat", "scipy"), (".hea", "wfdb"), (".mseed", "obspy")]
)
def test_damaged_files_are_errors(tmp_path: Path, suffix: str, package: str) -> None:
    pytest.importorskip(package)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"no recording at all")
    with pytest.raises(ImageError):
        ww.data.load(path)
