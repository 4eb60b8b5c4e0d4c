"""Which events fit the rhythm of a recording: trains of beats whose true times are known."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.model.events import join_events
from whatwhere.signals.find import EventSettings, Rhythm, iter_events
from whatwhere.signals.rhythm import Candidates, choose_in_rhythm, find_usual, regularity

LENGTH = 40
SIGMA = 0.05


def waveform() -> np.ndarray:
    t = np.arange(LENGTH) - 15
    shape = np.exp(-(t**2) / 40) - 0.5 * np.exp(-((t - 12) ** 2) / 30)
    return shape / np.linalg.norm(shape)


def model_of(shape: np.ndarray) -> ww.DeconvNet:
    model = ww.DeconvNet(ww.ModelSpec.signals(1, LENGTH))
    return model.with_filters(1, torch.from_numpy(shape).float()[None, None, None])


def beats(count: int, early: int = 0, seed: int = 0) -> np.ndarray:
    """Times at a pace that drifts by a tenth; some come early, with a pause after them."""
    rng = np.random.default_rng(seed)
    pace = 1 + 0.1 * np.sin(np.arange(count) / 20) + 0.03 * rng.standard_normal(count)
    times = np.cumsum(pace)
    times[rng.choice(np.arange(5, count - 5, 3), early, replace=False)] -= 0.35
    return times


def test_times_of_a_clock_are_regular_and_random_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    assert regularity(beats(200, early=20)) > 0.75
    assert regularity(np.sort(rng.uniform(0, 200, 200))) < 0.3
    assert regularity(beats(20)) == 0


@pytest.mark.parametrize("early", [0, 60])
def test_artefacts_between_beats_are_left_out_and_weak_beats_are_added(early: int) -> None:
    rng = np.random.default_rng(1)
    true = beats(400, early)
    share = rng.uniform(0.85, 1, 400)
    weak = rng.choice(400, 40, replace=False)
    share[weak] = rng.uniform(0.15, 0.4, 40)
    false = true[rng.choice(390, 60, replace=False)] + rng.uniform(0.25, 0.45, 60)
    time = np.concatenate([true, false])
    order = np.argsort(time)
    waveform = np.concatenate([np.zeros(400, int), np.ones(60, int)])[order]
    share = np.concatenate([share, rng.uniform(0.1, 0.8, 60)])[order]
    is_true = (np.arange(460) < 400)[order]
    usual = time[order][share > 0.5]
    chosen = choose_in_rhythm(Candidates(time[order], waveform, share), usual)
    assert is_true[chosen].mean() > 0.98
    assert is_true[chosen].sum() > 0.98 * 400


def with_weak(times: np.ndarray, weak: np.ndarray, size: float = 0.15) -> tuple[np.ndarray, ...]:
    """Times of strong events and of weak ones in order, their waveforms and their sizes."""
    both = np.concatenate([times, weak])
    order = np.argsort(both)
    number = (np.arange(len(both)) >= len(times))[order].astype(int)
    return both[order], number, np.where(number == 1, size, 1.0)


def test_weak_events_that_accompany_beats_do_not_hide_the_rhythm() -> None:
    true = beats(200)
    rng = np.random.default_rng(4)
    before = true - 0.2 + 0.01 * rng.standard_normal(200)
    after = (true + 0.38 + 0.01 * rng.standard_normal(200))[:150]
    times, number, size = with_weak(true, np.concatenate([before, after]))
    found = find_usual(times, number, size)
    assert regularity(times) < 0.65  # and yet the period is not that of the beats
    assert found.regular > 0.9
    assert (times[found.taken] == true).all()


@pytest.mark.parametrize("kind", ["large", "at random times", "without a rhythm", "few"])
def test_other_events_count_for_the_rhythm(kind: str) -> None:
    rng = np.random.default_rng(5)
    true = beats(200)
    weak = true - 0.2
    if kind == "at random times":
        weak = rng.uniform(0, 200, 200)
    elif kind == "without a rhythm":
        true = np.sort(rng.uniform(0, 200, 200))
        weak = true - 0.01
    elif kind == "few":
        weak = weak[:20]
    size = 0.6 if kind == "large" else 0.15
    times, number, sizes = with_weak(true, weak, size)
    found = find_usual(times, number, sizes)
    assert found.taken.all()
    assert found.regular == regularity(times)


@pytest.mark.parametrize("length", [0.3, 0.01])
def test_small_events_between_large_ones_hide_no_rhythm_of_beats(length: float) -> None:
    """A waveform much shorter than the period is a spike, and small spikes are another neuron's."""
    true = beats(200)
    small = np.random.default_rng(6).uniform(0, true[-1], 300)
    times, number, sizes = with_weak(true, small, 0.4)
    found = find_usual(times, number, sizes, length)
    if length == 0.01:
        assert found.taken.all()
        return
    assert (times[found.taken] == true).all()
    assert found.regular > 0.9
    assert 0.4 < found.least < 1


def recording(times: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    x = SIGMA * np.random.default_rng(2).standard_normal(int(times.max()) + 2 * LENGTH)
    for time, size in zip(times.astype(int), sizes, strict=True):
        x[time : time + LENGTH] += size * waveform()
    return x.astype(np.float32)


def test_find_events_adds_a_weak_beat_that_the_rhythm_expects() -> None:
    times = 200 * beats(60)
    sizes = np.full(60, 3.0)
    sizes[30] = 0.18  # 3.6 deviations of the noise
    x = recording(times, sizes)
    rhythms: list[Rhythm] = []
    found = join_events(list(iter_events(model_of(waveform()), x, on_rhythm=rhythms.append)))
    settings = EventSettings(rhythm=None)
    without = join_events(list(iter_events(model_of(waveform()), x, settings=settings)))
    assert (len(found), len(without)) == (60, 59)
    assert [(rhythm.left_out, rhythm.added) for rhythm in rhythms] == [(0, 1)]
    assert rhythms[0].period == pytest.approx(200, rel=0.1)
    assert "added 1 weak one" in rhythms[0].in_words(1000.0)


def test_events_at_random_times_stay_as_they_are() -> None:
    rng = np.random.default_rng(3)
    times = np.cumsum(50 + rng.exponential(150, 80))
    x = recording(times, np.full(80, 3.0))
    found = ww.find_events(model_of(waveform()), x)
    settings = EventSettings(rhythm=None)
    without = join_events(list(iter_events(model_of(waveform()), x, settings=settings)))
    assert len(found) == len(without) == 80
    assert (found["sample"] == without["sample"]).all()
