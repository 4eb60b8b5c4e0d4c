"""`load`: what each kind of source means, and the errors of a bad one."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raising import Containing, raises, warns
from whatwhere.data import Images, NameOfTwo, load, load_groups
from whatwhere.data.images import CountsDiffer
from whatwhere.errors import (
    BeyondRange,
    ImageError,
    InvalidImages,
    NoSuchImages,
    NotFinite,
    UnexpectedArgument,
    UnknownDataset,
    Unreadable,
)


def test_the_default_split_is_for_training() -> None:
    assert load("digits").fingerprint == load("digits", split="train").fingerprint
    assert load("digits").fingerprint != load("digits", split="test").fingerprint
    assert repr(load("digits", split="test")) == "Images('digits/test', 2,000 of 1×28×28, labelled)"


@pytest.mark.parametrize(
    ("source", "options", "error", "fields"),
    [
        ("nowhere", {}, NoSuchImages, {"path": "nowhere"}),
        ("/dev/zero", {}, Unreadable, {"path": "/dev/zero"}),
        ("digits", {"split": "validation"}, UnknownDataset, {"given": "validation"}),
        ("digits", {"labels": [1]}, UnexpectedArgument, {"name": "labels"}),
        (
            np.zeros((2, 4, 4), np.uint8),
            {"split": "train"},
            UnexpectedArgument,
            {"name": "split"},
        ),
    ],
)
def test_bad_arguments_raise(
    source: object, options: dict, error: type[ImageError], fields: dict[str, object]
) -> None:
    with raises(error, **fields):
        load(source, **options)


def test_labels_are_not_given_twice(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(2))
    assert isinstance(load(tmp_path / "a.npz"), Images)
    with raises(UnexpectedArgument, name="labels", source=str(tmp_path / "a.npz")):
        load(tmp_path / "a.npz", labels=[0, 1])


def test_labels_in_an_npz_that_do_not_match_raise(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(3))
    with raises(CountsDiffer, name=str(tmp_path / "a.npz"), images=2, labels=3):
        load(tmp_path / "a.npz")


def test_a_file_that_cannot_be_opened_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 4), np.uint8))

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", deny)
    with raises(Unreadable, path=str(tmp_path / "a.npy"), reason="Permission denied"):
        load(tmp_path / "a.npy")


def test_mnist_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path))
    with raises(NoSuchImages, remedy=Containing("`whatwhere download mnist`", "--from FOLDER")):
        load("mnist")


def test_an_empty_path_raises() -> None:
    with raises(InvalidImages, given="an empty path"):
        load("")


def test_a_name_that_is_too_long_raises() -> None:
    for name in ("x" * 300, "y" * 5000):
        with raises(Unreadable, path=name, reason=os.strerror(errno.ENAMETOOLONG)):
            load(name)
        with raises(Unreadable, path=name, reason=os.strerror(errno.ENAMETOOLONG)):
            load(np.zeros((2, 4, 4), np.uint8), labels=name)


def test_a_data_set_comes_before_a_path_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "digits.npy", np.zeros((2, 4, 4), np.uint8))
    (tmp_path / "digits.npy").rename(tmp_path / "digits")
    with warns(NameOfTwo, name="digits"):
        assert load("digits").name == "digits/train"
    assert load("./digits").shape == load(Path("digits")).shape == (1, 4, 4)


def test_images_are_returned_as_they_are(grey: np.ndarray) -> None:
    images = load(grey)
    assert load(images) is images
    labels = load(images, labels=np.arange(5)).labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(Unreadable):
        load(tmp_path / "pipe.npy")


# Masks from files: pictures, arrays, transparency, NaN --------------------------------------------


RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((4, 3, 6, 5)).astype(np.float32)
KNOWN = RANDOM.random((6, 5)) > 0.4


def test_one_picture_is_the_mask_of_all_images(tmp_path: Path) -> None:
    Image.fromarray(np.where(KNOWN, 255, 0).astype(np.uint8)).save(tmp_path / "mask.png")
    [(images, mask)] = load_groups(IMAGES, tmp_path / "mask.png")
    assert mask is not None
    np.testing.assert_array_equal(images[:], IMAGES)
    np.testing.assert_array_equal(mask[1:3], np.broadcast_to(KNOWN, (2, 1, 6, 5)))
    assert len(mask) == 4


def test_an_array_file_holds_a_mask_for_each_image(tmp_path: Path) -> None:
    weights = RANDOM.random((4, 3, 6, 5))
    np.save(tmp_path / "mask.npy", weights)
    [(_, mask)] = load_groups(IMAGES, tmp_path / "mask.npy")
    assert mask is not None
    np.testing.assert_array_equal(mask[:], weights.astype(np.float32))


@pytest.mark.parametrize("shape", [(2, 6, 5), (4, 5, 6), (4, 2, 6, 5)])
def test_a_mask_of_another_shape_raises(shape: tuple[int, ...]) -> None:
    with raises(InvalidImages, expected="1 or 4 masks of 1 or 3 × 6 × 5"):
        load_groups(IMAGES, np.ones(shape, bool))


@pytest.mark.filterwarnings("ignore:.*mode.*:DeprecationWarning")
def test_transparent_pixels_are_unknown_on_request(tmp_path: Path) -> None:
    values = RANDOM.integers(1, 256, (6, 5, 4), np.uint8)
    values[~KNOWN, 3] = 0
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values[..., :3]).save(tmp_path / "b.png")
    Image.fromarray(values[..., 2:], "LA").convert("RGBA").save(tmp_path / "c.webp", lossless=True)
    [(images, mask)] = load_groups(tmp_path, "alpha")
    assert mask is not None
    np.testing.assert_array_equal(images[:], load(tmp_path)[:])
    np.testing.assert_array_equal(mask[:], np.stack([KNOWN, np.ones_like(KNOWN), KNOWN])[:, None])
    [(_, single)] = load_groups(str(tmp_path / "a.png"), "alpha")
    assert single is not None
    np.testing.assert_array_equal(single[0][0], KNOWN)


def test_a_palettes_transparent_entry_is_unknown(tmp_path: Path) -> None:
    picture = Image.fromarray(RANDOM.integers(0, 256, (6, 5, 3), np.uint8)).quantize(8)
    picture.save(tmp_path / "a.png", transparency=0)
    [(_, mask)] = load_groups(tmp_path / "a.png", "alpha")
    assert mask is not None
    np.testing.assert_array_equal(mask[0][0], np.asarray(picture) != 0)


def test_only_pictures_have_an_alpha_channel(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    for source in (IMAGES, tmp_path / "a.npy"):
        with raises(UnexpectedArgument, name="mask"):
            load_groups(source, "alpha")


def test_nan_is_unknown_on_request(tmp_path: Path) -> None:
    values = np.where(KNOWN, IMAGES, np.nan)
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(NotFinite):
        load_groups(tmp_path / "a.npy", None)
    [(images, mask)] = load_groups(tmp_path / "a.npy", "nan")
    assert mask is None
    np.testing.assert_array_equal(images[:], values)
    np.testing.assert_array_equal(images.subset(np.array([2]))[0], values[2])
    np.save(tmp_path / "b.npy", np.where(KNOWN, np.inf, np.nan)[None])
    with pytest.raises(BeyondRange):
        load_groups(tmp_path / "b.npy", "nan")


def test_a_split_may_follow_the_name() -> None:
    assert load("digits:test").fingerprint == load("digits", split="test").fingerprint
    with raises(UnknownDataset, given="half", known=("train", "test")):
        load("digits:half")
