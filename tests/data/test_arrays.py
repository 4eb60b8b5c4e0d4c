"""Arrays: the supported shapes, types and labels, and the files they come from."""

from pathlib import Path

import numpy as np
import pytest
import torch

from idx_writer import write_idx
from whatwhere.data import load
from whatwhere.errors import ImageError


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 6, 4), (1, 6, 4)),
        ((5, 1, 6, 5), (1, 6, 5)),
        ((5, 3, 6, 5), (3, 6, 5)),
        ((5, 6, 5, 1), (1, 6, 5)),
        ((5, 6, 5, 3), (3, 6, 5)),
        ((5, 32, 32, 3), (3, 32, 32)),
        ((5, 5, 20, 20), (5, 20, 20)),
        ((5, 2, 6, 9), (2, 6, 9)),
        ((5, 6, 9, 4), (4, 6, 9)),
        ((5, 20, 20, 7), (7, 20, 20)),
    ],
)
def test_shapes_grey_and_colour(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    raw = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    images = load(raw)
    assert images.shape == expected
    channels_first = raw[:, None] if raw.ndim == 3 else raw
    if images[:].shape != channels_first.shape:
        channels_first = np.moveaxis(raw, -1, 1)
    np.testing.assert_array_equal(images[:].numpy(), channels_first / np.float32(255))


@pytest.mark.parametrize("shape", [(4,), (4, 4), (5, 64, 8, 8), (5, 9, 9, 9), (1, 1, 1, 1, 1), (0, 28, 28), (3, 0, 28)])
def test_other_shapes_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageError, match="shape"):
        load(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32, complex, object, "U3", "datetime64[s]", "u1,u1"])
def test_other_types_raise(dtype: str) -> None:
    with pytest.raises(ImageError, match="pixels of type"):
        load(np.zeros((2, 4, 4), dtype))


def test_tensors_of_any_kind(grey: np.ndarray) -> None:
    expected = load(grey)[:]
    assert torch.equal(load(torch.from_numpy(grey))[:], expected)
    assert torch.equal(load(expected.clone().requires_grad_())[:], expected)
    assert torch.equal(load(expected.bfloat16())[:], expected.bfloat16().float())


def test_the_same_images_in_every_kind_of_file(tmp_path: Path, grey: np.ndarray, save_gzip) -> None:
    write_idx(tmp_path / "idx", grey)
    save_gzip(tmp_path / "idx.gz", (tmp_path / "idx").read_bytes())
    np.save(tmp_path / "a.npy", grey)
    np.savez(tmp_path / "a.npz", grey)
    np.savez(tmp_path / "b.npz", images=grey, labels=np.arange(5), other=np.arange(3))
    np.savez_compressed(tmp_path / "c.npz", images=grey, labels=np.arange(5))
    expected = load(grey)
    for name in ("idx", "idx.gz", "a.npy", "a.npz", "b.npz", "c.npz"):
        images = load(tmp_path / name)
        assert torch.equal(images[:], expected[:])
        assert images.fingerprint == expected.fingerprint
        assert images.name == str(tmp_path / name)
        assert (images.labels is not None) == (name in ("b.npz", "c.npz"))


def test_an_npz_of_other_arrays_raises(tmp_path: Path, grey: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", x=grey, y=np.arange(5))
    with pytest.raises(ImageError, match="contains x, y; expected"):
        load(tmp_path / "a.npz")


def test_labels_from_arrays_and_files(tmp_path: Path, grey: np.ndarray) -> None:
    values = np.array([4, 0, 2, 2, 1], np.uint8)
    write_idx(tmp_path / "labels", values)
    np.save(tmp_path / "labels.npy", values)
    for labels in (
        values,
        values.tolist(),
        torch.from_numpy(values),
        tmp_path / "labels",
        str(tmp_path / "labels.npy"),
    ):
        loaded = load(grey, labels=labels).labels
        assert loaded is not None
        assert loaded.dtype == np.int64
        assert loaded.tolist() == [4, 0, 2, 2, 1]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.arange(4), "5 images and 4 labels"),
        (np.zeros(5), "one integer per image"),
        (np.zeros((5, 10), int), "one integer per image"),
        (["a"] * 5, "one integer per image"),
        ("nowhere.idx", "No such file"),
    ],
)
def test_labels_that_do_not_fit_raise(grey: np.ndarray, labels: object, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        load(grey, labels=labels)


def test_a_file_of_labels_is_not_taken_for_images(tmp_path: Path) -> None:
    write_idx(tmp_path / "labels", np.arange(9, dtype=np.uint8))
    with pytest.raises(ImageError, match="shape"):
        load(tmp_path / "labels")


def test_nan_in_a_file_raises_when_it_is_loaded(tmp_path: Path) -> None:
    raw = np.zeros((300, 8, 8), np.float32)
    raw[299, 7, 7] = np.nan
    np.save(tmp_path / "a.npy", raw)
    with pytest.raises(ImageError, match="finite"):
        load(tmp_path / "a.npy")


def test_a_large_file_is_read_batch_by_batch(tmp_path: Path, little_memory) -> None:
    np.save(tmp_path / "a.npy", np.zeros((20_000, 28, 28), np.uint8))  # 16 MB
    with little_memory(1 << 20):
        images = load(tmp_path / "a.npy")
        assert images[5000:5100].shape == (100, 1, 28, 28)
        assert images[[0, 19_999]].shape == (2, 1, 28, 28)


def test_an_ambiguous_shape_warns_which_axis_holds_the_channels() -> None:
    with pytest.warns(UserWarning, match=r"shape \(5, 3, 7, 3\), axis 1 was taken for the 3 channels"):
        assert load(np.zeros((5, 3, 7, 3), np.uint8)).shape == (3, 7, 3)


def test_labels_that_do_not_fit_into_int64_raise(grey: np.ndarray) -> None:
    labels = np.array([0, 1, 2, 3, 2**64 - 1], np.uint64)
    with pytest.raises(ImageError, match="the label 18446744073709551615 is larger than int64 holds"):
        load(grey, labels=labels)
    assert load(grey, labels=labels % np.uint64(5)).labels is not None


def test_the_axis_of_the_channels_can_be_stated() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 5), np.uint8)
    for channels, expected in (("first", raw), ("last", raw.transpose(0, 3, 1, 2))):
        np.testing.assert_array_equal(load(raw, channels=channels)[:].numpy(), expected / np.float32(255))
    with pytest.raises(ImageError, match="does not show which axis holds the channels"):
        load(raw)
