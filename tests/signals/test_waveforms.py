"""Noise, extents and waveforms of recordings: spikes, heart beats, and pulses that cover all of a
recording."""

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.signals.settings import choose_settings
from whatwhere.signals.waveforms import (
    Extent,
    Pieces,
    deviations_of,
    find_extent,
    find_peaks,
    find_waveforms,
    large_peaks,
    likeness,
    strength_of,
    unit,
    white_noise,
)

Bumps = tuple[tuple[float, float, float], ...]  # height, seconds since the peak, width
ECG: Bumps = ((0.12, -0.16, 0.025), (1, 0, 0.012), (-0.2, 0.03, 0.012), (0.25, 0.28, 0.045))
PULSE: Bumps = ((1, 0, 0.09), (-0.35, 0.2, 0.08), (0.3, 0.36, 0.09), (-0.25, -0.22, 0.09))


def beats(bumps: Bumps, rate: float, count: int = 40, noise: float = 0.02) -> tuple[Tensor, Tensor]:
    """Heart beats with a rhythm that varies and a drift, [1, T], and the samples of their peaks."""
    rng = np.random.default_rng(0)
    at = 0.6 + np.cumsum(rng.normal(0.85, 0.05, count))
    t = np.arange(int((at[-1] + 0.7) * rate)) / rate
    x = noise * rng.standard_normal(len(t)) + 0.15 * np.sin(2 * np.pi * 0.1 * t)
    for time in at:
        for height, place, width in bumps:
            x += height * np.exp(-(((t - time - place) / width) ** 2) / 2)
    return torch.from_numpy(x).float()[None], torch.from_numpy(at * rate)


def test_noise_is_that_of_the_quietest_windows() -> None:
    """Events cover more than half of the recording, and a sensor is off in a part of it."""
    noise = 0.1 * torch.randn(1, 30_000, generator=torch.Generator().manual_seed(0))
    v = noise.clone()
    v[:, torch.arange(30_000) % 1500 < 850] += 3
    v[:, :3000] = 0
    assert float(deviations_of(v)) == pytest.approx(0.1, rel=0.15)
    assert float(deviations_of(noise)) == pytest.approx(0.1, rel=0.05)
    assert white_noise(noise) == pytest.approx(0.1, rel=0.05)
    noise[:, 100:200] = torch.nan
    assert float(deviations_of(noise)) == pytest.approx(0.1, rel=0.05)


def test_a_peak_is_not_covered_by_the_waveform_of_a_larger_one() -> None:
    strength = torch.zeros(100)
    strength[[20, 30, 60, 66]] = torch.tensor([9.0, 6.0, 8.0, 7.0])
    assert find_peaks(strength, Extent(2, 2)).tolist() == [20, 30, 60, 66]
    assert find_peaks(strength, Extent(0, 10)).tolist() == [20, 60]
    assert find_peaks(strength, Extent(10, 0)).tolist() == [20, 30, 60, 66]
    assert find_peaks(strength, Extent(2, 2), least=8.5).tolist() == [20]


def test_noise_makes_one_peak_of_a_slow_wave() -> None:
    t = torch.arange(400.0)
    strength = 10 * torch.exp(-(((t - 200) / 40) ** 2) / 2) + (t % 20 == 0)
    assert len(find_peaks(strength, Extent(6, 6))) > 3
    assert large_peaks(strength, Extent(6, 6), 5).tolist() == [200]


@pytest.mark.parametrize("rate", [250.0, 500.0])
def test_what_follows_every_peak_belongs_to_its_waveform(rate: float) -> None:
    """The T wave of an ECG is a part of the beat, as is its P wave."""
    x, at = beats(ECG, rate)
    found = find_extent(x, 400)
    assert found is not None
    assert 0.03 * rate < found.extent.before < 0.3 * rate
    assert 0.3 * rate < found.extent.after < 0.5 * rate
    peaks = find_peaks(strength_of(x), found.extent, found.least)
    assert len(peaks) == len(at)
    assert float((peaks - at).abs().max()) <= 0.02 * rate


def test_a_pulse_has_one_waveform_for_each_beat() -> None:
    """It covers all of the recording: nothing exceeds five deviations by the median of it."""
    x, at = beats(PULSE, 100)
    assert float(strength_of(x).max()) < 5
    found = find_extent(x, 400)
    assert found is not None
    assert 50 < found.extent.length < 90
    peaks = find_peaks(strength_of(x), found.extent, found.least)
    assert len(peaks) == len(at)
    assert float((peaks - at).abs().max()) <= 4


def test_noise_has_no_extent() -> None:
    noise = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0))
    assert find_extent(noise, 400) is None
    coloured = torch.nn.functional.avg_pool1d(noise, 9, 1)
    assert find_extent(coloured, 400) is None


@pytest.mark.parametrize(("bumps", "rate"), [(ECG, 360.0), (PULSE, 100.0)])
@pytest.mark.parametrize("count", [4, 40])
def test_beats_have_one_waveform_and_a_lambda_of_their_size(
    bumps: Bumps, rate: float, count: int
) -> None:
    x, _ = beats(bumps, rate, count)
    chosen = choose_settings(ww.data.load(x.numpy(), signals=True, rate=rate))  # type: ignore[arg-type]
    assert chosen.waveforms is not None
    assert len(chosen.waveforms) == 1
    assert chosen.lam is not None
    large = choose_settings(ww.data.load(8 * x.numpy(), signals=True, rate=rate))  # type: ignore[arg-type]
    assert large.lam == pytest.approx(chosen.lam / 8, rel=1e-3)


def pieces_of(values: np.ndarray, noise: float, margin: int = 8) -> Pieces:
    """Pieces [n, C, L] in noise, far from each other."""
    rng = np.random.default_rng(0)
    values = values + noise * rng.standard_normal(values.shape)
    deviations = torch.full((values.shape[1], 1), noise)
    at = 1000 * torch.arange(1, len(values) + 1)
    return Pieces(torch.from_numpy(values).float(), at, deviations, margin)


def test_shifted_copies_are_one_waveform() -> None:
    t = np.arange(56)
    pieces = np.zeros((60, 1, 56))
    for n in range(60):
        since = t - (23 if n % 2 else 26)
        pieces[n, 0] = np.exp(-(since**2) / 8) - 0.5 * np.exp(-((since - 7) ** 2) / 18)
    found = find_waveforms(pieces_of(pieces, 0.05))
    assert len(found.shapes) == 1
    assert found.counts == [60]


def test_a_rare_waveform_is_one() -> None:
    """One in fifty pieces."""
    t = np.arange(56) - 23
    usual = np.exp(-(t**2) / 8)
    rare = usual - np.exp(-((t - 7) ** 2) / 8)
    pieces = np.stack([usual if n % 50 else rare for n in range(500)])[:, None]
    found = find_waveforms(pieces_of(pieces, 0.05))
    assert found.counts == [490, 10]
    true = unit(torch.from_numpy(np.stack([usual, rare])[:, None, 8:-8]).float())
    assert float((true * found.shapes).sum((1, 2)).min()) > 0.99


def test_amplitudes_and_channels_tell_waveforms_apart() -> None:
    """Three of one shape: one of half the size, one on the other channel."""
    t = np.arange(56) - 23
    shape = np.exp(-(t**2) / 8)
    shares = np.array([[1, 0.3], [0.5, 0.15], [0.3, 1]])
    pieces = np.stack([share[:, None] * shape for share in shares[np.arange(240) % 3]])
    found = find_waveforms(pieces_of(pieces, 0.04))
    assert found.counts == [80, 80, 80]
    assert found.sizes.sort().values.diff()[0] > 0.5


def test_amplitudes_that_vary_are_one_waveform() -> None:
    t = np.arange(56) - 23
    sizes = np.random.default_rng(1).normal(1, 0.2, 300)
    pieces = sizes[:, None, None] * np.exp(-(t**2) / 8)
    assert len(find_waveforms(pieces_of(pieces, 0.05)).shapes) == 1


def test_overlaps_are_no_waveform() -> None:
    """Eight of the pieces have a second event, nine samples after the first."""
    t = np.arange(56) - 23
    shape = np.exp(-(t**2) / 8)
    other = -np.exp(-((t - 1) ** 2) / 4)
    pieces = np.stack([shape if n % 2 else other for n in range(400)])[:, None]
    pieces[::50, 0] = shape + 0.95 * np.roll(other, 9)
    found = find_waveforms(pieces_of(pieces, 0.05))
    assert len(found.shapes) == 2
    assert found.rare == 1


def test_a_part_of_another_waveform_is_none() -> None:
    """A peak that follows every second event at the same distance."""
    t = np.arange(56) - 23
    first = np.exp(-(t**2) / 8)
    late = -0.5 * np.exp(-(t**2) / 30)
    pieces = pieces_of(np.stack([late if n % 3 == 2 else first for n in range(300)])[:, None], 0.03)
    at = pieces.at.clone()
    at[2::3] = at[1::3] + 15
    found = find_waveforms(pieces._replace(at=at))
    assert len(found.shapes) == 1
    assert found.copies == 1


@pytest.mark.parametrize(("number", "given"), [(1, 1), (2, 2), (6, 2)])
def test_the_number_of_waveforms_can_be_given(number: int, given: int) -> None:
    t = np.arange(56) - 23
    shapes = [np.exp(-(t**2) / 8), -np.exp(-(t**2) / 20)]
    pieces = np.stack([shapes[n % 2] for n in range(100)])[:, None]
    assert len(find_waveforms(pieces_of(pieces, 0.05), number).shapes) == given


def test_waveforms_that_are_alike_but_differ_in_width_stay_two() -> None:
    """Their correlation is 0.9."""
    t = np.arange(40) - 18
    narrow = np.exp(-(t**2) / 2) - 0.4 * np.exp(-((t - 4) ** 2) / 6)
    wide = np.exp(-(t**2) / 8) - 0.4 * np.exp(-((t - 6) ** 2) / 12)
    pieces = np.stack([narrow if n % 2 else wide for n in range(80)])[:, None]
    both = unit(torch.from_numpy(np.stack([narrow, wide])[:, None, 8:-8]).float())
    assert 0.8 < float(likeness(both[:1], both[1:])) < 0.93
    found = find_waveforms(pieces_of(pieces, 0.03))
    assert sorted(found.counts) == [40, 40]
