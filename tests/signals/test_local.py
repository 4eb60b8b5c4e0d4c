"""Waveforms of a probe: local in space, each event counted once."""

from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.signals.local import parts_of, without_doubles
from whatwhere.signals.recording import Signals

pytestmark = pytest.mark.filterwarnings("ignore:Settings chosen from the recording")

CHANNELS, LENGTH = 8, 14_000
UNITS = (1.0, 3.6)  # places along the probe, in channels; the second is between two groups
PEAKS = [1, 4]  # their largest channels


def shape_of(unit: int) -> np.ndarray:
    """A spike [C, K] with its trough at sample 15, that fades with distance."""
    t = np.arange(40) - 15.0
    course = -np.exp(-0.5 * (t / (2 + unit)) ** 2) + 0.4 * np.exp(-0.5 * ((t - 9) / 4) ** 2)
    near = np.exp(-0.5 * ((np.arange(CHANNELS) - UNITS[unit]) / 0.9) ** 2)
    return near[:, None] * course


@pytest.fixture(scope="module")
def recording() -> tuple[Signals, np.ndarray, np.ndarray]:
    """Return a recording, and the sample and the unit of each spike; some are at one time at two
    places."""
    rng = np.random.default_rng(0)
    x = 0.05 * rng.standard_normal((CHANNELS, LENGTH)).astype(np.float32)
    samples, units = [], []
    for unit in range(len(UNITS)):
        at = 200 + np.cumsum(rng.integers(120, 300, 90))
        if unit == 1:
            at[:10] = samples[0][:10] + rng.integers(-9, 10, 10)
            at = np.unique(at)
        for one in at[at < LENGTH - 100]:
            x[:, one - 15 : one + 25] += shape_of(unit)
        samples.append(at[at < LENGTH - 100])
        units.append(np.full(len(samples[-1]), unit))
    signals = ww.data.load(x[None], signals=True, rate=30_000)
    return signals, np.concatenate(samples), np.concatenate(units)


@pytest.fixture(scope="module")
def run(
    recording: tuple[Signals, np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> ww.TrainedRun:
    file = tmp_path_factory.mktemp("probe") / "probe.csv"
    rows = [f"{n},0,{20 * n}" for n in range(CHANNELS)]
    file.write_text("\n".join(["channel,x,y", *rows]))
    return ww.train(recording[0], probe=file)


def test_each_unit_has_one_waveform_on_the_channels_near_it(run: ww.TrainedRun) -> None:
    f = run.model.filters[0][:, :, 0].transpose(0, 1).numpy()
    peaks = np.abs(f).max(2).argmax(1)
    assert sorted(peaks.tolist()) == PEAKS
    assert ((f != 0).any(2).sum(1) < CHANNELS).all()
    for waveform, peak in zip(f, peaks, strict=True):
        shape = shape_of(PEAKS.index(peak)) * (waveform != 0).any(1)[:, None]
        product = sum(np.correlate(*pair, "full") for pair in zip(waveform, shape, strict=True))
        assert np.max(product) > 0.97 * np.linalg.norm(waveform) * np.linalg.norm(shape)


def test_spikes_are_found_once_each(
    run: ww.TrainedRun, recording: tuple[Signals, np.ndarray, np.ndarray]
) -> None:
    signals, samples, units = recording
    events = ww.find_events(run.model, signals, run.recipe.inference)
    f = run.model.filters[0][:, :, 0].transpose(0, 1).numpy()
    unit_of = np.array([PEAKS.index(k) for k in np.abs(f).max(2).argmax(1)])
    for unit in range(len(UNITS)):
        own = np.sort(events["sample"][unit_of[events["waveform"]] == unit])
        true = np.sort(samples[units == unit])
        distance = np.abs(own[:, None] - true)
        assert (distance.min(0) < 5).mean() > 0.97
        assert len(own) <= 1.02 * len(true)
    assert (np.diff(events["sample"]) >= 0).all()
    peaks = np.abs(f).max(2).argmax(1)
    np.testing.assert_array_equal(events["channel"], peaks[events["waveform"]])
    assert 0.8 < np.median(np.abs(events["peak"])) < 1.1, "in the unit of the recording"


def local_model() -> ww.DeconvNet:
    """Four waveforms of 16 samples on six channels, two of them on each half."""
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=4, length=16, channels=6), seed=3)
    filters = model.filters[0].clone()
    filters[3:, :2] = 0
    filters[:3, 2:] = 0
    return model.with_filters(1, model.project(1, filters.double()).to(model.dtype))


def test_the_parts_of_a_model_are_the_channels_of_its_waveforms() -> None:
    parts = parts_of(local_model())
    assert sorted(part.channels.tolist() for part in parts) == [[0, 1, 2], [3, 4, 5]]
    for part in parts:
        assert part.own.tolist() == [True, True]
    assert parts_of(ww.DeconvNet(ww.ModelSpec.signals(maps=4, length=16, channels=6))) == []


def test_of_two_groups_that_explain_one_spike_the_larger_event_counts() -> None:
    model = local_model()
    filters = model.filters[0].clone()
    filters[1:3, 2] = filters[1:3, 0]  # on the channels that both groups share
    filters[3:, 2] *= 0.1
    model = model.with_filters(1, model.project(1, filters.double()).to(model.dtype))
    events = ww.find_events(model, torch.zeros(6, 200), ww.InferenceSpec(lam=1.0), threshold=0)
    assert len(events) == 0
    table = np.zeros(3, events.dtype).view(type(events))
    table["sample"] = [50, 52, 120]
    table["waveform"] = [0, 2, 2]
    table["amplitude"] = [1.0, 3.0, 1.0]
    left = without_doubles(table, model)
    np.testing.assert_array_equal(left["sample"], [52, 120])
    table["sample"] = [50, 90, 120]
    assert len(without_doubles(table, model)) == 3


def test_a_probe_and_a_number_of_waveforms_contradict_each_other(tmp_path: Path) -> None:
    from whatwhere.errors import SpecError

    with pytest.raises(SpecError):
        ww.train(np.zeros((1, 2, 5000), np.float32), probe=tmp_path / "a.csv", waveforms=2)
