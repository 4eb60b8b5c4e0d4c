"""Columns of times and headings with units in tables of samples; reading itself is in
test_signals.py."""

from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.errors import ImageError
from whatwhere.signals.files import encode
from whatwhere.signals.tables import read_table, split_unit, time_column


def written(folder: Path, *lines: str) -> Path:
    path = folder / "recording.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("heading", "step", "rate"),
    [
        ("time (s),ECG (mV)", 0.004, 250),
        ("Time [ms];ECG [mV]", 4, 250),
        ("t_ms,ECG", 0.5, 2000),
        ("timer\thr", 8.5, 1000 / 8.5),
    ],
)
def test_a_column_of_times_gives_the_rate(
    tmp_path: Path, heading: str, step: float, rate: float
) -> None:
    mark = next(mark for mark in ";\t," if mark in heading)
    lines = [f"{2 * step + step * n:g}{mark}{n % 5}.5" for n in range(50)]
    signals = ww.data.load(written(tmp_path, heading, *lines))
    assert isinstance(signals, ww.data.Signals)
    assert signals.shape == (1, 1, 50)
    assert signals.rate == pytest.approx(rate)
    assert signals.start == pytest.approx(2 / rate)
    assert float(signals[0][0, 6]) == 1.5


def test_dates_are_times(tmp_path: Path) -> None:
    lines = [f"2016-11-24 13:58:{n // 100:02}.{n % 100:02}0000,{n}" for n in range(300)]
    signals = ww.data.load(written(tmp_path, "datetime,hr", *lines))
    assert isinstance(signals, ww.data.Signals)
    assert signals.rate == pytest.approx(100)


@pytest.mark.parametrize(
    "lines",
    [
        ("left,right", "0.1,5", "0.2,6", "0.3,7"),  # its name is no time's
        ("time,x", "0.1,5", "0.3,6", "0.2,7", "0.9,7"),  # not even
        ("1,5", "2,6", "3,7", "4,8"),  # no heading, and steps of 1: numbers of lines, or values
    ],
)
def test_other_columns_are_channels(tmp_path: Path, lines: tuple[str, ...]) -> None:
    path = written(tmp_path, *lines)
    assert time_column(read_table(path)) is None
    assert ww.data.load(path).shape[0] == 2


def test_a_heading_has_names_and_a_unit(tmp_path: Path) -> None:
    assert split_unit(' "EMG left [µV]" ') == ("EMG left", "µV")
    path = written(tmp_path, "time (s),I (mV),II (mV)", "0,1,2", "0.01,3,4", "0.02,5,6")
    signals = ww.data.load(path)
    assert isinstance(signals, ww.data.Signals)
    assert signals.unit == "mV"
    assert signals.channel_names == ("I", "II")


@pytest.mark.parametrize("units", ["s,mV,mV", "(s),(mV),(mV)", "s,mV,mV\n"])
def test_units_may_have_a_line_of_their_own(tmp_path: Path, units: str) -> None:
    path = written(tmp_path, "Time,I,II", units, "0.5,1,2", "0.51,3,4", "0.52,5,6")
    signals = ww.data.load(path)
    assert isinstance(signals, ww.data.Signals)
    assert signals.unit == "mV"
    assert signals.channel_names == ("I", "II")
    assert signals.rate == pytest.approx(100)
    assert signals.start == 0.5
    np.testing.assert_array_equal(signals[0], [[1, 3, 5], [2, 4, 6]])
    text = encode(signals[:].numpy(), path).decode()
    assert text.splitlines() == ["Time,I,II", units.strip(), "0.5,1,2", "0.51,3,4", "0.52,5,6"]


def test_a_written_table_keeps_its_times(tmp_path: Path) -> None:
    path = written(tmp_path, "time;x", "0,00;1,5", "0,01;2,5", "0,02;3,5")
    signals = ww.data.load(path)
    text = encode(2 * signals[:].numpy(), path).decode()
    assert text.splitlines() == ["time;x", "0,00;3", "0,01;5", "0,02;7"]


def test_the_given_rate_is_used(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100))
    signals = ww.data.load(tmp_path / "x.npy", signals=True, rate=30_000)
    assert isinstance(signals, ww.data.Signals)
    assert signals.rate == 30_000


def test_a_rate_has_no_more_digits_than_the_times(tmp_path: Path) -> None:
    lines = [f"{n / 12_500:.6f},{n % 7}" for n in range(1000)]
    (tmp_path / "a.csv").write_text("time (s),mV\n" + "\n".join(lines) + "\n")
    signals = ww.data.load(tmp_path / "a.csv", signals=True)
    assert signals.rate == 12_500


def test_a_field_that_is_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("time,value\n0,1.5\n1,2.5\n2,cell died\n")
    with pytest.raises(ImageError, match=r"line 4 has the text 'cell died'\. Expected numbers"):
        ww.data.load(path)
