"""Pictures in every form: what is given comes back, with less noise."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from pictures_to_restore import discs, noisy
from raising import raises
from whatwhere.errors import ImageError, InvalidImages
from whatwhere.restoration import RestorationSpec, denoise, inpaint
from whatwhere.restoration.forms import open_form

QUICK = RestorationSpec(quality=8, rounds=2)
KNOWN = np.random.default_rng(5).random((32, 40)) > 0.3
SHAPES = {
    "one": (32, 40),
    "colour": (32, 40, 3),
    "transparent": (32, 40, 4),
    "many": (2, 32, 40),
    "planes": (2, 3, 32, 40),
    "colours": (2, 32, 40, 3),
}


def given_as(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    """A noisy picture of this shape: grey levels for integers."""
    truth = discs(32, 40, 3)
    random = np.random.default_rng(seed)
    place = next(i for i in range(len(shape)) if shape[i : i + 2] == (32, 40))
    axes = [1] * place + [32, 40] + [1] * (len(shape) - place - 2)
    values = truth.numpy().reshape(axes) * 0.6 + 0.2 + 0.08 * random.standard_normal(shape)
    if dtype == "bool":
        return values > 0.5
    if np.dtype(dtype).kind in "iu":
        return (values.clip(0, 1) * min(np.iinfo(dtype).max, 4000)).astype(dtype)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "float32", "float64"])
def test_arrays_come_back_in_their_type_and_units(dtype: str) -> None:
    given = given_as((32, 40), dtype)
    scale = 1 if given.dtype.kind == "f" else min(np.iinfo(dtype).max, 4000)
    clean = denoise(given, noise=0.08 * scale, spec=QUICK)
    assert isinstance(clean, np.ndarray)
    assert (clean.dtype, clean.shape) == (given.dtype, given.shape)
    truth = scale * (0.6 * discs(32, 40, 3).numpy() + 0.2)
    assert np.abs(clean - truth).mean() < 0.6 * np.abs(given - truth).mean()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("tensor", [False, True])
def test_shapes_come_back(name: str, tensor: bool) -> None:
    array = given_as(SHAPES[name], "uint8")
    given = torch.from_numpy(array) if tensor else array
    clean = denoise(given, noise=20.0, spec=QUICK)
    assert type(clean) is type(given)
    assert (clean.dtype, clean.shape) == (given.dtype, given.shape)
    if name == "transparent":
        np.testing.assert_array_equal(np.asarray(clean)[..., 3], array[..., 3])
    # every picture of several is restored by itself
    if name in ("many", "colours"):
        np.testing.assert_array_equal(
            np.asarray(clean[1]), np.asarray(denoise(given[1], noise=20.0, spec=QUICK))
        )


def test_the_layout_does_not_change_the_result() -> None:
    last = given_as((32, 40, 3), "float32")
    first = torch.from_numpy(last).permute(2, 0, 1)
    a = denoise(last, noise=0.08, spec=QUICK)
    b = denoise(first, noise=0.08, spec=QUICK)
    np.testing.assert_allclose(a, b.permute(1, 2, 0).numpy(), atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I;16", "F"])
def test_pillow_pictures_and_files_come_back(mode: str, tmp_path: Path) -> None:
    dtype = {"I;16": "uint16", "F": "float32"}.get(mode, "uint8")
    array = given_as((32, 40, len(mode)) if mode.startswith("RGB") else (32, 40), dtype)
    picture = Image.fromarray(array)
    assert picture.mode == mode
    clean = denoise(picture, noise=20.0 if dtype == "uint8" else 0.05, spec=QUICK)
    assert (clean.mode, clean.size) == (mode, picture.size)
    picture.save(tmp_path / "a.tif")
    array = np.asarray(picture.convert("RGB") if mode == "RGBA" else picture)
    result = denoise(tmp_path / "a.tif", noise=0.0)
    np.testing.assert_array_equal(result, array)


def test_booleans_and_arrays_in_another_order() -> None:
    given = given_as((32, 40), "bool")
    assert denoise(given, spec=QUICK).dtype == bool
    big = given_as((32, 40), "float32").astype(">f4")[:, ::-1]
    clean = denoise(big, noise=0.08, spec=QUICK)
    assert (clean.dtype, clean.shape) == (big.dtype, big.shape)


def test_without_a_model_the_trained_denoiser_is_used() -> None:
    given = noisy(discs(32, 40), 0.1)
    expected = denoise(given, ww.restoration.load_denoiser(), 0.1, spec=QUICK)
    torch.testing.assert_close(denoise(given, noise=0.1, spec=QUICK), expected, rtol=0, atol=0)


def test_data_sets_and_lists_come_back(tmp_path: Path) -> None:
    arrays = [given_as((32, 40), "uint8", seed) for seed in (1, 2)]
    for number, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / f"{number}.png")
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    expected = [denoise(array, noise=20.0, spec=QUICK) for array in arrays]
    for given in (arrays, paths, [arrays[0], paths[1]]):
        for clean, one in zip(denoise(given, noise=20.0, spec=QUICK), expected, strict=True):
            np.testing.assert_array_equal(clean, one)
    pictures = denoise([Image.open(path) for path in paths], noise=20.0, spec=QUICK)
    assert [type(picture).__name__ for picture in pictures] == ["Image", "Image"]
    images = ww.data.load(tmp_path)
    clean = denoise(images, noise=20 / 255, spec=QUICK)
    assert isinstance(clean, torch.Tensor)
    np.testing.assert_allclose(255 * clean[:, 0].numpy(), expected, atol=1.01)


# Inpainting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float64", "bool"])
def test_gaps_of_every_form_are_filled(name: str, dtype: str) -> None:
    whole = given_as(SHAPES[name], dtype)
    known = np.expand_dims(KNOWN, -1) if SHAPES[name][-1] in (3, 4) else KNOWN
    filled = inpaint(np.where(known, whole, 0).astype(dtype), KNOWN, spec=QUICK)
    assert (filled.dtype, filled.shape) == (whole.dtype, whole.shape)
    known = np.broadcast_to(known, whole.shape)
    np.testing.assert_array_equal(filled[known], whole[known])
    gaps = ~known.copy()
    if name == "transparent":
        gaps[..., 3] = False
    lost = np.abs(0.0 - whole)[gaps].mean()
    most = 0.7 if dtype == "bool" else 0.5
    assert np.abs(filled.astype(float) - whole)[gaps].mean() < most * lost


def test_a_mask_in_any_form_means_the_same(tmp_path: Path) -> None:
    given = given_as((32, 40, 3), "uint8")
    expected = inpaint(given, KNOWN, spec=QUICK)
    grey = Image.fromarray((255 * KNOWN).astype(np.uint8))
    grey.save(tmp_path / "mask.png")
    tensor = torch.from_numpy(KNOWN)
    each = np.repeat(KNOWN[..., None], 3, 2)
    for mask in (
        grey,
        grey.convert("1"),
        tmp_path / "mask.png",
        tensor,
        tensor.float()[None, None],
    ):
        np.testing.assert_array_equal(inpaint(given, mask, spec=QUICK), expected)
    # a mask for each channel fills in channels one by one
    assert np.abs(inpaint(given, each, spec=QUICK).astype(float) - expected)[~KNOWN].mean() < 20
    picture = inpaint(Image.fromarray(given), grey, spec=QUICK)
    np.testing.assert_array_equal(np.asarray(picture), expected)
    # bytes mean the same as floats from 0 to 1
    floats = inpaint(torch.from_numpy(given).permute(2, 0, 1)[None] / 255, KNOWN, spec=QUICK)
    np.testing.assert_allclose(255 * floats[0].permute(1, 2, 0).numpy(), expected, atol=0.51)
    # noise is in the units of the picture
    noisy_bytes = inpaint(given, KNOWN, noise=20.0, spec=QUICK)
    noisy_floats = inpaint(given / np.float32(255), KNOWN, noise=20 / 255, spec=QUICK)
    np.testing.assert_allclose(255 * noisy_floats, noisy_bytes, atol=0.51)


def test_masks_of_several_pictures(tmp_path: Path) -> None:
    given = given_as((3, 32, 40), "float32")[:, None]
    masks = np.stack([KNOWN, ~KNOWN, KNOWN[:, ::-1]])
    expected = inpaint(given, masks[:, None], spec=QUICK)
    np.testing.assert_array_equal(inpaint(given, masks, spec=QUICK), expected)
    listed = inpaint(list(given[:, 0]), list(masks), spec=QUICK)
    np.testing.assert_allclose(np.stack(listed), expected[:, 0], atol=1e-5)
    same = inpaint(list(given[:, 0]), KNOWN, spec=QUICK)
    np.testing.assert_allclose(same[0], expected[0, 0], atol=1e-5)
    with raises(InvalidImages, given="2 masks for 3 pictures"):
        inpaint(list(given[:, 0]), list(masks[:2]), spec=QUICK)
    Image.fromarray((255 * given[0, 0].clip(0, 1)).astype(np.uint8)).save(tmp_path / "a.png")
    images = ww.data.load(tmp_path / "a.png")
    filled = inpaint(images, KNOWN, spec=QUICK)
    assert torch.equal(filled[0, 0][torch.from_numpy(KNOWN)], images[0][0][torch.from_numpy(KNOWN)])


@pytest.mark.parametrize("bad", [3, "missing.png", np.array(["a"]), np.zeros((2, 2, 2, 2, 2))])
def test_other_things_are_errors(bad: object) -> None:
    with pytest.raises((ImageError, ww.errors.WhatwhereError)):
        open_form(bad)


def test_three_pages_of_a_file_are_no_colours(tmp_path: Path) -> None:
    pages = given_as((3, 32, 40), "uint8")
    first, *others = map(Image.fromarray, pages)
    first.save(tmp_path / "film.tif", save_all=True, append_images=others)
    assert open_form(tmp_path / "film.tif").images.shape == (3, 1, 32, 40)
    clean = denoise(tmp_path / "film.tif", noise=20.0, spec=QUICK)
    expected = denoise(list(pages), noise=20.0, spec=QUICK)
    np.testing.assert_array_equal(clean, np.stack(expected))
