"""Arrays that stay in their files: what an index reads, and what happens when the file changes."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import whatwhere as ww
from raising import raises
from tiny_training import process
from whatwhere.data.arrays import read_array
from whatwhere.data.limits import limited
from whatwhere.data.stored_array import StoredArray, with_new_axis
from whatwhere.errors import ChangedFile, Unreadable

SHAPE = (4, 3, 1, 50)
PARTS = [
    np.s_[:],
    np.s_[2],
    np.s_[-1],
    np.s_[1:3],
    np.s_[3:1],
    np.s_[[2, 0, 2]],
    np.s_[np.array([True, False, True, False])],
    np.s_[np.array([], int)],
    np.s_[1, :, :, 7:20],
    np.s_[:, 1:, 0, 40:],
    np.s_[0:1, 2, :, -5:-1],
    np.s_[1:3, :, :, :],
    np.s_[2, 1, 0, 49],
]


def stored(tmp_path: Path, values: np.ndarray) -> StoredArray:
    np.save(tmp_path / "a.npy", values)
    array = read_array(tmp_path / "a.npy", largest=0)
    assert isinstance(array, StoredArray)
    return array


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "u1"])
def test_a_part_is_that_of_the_array(part: object, order: str, dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 200, SHAPE).astype(dtype, order=order)
    array = stored(tmp_path, values)
    assert_array_equal(array[part], values[part])
    assert array[part].dtype == values[part].dtype


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_axes_in_another_order(axes: tuple[int, ...], tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=SHAPE)
    turned = stored(tmp_path, values).transpose(*axes)
    expected = values.transpose(axes)
    assert turned.shape == expected.shape
    assert_array_equal(turned[1:, :1], expected[1:, :1])
    assert_array_equal(turned.T[:], expected.T)
    assert_array_equal(turned.row(0)[:1], expected[0, :1])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_new_axis_is_that_of_numpy(axis: int, tmp_path: Path) -> None:
    values = np.arange(30.0).reshape(5, 6)
    expected = np.expand_dims(values, axis)
    assert_array_equal(with_new_axis(stored(tmp_path, values), axis)[:, :, 0:4], expected[:, :, :4])


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    array = stored(tmp_path, np.zeros((3, 4)))
    with pytest.raises(IndexError):
        array[3]
    with pytest.raises(IndexError):
        array[:, ::2]


def test_only_the_part_is_read(tmp_path: Path, little_memory) -> None:
    array = stored(tmp_path, np.zeros((2, 1, 1, 4_000_000), np.float32))  # 32 MB
    with little_memory(1 << 20):
        assert array[1, :, :, 3_000_000:3_000_100].shape == (1, 1, 100)


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    values = np.zeros(1000, np.float32)
    array = stored(tmp_path, values)
    os.utime(tmp_path / "a.npy", ns=(0, 0))
    with raises(ChangedFile, path=str(tmp_path / "a.npy")):
        array[:10]
    array = stored(tmp_path, values)
    (tmp_path / "a.npy").unlink()
    with raises(Unreadable, path=str(tmp_path / "a.npy")):
        array[:10]


@pytest.mark.parametrize("suffix", [".npy", ".wav"])
def test_a_recording_that_is_cut_off_after_loading_is_an_error(suffix: str, tmp_path: Path) -> None:
    """A map would end the process with SIGBUS, so it is tried in a process of its own."""
    path = tmp_path / f"a{suffix}"
    samples = np.zeros(200_000, np.int16)
    if suffix == ".npy":
        np.save(path, samples)
    else:
        pytest.importorskip("scipy.io.wavfile").write(path, 1000, samples)
    reader = process(read_a_recording_that_is_cut_off, path)
    reader.join()
    assert reader.exitcode == 0


def read_a_recording_that_is_cut_off(path: Path) -> None:
    signals = ww.data.load(path, signals=True)
    with path.open("r+b") as file:
        file.truncate(200)
    with raises(ChangedFile, path=str(path)):
        signals.recording(0)[:, :, 100_000:]


def test_a_long_recording_has_the_fingerprint_of_its_array(tmp_path: Path) -> None:
    """It is computed part by part; the same values in memory have the same."""
    values = np.random.default_rng(0).normal(size=(2, 700)).astype(np.float32)
    expected = ww.data.load(values, signals=True).fingerprint
    np.save(tmp_path / "a.npy", values)
    with limited(batch=1000):
        assert ww.data.load(tmp_path / "a.npy", signals=True).fingerprint == expected
        values[1, 650] += 1
        np.save(tmp_path / "a.npy", values)
        assert ww.data.load(tmp_path / "a.npy", signals=True).fingerprint != expected
