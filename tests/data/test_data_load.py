"""`load`: which source goes where, and what it says of one that is none."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.data import Images, load
from whatwhere.errors import ImageError


def test_the_default_split_is_for_training() -> None:
    assert load("digits").fingerprint == load("digits", split="train").fingerprint
    assert load("digits").fingerprint != load("digits", split="test").fingerprint
    assert repr(load("digits", split="test")) == "Images('digits/test', 2,000 of 1×28×28, labelled)"


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("nowhere", {}, "neither a file or folder nor the name of a set"),
        ("/dev/zero", {}, "neither a file or folder"),
        ("digits", {"split": "validation"}, "splits train and test, not 'validation'"),
        ("digits", {"labels": [1]}, "brings its own labels"),
        (np.zeros((2, 4, 4), np.uint8), {"split": "train"}, "only named sets"),
    ],
)
def test_what_cannot_be_is_refused(source: object, options: dict, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        load(source, **options)


def test_labels_are_not_given_twice(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(2))
    assert isinstance(load(tmp_path / "a.npz"), Images)
    with pytest.raises(ImageError, match="brings its own labels"):
        load(tmp_path / "a.npz", labels=[0, 1])


def test_labels_in_an_npz_that_do_not_match_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(3))
    with pytest.raises(ImageError, match=r"a\.npz: 2 images and 3 labels"):
        load(tmp_path / "a.npz")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 4), np.uint8))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ImageError, match=r"a\.npy: cannot be read: Permission denied"):
        load(tmp_path / "a.npy")


def test_mnist_that_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path))
    with pytest.raises(ImageError, match="run `whatwhere data get mnist`, or set WHATWHERE_DATA"):
        load("mnist")
