"""The noise that an event must exceed: of recordings with quiet places, and without."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.inference.tiled import TileGrid
from whatwhere.model.events import join_events
from whatwhere.signals.find import EventSettings, iter_events
from whatwhere.signals.noise import WaveformNoise, waveform_noise, whole_places, without_events

LENGTH = 40
SIGMA = 0.05


def waveform() -> np.ndarray:
    t = np.arange(LENGTH) - 15
    shape = np.exp(-(t**2) / 40) - 0.5 * np.exp(-((t - 12) ** 2) / 30)
    return shape / np.linalg.norm(shape)


def model_of(shape: np.ndarray) -> ww.DeconvNet:
    model = ww.DeconvNet(ww.ModelSpec.signals(1, LENGTH))
    return model.with_filters(1, torch.from_numpy(shape).float()[None, None, None])


def without_rhythm(
    model: ww.DeconvNet, x: np.ndarray, spec: ww.InferenceSpec | None = None
) -> ww.Events:
    """Events as the noise alone decides."""
    settings = EventSettings(rhythm=None)
    return join_events(list(iter_events(model, x, spec, settings=settings)))


def recording(distance: int, samples: int = 12_000, gap: bool = False) -> np.ndarray:
    """Events of amplitude 3 that follow each other at about this distance."""
    rng = np.random.default_rng(0)
    x = SIGMA * rng.standard_normal(samples)
    at = 50
    while at < samples - 2 * LENGTH:
        x[at : at + LENGTH] += 3 * waveform()
        at += distance + int(rng.integers(3))
    if gap:
        x[3000:3500] = np.nan
    return x.astype(np.float32)


def noise_of(x: np.ndarray) -> WaveformNoise:
    model = model_of(waveform())
    grid = TileGrid.of(model.spec, 1, len(x), 4096, 160)
    picture = torch.from_numpy(x)[None, None]
    return waveform_noise(model, picture, grid)


@pytest.mark.parametrize("gap", [False, True])
def test_quiet_places_show_the_noise(gap: bool) -> None:
    noise = noise_of(recording(300, gap=gap))
    assert not noise.covers
    assert float(noise.deviations[0]) == pytest.approx(SIGMA, rel=0.1)


def test_events_are_no_noise_where_few_places_are_far_from_them() -> None:
    """Every place is near an event, but events cover less than half of the recording."""
    noise = noise_of(recording(LENGTH * 9 // 4))
    assert not noise.covers
    assert float(noise.deviations[0]) == pytest.approx(SIGMA, rel=0.3)


def test_a_covered_recording_shows_it_without_its_events() -> None:
    """Events that follow each other without a pause."""
    x = recording(LENGTH)
    noise = noise_of(x)
    assert noise.covers
    assert 0.5 * SIGMA < noise.deviations[0] < 1.5 * SIGMA
    found = ww.find_events(model_of(waveform()), x)
    assert len(found) == pytest.approx(12_000 / (LENGTH + 1), rel=0.05)


def test_in_a_covered_recording_an_event_has_half_of_the_energy_where_it_lies() -> None:
    x = recording(LENGTH)
    every = ww.find_events(model_of(waveform()), x)
    middle = int(every["sample"][len(every) // 2])
    peak = int(np.abs(waveform()).argmax())
    t = np.arange(middle - peak, middle - peak + LENGTH)
    x[t] += np.cos(2.6 * t)  # the event has about a third of the energy then
    found = without_rhythm(model_of(waveform()), x)
    assert len(found) == len(every) - 1
    assert np.abs(found["sample"] - middle).min() > LENGTH / 2


def test_what_is_left_without_events_is_the_noise() -> None:
    x = recording(LENGTH)
    f = torch.from_numpy(waveform()).float()[None, None]
    rest = without_events(torch.from_numpy(x)[None, None], f, nonnegative=True)
    assert rest.covered > 0.9
    assert float(rest.signal.square().mean()) < 0.1 * float((x**2).mean())
    sparse = without_events(torch.from_numpy(recording(300))[None, None], f, nonnegative=True)
    assert sparse.covered < 0.5


def test_noise_is_measured_where_all_of_a_waveform_is_known() -> None:
    known = torch.ones(1, 1, 30)
    known[..., 12:15] = 0
    whole = whole_places(known, 30, 5)
    assert whole.tolist() == [not 8 <= place <= 14 for place in range(26)]
    assert whole_places(None, 30, 5).all()


def test_noise_alone_has_hardly_any_events() -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    spec = ww.InferenceSpec(lam=0.5)
    noise = [np.random.default_rng(seed).normal(size=5000) for seed in range(4)]
    assert sum(len(ww.find_events(model, recording, spec)) for recording in noise) <= 8


def test_lambda_sets_the_least_amplitude() -> None:
    """A recording whose events are 3 has none of 0.4 if λ leaves out what is less."""
    x = recording(300)
    x[8000 : 8000 + LENGTH] = 0.6 * waveform()
    model = model_of(waveform())
    by_noise = without_rhythm(model, x, ww.InferenceSpec.coding(lam=1 / (4 * SIGMA)))
    by_size = without_rhythm(model, x, ww.InferenceSpec.coding(lam=1 / 0.5))
    assert (by_noise["amplitude"] < 1).sum() == 1
    assert (by_size["amplitude"] < 1).sum() == 0
    assert len(by_size) == len(by_noise) - 1


def test_events_in_a_burst_of_noise_exceed_the_burst() -> None:
    """Twelve times the noise for a quarter of the recording: nothing of it is an event, and the
    events outside of it are the same."""
    x = recording(300)
    burst = slice(5000, 8000)
    noisy = x.copy()
    noisy[burst] += 12 * SIGMA * np.random.default_rng(1).standard_normal(3000)
    spec = ww.InferenceSpec.coding(lam=1 / (4 * SIGMA))
    clean = without_rhythm(model_of(waveform()), x, spec)
    found = without_rhythm(model_of(waveform()), noisy, spec)
    every = EventSettings(rhythm=None, bursts=False)
    without = join_events(list(iter_events(model_of(waveform()), noisy, spec, settings=every)))
    assert len(without) >= len(clean) + 4, "what the burst would add"
    distance = np.abs(found["sample"][:, None] - clean["sample"])
    assert (distance.min(1) < 5).mean() > 0.95
    outside = (clean["sample"] < burst.start - 1100) | (clean["sample"] > burst.stop + 1100)
    assert (distance.min(0)[outside] < 5).all()


def test_a_recording_without_bursts_has_one_noise() -> None:
    noise = noise_of(recording(60))
    assert noise.quiet is not None
    assert noise.quiet.louder(torch.from_numpy(recording(60)[2000:6000])[None]) is None
