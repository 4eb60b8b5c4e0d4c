"""What is chosen from a recording: hum, length, number of waveforms; and by the commands, events of
a recording with drift, hum and gaps."""

import csv
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import whatwhere as ww
from raising import warns
from tiny_run import whatwhere
from whatwhere.app import app
from whatwhere.errors import OtherRateWarning, SpecError
from whatwhere.ops.input_stage import InputStage
from whatwhere.signals.recording import Signals, cut_windows
from whatwhere.signals.settings import NoEvents, choose_settings, find_hum, sample_of
from whatwhere.signals.training import detrended
from whatwhere.signals.waveforms import Extent, WeakPeaks, likeness, unit
from whatwhere.spec import InputSpec

RATE = 1000.0
LENGTH = 30


def shapes() -> np.ndarray:
    t = np.arange(LENGTH) - 12
    return np.stack(
        [
            -np.exp(-(t**2) / 8) + 0.5 * np.exp(-((t - 7) ** 2) / 18),
            np.exp(-(t**2) / 8) * np.cos(t),
        ]
    )


def simulated(events: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A recording with drift and hum, float32 [T], and the samples of its peaks."""
    rng = np.random.default_rng(seed)
    peaks = 100 + np.cumsum(rng.integers(50, 130, events))
    x = 0.06 * rng.standard_normal(peaks[-1] + 100)
    for n, at in enumerate(peaks):
        x[at - 12 : at - 12 + LENGTH] += shapes()[n % 2]
    t = np.arange(len(x))
    x += 2 * np.sin(2 * np.pi * t / 3000) + 0.5 * np.sin(2 * np.pi * 50.03 / RATE * t)
    return x.astype(np.float32), peaks


def signals(x: np.ndarray, rate: float | None = RATE) -> Signals:
    loaded = ww.data.load(x, signals=True, rate=rate, allow_nan=True)
    assert isinstance(loaded, Signals)
    return loaded


def test_a_waveform_whose_peaks_are_in_the_noise_is_found_by_its_energy() -> None:
    """Four channels: the second waveform has peaks of two deviations in each of them."""
    rng = np.random.default_rng(3)
    peaks = 100 + np.cumsum(60 + rng.exponential(90, 600).astype(int))
    patterns = np.array([[12.0, 6, 4, 8], [2.2, 2.2, 2.2, 2.2]])
    x = rng.standard_normal((4, peaks[-1] + 100))
    for n, at in enumerate(peaks):
        x[:, at - 12 : at - 12 + LENGTH] += patterns[n % 2][:, None] * shapes()[0]
    found = choose_settings(signals(x.astype(np.float32))).waveforms
    true = unit(torch.from_numpy(patterns[:, :, None] * shapes()[0]).float())
    length = found.shape[2]
    wide = torch.nn.functional.pad(true, (length, length))
    best = torch.nn.functional.conv1d(wide, found).amax(2)
    assert len(found) == 2
    assert float(best.amax(1).min()) > 0.9


def test_noise_does_not_split_a_waveform() -> None:
    """Its pieces have a place with few of them by chance, as near as no two waveforms can be."""
    rng = np.random.default_rng(3)
    peaks = 100 + np.cumsum(rng.integers(80, 200, 600))
    patterns = np.array([[12.0, 6, 4, 8], [2.2, 2.2, 2.2, 2.2]])
    x = rng.standard_normal((4, peaks[-1] + 100))
    for n, at in enumerate(peaks):
        x[:, at - 12 : at - 12 + LENGTH] += patterns[n % 2][:, None] * shapes()[0]
    assert len(choose_settings(signals(x.astype(np.float32))).waveforms) == 1


def test_the_rest_of_a_drift_is_no_weak_waveform() -> None:
    """It comes and goes, so it is no normal noise."""
    rng = np.random.default_rng(4)
    v = rng.standard_normal((1, 40_000))
    v[:, ::4000] = 20.0
    shape = unit(torch.from_numpy(shapes()[:1, None]).float())
    extent = Extent(12, LENGTH - 13)
    assert WeakPeaks.of(shape, torch.from_numpy(v).float(), extent, 5.0) is not None
    slow = np.convolve(0.6 * rng.standard_normal(40_000), shapes()[0], "same")
    slow[np.arange(40_000) % 4000 < 2500] = 0
    rest = torch.from_numpy(v + slow).float()
    assert WeakPeaks.of(shape, rest, extent, 5.0) is None


def test_the_mains_are_a_line_in_the_spectrum() -> None:
    x = torch.from_numpy(simulated()[0])[None]
    assert find_hum(x, RATE) * RATE == pytest.approx(50.03, abs=0.05)
    assert find_hum(x, None) == 0
    noise = torch.randn(1, 10_000, generator=torch.Generator().manual_seed(0))
    assert find_hum(noise, RATE) == 0


def test_settings_come_from_the_recording() -> None:
    chosen = choose_settings(signals(simulated()[0]))
    assert chosen.waveforms is not None
    count, channels, length = chosen.waveforms.shape
    assert (count, channels) == (2, 1)
    assert 16 <= length <= 50
    assert chosen.input.kind == "baseline"
    assert chosen.input.span == 4 * length
    true = unit(torch.from_numpy(shapes()).float()[:, None])
    padded = torch.nn.functional.pad(true, (0, max(0, length - LENGTH)))[..., :length]
    assert float(likeness(padded, chosen.waveforms).amax(1).min()) > 0.9
    assert "2 waveforms of" in chosen.words
    assert "hum of 50.0" in chosen.words
    fixed = choose_settings(signals(simulated()[0]), waveforms=1, length=24)
    assert fixed.waveforms is not None
    assert fixed.waveforms.shape == (1, 1, 24)


@pytest.mark.parametrize("length", [2, 24])
def test_waveforms_shorter_than_half_an_event_are_reported(length: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose_settings(signals(simulated()[0]), length=length)
    words = [str(one.message) for one in caught]
    assert any("hold only a part of the events" in text for text in words) == (length == 2)


@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_a_channel_that_hardly_counts_is_named(scale: float) -> None:
    """Such as an ECG in mV beside a pressure in mmHg; channels of one unit are no reason."""
    x = simulated()[0]
    both = replace(signals(np.stack([x, scale * x])), channel_names=("pressure", "ECG"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose_settings(both)
    messages = [str(warning.message) for warning in caught]
    if scale == 1:
        assert messages == []
    else:
        assert "channel pressure varies 50 times as much as channel ECG" in messages[0]


@pytest.mark.parametrize("off", [False, True])
def test_settings_come_from_where_a_sensor_is_on(off: bool) -> None:
    """The middle shows the settings, unless it is not typical of the recording."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 240_000)).astype(np.float32)
    if off:
        x[0, 80_000:160_000] *= 0.01
    sample = sample_of(signals(x))
    middle = x[:, 54_464 : 54_464 + (1 << 17)]
    if not off:
        np.testing.assert_array_equal(sample, middle)
        return
    on = np.abs(sample[0].numpy()) > 0.1
    assert 0.5 < on[~np.isnan(sample[0].numpy())].mean() < 0.75, "as in the whole recording"
    known = sample[0][~sample[0].isnan()]
    assert known[0] == x[0, 0]
    assert known[-1] == x[0, -1]


def test_windows_of_a_recording_show_the_same_settings_as_the_recording() -> None:
    """Those of 200 samples cut events and the drift."""
    recording = signals(simulated()[0])
    whole = choose_settings(recording)
    some = choose_settings(cut_windows(recording, 200).subset([3, 4, 5]))
    assert (some.words, some.input, some.lam) == (whole.words, whole.input, whole.lam)


@pytest.mark.parametrize("kind", ["noise", "zeros", "constant"])
def test_a_recording_without_events_is_an_error(kind: str) -> None:
    x = np.zeros(3000, np.float32)
    if kind == "noise":
        x = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    elif kind == "constant":
        x = np.full(300, 2.5, np.float32)
    with pytest.raises(NoEvents) as caught:
        choose_settings(signals(x))
    assert caught.value.events == 0


def test_three_events_show_their_length() -> None:
    """As in a short ECG."""
    x = 0.01 * np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    shape = np.hanning(30) - 0.3 * np.hanning(30)[::-1].cumsum() / 15
    for at in (150, 480, 830):
        x[at : at + 30] += shape
    chosen = choose_settings(ww.data.load(x, signals=True, rate=360))
    assert "3 events" in chosen.words
    assert chosen.waveforms.shape[2] != 64  # the length without peaks


def test_peaks_that_long_noise_has_are_no_events() -> None:
    """In two million values of this white noise, three are beyond five deviations."""
    x = np.random.default_rng(5).standard_normal((2, 1_000_000), np.float32)
    assert (np.abs(x) > 5).sum() >= 3
    with pytest.raises(NoEvents):
        choose_settings(ww.data.load(x, signals=True, rate=30_000))


def test_nothing_is_trained_on_noise(tmp_path: Path) -> None:
    np.save(tmp_path / "noise.npy", np.random.default_rng(1).normal(size=20_000))
    run = tmp_path / "run"
    with pytest.raises(NoEvents):
        whatwhere("train", tmp_path / "noise.npy", "--rate", 1000, "--out", run)
    assert not run.exists()


def test_training_windows_have_no_drift_and_are_known_by_the_recording() -> None:
    x, _ = simulated()
    recording = signals(x)
    stage = choose_settings(recording).input
    windows = detrended(recording, InputStage(stage))
    assert windows.shape == (1, 1, 2048)
    assert float(windows[:].median(-1).values.abs().max()) < 0.1
    assert windows.fingerprint == recording.fingerprint


def test_training_windows_keep_gaps_unknown() -> None:
    x, _ = simulated()
    x[4000:4090] = np.nan
    windows = detrended(signals(x), InputStage(InputSpec(kind="baseline", span=120)))
    values = windows[:][:, 0, 0]
    assert int(values.isnan().sum()) >= 90
    assert values.isnan()[1, 4000 - 2048 : 4090 - 2048].all()


def test_a_model_of_signals_is_checked_before_training(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "x.csv", simulated()[0])
    layers = "model.layers=[{maps=2,filter_size=[1,24]}]"  # its regions are two rows high
    with pytest.raises(SpecError, match="--waveforms 2 --length 24"):
        whatwhere("train", tmp_path / "x.csv", "--out", tmp_path / "run", "--set", layers)
    assert not (tmp_path / "run").exists()


def test_a_table_with_empty_fields_is_read_for_training(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("t,v\n0.1,1\n0.2,\n0.3,3\n")
    images, _ = ww.data.load_for_training(path)
    np.testing.assert_array_equal(images[0], [[1, np.nan, 3]])


def test_the_commands_find_all_events_and_no_others(tmp_path: Path) -> None:
    """With drift, hum and a gap, and nothing set by hand."""
    x, peaks = simulated()
    x[4000:4090] = np.nan
    inside = (peaks > 3985) & (peaks < 4105)
    np.save(tmp_path / "x.npy", x)
    run = tmp_path / "run"
    table = tmp_path / "events.csv"
    whatwhere("train", tmp_path / "x.npy", "--rate", "1000", "--out", run, "--quiet")
    output = whatwhere("events", tmp_path / "x.npy", run, "--out", table)
    assert "1 gap" in output
    events = np.genfromtxt(table, delimiter=",", names=True)
    negative = np.abs(shapes()[0]).max()  # a trough, the largest value of its waveform
    positive = np.abs(shapes()[1]).max()
    assert np.median(events["peak"][events["peak"] < 0]) == pytest.approx(-negative, rel=0.1)
    assert np.median(events["peak"][events["peak"] > 0]) == pytest.approx(positive, rel=0.1)
    with warns(OtherRateWarning, rate=500.0, learned=1000.0):
        whatwhere("events", tmp_path / "x.npy", run, "--rate", 500, "--out", tmp_path / "b.csv")
    at = events["seconds"] * RATE
    near = np.abs(at[:, None] - peaks).min(1)
    found = np.abs(at[:, None] - peaks[~inside]).min(0)
    assert (near[(at < 3985) | (at > 4105)] <= 2).mean() > 0.97
    assert (found <= 2).mean() > 0.97
    assert set(events["waveform"]) == {0, 1}
    history = ww.read_run(run).history
    assert history[-1].cost <= 1.01 * history[0].cost

    # one waveform instead of two, and their quality
    files = ("--out", tmp_path / "merged.csv", "--quality", tmp_path / "quality.csv")
    whatwhere("events", tmp_path / "x.npy", run, "--merge", "0,1", *files)
    merged = np.genfromtxt(tmp_path / "merged.csv", delimiter=",", names=True)
    assert len(merged) == len(events)
    assert set(merged["waveform"]) == {0}
    quality = np.genfromtxt(tmp_path / "quality.csv", delimiter=",", names=True)
    assert (int(quality["waveform"]), int(quality["events"])) == (0, len(events))
    assert quality["snr"] > 10

    # a figure of the table: no event is searched
    pytest.importorskip("matplotlib")
    said = whatwhere("figures", run, "--events", table, "--only", "raster", "--out", tmp_path)
    assert "finding events" not in said
    assert (tmp_path / "raster.png").exists()


def test_train_takes_the_number_and_the_length_of_the_waveforms() -> None:
    x, _ = simulated()
    with pytest.warns(UserWarning, match="Settings chosen from the recording"):
        run = ww.train(signals(x), waveforms=1, length="24ms")
    assert run.model.filters[0].shape == (1, 1, 1, round(0.024 * RATE))
    assert run.model.spec.input.kind == "baseline"
    with pytest.raises(SpecError):
        ww.train(signals(x), ww.read_recipe("signals"), waveforms=1)
    with pytest.raises(SpecError):
        ww.train(ww.data.load("digits")[:20], length=24)


def test_a_gap_longer_than_a_window_does_not_stop_training(tmp_path: Path) -> None:
    """By the commands, on a table with empty fields."""
    x, peaks = simulated(events=220)
    gap = slice(5000, 10_500)
    lines = [f"{value:.5f}" for value in x]
    lines[gap] = [""] * (gap.stop - gap.start)
    (tmp_path / "a.csv").write_text("ECG (mV)\n" + "\n".join(lines) + "\n")
    run = tmp_path / "run"
    whatwhere("train", tmp_path / "a.csv", "--rate", RATE, "--out", run)
    table = tmp_path / "events.csv"
    said = whatwhere("events", tmp_path / "a.csv", run, "--out", table)
    assert "1 gap longer than a waveform" in said
    assert "samples): 5.000 to 10.500 s" in said
    with open(table, newline="") as file:
        assert {event["channel"] for event in csv.DictReader(file)} == {"ECG"}
    found = np.genfromtxt(table, delimiter=",", names=True)["sample"]
    seen = peaks[(peaks < gap.start - 30) | (peaks > gap.stop + 30)]
    nearest = np.abs(found[:, None] - seen).min(0)
    assert (nearest < 5).mean() > 0.97


def test_an_unfinished_run_is_reported_where_it_is_used(
    tmp_path: Path,
) -> None:
    x, _ = simulated()
    np.savetxt(tmp_path / "a.csv", x, header="mV", comments="")
    run = tmp_path / "run"
    whatwhere("train", tmp_path / "a.csv", "--out", run)
    assert ww.read_run(run).is_finished
    history = (run / "history.jsonl").read_text().splitlines()
    (run / "history.jsonl").write_text(history[0] + "\n")
    assert not ww.read_run(run).is_finished
    words = ["events", tmp_path / "a.csv", run, "--out", tmp_path / "events.csv"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0
    assert f"is not finished: it has 1 epoch of {len(history)}" in result.stderr
    assert "no times in seconds, because the rate is not known (give --rate)" in result.stdout


def test_a_recording_of_another_size_has_no_events_and_a_hint(tmp_path: Path) -> None:
    """Such as one in V where the model learned in mV; and `denoise` shows that it works."""
    x, _ = simulated()
    run = tmp_path / "run"
    np.save(tmp_path / "x.npy", x)
    whatwhere("train", tmp_path / "x.npy", "--rate", RATE, "--out", run)
    np.save(tmp_path / "small.npy", x / 1000)
    said = whatwhere("events", tmp_path / "small.npy", run, "--out", tmp_path / "none.csv")
    assert "0 events. Check that the recording has the rate and the unit" in said
    words = ["denoise", tmp_path / "x.npy", run, "--out", tmp_path / "clean.npy"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0
    assert f"denoise {tmp_path / 'x.npy'}" in result.stderr
