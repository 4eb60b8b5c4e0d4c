"""Folders of pictures: grey or colour, sub-folders as labels, and every fault named by its file."""

import os
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from raising import Containing, raises, warns
from whatwhere.data import load
from whatwhere.data.pictures import NoPictures, SkippedFiles, picture_names
from whatwhere.errors import ChangedFile, MissingExtra, UnusableImageFile
from whatwhere.files import RECORD, write_result


def save(path: Path, pixels: np.ndarray, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def colour() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)


def test_grey_pictures_in_the_order_of_their_names(tmp_path: Path, grey: np.ndarray) -> None:
    for row in (3, 0, 4, 1, 2):
        save(tmp_path / f"{row}.png", grey[row])
    (tmp_path / "._0.png").write_bytes(b"what some systems leave next to a picture")
    images = load(tmp_path)
    assert (len(images), images.shape, images.labels) == (5, (1, 6, 4), None)
    assert torch.equal(images[:], load(grey)[:])
    assert torch.equal(images[[4, 1]], load(grey)[[4, 1]])
    assert images.fingerprint == load(grey).fingerprint


def test_colour_pictures_with_sub_folders_as_labels(tmp_path: Path, colour: np.ndarray) -> None:
    for row, name in enumerate(("cat", "cat", "dog", "ant")):
        save(tmp_path / name / f"{row}.PNG", colour[row])
    images = load(tmp_path)
    assert images.classes == ("ant", "cat", "dog")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 1, 2]
    assert torch.equal(images[:], load(colour, channels="last")[[3, 0, 1, 2]])
    assert images.subset(np.array([0])).classes == images.classes


def test_jpeg_is_decoded_as_pillow_decodes_it(tmp_path: Path, colour: np.ndarray) -> None:
    save(tmp_path / "a.jpg", colour[0])
    save(tmp_path / "b.jpeg", colour[1])
    images = load(tmp_path)
    decoded = np.asarray(Image.open(tmp_path / "b.jpeg")).transpose(2, 0, 1)
    np.testing.assert_array_equal(images[1].numpy(), decoded / np.float32(255))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("length", [0, 1, 40, 0.5, 0.9])
def test_a_broken_picture_is_skipped_with_a_warning_that_names_it(
    tmp_path: Path, suffix: str, length: float
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    save(tmp_path / f"a.{suffix}", pixels)
    save(tmp_path / f"b.{suffix}", pixels)
    complete = (tmp_path / f"b.{suffix}").read_bytes()
    (tmp_path / f"b.{suffix}").write_bytes(
        complete[: int(length * len(complete)) if length < 1 else int(length)]
    )
    broken = tmp_path / f"b.{suffix}"
    with pytest.warns(SkippedFiles) as caught:
        assert len(load(tmp_path)) == 1
    assert [list(one.message.skipped) for one in caught] == [[broken]]
    with raises(UnusableImageFile, path=broken, kind="picture"):
        load(broken)
    (tmp_path / f"a.{suffix}").unlink()
    with raises(NoPictures, folder=tmp_path) as raised:
        load(tmp_path)
    assert list(raised.value.skipped) == [broken]


def test_files_that_are_no_pictures_are_named_once(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "a.png", grey[0])
    (tmp_path / "notes.txt").write_text("a list of what is to be seen")
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("a text")
    with pytest.warns(SkippedFiles) as caught:
        assert len(load(tmp_path)) == 1
    names = [[file.name for file in one.message.skipped] for one in caught]
    assert names == [["notes.txt", "empty.png", "text.png"]]
    with raises(UnusableImageFile, path=tmp_path / "text.png"):
        load(tmp_path / "text.png")


def skipped(folder: Path) -> list[str]:
    """The warnings of a folder of one picture."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(load(folder)) == 1
    return [str(warning.message).removeprefix(f"{folder}: ") for warning in caught]


def test_skipped_files_are_named_at_any_depth(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "old" / "slide 01" / "a.png", grey[0])
    for name in ("old/README.txt", "notes/list.csv", "old/.hidden", "top.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("a text")
    assert skipped(tmp_path) == [
        "skipped notes/list.csv (not a picture), old/README.txt (not a picture), top.txt (not a"
        " picture)."
    ]


def test_files_of_the_program_are_not_named(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "a.png", grey[0])
    write_result(tmp_path, tmp_path / "predictions.csv", b"file,class\n", "")
    for name in ("mine.csv", "mine.codes.safetensors", "mine.classifier.safetensors"):
        (tmp_path / name).write_text("labels")
    for folder, name in (("mine.run", "recipe.toml"), ("results", RECORD)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("{}")
        (tmp_path / folder / "other.txt").write_text("a text")
    assert skipped(tmp_path) == []
    (tmp_path / "theirs.csv").write_text("a table")
    assert skipped(tmp_path) == ["skipped theirs.csv (not a picture)."]
    (tmp_path / RECORD).write_text("damaged")
    assert skipped(tmp_path) == [
        "skipped predictions.csv (not a picture), theirs.csv (not a picture)."
    ]


@pytest.mark.parametrize("side", [9_000, 12_000, 2_000_000_000])
def test_a_picture_that_is_too_large_raises_before_it_is_decoded(
    tmp_path: Path, side: int, little_memory
) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1 << 20))
    (tmp_path / "a.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )
    with (
        little_memory(8 << 20),
        raises(NoPictures, skipped={tmp_path / "a.png": Containing("pixels")}),
    ):
        load(tmp_path)


def test_a_folder_without_pictures_raises(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with raises(NoPictures, skipped={}):
        load(tmp_path)


def test_pictures_at_any_depth_are_found_by_their_paths(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "b.png", grey[2])
    save(tmp_path / "a" / "0.png", grey[0])
    save(tmp_path / "a" / "deep" / "er" / "0.png", grey[1])
    images = load(tmp_path)
    assert picture_names(images.pixels) == ["a/0.png", "a/deep/er/0.png", "b.png"]
    assert torch.equal(images[:], load(grey)[[0, 1, 2]])


def test_sub_folders_are_labels_only_if_every_picture_lies_directly_in_one(
    tmp_path: Path, grey: np.ndarray
) -> None:
    save(tmp_path / "cat" / "0.png", grey[0])
    save(tmp_path / "dog" / "1.png", grey[1])
    assert load(tmp_path).classes == ("cat", "dog")
    save(tmp_path / "dog" / "young" / "2.png", grey[2])
    deep = load(tmp_path)
    assert (deep.classes, deep.labels) == (None, None)
    (tmp_path / "dog" / "young" / "2.png").unlink()
    save(tmp_path / "3.png", grey[3])
    assert load(tmp_path).labels is None


def test_hidden_folders_runs_and_results_are_left_out(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "a.png", grey[0])
    save(tmp_path / ".cache" / "b.png", grey[1])
    save(tmp_path / "labels.run" / "figures" / "c.png", grey[2])
    (tmp_path / "labels.run" / "recipe.toml").touch()
    save(tmp_path / "denoised" / "a.png", grey[3])
    (tmp_path / "denoised" / RECORD).write_text("{}")
    assert picture_names(load(tmp_path).pixels) == ["a.png"]


def test_a_picture_that_changes_after_loading_raises(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "a.png", grey[0])
    save(tmp_path / "b.png", grey[1])
    images = load(tmp_path)
    for changed in (grey[1, :3], grey[2]):
        save(tmp_path / "b.png", changed)
        os.utime(tmp_path / "b.png", (1, 1))  # clocks of disks are coarse
        with raises(ChangedFile, path=str(tmp_path / "b.png")):
            images[1]


def test_without_pillow_the_missing_package_is_named(
    tmp_path: Path, grey: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a.png", grey[0])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises(MissingExtra, package="Pillow"):
        load(tmp_path)


def test_a_label_folder_that_is_a_link_is_read_like_any_other(
    tmp_path: Path, grey: np.ndarray
) -> None:
    save(tmp_path / "elsewhere" / "1.png", grey[1])
    save(tmp_path / "pictures" / "ant" / "0.png", grey[0])
    (tmp_path / "pictures" / "bee").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    images = load(tmp_path / "pictures")
    assert images.classes == ("ant", "bee")
    assert torch.equal(images[:], load(grey)[:2])


def test_links_in_a_circle_end(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "pictures" / "ant" / "0.png", grey[0])
    (tmp_path / "pictures" / "ant" / "loop").symlink_to(
        tmp_path / "pictures", target_is_directory=True
    )
    assert len(load(tmp_path / "pictures")) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_among_the_pictures_is_not_waited_for(tmp_path: Path, grey: np.ndarray) -> None:
    save(tmp_path / "a.png", grey[0])
    os.mkfifo(tmp_path / "b.png")
    with warns(SkippedFiles, skipped={tmp_path / "b.png": Containing("a pipe")}):
        assert len(load(tmp_path)) == 1
