"""Masks from files: pictures, arrays, transparency, NaN."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whatwhere.data import load, load_groups
from whatwhere.errors import ImageError

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
    with pytest.raises(ImageError, match="expected 1 or 4 masks of 1 or 3 × 6 × 5"):
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
        with pytest.raises(ImageError, match="only pictures have an alpha channel"):
            load_groups(source, "alpha")


def test_nan_is_unknown_on_request(tmp_path: Path) -> None:
    values = np.where(KNOWN, IMAGES, np.nan)
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(ImageError, match="nan"):
        load_groups(tmp_path / "a.npy", None)
    [(images, mask)] = load_groups(tmp_path / "a.npy", "nan")
    assert mask is None
    np.testing.assert_array_equal(images[:], values)
    np.testing.assert_array_equal(images.subset(np.array([2]))[0], values[2])
    np.save(tmp_path / "b.npy", np.where(KNOWN, np.inf, np.nan)[None])
    with pytest.raises(ImageError, match="inf"):
        load_groups(tmp_path / "b.npy", "nan")
