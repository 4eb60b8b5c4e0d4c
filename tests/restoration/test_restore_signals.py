"""Noise and gaps of signals, by a model of their waveforms."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.errors import ImageError, SpecError


@pytest.fixture(scope="module")
def model() -> ww.DeconvNet:
    """One waveform of 16 samples, regions of one."""
    t = torch.arange(16) - 7.5
    filters = torch.cos(0.8 * t + 0.4) * torch.exp(-(t**2) / 20)
    model = ww.DeconvNet(ww.ModelSpec.signals(1, 16, pool_size=1))
    return model.with_filters(1, (filters / filters.norm())[None, None, None])


@pytest.fixture(scope="module")
def clean(model: ww.DeconvNet) -> torch.Tensor:
    """Two signals with an event every 40 samples."""
    p = torch.zeros(2, 1, 1, 315)
    p[..., 20::40] = 3.0
    return model.at(1, 300).decode(ww.Latents(p, (ww.PoolingParams(*[torch.zeros(2, 2, 1, 1, 315)] * 2),)))[:, :, 0]


@pytest.mark.parametrize("noise", [0.3, None])
def test_noise_is_removed(model: ww.DeconvNet, clean: torch.Tensor, noise: float | None) -> None:
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    restored = ww.restoration.denoise(model, noisy.numpy(), noise)
    assert isinstance(restored, np.ndarray)
    assert restored.shape == clean.shape
    assert np.mean((restored - clean.numpy()) ** 2) < 0.2 * 0.3**2
    assert ww.restoration.denoise(model, noisy, 0.0) is noisy


def test_gaps_are_filled_in(model: ww.DeconvNet, clean: torch.Tensor) -> None:
    known = torch.ones(2, 1, 300, dtype=torch.bool)
    known[:, :, 90:94] = False  # a quarter of an event
    filled = ww.restoration.inpaint(model, clean.where(known, torch.nan), known)
    assert torch.equal(filled[known], clean[known])
    assert float((filled - clean).abs().max()) < 0.2 * float(clean.abs().max())


def test_what_is_wrong(model: ww.DeconvNet, clean: torch.Tensor) -> None:
    with pytest.raises(SpecError, match="a model of pictures"):
        ww.restoration.denoise(ww.DeconvNet(ww.ModelSpec.paper()), clean, 0.1)
    with pytest.raises(ImageError, match=r"expected \[N, 1, T\]"):
        ww.restoration.denoise(model, clean[0], 0.1)
    with pytest.raises(SpecError, match="noise of counts"):
        ww.restoration.denoise(model, clean, "poisson")


def test_what_is_wrong_with_signals_and_masks() -> None:
    model, signals = ww.DeconvNet(ww.ModelSpec.signals(1, 16, pool_size=1)), torch.rand(1, 1, 50)
    with pytest.raises(ImageError, match=r"a Signals was given; expected floats \[N, 1, T\]"):
        ww.restoration.denoise(model, ww.data.load(signals.numpy(), signals=True))
    with pytest.raises(ImageError, match="a mask of shape"):
        ww.restoration.inpaint(model, signals, torch.ones(1, 1, 20))
