"""Descriptors that forget where: how strong each feature is in a picture, wherever it is.

The first layer is inferred at three scales of the picture, with a few steps: textures have
thousands of active features, which take long to converge, but their strengths are known long
before. Each map becomes the logarithm of its root mean square, relative to the other maps of its
scale.

The four quarters of a picture show the same texture. In directions in which they differ, pictures
differ by chance, so the metric of these rows makes such directions count little.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.descriptors import Matrix, describe_images, unit_length
from whatwhere.classification.metric import (
    Metric,
    MetricSettings,
    metric_of,
)
from whatwhere.classification.settings import Distortions
from whatwhere.inference import infer
from whatwhere.inference.target import ImageSource, in_model_units
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Recipe
from whatwhere.spec.inference import LineSearch
from whatwhere.spec.recipe import joint


@dataclass(frozen=True)
class AnywhereSettings:
    """How what is anywhere is described.

    Parameters
    ----------
    scales
        factors by which a picture is made smaller, each with strengths of its own
    side
        pixels of the shorter side of a picture that is made smaller, at least
    steps
        of inference
    floor
        share of the length of a scale's strengths below which differences count little
    pixels
        that are inferred together
    """

    scales: tuple[int, ...] = (1, 2, 4)
    side: int = 7
    steps: int = 3
    floor: float = 0.01
    pixels: int = 1 << 21


ANYWHERE = AnywhereSettings()


class Strengths(NamedTuple):
    """Logarithms of the strengths of features: of pictures [N, D], and of their quarters
    [N, 4, D]."""

    pictures: Tensor
    quarters: Tensor


def strengths(model: DeconvNet, images: Tensor, recipe: Recipe, engine: str = "auto") -> Strengths:
    """Return how strong the features of the first layer are in images [N, C, H, W], at every
    scale."""
    spec = few_steps(recipe.inference)
    parts = []
    for scale in scales_of(*images.shape[2:]):
        small = images if scale == 1 else F.avg_pool2d(images, scale)
        p = infer(model, small, spec, joint(1), engine=engine, batch_size=len(small)).features
        parts.append(map_strengths(p))
    pictures = torch.cat([part.pictures for part in parts], 1)
    return Strengths(pictures, torch.cat([part.quarters for part in parts], 2))


def scales_of(height: int, width: int) -> list[int]:
    """Return by which numbers images of one size are divided: by 1, and by more unless they become
    too small."""
    most = max(1, min(height, width) // ANYWHERE.side)
    return [scale for scale in ANYWHERE.scales if scale <= most]


def map_strengths(p: Tensor) -> Strengths:
    """Return the strengths of the maps of features [N, B, H, W]."""
    squares = p.square()
    halves = (min(2, p.shape[2]), min(2, p.shape[3]))
    quarters = F.adaptive_avg_pool2d(squares, halves).flatten(2).sqrt().transpose(1, 2)
    return Strengths(_logarithms(squares.mean((2, 3)).sqrt()), _logarithms(quarters))


def _logarithms(values: Tensor) -> Tensor:
    """log(x + floor) of vectors x along the last axis, scaled to unit length."""
    return (F.normalize(values, dim=-1, eps=torch.finfo(values.dtype).tiny) + ANYWHERE.floor).log()


def few_steps(spec: InferenceSpec) -> InferenceSpec:
    """Return the same inference with a few accelerated steps; learned steps belong to another
    layer."""
    step = spec.step
    if spec.schedule is not None:
        step = LineSearch(momentum=True)
    return replace(spec, steps=ANYWHERE.steps, step=step, tolerance=0.0)


def in_batches(
    model: DeconvNet, images: ImageSource, recipe: Recipe, engine: str = "auto"
) -> Iterator[Strengths]:
    """Yield the strengths of all images, batch by batch, on the device of the model."""
    images = in_model_units(model.spec, images)
    size = max(1, ANYWHERE.pixels // images[0:1][0].numel())
    for start in range(0, len(images), size):
        batch = images[start : start + size].to(model.device, model.dtype).nan_to_num(0)
        yield strengths(model, batch, recipe, engine)


def describe_anywhere(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    *,
    engine: str = "auto",
    progress: Callable[[int], object] = lambda images: None,
) -> Tensor:
    """Rows [N, D] of images that do not depend on where features are, float32."""
    rows = []
    for part in in_batches(model, images, recipe, engine):
        rows.append(part.pictures.float())
        progress(len(part.pictures))
    return torch.cat(rows)


def describe_where(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    *,
    engine: str = "auto",
    progress: Callable[[int], object] = lambda images: None,
) -> Matrix:
    """Descriptors [N, D] of what is at a place, of what is anywhere, or of both side by side, as
    the recipe says; 'auto' counts as 'keep' (`choose_where` chooses)."""
    where = recipe.descriptor.where
    if where in ("auto", "keep"):
        return describe_images(model, images, recipe, engine=engine, progress=progress)
    logs = describe_anywhere(model, images, recipe, engine=engine)
    anywhere = unit_length(logs - math.log(ANYWHERE.floor)).cpu().numpy()  # at least 0
    if where == "forget":
        progress(len(anywhere))
        return anywhere
    place = describe_images(model, images, recipe, engine=engine, progress=progress)
    return np.concatenate([place, anywhere], 1) / np.float32(2**0.5)


class Anywhere(NamedTuple):
    """The metric of rows that do not depend on where features are, and the rows [N, D] of the
    images that it was learned from, as `describe_anywhere` returns them."""

    metric: Metric
    rows: Tensor


def learn_anywhere(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    *,
    engine: str = "auto",
    progress: Callable[[int], object] = lambda images: None,
) -> Anywhere:
    """Learn the metric of such rows, in which differences between the quarters of a picture count
    little. Learning needs the rows, so they are returned as well."""
    settings = MetricSettings()
    within, total = settings.covariances()
    rows = []
    for part in in_batches(model, images, recipe, engine):
        quarters = part.quarters.float()
        count = quarters.shape[1]
        apart = quarters - quarters.mean(1, keepdim=True)
        within.add((apart * (count / max(count - 1, 1)) ** 0.5).flatten(0, 1))
        rows.append(part.pictures.float())
        total.add(rows[-1])
        progress(len(quarters))
    sums = torch.stack([part.sum(0) for part in rows])
    mean = sums.sum(0) / total.count
    metric = metric_of(within, total, mean, Distortions(), settings)
    return Anywhere(metric, torch.cat(rows))
