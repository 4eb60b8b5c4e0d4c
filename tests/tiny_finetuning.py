"""Two classes of tiny pictures, and settings of fine-tuning that take a fraction of a second."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from examples import SPECS
from whatwhere.finetuning import FinetuneSpec
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec, InferenceSpec, Recipe

SPEC = SPECS["2 layers"]
RECIPE = Recipe(
    model=SPEC,
    learning=Recipe.paper(SPEC).learning,
    inference=InferenceSpec(lam=5.0),
    descriptor=DescriptorSpec(patch=(3,), cell=2),
)


def model(seed: int = 0) -> DeconvNet:
    return DeconvNet(SPEC, seed)


def bars(count: int = 24, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """Horizontal and vertical bars in noise, with the labels 3 and 7."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.6 * torch.rand(count, 1, 8, 8, generator=generator)
    labels = np.where(np.arange(count) % 2, 7, 3)
    for image, label in zip(images, labels, strict=True):
        at = int(torch.randint(8, (), generator=generator))
        (image[0, at] if label == 3 else image[0, :, at]).add_(0.5)
    return images, labels


def settings(**changes: Any) -> FinetuneSpec:
    few = {
        "steps": 2,
        "distill": 0,
        "epochs": 6,
        "least_updates": 0,
        "batch_size": 12,
        "learning_rate": 0.01,
        "dropout": 0.2,
    }
    return FinetuneSpec(**{**few, **changes})
