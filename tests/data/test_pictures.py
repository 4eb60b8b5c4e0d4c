"""Single pictures, written by Pillow in every supported format and kind: the pixels are those that
were written."""

import os
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image, features

from raising import Containing, raises
from whatwhere.data import load, load_groups
from whatwhere.data.pictures import (
    decode,
    find_pages,
    kept_open,
    picture_names,
    read_extras,
    usable_formats,
)
from whatwhere.errors import UnusableImageFile


@pytest.fixture
def colour() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("suffix", "channels"),
    [
        ("png", 1),
        ("png", 3),
        ("bmp", 1),
        ("bmp", 3),
        ("tif", 1),
        ("tiff", 3),
        ("webp", 3),
    ],  # WebP has no grey
)
def test_lossless_formats(tmp_path: Path, colour: np.ndarray, suffix: str, channels: int) -> None:
    pixels = colour if channels == 3 else colour[..., 0]
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(pixels).save(path, **({"lossless": True} if suffix == "webp" else {}))
    for source in (path, tmp_path):
        images = load(source)
        assert (len(images), images.shape, images.labels) == (1, (channels, 6, 5), None)
        expected = pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]
        np.testing.assert_array_equal(images[0].numpy(), expected / np.float32(255))


def test_the_name_of_a_picture_does_not_matter(tmp_path: Path, colour: np.ndarray) -> None:
    Image.fromarray(colour).save(tmp_path / "a.png", format="TIFF")
    assert load(tmp_path).shape == load(tmp_path / "a.png").shape == (3, 6, 5)


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_a_picture_is_upright_as_its_camera_was_held(
    tmp_path: Path, colour: np.ndarray, orientation: int, turns: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation  # 6: what the file has as its first row is seen on the right
    Image.fromarray(colour).save(tmp_path / "a.png", exif=exif)
    expected = np.rot90(colour, turns).transpose(2, 0, 1)
    np.testing.assert_array_equal(load(tmp_path / "a.png")[0].numpy(), expected / np.float32(255))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_divided_by_65535(tmp_path: Path, suffix: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (6, 5), np.uint16)
    Image.fromarray(pixels).save(tmp_path / f"a.{suffix}")
    images = load(tmp_path)
    assert images.pixels.dtype == np.uint16
    np.testing.assert_array_equal(images[0][0].numpy(), pixels / np.float32(65535))


def test_a_float_tiff_is_taken_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(load(tmp_path / "a.tif")[0][0].numpy(), pixels)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_transparent_pixels_are_blended_with_black(tmp_path: Path, mode: str, suffix: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (6, 5, len(mode)), np.uint8)
    values[0, :, -1], values[1, :, -1] = 0, 255
    Image.fromarray(values, mode).save(tmp_path / f"a.{suffix}")
    expected = np.rint(values[..., :-1] * (values[..., -1:] / 255.0)) / 255
    read = load(tmp_path)[0].numpy()
    np.testing.assert_allclose(read, expected.transpose(2, 0, 1), atol=1e-6)
    assert (read[:, 0] == 0).all()


def test_a_palette_becomes_colour_and_its_transparent_entry_black(
    tmp_path: Path, colour: np.ndarray
) -> None:
    picture = Image.fromarray(colour).quantize(8)
    expected = np.asarray(picture.convert("RGB"))
    picture.save(tmp_path / "a.png")
    np.testing.assert_array_equal(
        load(tmp_path / "a.png")[0].numpy(), expected.transpose(2, 0, 1) / np.float32(255)
    )
    picture.save(tmp_path / "b.png", transparency=0)
    blended = np.where(np.asarray(picture)[..., None] == 0, 0, expected)
    np.testing.assert_array_equal(
        load(tmp_path / "b.png")[0].numpy(), blended.transpose(2, 0, 1) / np.float32(255)
    )


def test_two_tones_are_grey(tmp_path: Path, colour: np.ndarray) -> None:
    tones = colour[..., 0] > 99
    Image.fromarray(tones).save(tmp_path / "a.png")
    np.testing.assert_array_equal(load(tmp_path)[0].numpy(), tones[None])


@pytest.mark.parametrize("mode", ["LAB"])
def test_other_kinds_raise(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (4, 4)).save(tmp_path / "a.tif")
    with raises(UnusableImageFile, reason=Containing(f"mode is {mode}")):
        load(tmp_path / "a.tif")


def test_several_pages_are_several_pictures(tmp_path: Path) -> None:
    pages = np.random.default_rng(0).integers(0, 256, (3, 4, 6), np.uint8)
    first, *others = (Image.fromarray(page) for page in pages)
    first.save(tmp_path / "a.tif", save_all=True, append_images=others)
    Image.fromarray(pages[0]).save(tmp_path / "b.png")
    for source, expected in ((tmp_path / "a.tif", pages), (tmp_path, pages[[0, 1, 2, 0]])):
        images = load(source)
        np.testing.assert_array_equal(images[:][:, 0].numpy(), expected / np.float32(255))
        np.testing.assert_array_equal(
            images[[2, 1]][:, 0].numpy(), expected[[2, 1]] / np.float32(255)
        )
    assert picture_names(images.pixels) == ["a.tif/1", "a.tif/2", "a.tif/3", "b.png"]


def test_pages_of_several_sizes(tmp_path: Path) -> None:
    pages = [Image.new("L", size, 9) for size in ((4, 4), (8, 6))]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert [images.shape for images, _ in load_groups(tmp_path / "a.tif")] == [(1, 4, 4), (1, 6, 8)]


@pytest.mark.parametrize(("bits", "white"), [(10, 1023), (12, 4095), (16, 65535)])
def test_sixteen_bits_are_divided_by_the_bits_that_they_use(
    tmp_path: Path, bits: int, white: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 2**bits, (2, 30, 20), np.uint16)
    pixels[0, 0, 0] = 2**bits - 1
    for number, values in enumerate(pixels):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(values).save(tmp_path / "a" / f"{number}.png")
    np.save(tmp_path / "b.npy", pixels)
    for source in (tmp_path / "a", tmp_path / "b.npy", pixels):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            images = load(source)
        np.testing.assert_array_equal(images[:][:, 0].numpy(), pixels / np.float32(white))
        expected = (
            []
            if bits == 16
            else [f"16-bit pixels that use only {bits} bits. Using {white} as white."]
        )
        assert [str(warning.message).split(" has ", 1)[1] for warning in caught] == expected


def test_a_pillow_without_a_format_reads_the_others(tmp_path: Path) -> None:
    """Pillow reads AVIF since 11.3, and its build may leave out others."""
    Image.new("L", (4, 3)).save(tmp_path / "a.ppm")
    Image.init()
    without = {name: opener for name, opener in Image.OPEN.items() if name != "AVIF"}
    usable_formats.cache_clear()
    with patch.dict(Image.OPEN, without, clear=True):
        assert load(tmp_path).shape == (1, 3, 4)
    usable_formats.cache_clear()


@pytest.mark.parametrize("suffix", [".gif", ".avif", ".jp2", ".ppm", ".pgm"])
def test_other_usual_formats_are_read(tmp_path: Path, suffix: str) -> None:
    if suffix == ".avif" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    pixels = np.zeros((16, 20, 3), np.uint8)
    pixels[:, 10:] = 200
    picture = Image.fromarray(pixels).convert("L" if suffix == ".pgm" else "RGB")
    picture.save(tmp_path / f"a{suffix}")
    found = load(tmp_path)
    assert found.shape == ((1 if suffix == ".pgm" else 3), 16, 20)
    np.testing.assert_allclose(255 * found[0][0, :, [2, 17]], [[0, 200]] * 16, atol=12)


def test_a_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "red.jpg")
    red, green, blue = load(tmp_path)[0].mean((1, 2)).tolist()
    assert red > 0.9
    assert max(green, blue) < 0.1


def test_a_picture_that_is_kept_open_is_decoded_once_until_its_file_changes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.png"
    first, second = (np.random.default_rng(i).integers(0, 256, (9, 7), np.uint8) for i in (0, 1))
    Image.fromarray(first).save(file)
    with patch.object(Image, "_getdecoder", wraps=Image._getdecoder) as decoder:
        with kept_open():
            for _ in range(3):
                (page,) = find_pages(file)
                np.testing.assert_array_equal(decode(page), first[None])
                assert read_extras(file).alpha is None
            assert decoder.call_count == 1
            Image.fromarray(second).save(file)
            os.utime(file, ns=(1, 1))
            (page,) = find_pages(file)
            np.testing.assert_array_equal(decode(page), second[None])
            assert decoder.call_count == 2
        list(find_pages(file))
        assert decoder.call_count == 3


def test_pages_of_a_file_that_is_kept_open_stay_apart(tmp_path: Path) -> None:
    file = tmp_path / "a.tif"
    values = np.random.default_rng(0).integers(0, 256, (3, 9, 7), np.uint8)
    Image.fromarray(values[0]).save(
        file, save_all=True, append_images=[Image.fromarray(page) for page in values[1:]]
    )
    with kept_open():
        for _ in range(2):
            for page, expected in zip(find_pages(file), values, strict=True):
                np.testing.assert_array_equal(decode(page), expected[None])
