"""Images as inference takes them: paths, arrays, Pillow's pictures, and single images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from whatwhere.errors import ImageError
from whatwhere.inference.target import as_image_source, in_model_units
from whatwhere.spec import LayerSpec, ModelSpec

GREY = ModelSpec(layers=(LayerSpec(maps=2),))


@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_of_any_kind_is_a_batch_of_one(channels: int, tmp_path: Path) -> None:
    spec = ModelSpec(channels=channels, layers=(LayerSpec(maps=2),))
    pixels = torch.randint(0, 256, (1, channels, 9, 7), dtype=torch.uint8)
    last = pixels[0].permute(1, 2, 0).squeeze(2).numpy()
    file = tmp_path / "one.png"
    Image.fromarray(last).save(file)
    ways = [pixels, pixels[0], last, pixels.numpy(), Image.fromarray(last), file, str(file), [file]]
    if channels == 1:
        ways += [pixels[0, 0], pixels[0].numpy()]
    for given in ways:
        images = in_model_units(spec, given)
        torch.testing.assert_close(images[:], pixels / 255, msg=str(type(given)))
        assert not as_image_source(given, spec)[1]


def test_grey_images_need_no_axis_of_channels() -> None:
    images = torch.rand(4, 9, 7)
    assert torch.equal(as_image_source(images, GREY)[0][:], images[:, None])


def test_a_colour_picture_becomes_grey_for_a_grey_model_and_a_grey_one_colour() -> None:
    """[H, W, 3] is one picture of H × W, not H pictures of W × 3."""
    colour = np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8)
    expected = in_model_units(GREY, ww.data.load(colour[None]))[:]
    for given in (colour, torch.from_numpy(colour), Image.fromarray(colour)):
        images = in_model_units(GREY, given)[:]
        assert images.shape == (1, 1, 9, 7)
        torch.testing.assert_close(images, expected)
    coloured = ModelSpec(channels=3, layers=(LayerSpec(maps=2),))
    grey = in_model_units(coloured, colour[..., 0])[:]
    assert grey.shape == (1, 3, 9, 7)
    torch.testing.assert_close(grey[0, 1], torch.from_numpy(colour[..., 0] / np.float32(255)))


def test_a_folder_is_a_batch_of_its_pictures(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 9, 7)).astype(np.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    found = in_model_units(GREY, tmp_path)[:]
    np.testing.assert_allclose(found[:, 0], pixels / 255, atol=1e-6)


def test_a_list_of_several_shapes_is_an_error() -> None:
    with pytest.raises(ImageError):
        as_image_source([torch.rand(4, 5), torch.rand(5, 5)], GREY)
