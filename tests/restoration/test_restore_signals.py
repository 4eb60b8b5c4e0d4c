"""Noise and gaps of signals, by a model of their waveforms."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from raising import raises
from tiny_run import whatwhere
from whatwhere.errors import ImageError, InvalidSetting, RunError, SpecError
from whatwhere.spec import InputSpec


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
    return model.at(1, 300).decode(
        ww.Latents(p, (ww.PoolingParams(*[torch.zeros(2, 2, 1, 1, 315)] * 2),))
    )[:, :, 0]


@pytest.mark.parametrize("noise", [0.3, None])
def test_noise_is_removed(model: ww.DeconvNet, clean: torch.Tensor, noise: float | None) -> None:
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    restored = ww.restoration.denoise(noisy.numpy(), model, noise)
    assert isinstance(restored, np.ndarray)
    assert restored.shape == clean.shape
    assert np.mean((restored - clean.numpy()) ** 2) < 0.2 * 0.3**2
    assert ww.restoration.denoise(noisy, model, 0.0) is noisy


def test_gaps_are_filled_in(model: ww.DeconvNet, clean: torch.Tensor) -> None:
    known = torch.ones(2, 1, 300, dtype=torch.bool)
    known[:, :, 90:94] = False  # a quarter of an event
    filled = ww.restoration.inpaint(clean.where(known, torch.nan), known, model)
    assert torch.equal(filled[known], clean[known])
    assert float((filled - clean).abs().max()) < 0.2 * float(clean.abs().max())


def test_gaps_longer_than_the_waveforms_are_reported(model: ww.DeconvNet) -> None:
    signals = torch.randn(2, 1, 3000, generator=torch.Generator().manual_seed(0))
    known = torch.ones(2, 1, 3000, dtype=torch.bool)
    known[0, :, 500:2000] = False
    known[1, :, 100:110] = False
    with pytest.warns(
        UserWarning, match=r"1 gap longer .*\(16 samples\); the longest has 1,500 samples"
    ):
        ww.restoration.inpaint(signals, known, model)
    known[0, :, 510:2000] = True
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ww.restoration.inpaint(signals, known, model)


def test_the_command_leaves_gaps_longer_than_a_waveform_unknown(
    model: ww.DeconvNet, clean: torch.Tensor, tmp_path: Path
) -> None:
    ww.save(model, tmp_path / "model.safetensors")
    recording = clean[0, 0].numpy().copy()
    recording[90:94] = np.nan
    recording[150:170] = np.nan
    np.save(tmp_path / "gaps.npy", recording)
    out = tmp_path / "filled.npy"
    output = whatwhere(
        "inpaint",
        tmp_path / "gaps.npy",
        tmp_path / "model.safetensors",
        "--mask",
        "nan",
        "--out",
        out,
    )
    assert "1 gap longer than a waveform" in output
    filled = np.load(out)
    assert np.isnan(filled[150:170]).all()
    assert np.isfinite(np.delete(filled, np.arange(150, 170))).all()


def test_what_is_wrong(model: ww.DeconvNet, clean: torch.Tensor) -> None:
    with pytest.raises(SpecError, match="a model of pictures"):
        ww.restoration.denoise(clean, ww.DeconvNet(ww.ModelSpec.paper()), 0.1)
    with pytest.raises(ImageError, match=r"expected \[N, 1, T\]"):
        ww.restoration.denoise(clean[0], model, 0.1)
    with raises(InvalidSetting, given="noise of counts for signals"):
        ww.restoration.denoise(clean, model, "poisson")


def test_what_is_wrong_with_signals_and_masks() -> None:
    model, signals = ww.DeconvNet(ww.ModelSpec.signals(1, 16, pool_size=1)), torch.rand(1, 1, 50)
    with pytest.raises(ImageError, match=r"Signals; expected a float tensor or array \[N, 1, T\]"):
        ww.restoration.denoise(ww.data.load(signals.numpy(), signals=True), model)
    with pytest.raises(ImageError, match="a mask of shape"):
        ww.restoration.inpaint(signals, torch.ones(1, 1, 20), model)


TYPES = {
    ".npy": ["<f8", "<f4", "<i2", "|u1"],
    ".csv": ["<f4"],
    ".wav": ["<f4", "<i2", "<i4", "|u1"],
}


@pytest.mark.parametrize(
    ("suffix", "kind"), [(suffix, kind) for suffix, kinds in TYPES.items() for kind in kinds]
)
def test_commands_write_a_recording_as_it_was(
    model: ww.DeconvNet, clean: torch.Tensor, suffix: str, kind: str, tmp_path: Path
) -> None:
    """Its kind of file, shape, type, rate and names; known samples stay, gaps are filled as in
    Python."""
    ww.save(model, tmp_path / "model.safetensors")
    recording = 0.25 * clean[0, 0].double().numpy()
    unsigned = kind == "|u1"
    full = 1 if "f" in kind else np.iinfo(kind).max + (not unsigned)
    written = (
        recording
        if "f" in kind
        else np.rint(recording * (128 if unsigned and suffix == ".wav" else full))
    )
    written = (
        (written + (128 if unsigned and suffix == ".wav" else 0))
        .clip(0 if unsigned else -full)
        .astype(kind)
    )
    source, out, mask = (tmp_path / f"{name}{suffix}" for name in ("in", "out", "mask"))
    known = np.ones(len(recording), np.float32)
    known[90:94] = 0

    def save(path: Path, values: np.ndarray) -> None:
        if suffix == ".npy":
            np.save(path, values)
        elif suffix == ".csv":
            np.savetxt(path, np.stack([values], 1), header="volt", comments="", fmt="%.9g")
        else:
            pytest.importorskip("scipy.io.wavfile").write(path, 1234, values)

    save(source, written)
    save(mask, known)
    name = (tmp_path / "model.safetensors",)
    whatwhere("inpaint", source, "--mask", mask, "--out", out, *name, "--quiet")
    given, found = (ww.data.load(path, signals=True)[:] for path in (source, out))
    expected = ww.restoration.inpaint(given, torch.from_numpy(known)[None, None] > 0, model)
    step = 0 if "f" in kind else 1 / full
    torch.testing.assert_close(found, expected, atol=step + 1e-6, rtol=0)
    assert not torch.equal(found, given)
    if suffix == ".npy":
        values = np.load(out)
        assert values.dtype == written.dtype
        assert np.array_equal(values[known > 0], written[known > 0])
    elif suffix == ".csv":
        assert out.read_text().startswith("volt\n")
        assert torch.equal(found[0, 0][known > 0], given[0, 0][known > 0])
    else:
        from scipy.io import wavfile

        rate, values = wavfile.read(out)
        assert (rate, values.dtype) == (1234, written.dtype)
        assert np.abs(values[known > 0] - written[known > 0].astype(float)).max() <= (
            256 if kind == "<i4" else 0
        )


def test_commands_find_gaps_by_nan_and_remove_noise(
    model: ww.DeconvNet, clean: torch.Tensor, tmp_path: Path
) -> None:
    ww.save(model, tmp_path / "model.safetensors")
    option = (tmp_path / "model.safetensors",)
    holes = clean.clone()
    holes[:, :, 90:94] = torch.nan
    np.save(tmp_path / "holes.npy", holes.numpy())
    whatwhere(
        "inpaint",
        tmp_path / "holes.npy",
        "--mask",
        "nan",
        "--out",
        tmp_path / "filled.npy",
        *option,
    )
    expected = ww.restoration.inpaint(holes, holes.isfinite(), model)
    assert np.array_equal(np.load(tmp_path / "filled.npy"), expected.numpy())
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "noisy.npy", noisy.numpy())
    whatwhere(
        "denoise", tmp_path / "noisy.npy", "--out", tmp_path / "clean.npy", *option, "--noise", 0.3
    )
    assert np.array_equal(
        np.load(tmp_path / "clean.npy"), ww.restoration.denoise(noisy, model, 0.3).numpy()
    )


def test_a_command_leaves_gaps_that_no_waveform_reaches_across_unknown(
    model: ww.DeconvNet, tmp_path: Path
) -> None:
    ww.save(model, tmp_path / "model.safetensors")
    option = (tmp_path / "model.safetensors",)
    signals = torch.randn(1, 1, 3000, generator=torch.Generator().manual_seed(0))
    signals[:, :, 500:2000] = torch.nan
    signals[:, :, 2100:2104] = torch.nan
    np.save(tmp_path / "holes.npy", signals.numpy())
    said = whatwhere(
        "inpaint", tmp_path / "holes.npy", "--mask", "nan", "--out", tmp_path / "out.npy", *option
    )
    assert "1 gap longer than a waveform stays unknown" in said
    unknown = np.isnan(np.load(tmp_path / "out.npy"))[0, 0]
    assert np.flatnonzero(unknown).tolist() == list(range(500, 2000))


def test_a_long_gap_of_whole_numbers_is_left_at_0(model: ww.DeconvNet, tmp_path: Path) -> None:
    """NaN as a whole number is the loudest one on some processors."""
    ww.save(model, tmp_path / "model.safetensors")
    samples = np.random.default_rng(0).integers(-9000, 9000, (1, 1, 600)).astype(np.int16)
    mask = np.ones((1, 1, 600), np.float32)
    mask[..., 200:400] = 0
    np.save(tmp_path / "holes.npy", samples)
    np.save(tmp_path / "mask.npy", mask)
    holes, mask_file, out = (tmp_path / name for name in ("holes.npy", "mask.npy", "out.npy"))
    paths = [holes, "--mask", mask_file, "--out", out]
    said = whatwhere("inpaint", *paths, tmp_path / "model.safetensors")
    assert "1 gap longer than a waveform stays at 0, because whole numbers have no NaN" in said
    written = np.load(tmp_path / "out.npy")
    assert written.dtype == np.int16
    assert not written[0, 0, 200:400].any()
    assert written[0, 0, :200].any()


def test_what_is_wrong_with_a_recording_of_a_command(model: ww.DeconvNet, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    ww.save(model, tmp_path / "model.safetensors")
    a, out, option = (
        tmp_path / "a.csv",
        tmp_path / "out.csv",
        (tmp_path / "model.safetensors",),
    )
    for arguments, message in (
        (("denoise", a, "--out", out), "A recording needs a model"),
        (
            ("denoise", a, "--out", tmp_path / "out.wav", *option),
            "the result has the format of",
        ),
        (("denoise", a, "--out", a, *option), "this command reads it"),
        (
            ("denoise", a, "--out", tmp_path / "out.png", *option),
            "the result has the format of",
        ),
        (("denoise", tmp_path, "--out", tmp_path / "out", *option), "does not work for pictures"),
        (
            ("inpaint", tmp_path, "--mask", "alpha", "--out", tmp_path / "out", *option),
            "does not work for pictures",
        ),
        (("denoise", a, "--out", out, *option, "--noise", "poisson"), "noise of counts"),
    ):
        with pytest.raises((SpecError, RunError), match=message):
            whatwhere(*arguments)
    assert not out.exists()


def test_denoising_leaves_unknown_samples_unknown(
    model: ww.DeconvNet, clean: torch.Tensor, tmp_path: Path
) -> None:
    """They have no influence either: the rest is what a mask gives."""
    ww.save(model, tmp_path / "model.safetensors")
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    holes = noisy.clone()
    holes[:, :, 100:160] = torch.nan
    known = holes.isfinite()
    restored = ww.restoration.denoise(holes, model, 0.3)
    assert torch.equal(restored.isnan(), ~known)
    expected = ww.restoration.inpaint(noisy, known, model, 0.3)
    assert torch.equal(restored[known], expected[known])
    np.save(tmp_path / "holes.npy", holes.numpy())
    out = tmp_path / "clean.npy"
    said = whatwhere(
        "denoise", tmp_path / "holes.npy", tmp_path / "model.safetensors", "--out", out
    )
    assert "120 unknown samples stay unknown" in said
    assert np.array_equal(np.isnan(np.load(out)), ~known.numpy())


def test_a_gap_of_two_channels_is_one(tmp_path: Path) -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(1, 16, channels=2, pool_size=1))
    ww.save(model, tmp_path / "model.safetensors")
    values = np.random.default_rng(0).normal(size=(2, 400)).astype(np.float32)
    values[:, 100:200] = np.nan
    np.save(tmp_path / "two.npy", values)
    paths = [tmp_path / "two.npy", "--mask", "nan", "--out", tmp_path / "out.npy"]
    said = whatwhere("inpaint", *paths, tmp_path / "model.safetensors")
    assert "1 gap longer than a waveform stays unknown" in said


def test_without_its_baseline_a_recording_has_neither_drift_nor_hum(
    clean: torch.Tensor, tmp_path: Path
) -> None:
    t = torch.arange(16) - 7.5
    filters = torch.cos(0.8 * t + 0.4) * torch.exp(-(t**2) / 20)
    stage = InputSpec(kind="baseline", span=96, hum=0.0731)
    spec = replace(ww.ModelSpec.signals(1, 16, pool_size=1), input=stage)
    model = ww.DeconvNet(spec).with_filters(1, (filters / filters.norm())[None, None, None])
    ww.save(model, tmp_path / "model.safetensors")
    signal = clean[:1].repeat(1, 1, 10)
    place = torch.arange(signal.shape[2])
    slow = 2 * torch.sin(place / 400) + 0.5 * torch.sin(2 * torch.pi * 0.0731 * place)
    flat = ww.restoration.RestorationSpec(baseline=False)
    restored = ww.restoration.denoise(signal + slow, model, 0.05, spec=flat)
    inside = slice(200, -200)
    assert float((restored - signal)[..., inside].abs().mean()) < 0.1
    kept = ww.restoration.denoise(signal + slow, model, 0.05)
    assert float((kept - signal - slow)[..., inside].abs().mean()) < 0.1
    np.save(tmp_path / "a.npy", (signal + slow).numpy())
    paths = [tmp_path / "a.npy", "--out", tmp_path / "flat.npy", "--noise", 0.05, "--no-baseline"]
    whatwhere("denoise", *paths, tmp_path / "model.safetensors")
    np.testing.assert_allclose(np.load(tmp_path / "flat.npy"), restored.numpy(), atol=1e-6)


def test_only_recordings_have_a_baseline_to_remove(
    model: ww.DeconvNet, clean: torch.Tensor
) -> None:
    flat = ww.restoration.RestorationSpec(baseline=False)
    with pytest.raises(SpecError, match="only recordings have a baseline"):
        ww.restoration.denoise(torch.rand(1, 1, 32, 32), ww.restoration.load_denoiser(), spec=flat)
    with pytest.raises(SpecError, match="subtracts no baseline"):
        ww.restoration.denoise(clean, model, 0.3, spec=flat)


def test_a_part_of_a_recording_is_restored_and_the_rest_stays(
    model: ww.DeconvNet, tmp_path: Path
) -> None:
    noisy = np.random.default_rng(0).standard_normal((1, 600)).astype(np.float32)
    times = np.arange(600) / 100
    rows = zip(times, noisy[0], strict=True)
    (tmp_path / "a.csv").write_text("t (s),x\n" + "".join(f"{t:.2f},{x:.6f}\n" for t, x in rows))
    ww.save(model, tmp_path / "model.safetensors")
    paths = (tmp_path / "a.csv", "--out", tmp_path / "b.csv")
    part = ("--start", "2", "--end", "0:04")
    whatwhere("denoise", *paths, tmp_path / "model.safetensors", "--noise", 0.5, *part)
    changed = ww.data.load(tmp_path / "b.csv")[0][0].numpy() - noisy[0]
    assert np.abs(changed[:200]).max() < 1e-5
    assert np.abs(changed[400:]).max() < 1e-5
    assert np.abs(changed[200:400]).max() > 0.1
