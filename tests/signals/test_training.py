"""Learning from signals: windows of long recordings, and waveforms that are found again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from tiny_run import whatwhere
from whatwhere.learning.defaults import choose_defaults, start_from_pieces
from whatwhere.learning.training_data import open_images
from whatwhere.spec.toml import to_toml

LENGTH = 16


def waveforms() -> np.ndarray:
    t = np.arange(LENGTH) - (LENGTH - 1) / 2
    both = np.stack([np.exp(-(t**2) / 8), np.sin(1.2 * t) * np.exp(-(t**2) / 20)])
    return both / np.linalg.norm(both, axis=1, keepdims=True)


def simulated(samples: int = 6000) -> np.ndarray:
    """Events of two waveforms in noise, float32 [T]."""
    rng = np.random.default_rng(0)
    z = (rng.random((2, samples - LENGTH + 1)) < 0.01) * rng.uniform(
        1, 2, (2, samples - LENGTH + 1)
    )
    x = sum(np.convolve(train, d) for train, d in zip(z, waveforms(), strict=True))
    return (x + 0.05 * rng.standard_normal(samples)).astype(np.float32)


def recipe(epochs: int = 3) -> ww.Recipe:
    changes = {
        "learning": {"each": {"epochs": epochs, "inference": {"steps": 15}}},
        "batch_size": 2,
    }
    return ww.override(
        replace(ww.read_recipe("signals"), model=ww.ModelSpec.signals(2, LENGTH)), changes
    )


def correlation(model: ww.DeconvNet) -> float:
    """Of the waveforms with the filters most like them, at any shift; the least."""
    filters = model.filters[0][0, :, 0].numpy()
    pairs = [
        [np.abs(np.correlate(np.pad(d, 8), f, "valid")).max() for f in filters] for d in waveforms()
    ]
    return float(np.max(pairs, axis=1).min())


def test_waveforms_are_found_again(tmp_path: Path) -> None:
    """From an array, and to the bit the same from its file on the command line."""
    x, options = simulated(), ww.TrainingOptions(engine="reference", device="cpu")
    run = ww.train(x, recipe(), options=options)
    assert correlation(run.model) > 0.95
    assert run.history[-1].cost < run.history[0].cost
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "mine.toml").write_text(to_toml(recipe()))
    whatwhere(
        "train",
        tmp_path / "x.npy",
        "--recipe",
        tmp_path / "mine.toml",
        "--out",
        tmp_path / "run",
        "--set",
        "engine=reference",
        "--device",
        "cpu",
        "--quiet",
    )
    assert ww.load(tmp_path / "run") == run.model
    table = tmp_path / "events.csv"
    whatwhere(
        "events",
        tmp_path / "x.npy",
        tmp_path / "run",
        "--out",
        table,
        "--set",
        "threshold=0.7",
        "--set",
        "engine=reference",
        "--device",
        "cpu",
    )
    written = np.genfromtxt(table, delimiter=",", names=True)
    found = ww.find_events(run.model, x, run.recipe.inference, threshold=0.7, engine="reference")
    np.testing.assert_allclose(written["sample"], found["sample"], atol=1e-4)
    assert len(found) > 50


def test_long_recordings_are_windows_and_short_signals_are_whole() -> None:
    spec = ww.ModelSpec.signals(2, LENGTH)
    long, short = open_images(simulated(10_000), spec), open_images(torch.randn(7, 1, 60), spec)
    assert long.read(0, 3).shape == (3, 1, 1, 2048)
    assert short.read(0, 3).shape == (3, 1, 1, 60)


def test_learning_starts_from_pieces_with_energy() -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(2, LENGTH))
    silent = torch.zeros(1, 1, 1, 500)
    assert start_from_pieces(model, silent, 0) is model
    silent[..., 200:220] = torch.randn(20, generator=torch.Generator().manual_seed(0))
    started = start_from_pieces(model, silent, 0)
    padded = silent[0, 0, 0].unfold(0, LENGTH, 1)
    for f in started.filters[0][0, :, 0]:
        alike = torch.nn.functional.cosine_similarity(padded, f[None], dim=1)
        assert float(alike.max()) == pytest.approx(1.0, abs=1e-5)


def test_settings_are_chosen_for_signals() -> None:
    stream = open_images(ww.data.load(simulated(), signals=True), None)
    chosen = choose_defaults(stream.known_images())
    assert "Settings chosen from the recording" in chosen.line
    assert chosen.start is not None
    assert chosen.start.spec == chosen.recipe.model
    assert chosen.recipe.model.for_signals
    assert chosen.recipe.model.channels == 1


def test_features_of_signals_for_scikit_learn() -> None:
    """Arrays (n, C, T) are signals where filters have height 1: the rows are those of images of
    height 1."""
    X = np.random.default_rng(0).normal(size=(6, 2, 60)).astype(np.float32)
    settings = {
        "filter_size": (1, 9),
        "pool_size": (1, 2),
        "nonnegative": False,
        "epochs": 1,
        "training_steps": 2,
    }
    features = ww.DeconvNetFeatures(maps=(4,), steps=3, engine="reference", **settings).fit(X)
    assert features.image_shape_ == (2, 1, 60)
    np.testing.assert_array_equal(features.transform(X), features.transform(X[:, :, None]))
    assert features.encode(X).p.shape == (6, 4, 1, 34)
