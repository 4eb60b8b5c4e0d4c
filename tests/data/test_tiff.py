"""TIFF files of channels that Pillow has no kind for, written by tifffile: the pixels are those
that were written."""

import io
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raising import Containing, raises, warns
from whatwhere.data import load
from whatwhere.data.limits import limited
from whatwhere.data.pictures import SkippedFiles
from whatwhere.errors import ImageError, InvalidImages, UnusableImageFile

tifffile = pytest.importorskip("tifffile")


def write(path: Path, channels: int, dtype: Any, **settings: Any) -> np.ndarray:
    """Random pixels [C, H, W] as a file."""
    random = np.random.default_rng(0)
    white = 1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    pixels = (random.random((channels, 12, 10)) * white).astype(dtype)
    pixels[0, 0, 0] = white
    settings = {"photometric": "minisblack", "planarconfig": "contig"} | settings
    separate = settings["planarconfig"] == "separate"
    tifffile.imwrite(path, pixels if separate else pixels.transpose(1, 2, 0), **settings)
    return pixels


@pytest.mark.parametrize(
    "layout", [{"planarconfig": "contig"}, {"planarconfig": "separate"}, {"byteorder": ">"}]
)
@pytest.mark.parametrize(
    ("channels", "dtype"), [(2, "u1"), (5, "u1"), (5, "u2"), (7, "f4"), (3, "u2"), (3, "f4")]
)
def test_any_channels_and_depth(
    tmp_path: Path, channels: int, dtype: str, layout: dict[str, str]
) -> None:
    kind = {"photometric": "rgb"} if channels == 3 else {}
    pixels = write(tmp_path / "a.tif", channels, np.dtype(dtype), **layout, **kind)
    white = {"u1": 255, "u2": 65535, "f4": 1}[dtype]
    for source in (tmp_path / "a.tif", tmp_path):
        images = load(source)
        assert images.pixels.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(images[0].numpy(), pixels / np.float32(white))


def test_colour_with_other_channels_keeps_them(tmp_path: Path) -> None:
    for extra in (1, 2):
        unspecified = {"photometric": "rgb", "extrasamples": ["unspecified"] * extra}
        pixels = write(tmp_path / "a.tif", 3 + extra, np.uint8, **unspecified)
        np.testing.assert_array_equal(load(tmp_path / "a.tif")[0].numpy(), pixels / np.float32(255))


def test_pages_of_many_channels(tmp_path: Path) -> None:
    pages = np.random.default_rng(0).integers(0, 256, (3, 12, 10, 6), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pages, photometric="minisblack", planarconfig="contig")
    np.testing.assert_array_equal(
        load(tmp_path / "a.tif")[:].numpy(), pages.transpose(0, 3, 1, 2) / np.float32(255)
    )


def test_grey_pictures_among_those_of_many_channels_are_repeated_and_other_numbers_raise(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.tif", 5, np.uint8)
    Image.new("L", (10, 12), 51).save(tmp_path / "b.png")
    assert load(tmp_path)[1].numpy() == pytest.approx(np.full((5, 12, 10), 0.2))
    Image.new("RGB", (10, 12)).save(tmp_path / "c.png")
    with raises(InvalidImages, given=Containing("of 1 and 3 and 5 channels")):
        load(tmp_path)


def test_pages_of_different_kinds_raise(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(np.zeros((8, 8), np.uint8), metadata=None)
        writer.write(np.zeros((8, 8, 3), np.uint16), photometric="rgb", metadata=None)
    with raises(UnusableImageFile, reason=Containing("page 2 and page 1")):
        load(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("settings", "dtype", "reason"),
    [
        ({}, "i4", "pixels of type int32; expected"),
        ({"compression": "zlib"}, "u1", "compression"),
        ({"extrasamples": ["unassalpha", *["unspecified"] * 3]}, "u1", "transparency"),
        ({"photometric": "miniswhite"}, "u1", "MINISWHITE"),
    ],
)
def test_other_kinds_raise(
    tmp_path: Path, settings: dict[str, Any], dtype: str, reason: str
) -> None:
    write(tmp_path / "a.tif", 5, np.dtype(dtype), **settings)
    with raises(UnusableImageFile, path=tmp_path / "a.tif", reason=Containing(reason)):
        load(tmp_path / "a.tif")


def test_what_tifffile_logs_of_a_damaged_file_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.tif"
    write(file, 5, np.dtype(np.uint8))
    content = bytearray(file.read_bytes())
    content[150:180] = b"[" * 30
    file.write_bytes(bytes(content))
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a program that does not log
    monkeypatch.setattr(logging.getLogger("tifffile"), "handlers", [])
    tifffile.TiffFile(file)
    assert "TiffTag" in capsys.readouterr().err
    with suppress(ImageError), pytest.warns(UserWarning, match="Truncated"):
        load(file)
    assert capsys.readouterr().err == ""


def test_a_page_of_too_many_values_is_not_decoded(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", 5, np.uint8)
    with (
        limited(page_values=599),
        raises(UnusableImageFile, reason=Containing("600 values", "at most 599")),
    ):
        load(tmp_path / "a.tif")


def test_without_tifffile_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.tif", 5, np.uint8)
    Image.new("L", (4, 4)).save(tmp_path / "b.tif")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with raises(UnusableImageFile, reason=Containing("pip install tifffile")):
        load(tmp_path / "a.tif")
    assert load(tmp_path / "b.tif").shape == (1, 4, 4)
    with warns(SkippedFiles, skipped={tmp_path / "a.tif": Containing("tifffile")}):
        assert len(load(tmp_path)) == 1


def test_white_may_be_zero_in_grey_of_16_bits(tmp_path: Path) -> None:
    """It was read as a negative, and `denoise` wrote the negative."""
    pixels = np.random.default_rng(0).integers(0, 65536, (6, 8), np.uint16)
    inverse = 65535 - pixels
    tifffile.imwrite(tmp_path / "a.tif", inverse, photometric="miniswhite", metadata=None)
    np.testing.assert_array_equal(load(tmp_path / "a.tif").pixels[:][0, 0], pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_colours_of_16_bits_are_upright(tmp_path: Path, orientation: int) -> None:
    from PIL import ImageOps

    pixels = np.random.default_rng(0).integers(0, 65536, (6, 8, 3), np.uint16)
    tag = (274, "H", 1, orientation, True)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", extratags=[tag], metadata=None)
    exif = Image.Exif()
    exif[274] = orientation
    file = io.BytesIO()
    Image.fromarray((pixels >> 8).astype(np.uint8)).save(file, "PNG", exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(file))).transpose(2, 0, 1)
    np.testing.assert_array_equal(load(tmp_path / "a.tif").pixels[:][0] >> 8, upright)
