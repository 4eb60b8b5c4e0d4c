"""Events that lie on each other: one event that two waveforms explain together is one, two events
stay two."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.model.events import FIELDS, Events
from whatwhere.signals.overlaps import (
    FAINT,
    NEAR,
    Limits,
    Stretch,
    Trials,
    explain_overlaps,
    groups,
    waveforms_at,
)

LENGTH = 21


def waveforms() -> np.ndarray:
    """Two that look alike, and one that does not, [3, 1, K]."""
    t = np.arange(LENGTH) - 10
    shapes = np.stack([np.exp(-(t**2) / 8), np.exp(-(t**2) / 30), np.sin(t) * np.exp(-(t**2) / 18)])
    return (shapes / np.linalg.norm(shapes, axis=1, keepdims=True))[:, None]


def stretch(
    truth: list[tuple[int, int, float]], events: Events, unknown: slice = slice(0, 0)
) -> Stretch:
    """A stretch with these waveforms, peaks and amplitudes, and what the events leave of it."""
    f = waveforms()
    signal = np.zeros((1, 300 + 2 * LENGTH))
    found = np.zeros_like(signal)
    peaks = np.abs(f).max(1).argmax(1)

    def add(to: np.ndarray, number: int, peak: int, amplitude: float) -> None:
        first = peak - peaks[number] + LENGTH
        to[:, first : first + LENGTH] += amplitude * f[number]

    for number, peak, amplitude in truth:
        add(signal, number, peak, amplitude)
    for event in events:
        add(found, event["waveform"], int(event["sample"]), event["amplitude"])
    seen = np.ones_like(signal)
    seen[:, LENGTH:][:, unknown] = 0
    return Stretch(f, signal * seen, (signal - found) * seen, seen, LENGTH)


def events_at(*rows: tuple[int, int, float]) -> Events:
    events = np.zeros(len(rows), FIELDS).view(Events)
    events["waveform"] = [row[0] for row in rows]
    events["sample"] = [row[1] for row in rows]
    events["amplitude"] = [row[2] for row in rows]
    events["explained"] = np.nan
    events["layer"] = 1
    return events


LIMITS = Limits(np.full(3, 0.5), 0.1)


def test_one_event_that_two_waveforms_share_is_one() -> None:
    events = events_at((0, 100, 1.1), (1, 101, 0.8))
    found = explain_overlaps(events, stretch([(0, 100, 2.0)], events), LIMITS)
    assert len(found) == 1
    assert found["waveform"][0] == 0
    assert found["sample"][0] == 100
    assert found["amplitude"][0] == pytest.approx(2.0, rel=1e-6)
    assert found["explained"][0] == pytest.approx(1.0, rel=1e-6)


def test_two_events_stay_two() -> None:
    events = events_at((0, 100, 1.0), (2, 107, 2.0))
    truth = [(0, 100, 1.5), (2, 107, 2.5)]
    found = explain_overlaps(events, stretch(truth, events), LIMITS)
    np.testing.assert_array_equal(found["waveform"], [0, 2])
    np.testing.assert_allclose(found["amplitude"], [1.5, 2.5], rtol=1e-6)
    assert (found["explained"] < 0.97).all(), "the other event has a share of the energy, too"


def test_events_alone_are_left_as_they_are() -> None:
    events = events_at((0, 100, 1.0), (2, 180, 2.0))
    found = explain_overlaps(events, stretch([(0, 100, 1.5), (2, 180, 2.0)], events), LIMITS)
    np.testing.assert_array_equal(found["amplitude"], [1.0, 2.0])


def test_groups_are_chains_of_near_events() -> None:
    samples = np.array([0.0, 5, 9, 30, 50, 55])
    np.testing.assert_array_equal(groups(samples, 10), [0, 0, 0, -1, 1, 1])
    np.testing.assert_array_equal(groups(samples, 2), [-1] * 6)
    assert len(groups(np.zeros(0), 10)) == 0


def test_unknown_samples_have_no_part_in_an_overlap() -> None:
    events = events_at((0, 100, 1.0), (2, 107, 2.0))
    truth = [(0, 100, 1.5), (2, 107, 2.5)]
    found = explain_overlaps(events, stretch(truth, events, slice(103, 106)), LIMITS)
    np.testing.assert_array_equal(found["waveform"], [0, 2])
    np.testing.assert_allclose(found["amplitude"], [1.5, 2.5], rtol=1e-6)


def test_between_samples_a_waveform_is_the_mean_of_two_shifts() -> None:
    given = stretch([], events_at())
    one = np.ones(1)
    whole, half, next_one = (
        waveforms_at(np.array([time]), np.zeros(1, int), one, given, (1, 200))[0]
        for time in (80.0, 80.5, 81.0)
    )
    np.testing.assert_allclose(half, (whole + next_one) / 2, atol=1e-12)
    assert whole.argmax() == 80


def test_correlations_and_energies_are_those_of_the_shapes() -> None:
    """Every waveform at times with and without a fraction, on two channels with unknown samples."""
    rng = np.random.default_rng(3)
    f = rng.standard_normal((3, 2, 9))
    given = Stretch(f, *(np.zeros((2, 60)) for _ in range(3)), 9)
    seen = (rng.random((2, 60)) > 0.2).astype(float)
    x = rng.standard_normal((2, 60)) * seen
    trials = Trials.near(np.array([20.0, 31.4]), np.array([0, 1]), given, seen)
    correlations = trials.correlations(x, np.arange(len(trials.time)))
    energies = trials.energies()
    for n, time in enumerate(trials.time):
        for b in range(len(f)):
            dense = seen * shape_at(given, b, time, x.shape)
            assert correlations[n, b] == pytest.approx((dense * x).sum(), rel=1e-9)
            assert energies[n, b] == pytest.approx((dense**2).sum(), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_groups_side_by_side_are_those_of_a_dense_pursuit_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels = 1 + seed % 2
    f = rng.standard_normal((4, channels, LENGTH)) * np.hanning(LENGTH)
    f /= np.linalg.norm(f, axis=(1, 2), keepdims=True)
    length = 600
    frame = LENGTH
    seen = np.zeros((channels, length + 2 * frame))
    seen[:, frame:-frame] = 1
    seen[:, frame + 200 : frame + 204] = 0
    empty = Stretch(f, seen, seen, seen, frame)
    times = np.sort(rng.uniform(-4, length + 4, 55)).round(1)
    events = events_at(*((int(rng.integers(4)), t, rng.uniform(0.5, 2)) for t in times))
    signal = 0.05 * rng.standard_normal(seen.shape)
    found = np.zeros_like(signal)
    for event in events:
        number, sample = int(event["waveform"]), event["sample"] + frame
        found += event["amplitude"] * shape_at(empty, number, sample, seen.shape)
        if rng.random() < 0.7:  # the others are what inference made of noise
            shifted = sample + rng.integers(-1, 2)
            signal += rng.uniform(0.5, 2) * shape_at(empty, number, shifted, seen.shape)
    given = Stretch(f, signal * seen, (signal - found) * seen, seen, frame)
    limits = Limits(np.full(4, 0.3), 0.1)

    explained = explain_overlaps(events, given, limits)

    expected = []
    group = groups(events["sample"], LENGTH / 2)
    for number in range(group.max() + 1):
        expected += dense_pursuit(events[group == number], given, limits)
    alone = events[group < 0]
    expected += [(e["sample"], e["waveform"], e["amplitude"]) for e in alone]
    ours = [(e["sample"], e["waveform"], e["amplitude"]) for e in explained]
    assert len(ours) > 20
    np.testing.assert_allclose(sorted(ours), sorted(expected), rtol=1e-6, atol=1e-6)


def shape_at(given: Stretch, number: int, time: float, shape: tuple[int, ...]) -> np.ndarray:
    """One waveform with its peak at a time, on all samples."""
    return interpolated(given.f[number], time - given.peaks[number], shape)


def interpolated(values: np.ndarray, first: float, shape: tuple[int, ...]) -> np.ndarray:
    """Values [C, K] whose first one lies at a time, on all samples; 0 beside them."""
    places = first + np.arange(-1, values.shape[1] + 1)
    padded = np.pad(values, ((0, 0), (1, 1)))
    return np.stack([np.interp(np.arange(shape[1]), places, one, 0, 0) for one in padded])


def dense_pursuit(events: Events, given: Stretch, limits: Limits) -> list[tuple[float, int, float]]:
    """Orthogonal matching pursuit of one group, with all shapes on all samples and least squares
    by the singular values."""
    room = 4 * LENGTH  # events reach beyond the stretch
    pad = ((0, 0), (room, room))
    seen, left, signal = (np.pad(x, pad) for x in (given.seen, given.left, given.signal))
    offset = room + given.frame

    def shape(number: int, time: float) -> np.ndarray:
        return seen * shape_at(given, number, time + offset, seen.shape)

    y = left + sum(e["amplitude"] * shape(e["waveform"], e["sample"]) for e in events)
    tried = [
        (number, time + shift)
        for time in events["sample"]
        for shift in range(-NEAR, NEAR + 1)
        for number in range(len(given.f))
    ]
    shapes = [shape(*trial) for trial in tried]
    size = np.abs(given.f)
    covered = (size > FAINT * size.max((1, 2), keepdims=True)).astype(float)
    taken: list[int] = []
    amplitudes = np.zeros(0)
    for _ in events:
        basis = np.array([shapes[k].ravel() for k in taken]).reshape(len(taken), y.size)
        rest = y - (amplitudes @ basis).reshape(y.shape)
        best, best_score = -1, -np.inf
        for k, (number, time) in enumerate(tried):
            if any(tried[t][0] == number and abs(tried[t][1] - time) <= 2 * NEAR for t in taken):
                continue
            score = (shapes[k] * rest).sum() / max(np.linalg.norm(shapes[k]), 1e-9)
            if score > best_score:
                best, best_score = k, score
        if best < 0:
            break
        number, time = tried[best]
        mask = interpolated(covered[number], time + offset - given.peaks[number], seen.shape)
        around = (mask * signal**2).sum()
        norm = np.linalg.norm(shapes[best])
        if best_score / norm < limits.amplitude[number]:
            break
        if best_score**2 < limits.share * around:
            break
        taken.append(best)
        basis = np.array([shapes[k].ravel() for k in taken])
        amplitudes = np.linalg.lstsq(basis.T, y.ravel(), rcond=None)[0]
    found = zip(taken, amplitudes, strict=True)
    return [(tried[k][1], tried[k][0], a) for k, a in found if a > 0]


def test_a_long_chain_of_overlaps_needs_little_memory() -> None:
    """Hundreds of events, each on the next: their shapes are stored where they are not 0."""
    rows = [(n % 3, 40 + 9 * n, 2.0) for n in range(28)]
    events = events_at(*rows)
    given = stretch(rows, events)
    tracemalloc.start()
    found = explain_overlaps(events, given, LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == len(rows)
    candidates = 28 * 5 * 3
    dense = candidates * given.signal.shape[1] * 8
    assert peak < 0.7 * dense


def test_events_are_found_with_their_overlaps_explained() -> None:
    """A waveform between two of the model, whose code needs both, is one event."""
    f = waveforms()
    between = f[0, 0] + f[1, 0]
    rng = np.random.default_rng(0)
    x = 0.01 * rng.standard_normal(900)
    for first in (100, 400, 700):
        x[first : first + LENGTH] += 2 * between / np.linalg.norm(between)
    model = ww.DeconvNet(ww.ModelSpec.signals(3, LENGTH), dtype=torch.float64)
    model = model.with_filters(1, torch.from_numpy(f).movedim(0, 1)[:, :, None])
    spec = ww.InferenceSpec(lam=8.0, steps=200)
    found = ww.find_events(model, x, spec, threshold=0.8, engine="reference")
    assert len(found) == 3


@pytest.mark.parametrize("sign", [1, -1])
def test_signed_events_are_explained_with_either_sign(sign: int) -> None:
    events = events_at((0, 100, sign * 1.1), (1, 101, sign * 0.8))
    found = explain_overlaps(
        events, stretch([(0, 100, sign * 2.0)], events), LIMITS._replace(signed=True)
    )
    assert found["waveform"].tolist() == [0]
    assert found["amplitude"][0] == pytest.approx(sign * 2.0, rel=1e-6)


def test_negative_events_are_found_by_a_signed_model() -> None:
    """None of them was, because their amplitudes are below 0."""
    f = np.hanning(LENGTH + 2)[1:-1] * np.sin(np.arange(LENGTH))
    f /= np.linalg.norm(f)
    x = 0.01 * np.random.default_rng(0).standard_normal(700)
    signs = (1, -1, -1)
    for first, sign in zip((100, 300, 500), signs, strict=True):
        x[first : first + LENGTH] += 2 * sign * f
    spec = replace(ww.ModelSpec.signals(1, LENGTH), nonnegative=False)
    model = ww.DeconvNet(spec, dtype=torch.float64)
    model = model.with_filters(1, torch.from_numpy(f)[None, None, None])
    spec = ww.InferenceSpec(lam=8.0, steps=200)
    found = ww.find_events(model, x, spec, threshold=0.8, engine="reference")
    assert np.sign(found["amplitude"]).tolist() == list(signs)
