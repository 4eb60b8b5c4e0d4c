"""Signals from arrays and files, read in windows."""

from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.data.signals import Signals, cut_windows, training_windows
from whatwhere.errors import ImageError


@pytest.fixture
def recording() -> np.ndarray:
    """Two channels of 500 samples."""
    return np.random.default_rng(0).uniform(-0.9, 0.9, (2, 500)).astype(np.float32)


@pytest.mark.parametrize("shape", [(1000,), (2, 500), (1, 2, 500)])
def test_arrays(recording: np.ndarray, shape: tuple[int, ...]) -> None:
    signals = ww.data.load(recording.reshape(shape), signals=True)
    assert isinstance(signals, Signals)
    expected = recording.reshape((1,) * (3 - len(shape)) + shape)
    assert torch.equal(signals[:], torch.from_numpy(expected))
    assert torch.equal(signals[0], signals[:][0])
    assert torch.equal(signals.as_images()[:], signals[:][:, :, None])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".wav"])
def test_files_hold_the_same_signal(recording: np.ndarray, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"recording{suffix}"
    if suffix == ".npy":
        np.save(path, recording)
    elif suffix == ".npz":
        np.savez(path, signals=recording[None], labels=[7])
    elif suffix == ".csv":
        np.savetxt(path, recording.T, delimiter=",", header="left,right", comments="", fmt="%.9g")
    else:
        pytest.importorskip("scipy.io.wavfile").write(path, 1000, recording.T)
    signals = ww.data.load(path, signals=suffix in (".npy", ".npz"))
    assert torch.equal(signals[0], torch.from_numpy(recording))
    assert signals.labels is None or signals.labels.tolist() == [7]
    window = signals.recording(0)[:, 0:1, 20:30]
    assert torch.equal(window, torch.from_numpy(recording[:, None, 20:30]))


@pytest.mark.parametrize(("kind", "largest"), [("int16", 32768), ("int32", 2**31), ("uint8", 128)])
def test_whole_numbers_of_a_wav_file_are_scaled(
    recording: np.ndarray, kind: str, largest: int, tmp_path: Path
) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    values = np.rint(recording.T.astype(float) * largest) + (128 if kind == "uint8" else 0)
    wavfile.write(tmp_path / "a.wav", 1000, values.astype(kind))
    found = ww.data.load(tmp_path / "a.wav")[0]
    assert float((found - torch.from_numpy(recording)).abs().max()) <= 0.51 / largest + 1e-6


def test_empty_fields_of_a_table_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n;3\n4;5\n")
    signals = ww.data.load(tmp_path / "a.csv", allow_nan=True)
    np.testing.assert_array_equal(signals[0], [[1, np.nan, 4], [2, 3, 5]])
    with pytest.raises(ImageError, match="expected finite values"):
        ww.data.load(tmp_path / "a.csv")


def test_an_empty_line_of_one_channel_is_an_unknown_sample(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("volt\n1\n\n\n4\n\n")
    signals = ww.data.load(tmp_path / "a.csv", allow_nan=True)
    np.testing.assert_array_equal(signals[0], [[1, np.nan, np.nan, 4]])


@pytest.mark.parametrize("text", ["", "time,value\n", "1,2\n3,x\n", "1,2\n3\n"])
def test_what_is_wrong_with_a_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ImageError, match="a column for each channel"):
        ww.data.load(tmp_path / "a.csv")


def test_what_is_wrong_with_arrays_and_wav_files(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="complex"):
        ww.data.load(np.zeros(5, complex), signals=True)
    with pytest.raises(ImageError, match=r"expected signals \[T\]"):
        ww.data.load(np.zeros((1, 1, 1, 5)), signals=True)
    with pytest.warns(UserWarning, match="transposed"):
        ww.data.load(np.zeros((500, 2)), signals=True)
    with pytest.raises(ImageError, match=r"expected \[N, H, W\].*signals=True"):  # no picture
        ww.data.load(np.zeros((2, 500)))
    pytest.importorskip("scipy")
    (tmp_path / "a.wav").write_bytes(b"RIFF1234WAVEnothing")
    with pytest.raises(ImageError, match=r"not a usable \.wav file"):
        ww.data.load(tmp_path / "a.wav")


def test_windows_cover_every_sample_and_read_no_others(tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 1050, dtype=np.float32).reshape(2, 3, 1050)
    np.save(tmp_path / "a.npy", values)
    signals = ww.data.load(tmp_path / "a.npy", signals=True)
    windows = cut_windows(signals, 100)
    assert windows[:].shape == (22, 3, 100)
    assert torch.equal(
        windows[:][[0, 10, 21]],
        torch.from_numpy(values[[0, 0, 1], :, :][:, :, :]).gather(
            2, torch.tensor([0, 950, 950])[:, None, None] + torch.arange(100).expand(3, 3, 100)
        ),
    )
    assert set(windows[:].flatten().tolist()) == set(values.flatten().tolist())
    assert training_windows(signals) is signals  # short ones are kept whole
    with pytest.raises(ImageError, match="has 1,050"):
        cut_windows(signals, 2000)
