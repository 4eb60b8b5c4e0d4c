"""Images as inference takes them: arrays, PIL images and single images."""

import pytest
import torch
from PIL import Image

from whatwhere.inference.target import as_image_source
from whatwhere.spec import LayerSpec, ModelSpec


@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_of_any_kind_is_a_batch_of_one(channels: int) -> None:
    spec = ModelSpec(channels=channels, layers=(LayerSpec(maps=2),))
    pixels = torch.randint(0, 256, (1, channels, 9, 7), dtype=torch.uint8)
    last = pixels[0].permute(1, 2, 0).squeeze(2).numpy()
    ways = [pixels, pixels[0], last, pixels.numpy(), Image.fromarray(last)]
    if channels == 1:
        ways += [pixels[0, 0], pixels[0].numpy()]
    for given in ways:
        batch, are_signals = as_image_source(given, spec)
        assert torch.equal(batch[:], pixels)
        assert not are_signals


def test_grey_images_need_no_axis_of_channels() -> None:
    spec = ModelSpec(layers=(LayerSpec(maps=2),))
    images = torch.rand(4, 9, 7)
    assert torch.equal(as_image_source(images, spec)[0][:], images[:, None])
