"""The baseline of recordings: drift and hum go, waveforms stay, unknown samples have no influence,
and parts of a recording have the baseline of the whole."""

import numpy as np
import pytest
import torch

from raising import raises
from whatwhere.errors import InvalidSetting
from whatwhere.ops.baseline import baseline, baseline_reach, convolve, median_of
from whatwhere.ops.input_stage import InputStage
from whatwhere.spec import InputSpec, LayerSpec, ModelSpec

SAMPLES = 6000


def spikes(length: int, seed: int = 0) -> torch.Tensor:
    """Bumps of `length` samples, 5 lengths apart, [1, 1, 1, T]."""
    t = np.arange(SAMPLES)
    x = sum(np.exp(-(((t - at) / (length / 6)) ** 2) / 2) for at in range(200, 5900, 5 * length))
    return torch.from_numpy(np.asarray(x))[None, None, None]


def drift(period: float = 4000) -> torch.Tensor:
    t = torch.arange(SAMPLES, dtype=torch.float64)
    return (3 * torch.sin(2 * torch.pi * t / period) + t / 1000)[None, None, None]


def inner(x: torch.Tensor) -> torch.Tensor:
    return x[..., 500:-500]


@pytest.mark.parametrize("length", [12, 40, 120])
def test_a_drift_goes_and_waveforms_stay(length: int) -> None:
    x = spikes(length)
    slow = drift(100 * length)
    assert float(inner(baseline(x, 4 * length)).abs().max()) < 0.001
    assert float(inner(slow - baseline(slow, 4 * length)).abs().max()) < 0.02
    left = x + slow - baseline(x + slow, 4 * length)
    assert float(inner(left - x).abs().max()) < 0.2
    # what a high-pass of the same reach does to them
    eaten = x - torch.nn.functional.avg_pool1d(x[0], 2 * length + 1, 1, length)[None]
    assert float(inner(eaten - x).abs().max()) > 0.1


@pytest.mark.parametrize("period", [5.0, 20.3, 170.0])
def test_hum_goes_with_its_harmonics(period: float) -> None:
    x = spikes(40)
    t = torch.arange(SAMPLES, dtype=torch.float64)
    wave = torch.sin(2 * torch.pi * t / period + 1)
    if period > 10:
        wave = wave + 0.3 * torch.sin(6 * torch.pi * t / period)
    left = x + wave - baseline(x + wave, 160, 1 / period)
    assert float(inner(left - x).abs().max()) < 0.15
    without = x + wave - baseline(x + wave, 160)
    assert float(inner(without - x).abs().max()) > 0.2


@pytest.mark.parametrize("hum", [0.0, 0.05])
def test_unknown_samples_have_no_influence(hum: float) -> None:
    stage = InputStage(InputSpec(kind="baseline", span=64, hum=hum))
    x = spikes(16) + drift()
    known = torch.ones_like(x)
    known[..., 1000:1200] = 0
    known[..., 3000:3005] = 0
    spoiled = torch.where(known > 0, x, 1e6)
    signal, background = stage.forward(x, known)
    other, other_background = stage.forward(spoiled, known)
    assert torch.equal(signal, other)
    assert background.low is not None
    assert other_background.low is not None
    assert torch.equal(background.low, other_background.low)
    assert not signal[known == 0].any()
    back = stage.inverse(signal, background)
    torch.testing.assert_close(back[known > 0], x[known > 0])


@pytest.mark.parametrize("hum", [0.0, 0.01])
def test_a_part_has_the_baseline_of_the_whole(hum: float) -> None:
    x = spikes(16) + drift()
    reach = baseline_reach(64, hum)
    whole = baseline(x, 64, hum)
    part = baseline(x[..., 2000 - reach : 3000 + reach], 64, hum)
    torch.testing.assert_close(part[..., reach:-reach], whole[..., 2000:3000])


@pytest.mark.parametrize("taps", [1, 3, 63, 65])
@pytest.mark.parametrize("samples", [2, 64, 300])
def test_short_and_long_kernels_are_convolved_alike(taps: int, samples: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, samples))
    kernel = rng.standard_normal(taps)
    full = np.stack([np.convolve(row, kernel) for row in x])
    expected = full[:, taps // 2 : taps // 2 + samples]
    found = convolve(torch.from_numpy(x), torch.from_numpy(kernel))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_signal_without_known_samples_has_a_baseline_of_zero() -> None:
    x = torch.full((1, 1, 1, 300), torch.nan)
    assert not baseline(x, 64, 0.0, torch.zeros_like(x)).any()


def test_only_signals_have_a_baseline() -> None:
    with raises(InvalidSetting, given="input.kind = 'baseline' with filters of pictures"):
        ModelSpec(layers=(LayerSpec(maps=1),), nonnegative=False, input=InputSpec(kind="baseline"))
    with raises(InvalidSetting, given={"input.hum": 0.1, "input.kind": "none"}):
        ModelSpec(layers=(LayerSpec(maps=1),), input=InputSpec(hum=0.1))


@pytest.mark.parametrize("count", [1, 3, 5, 17])
def test_the_median_of_tensors_is_exact(count: int) -> None:
    values = list(torch.randn(count, 2, 300, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(median_of(values), torch.stack(values, -1).median(-1).values)
