"""Filters for one picture, learned from that picture itself."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryBatch, InferenceSpec, LearningSpec, LineSearch, Recipe

TILE = 48  # pixels of a side
BATCH = 10
LAM = 5.0  # λ of learning, for images from 0 to 1


def adapt(
    model: DeconvNet, image: Tensor, *, lam: float = LAM, tiles: int = 200, seed: int = 0, engine: str = "auto"
) -> DeconvNet:
    """The model with its filters adapted to an image [C, H, W], in a stream of random tiles of it.

    It starts from the filters that it has, so that what the image does not show is not forgotten. The image should be
    clean: a first result of `denoise` or `inpaint` rather than what they were given.

    model   where the filters start
    image   floats [C, H, W]
    lam     λ of learning, for values from 0 to 1
    tiles   how many are learned from
    seed    of their places
    engine  as `infer` takes it

    >>> model = ww.load("photographs")
    >>> image = torch.rand(1, 48, 48)
    >>> ww.restoration.adapt(model, image, tiles=10).spec == model.spec
    True
    """
    planes = image[None] if model.spec.channels == len(image) else image[:, None]
    random = torch.Generator().manual_seed(seed)
    cut = torch.stack([_random_tile(planes, random) for _ in range(tiles)])
    inference = InferenceSpec(lam=lam, steps=30, step=LineSearch(momentum=True), pooling_step=1.0)
    learning = LearningSpec(inference=inference, update=EveryBatch(), cg_steps=1)
    recipe = replace(Recipe.paper(model.spec), learning=(learning,) * model.spec.depth, batch_size=BATCH, seed=seed)
    options = TrainingOptions(engine=engine, device=str(model.device))
    return train(recipe, cut, image_count=tiles, start=model, options=options).model


def _random_tile(planes: Tensor, random: torch.Generator) -> Tensor:
    """One tile [C, h, w] of one of the planes [N, C, H, W], at a random place."""
    N, _, H, W = planes.shape
    height, width = min(TILE, H), min(TILE, W)
    n, top, left = (int(torch.randint(most, (), generator=random)) for most in (N, H - height + 1, W - width + 1))
    return planes[n, :, top : top + height, left : left + width]
