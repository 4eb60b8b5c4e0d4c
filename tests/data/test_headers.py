"""What headers tell, compared with decoding."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whatwhere.data import load, open_folder
from whatwhere.data.headers import HEADER_DTYPE, header_shape
from whatwhere.data.mixed import DamagedPictureIsBlack
from whatwhere.data.pictures import decode, find_pages

LYING = 6  # an orientation that swaps height and width
KNOWN = [
    *((mode, ".png") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
    *((mode, ".jpg") for mode in ("L", "RGB", "CMYK")),
]


def picture(mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 255, (12, 20, 3), np.uint8)
    return Image.fromarray(noise).convert(mode)


@pytest.mark.parametrize(("mode", "suffix"), KNOWN)
def test_headers_tell_what_decoding_tells(mode: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"a{suffix}"
    picture(mode).save(file)
    (page,) = find_pages(file)
    assert header_shape(file) == (page.shape, page.stamp)
    assert page.dtype == HEADER_DTYPE


def test_a_picture_of_a_turned_camera_is_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = LYING
    for suffix in (".jpg", ".png"):
        file = tmp_path / f"a{suffix}"
        picture().save(file, exif=exif)
        (page,) = find_pages(file)
        assert page.shape == (3, 20, 12)
        if (known := header_shape(file)) is not None:
            assert known[0] == page.shape
    assert header_shape(tmp_path / "a.jpg") is not None


def test_what_only_decoding_tells_is_left_to_it(tmp_path: Path) -> None:
    Image.fromarray(np.full((9, 9), 700, np.uint16)).save(tmp_path / "deep.png")
    moving = [picture("L"), picture("L").transpose(Image.Transpose.ROTATE_180)]
    moving[0].save(tmp_path / "moving.png", save_all=True, append_images=moving[1:])
    for suffix in (".tif", ".gif", ".bmp", ".webp"):
        picture().save(tmp_path / f"other{suffix}")
    for suffix in (".jpg", ".png"):
        picture().save(tmp_path / f"whole{suffix}")
        content = (tmp_path / f"whole{suffix}").read_bytes()
        for length in (0, 5, 14, 30, len(content) // 2, len(content) - 1):
            (tmp_path / f"cut{length}{suffix}").write_bytes(content[:length])
    told = {file.name for file in tmp_path.iterdir() if header_shape(file) is not None}
    assert told == {"whole.jpg", "whole.png"}


def test_a_folder_is_opened_by_headers_as_it_is_loaded(tmp_path: Path) -> None:
    for number, (mode, suffix) in enumerate(KNOWN):
        picture(mode).save(tmp_path / f"{number}{suffix}")
    picture().save(tmp_path / "z.tif")
    content = (tmp_path / f"8{KNOWN[8][1]}").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[:-20])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load(tmp_path)
        opened = open_folder(tmp_path)
    words = [str(one.message) for one in caught]
    assert len(words) == 2, "both skip the file that was cut"
    assert words[0] == words[1]
    assert "cut.jpg" in words[0]
    assert opened.shape == loaded.shape
    assert opened.source == loaded.source
    np.testing.assert_array_equal(opened[:], loaded[:])


def test_damage_that_only_decoding_shows_makes_a_picture_black(tmp_path: Path) -> None:
    for name in "abc":
        picture().save(tmp_path / f"{name}.png")
    content = bytearray((tmp_path / "b.png").read_bytes())
    content[len(content) // 2] ^= 255  # inside of the compressed pixels
    (tmp_path / "b.png").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = open_folder(tmp_path)
    with pytest.warns(DamagedPictureIsBlack) as caught:
        pixels = opened[:]
    assert [one.message.picture.name for one in caught] == ["b.png"]
    assert [bool(one.any()) for one in pixels] == [True, False, True]


def test_large_jpegs_are_decoded_at_a_part_of_their_size(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(300), np.arange(400)) / 700
    for number, suffix in enumerate((".jpg", ".png", ".jpg")):
        shades = (255 * smooth ** (number + 1)).astype(np.uint8)[: 300 - 20 * number]
        Image.fromarray(shades).save(tmp_path / f"{number}{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = open_folder(tmp_path, size=16)
        loaded = load(tmp_path, size=16)
    difference = 255 * abs(opened[:] - loaded[:]).mean((1, 2, 3))
    assert difference[1] == 0, "a PNG file is decoded whole"
    assert 0 < difference[0] < 1
    assert 0 < difference[2] < 3, "its sides are no multiples of eight"
    (page,) = find_pages(tmp_path / "0.jpg")
    assert decode(page, enough=40).shape == (1, 75, 100)
    assert decode(page, enough=151).shape == (1, 300, 400)
