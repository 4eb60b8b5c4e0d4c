"""What training reads: signals and masks, batch by batch."""

import pytest
import torch

from whatwhere.errors import ImageError
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet
from whatwhere.spec import LayerSpec, ModelSpec

BATCHES = [slice(0, 2), slice(2, 4)]


def make(images: torch.Tensor) -> TrainingData:
    model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),), channels=3))
    return TrainingData(model, images, BATCHES, LatentStore(2, torch.device("cpu"), None, in_memory=True))


@pytest.mark.parametrize("keep", [True, False])
def test_unknown_pixels_are_masked_in_their_batch(keep: bool) -> None:
    images = torch.rand(4, 3, 8, 8)
    images[0, 1, 2, 3] = torch.nan
    data = make(images).checked(keep=keep)
    expected = torch.ones(2, 3, 8, 8)
    expected[0, 1, 2, 3] = 0
    target = data.read(0)
    assert target.mask is not None
    assert torch.equal(target.mask, expected)
    assert target.v[0, 1, 2, 3] == 0
    assert data.read(1).mask is None
    assert torch.equal(data.read(1).v, images[2:])


def test_images_that_the_model_cannot_explain_raise_before_anything_is_done() -> None:
    images = torch.rand(4, 3, 8, 8)
    images[3, 0, 0, 0] = -1
    with pytest.raises(ImageError, match="expected values ≥ 0"):
        make(images).checked(keep=False)
