"""What training reads: signals and masks, batch by batch."""

import torch

from whatwhere.learning.training_data import as_signals
from whatwhere.model import DeconvNet
from whatwhere.spec import LayerSpec, ModelSpec


def test_masks_of_all_batches_have_the_same_channels() -> None:
    """So that they can be joined on a device, also where only some batches have unknown pixels."""
    model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),), channels=3))
    images = torch.rand(4, 3, 8, 8)
    images[0, 1, 2, 3] = torch.nan
    batches = [slice(0, 2), slice(2, 4)]
    signals, masks = as_signals(model, images, None, batches)
    assert masks is not None
    joined = torch.cat([masks[batch] for batch in batches])
    expected = torch.ones(4, 3, 8, 8)
    expected[0, 1, 2, 3] = 0
    assert torch.equal(joined, expected)
    assert signals[batches[0]][0, 1, 2, 3] == 0
