"""Events that begin suddenly, in recordings whose events are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.app import app
from whatwhere.errors import SpecError
from whatwhere.learning.defaults import RecordingOptions
from whatwhere.signals.event_table import events_within, read_events
from whatwhere.signals.recording import Signals
from whatwhere.signals.rises import sudden_decays
from whatwhere.signals.settings import NoEvents

pytestmark = pytest.mark.filterwarnings("ignore:Settings chosen from the recording")


def calcium(
    rate: float = 60.0, seconds: float = 120, noise: float = 0.05
) -> tuple[Signals, np.ndarray]:
    """Return transients that rise in 50 ms and decay in 0.6 s, several of which add up, above a
    slow drift, and their times."""
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(1.5, 200) + 0.4)
    times = times[times < seconds - 2]
    t = np.arange(round(seconds * rate)) / rate
    since = t[:, None] - times
    sizes = rng.uniform(0.5, 1.5, len(times))
    after = np.maximum(since, 0)
    x = (sizes * (1 - np.exp(-after / 0.05)) * np.exp(-after / 0.6) * (since > 0)).sum(1)
    x += 0.3 * np.sin(2 * np.pi * t / 47) + noise * rng.standard_normal(len(t))
    return ww.data.load(x[None, None].astype(np.float32), signals=True, rate=rate), times


def matched(times: np.ndarray, found: np.ndarray, near: float) -> int:
    return int((np.abs(found[:, None] - times).min(0) < near).sum())


def test_transients_that_add_up_are_found_one_by_one() -> None:
    recording, times = calcium()
    run = ww.train(recording, rise="150ms")
    assert run.model.spec.input.kind == "rise"
    assert run.model.filters[0].shape[1] == 1
    events = ww.find_events(run.model, recording, run.recipe.inference)
    assert matched(times, events["onset_seconds"], 0.15) >= 0.93 * len(times)
    assert len(events) <= 1.05 * len(times)
    np.testing.assert_array_equal(events["onset"], events["sample"])
    sizes = events["peak"][events["doubtful"] == 0]
    assert 0.3 < np.median(sizes) < 1.2, "in the unit of the recording"


@pytest.mark.filterwarnings("ignore:Waveforms of 40 samples")
def test_transients_are_recognised_without_an_option() -> None:
    recording, times = calcium()
    span = sudden_decays(recording)
    assert span is not None
    assert 0.05 < span / 60 < 0.3, "seconds within which they rise"
    run = ww.train(recording)
    assert (run.model.spec.input.kind, run.model.spec.input.span) == ("rise", span)
    events = ww.find_events(run.model, recording, run.recipe.inference)
    assert matched(times, events["onset_seconds"], 0.25) >= 0.9 * len(times)
    asked = RecordingOptions(length=40)
    given = recording.between(0, 40).choose_defaults(asked).recipe
    assert given.model.input.kind == "baseline", "a length asks for waveforms"


@pytest.mark.parametrize("kind", ["spikes", "falls", "beats", "steps", "hum", "two channels"])
def test_other_recordings_are_no_transients(kind: str) -> None:
    """Pulses that fall as they rise; transients upside down, at a steady pace or in hum; a level
    that stays; and two channels."""
    rng = np.random.default_rng(3)
    t = np.arange(7200) / 60
    at = np.cumsum(rng.exponential(1.5, 60) + 0.4)
    if kind == "beats":
        at = np.arange(1, 110, 1.0) + rng.normal(0, 0.02, 109)
    since = t[:, None] - at[at < 110]
    after = np.maximum(since, 0)
    x = ((1 - np.exp(-after / 0.05)) * np.exp(-after / 0.6) * (since > 0)).sum(1)
    if kind == "spikes":
        x = np.exp(-0.5 * (since / 0.05) ** 2).sum(1)
    elif kind == "falls":
        x = -x
    elif kind == "steps":
        x = (since > 0).sum(1).astype(float)
    elif kind == "hum":
        x += np.sin(2 * np.pi * 50 * t * 60 / 1000)
    x += 0.05 * rng.standard_normal(len(t))
    values = np.stack([x] * (2 if kind == "two channels" else 1))
    rate = 1000 if kind == "hum" else 60
    recording = ww.data.load(values[None].astype(np.float32), signals=True, rate=rate)
    assert sudden_decays(recording) is None


def test_bursts_begin_where_a_recording_becomes_louder() -> None:
    """Bursts of noise: no two have the same waveform. One channel is off."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 12_000))
    begins = np.array([1500, 4200, 6000, 9000])
    for begin in begins:
        fade = np.exp(-np.arange(12_000 - begin) / 400)
        x[:, begin:] += 8 * fade * rng.standard_normal((3, 12_000 - begin))
    x[2] = 0
    recording = ww.data.load(x[None].astype(np.float32), signals=True, rate=100)
    run = ww.train(recording, louder="2s")
    events = ww.find_events(run.model, recording, run.recipe.inference)
    assert len(events) == len(begins)
    np.testing.assert_allclose(events["onset"], begins, atol=6)
    np.testing.assert_allclose(events["onset_seconds"], events["onset"] / 100)
    assert events["peak"].min() > 8, "decibels"


@pytest.mark.parametrize("option", ["rise", "louder"])
def test_no_rise_in_noise(option: str) -> None:
    noise = np.random.default_rng(0).standard_normal((1, 1, 20_000)).astype(np.float32)
    recording = ww.data.load(noise, signals=True, rate=100)
    with pytest.raises(NoEvents):
        ww.train(recording, **{option: "2s"})  # type: ignore[arg-type]


def test_options_that_contradict_each_other() -> None:
    recording = calcium(seconds=20)[0]
    for given in ({"rise": 9, "louder": 9}, {"rise": 9, "length": 9}, {"rise": 9, "waveforms": 2}):
        with pytest.raises(SpecError):
            ww.train(recording, **given)  # type: ignore[arg-type]
    with pytest.raises(SpecError):
        ww.train(recording, rise="10s")
    with pytest.raises(SpecError):
        ww.train(replace(recording, rate=None), rise="150ms")


def test_a_part_of_a_recording_by_the_commands(tmp_path: Path) -> None:
    """--start and --end: the times and samples of the table are those of the file."""
    recording, times = calcium()
    np.save(tmp_path / "a.npy", recording[0].numpy())
    run, table = tmp_path / "run", tmp_path / "events.csv"
    part = ["--start", "0:00:30", "--end", "1min", "--quiet"]
    rate = ["--rate", "60"]
    file = str(tmp_path / "a.npy")
    for words in (
        ["train", file, *rate, *part, "--rise", "150ms", "--out", str(run)],
        ["events", file, str(run), *rate, *part, "--out", str(table)],
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    events = read_events(table)
    expected = times[(times > 30) & (times < 60)]
    assert abs(len(events) - len(expected)) <= 2
    assert 30 < events["seconds"].min() < events["seconds"].max() < 60
    np.testing.assert_allclose(events["sample"] / 60, events["seconds"], atol=1e-4)
    within = events_within(events, recording.between(30, 60))
    np.testing.assert_allclose(within["sample"], events["sample"] - 1800)
