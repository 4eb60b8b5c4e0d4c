"""Images: scaled by a constant of their type and nothing else, read by rows, with a fingerprint of
their pixels."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from raising import Containing, raises, warns
from whatwhere.data import Images, LargeFloats, few_labels, load
from whatwhere.data.images import CountsDiffer, PictureWindows
from whatwhere.data.limits import limited
from whatwhere.errors import BeyondRange, InvalidSetting, NotFinite


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535), (np.bool_, 1)])
def test_integers_are_divided_by_the_largest_of_their_type(dtype: type, largest: int) -> None:
    raw = np.arange(largest + 1).astype(dtype).reshape(-1, 1, 1)
    expected = torch.arange(largest + 1, dtype=torch.float32) / largest
    assert torch.equal(load(raw)[:].flatten(), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_floats_are_taken_as_they_are(dtype: str) -> None:
    raw = np.linspace(0, 1, 24).astype(dtype).reshape(2, 1, 3, 4)
    images = load(raw)[:]
    assert images.dtype == torch.float32
    np.testing.assert_array_equal(images.numpy(), raw.astype(np.float32))


@pytest.mark.parametrize(("dtype", "divisor"), [(np.int8, 128), (np.int16, 32768)])
def test_signed_integers_are_divided_to_lie_between_minus_one_and_one(
    dtype: type, divisor: int
) -> None:
    raw = np.arange(-divisor, divisor).astype(dtype).reshape(-1, 1, 1)
    expected = torch.arange(-divisor, divisor, dtype=torch.float32) / divisor
    assert torch.equal(load(raw)[:].flatten(), expected)


def test_floats_of_any_range_are_taken_as_they_are() -> None:
    raw = np.random.default_rng(0).normal(0, 1000, (3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(load(raw)[:].numpy()[:, 0], raw)


def test_floats_that_look_like_bytes_are_taken_with_a_warning() -> None:
    raw = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    with warns(LargeFloats, largest=Containing("23")):
        images = load(raw)
    np.testing.assert_array_equal(images[:].numpy()[:, 0], raw)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_a_float_that_is_not_finite_raises(bad: float) -> None:
    raw = np.zeros((3, 4, 4))
    raw[2, 1, 1] = bad
    with pytest.raises((NotFinite, BeyondRange)):
        load(raw)
    with pytest.raises((NotFinite, BeyondRange)):
        Images(raw[:, None], None, "raw")[:]
    if np.isnan(bad):
        with raises(NotFinite, remedy=Containing("allow_nan=True")):
            load(raw)


def test_rows_are_chosen_by_slice_list_array_tensor_mask_and_number(grey: np.ndarray) -> None:
    images = load(grey)
    expected = torch.from_numpy(grey[:, None] / np.float32(255))
    assert torch.equal(images[:], expected)
    for rows in (
        slice(1, 4),
        [3, 0],
        np.array([4, 4]),
        torch.tensor([2, 1]),
        grey[:, 0, 0] > 50,
        [-1],
    ):
        assert torch.equal(images[rows], expected[rows])
    assert torch.equal(images[3], expected[3])
    assert torch.equal(images[(3, 0)], expected[[3, 0]])
    assert images[[]].shape == (0, 1, 6, 4)
    assert len(list(images)) == 5
    with pytest.raises(IndexError):
        images[[5]]


def test_a_batch_is_a_copy(grey: np.ndarray) -> None:
    floats = (grey / 255).astype(np.float32)
    for source in (grey, floats, torch.from_numpy(floats)):
        images = load(source)
        images[:].zero_()
        assert images[:].sum() > 0


def test_batches_cover_every_row_once(grey: np.ndarray) -> None:
    images = load(grey)
    assert [(rows.start, rows.stop) for rows in images.batches(2)] == [(0, 2), (2, 4), (4, 5)]
    assert [(rows.start, rows.stop) for rows in images.batches()] == [(0, 5)]


def test_a_subset_is_read_lazily_in_its_order(grey: np.ndarray) -> None:
    images = load(grey, labels=np.arange(5))
    part = images.subset([4, 1, 3]).subset(np.array([2, 0]))
    assert torch.equal(part[:], images[[3, 4]])
    assert part.labels is not None
    assert part.labels.tolist() == [3, 4]
    assert (len(part), part.shape) == (2, (1, 6, 4))


def test_the_fingerprint_is_of_the_pixels_their_type_and_shape(grey: np.ndarray) -> None:
    first = load(grey).fingerprint
    assert (
        first
        == load(grey[:, None], labels=np.arange(5)).fingerprint
        == load(torch.from_numpy(grey)).fingerprint
    )
    assert first == load(np.asfortranarray(grey)).fingerprint
    assert first == load(grey).subset(np.arange(5)).fingerprint
    changed = grey.copy()
    changed[4, 5, 3] += 1
    others = [
        changed,
        grey.transpose(0, 2, 1),
        grey[:4],
        grey[::-1],
        grey.astype(np.uint16),
        grey.reshape(5, 4, 6),
    ]
    assert len({first, *(load(other).fingerprint for other in others)}) == 7


def test_the_fingerprint_does_not_depend_on_the_batches(grey: np.ndarray) -> None:
    first = load(grey).fingerprint
    with limited(batch=1):
        assert load(grey).fingerprint == first


def test_labels_must_match_the_images(grey: np.ndarray) -> None:
    with raises(CountsDiffer, name="mine", images=5, labels=4):
        Images(grey[:, None], np.arange(4), "mine")


@pytest.mark.parametrize(
    ("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535), (np.int16, 32768)]
)
def test_integers_are_scaled_to_the_white_of_a_model(dtype: type, largest: int) -> None:
    raw = np.array([[[[0, 100, np.iinfo(dtype).max]]]], dtype)
    images = Images(raw, None, "raw")
    torch.testing.assert_close(
        images.with_white(255)[:], torch.from_numpy(raw.astype(np.float32)) * 255 / largest
    )
    assert torch.equal(images.with_white(255).with_white(1)[:], images[:])
    assert images.with_white(255).fingerprint == images.fingerprint
    floats = Images(raw.astype(np.float32), None, "raw")
    assert torch.equal(floats.with_white(255)[:], floats[:])


# As many labels of every class by seed ----------------------------------------------


@pytest.mark.parametrize("count", [100, 300, 1000, 3000])
def test_few_labels_take_as_many_of_every_class(count: int) -> None:
    labels = load("digits").labels
    assert labels is not None
    rows = few_labels(labels, count, seed=3)
    assert np.bincount(labels[rows]).tolist() == [count // 10] * 10
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(rows, few_labels(labels, count, seed=3))
    assert set(rows) != set(few_labels(labels, count, seed=4))
    assert set(few_labels(labels, 100, seed=3)) <= set(rows)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(95, "a multiple of 10"), (0, "a multiple"), (-10, "a multiple"), (4580, "fewer")],
)
def test_impossible_counts_raise(count: int, expected: str) -> None:
    labels = load("digits").labels
    assert labels is not None
    with raises(InvalidSetting, expected=Containing(expected)):
        few_labels(labels, count, seed=0)


# One picture read window by window is the same picture --------------------------------------------


WINDOW = (slice(None), slice(3, 9), slice(5, 30))


def files(folder: Path) -> dict[str, Path]:
    from PIL import Image

    rng = np.random.default_rng(0)
    arrays = {
        "grey": rng.integers(0, 255, (3, 20, 30), np.uint8),
        "first": rng.random((3, 2, 20, 30)).astype(np.float32),
        "last": rng.integers(0, 60000, (3, 20, 30, 3), np.uint16),
        "fortran": np.asfortranarray(rng.random((3, 20, 30))),
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    np.savez(folder / "stored.npz", arrays["grey"])
    np.savez_compressed(folder / "compressed.npz", arrays["first"])
    (folder / "pictures").mkdir()
    for i in range(3):
        Image.fromarray(rng.integers(0, 255, (20, 30, 3), np.uint8)).save(
            folder / "pictures" / f"{i}.png"
        )
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", ["grey", "first", "last", "fortran", "stored", "compressed", "pictures"]
)
def test_a_window_is_a_part_of_the_image(tmp_path: Path, name: str) -> None:
    images = load(files(tmp_path)[name])
    for row in (0, 2):
        picture = PictureWindows(images, row)
        assert picture.shape == images.shape
        assert torch.equal(picture[WINDOW], images[row][WINDOW])
        assert torch.equal(picture[:, :, :], images[row])


def test_a_subset_goes_to_another_process() -> None:
    """As a DataLoader sends it to its workers."""
    images = load(np.arange(60, dtype=np.uint8).reshape(5, 1, 4, 3)).subset([3, 1]).with_channels(3)
    assert torch.equal(pickle.loads(pickle.dumps(images))[:], images[:])


def test_a_data_loader_gives_images_with_their_labels() -> None:
    digits = ww.data.load("digits")
    loader = torch.utils.data.DataLoader(digits, batch_size=5, sampler=[3, 1, 4, 1, 5])
    [(x, y)] = list(loader)
    assert torch.equal(x, torch.stack([digits[row] for row in (3, 1, 4, 1, 5)]))
    assert y.tolist() == [int(digits.labels[row]) for row in (3, 1, 4, 1, 5)]
    unlabelled = dataclasses.replace(digits, labels=None)
    [alone] = list(torch.utils.data.DataLoader(unlabelled, batch_size=2, sampler=[7, 0]))
    assert torch.equal(alone, digits[[7, 0]])


def test_images_show_their_first_pictures_in_a_notebook() -> None:
    shown = ww.data.load("digits")._repr_html_()
    assert shown.count("<img ") == 12
    assert "5,000 of 1×28×28" in shown
    named = dataclasses.replace(ww.data.load("digits"), name="<script>")
    assert "<script>" not in named._repr_html_()
