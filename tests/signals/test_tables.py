"""Columns of times and headings with units in tables of samples; reading itself is in
test_signals.py."""

from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.errors import ImageError
from whatwhere.model.events import Events
from whatwhere.signals.event_table import read_events
from whatwhere.signals.files import encode
from whatwhere.signals.tables import UnknownTimeUnit, read_table, split_unit, time_column


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
        ("4,5", "2,6", "3,7", "1,8"),
    ],
)
def test_other_columns_are_channels(tmp_path: Path, lines: tuple[str, ...]) -> None:
    path = written(tmp_path, *lines)
    assert time_column(read_table(path)) is None
    assert ww.data.load(path).shape[0] == 2


def test_a_heading_has_names_and_a_unit(tmp_path: Path) -> None:
    assert split_unit(' "EMG left [µV]" ') == ("EMG left", "µV")
    assert split_unit("EMG (left) (µV)") == ("EMG (left)", "µV")
    assert split_unit("left) [[µV]") == ("left)", "[µV")
    assert split_unit("EMG (left") == ("EMG (left", "")
    assert split_unit("left)") == ("left)", "")
    for hostile in ("[" * 200_000, "(" * 200_000 + ")x)", " " * 200_000 + "x)"):
        assert split_unit(hostile) == (hostile.strip(), "")  # in no time
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


@pytest.mark.parametrize(
    ("heading", "unit"),
    [("time (msec)", 1e-3), ("time (MS)", 1e-3), ("time (μs)", 1e-6), ("time (min)", 60)],
)
def test_units_of_time_have_several_names(tmp_path: Path, heading: str, unit: float) -> None:
    path = written(tmp_path, f"{heading},x", *(f"{2 * n},{n % 5}.5" for n in range(30)))
    signals = ww.data.load(path)
    assert signals.rate == pytest.approx(1 / (2 * unit))


def test_an_unknown_unit_of_time_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "time (fortnights),x", *(f"{n},{n % 5}.5" for n in range(30)))
    with pytest.raises(UnknownTimeUnit) as caught:
        ww.data.load(path)
    assert caught.value.unit == "fortnights"


@pytest.mark.parametrize(
    ("heading", "step", "rate"),
    [("time", 1, 1), ("time", 4, 250), ("seconds", 2, 0.5), ("time (s)", 60, 1 / 60)],
)
def test_times_without_a_unit(tmp_path: Path, heading: str, step: int, rate: float) -> None:
    path = written(tmp_path, f"{heading},x", *(f"{step * n},{n % 5}.5" for n in range(30)))
    assert ww.data.load(path).rate == pytest.approx(rate)


def test_dates_a_second_apart_are_seconds(tmp_path: Path) -> None:
    lines = [f"2020-01-01T00:00:{n:02},{n % 5}.5" for n in range(0, 60, 2)]
    assert ww.data.load(written(tmp_path, "timestamp,x", *lines)).rate == 0.5


def test_unix_times_are_known_by_their_size(tmp_path: Path) -> None:
    lines = [f"{1_600_000_000_000 + 4 * n},{n % 5}.5" for n in range(30)]
    signals = ww.data.load(written(tmp_path, "timestamp,x", *lines))
    assert signals.rate == 250
    assert signals.start == pytest.approx(1.6e9)


def test_a_pause_is_a_gap(tmp_path: Path) -> None:
    """And the table that is written has the lines of the one that was read."""
    at = [*range(50), *range(150, 200)]
    path = written(tmp_path, "time (s),x", *(f"{n / 100:.2f},{n % 7}" for n in at))
    signals = ww.data.load(path)
    assert signals.rate == pytest.approx(100)
    assert signals.shape == (1, 1, 200)
    values = signals[0][0]
    assert values[50:150].isnan().all()
    assert not values[at].isnan().any()
    assert signals.describe() == "1 channel, 100 Hz from column 'time (s)', 2 s, one gap"
    lines = encode(2 * signals[:].numpy(), path).decode().splitlines()
    assert len(lines) == 101
    assert lines[51] == "1.50,6"


def test_times_with_jitter_and_a_repeated_time_give_the_rate(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = np.arange(400) / 100 + rng.uniform(-0.001, 0.001, 400)
    times[200] = times[199]
    path = written(tmp_path, "time,x", *(f"{t:.5f},{n % 7}" for n, t in enumerate(times)))
    signals = ww.data.load(path)
    assert signals.rate == pytest.approx(100, rel=0.01)
    assert signals.shape == (1, 1, 400)


def test_times_that_are_not_even_are_no_channel(tmp_path: Path) -> None:
    path = written(tmp_path, "time,x", "0.1,5", "0.3,6", "0.2,7", "0.9,7")
    with pytest.warns(UserWarning, match="no usual step of time"):
        signals = ww.data.load(path)
    assert signals.shape == (1, 1, 4)
    assert signals.rate is None


@pytest.mark.parametrize("lines", [("0,5", "1,6", "2,7"), (",x", "0,5.5", "1,6", "2,7")])
def test_numbers_of_rows_are_no_channel(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.warns(UserWarning, match="counts the rows"):
        signals = ww.data.load(written(tmp_path, *lines), signals=True)
    assert signals.shape == (1, 1, 3)


def test_a_separator_at_the_end_of_lines_makes_no_channel(tmp_path: Path) -> None:
    path = written(tmp_path, "time (s),x,", *(f"{n / 100:.2f},{n % 5}.5," for n in range(30)))
    signals = ww.data.load(path)
    assert signals.shape == (1, 1, 30)
    assert signals.channel_names == ("x",)


@pytest.mark.parametrize("text", ["NA", "-"])
def test_a_first_sample_that_is_unknown_is_a_sample(tmp_path: Path, text: str) -> None:
    signals = ww.data.load(written(tmp_path, "x", text, "1.5", "2.5"), signals=True)
    np.testing.assert_array_equal(signals[0], [[np.nan, 1.5, 2.5]])


def test_commas_between_thousands(tmp_path: Path) -> None:
    path = written(tmp_path, "x\ty", "1,234.5\t2", "2,234.5\t3.5", "12,345\t4")
    np.testing.assert_array_equal(
        ww.data.load(path, signals=True)[0], [[1234.5, 2234.5, 12345], [2, 3.5, 4]]
    )


def test_a_table_of_physionet(tmp_path: Path) -> None:
    lines = [f"'0:{n // 100:02}.{n % 100 * 10:03}',-0.{n % 7}45,0.06{n % 5}" for n in range(200)]
    path = written(tmp_path, "'Elapsed time','MLII','V5'", "'hh:mm:ss.mmm','mV','mV'", *lines)
    signals = ww.data.load(path)
    assert signals.rate == pytest.approx(100)
    assert (signals.channel_names, signals.unit) == (("MLII", "V5"), "mV")
    assert signals.shape == (2, 1, 200)


def test_channels_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Otherwise events of the second would be read as those of the first."""
    lines = [f"0.{n},1.{n},2.{n}" for n in range(9)]
    signals = ww.data.load(written(tmp_path, "lead,lead,other", *lines))
    assert isinstance(signals, ww.data.Signals)
    assert signals.channel_names == ("lead", "lead (2)", "other")
    row = (0, 1, 0, 5.0, 0.1, 2.0, 1.0, 1, 0.9, False, 0.4, -1, 4.0, 0.1)
    Events.of([row]).to_csv(tmp_path / "events.csv", channel_names=signals.channel_names)
    assert read_events(tmp_path / "events.csv", signals.channel_names)["channel"] == [1]
