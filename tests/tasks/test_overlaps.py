"""Events that lie on each other: one event that two waveforms explain together is one, two events
stay two."""

import tracemalloc

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.model.events import FIELDS, Events
from whatwhere.tasks.overlaps import Limits, Stretch, explain_overlaps, groups, placed

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
    assert list(groups(samples, 10)) == [slice(0, 3), slice(4, 6)]


def test_unknown_samples_have_no_part_in_an_overlap() -> None:
    events = events_at((0, 100, 1.0), (2, 107, 2.0))
    truth = [(0, 100, 1.5), (2, 107, 2.5)]
    found = explain_overlaps(events, stretch(truth, events, slice(103, 106)), LIMITS)
    np.testing.assert_array_equal(found["waveform"], [0, 2])
    np.testing.assert_allclose(found["amplitude"], [1.5, 2.5], rtol=1e-6)


def test_between_samples_a_waveform_is_the_mean_of_two_shifts() -> None:
    given = stretch([], events_at())
    seen = np.ones((1, 200))
    shapes = placed(given, np.zeros(3, int), np.array([80.0, 80.5, 81.0]), seen)
    whole, half, next_one = (shapes.dense(n, seen.shape)[0] for n in range(3))
    np.testing.assert_allclose(half, (whole + next_one) / 2, atol=1e-12)
    assert whole.argmax() == 80
    np.testing.assert_allclose(shapes.windows_of(seen), 1)


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
