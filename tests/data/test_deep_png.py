"""16-bit PNG in colour or with alpha: every bit is read, and written."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from whatwhere.data.deep_png import encode
from whatwhere.data.pictures import read_extras
from whatwhere.restoration.pictures import Task, plan_jobs, restore_picture


def png(pixels: np.ndarray, *more: tuple[bytes, bytes]) -> bytes:
    """A file of pixels [H, W, C] of 16 bits by the format's text, with the filter Sub, which
    subtracts the pixel to the left."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    step = 2 * channels
    before = np.pad(rows, ((0, 0), (step, 0)))[:, :-step]
    filtered = np.pad(rows - before, ((0, 0), (1, 0)), constant_values=1)
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)), *more]
    chunks += [(b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b"")]
    content = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + content


@pytest.fixture
def pixels() -> np.ndarray:
    """Dim ones: their upper bytes are 0, and Pillow's picture of them is black."""
    return np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint16)


def test_all_bits_of_a_colour_picture_are_read(tmp_path: Path, pixels: np.ndarray) -> None:
    (tmp_path / "a.png").write_bytes(png(pixels[..., :3]))
    assert not np.asarray(Image.open(tmp_path / "a.png")).any()
    images = ww.data.load(tmp_path / "a.png")
    np.testing.assert_array_equal(images.pixels[:][0], pixels[..., :3].transpose(2, 0, 1))


@pytest.mark.parametrize("channels", [2, 4])
def test_transparent_pixels_are_blended_with_black(
    tmp_path: Path, pixels: np.ndarray, channels: int
) -> None:
    pixels = 250 * pixels[..., :channels]
    pixels[0, 0, -1], pixels[1, 1, -1] = 0, 65535
    (tmp_path / "a.png").write_bytes(png(pixels))
    alpha = pixels[..., -1:] / 65535
    blended = np.rint(pixels[..., :-1] * alpha).transpose(2, 0, 1)
    np.testing.assert_allclose(ww.data.load(tmp_path / "a.png").pixels[:][0], blended, atol=1)
    [(_, known)] = ww.data.load_groups(tmp_path / "a.png", "alpha")
    assert known is not None
    np.testing.assert_array_equal(known[:][0, 0], (pixels[..., -1] > 0).astype(np.float32))


def test_a_colour_may_be_transparent(tmp_path: Path, pixels: np.ndarray) -> None:
    colour = pixels[2, 3, :3]
    chunk = (b"tRNS", colour.astype(">u2").tobytes())
    (tmp_path / "a.png").write_bytes(png(pixels[..., :3], chunk))
    [(_, known)] = ww.data.load_groups(tmp_path / "a.png", "alpha")
    assert known is not None
    assert not known[:][0, 0, 2, 3]
    assert int(known[:].sum()) == 6 * 5 - 1


@pytest.mark.parametrize(("channels", "alpha"), [(1, False), (3, False), (1, True), (3, True)])
def test_what_is_written_is_read_again(pixels: np.ndarray, channels: int, alpha: bool) -> None:
    colours = 257 * pixels[..., :channels].transpose(2, 0, 1)
    transparency = pixels[..., 3].astype(np.uint8) if alpha else None
    file = encode(colours, transparency, b"profile", (300.0, 150.0))
    with Image.open(io.BytesIO(file)) as picture:
        picture.load()
        assert picture.info["icc_profile"] == b"profile"
        assert picture.info["dpi"] == pytest.approx((300, 150), abs=0.1)
        read = np.asarray(
            picture if picture.mode == "I;16" or channels == 3 else picture.convert("LA")
        )
    upper = read // 256 if picture.mode == "I;16" else read
    expected = pixels[..., :channels]
    expected = np.concatenate([expected, pixels[..., 3:]], -1) if alpha else expected
    np.testing.assert_array_equal(upper.reshape(expected.shape), expected)


def test_a_dim_colour_picture_is_restored_in_16_bits(tmp_path: Path) -> None:
    """It became black."""
    source, out = tmp_path / "a.png", tmp_path / "b.png"
    pixels = np.full((16, 16, 4), 65535, np.uint16)
    pixels[..., :3] = np.linspace(20, 250, 16)[:, None]
    pixels[3, 4, 3] = 0
    source.write_bytes(png(pixels))
    [job] = plan_jobs(Task("inpaint", noise=0.0), torch.zeros(0), source, "alpha", out)
    restore_picture(Task("inpaint", noise=0.0), ww.restoration.load_denoiser(), job, print)
    restored = ww.data.load(out).pixels[:][0]
    known = pixels[..., 3] > 0
    np.testing.assert_array_equal(restored[:, known], pixels[known][:, :3].T)
    assert abs(int(restored[0, 3, 4]) - int(pixels[3, 4, 0])) < 20
    assert read_extras(out).alpha is None
