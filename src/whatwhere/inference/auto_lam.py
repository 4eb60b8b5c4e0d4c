"""λ chosen from the images (`AutoLam`): by their noise, as a share of the largest useful penalty, or by their strength.

The code of λ/2 ‖M ⊙ (R p - v)‖² + Σ|p| starts at p = 0, and a feature leaves 0 only if it correlates with the image by
more than 1/λ. So 1/λ is a threshold:

    by noise    1/λ = NOISE_FACTOR · gain · σ · σ/s      s: the root mean square of v, its noise of σ included
    by share    1/λ = share ·          max |Rᵀ M² v|     at a share of 1 the code is empty

White noise of standard deviation σ correlates with a feature by σ · gain: `gain` is the root mean square length of the
columns of R, about 1 for unit-length filters without pooling. If there is nothing but noise (s = σ), the threshold is
NOISE_FACTOR times that, which almost no feature exceeds; the more of the image is signal, the lower it is. The formula
was chosen by denoising photographs (benchmarks/auto_lam.py).

    by strength  λ = relative · (strength / STROKES)^(α - 2)

The strength of an image is the largest length of a patch of its signal v. An image that is s times as strong has s
times the code, as it should, if λ is multiplied by s^(α - 2): then both terms of the objective grow by s^α. STROKES is
the strength of the included digits, white on black.

R is that of the start of inference, where the pooling variables are fitted to the images. λ is chosen once for all
images of a call, from at most SAMPLE of them spread evenly over the set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.inference.checks import ImageSource
from whatwhere.inference.plan import joint
from whatwhere.inference.pooling_update import start_pooling
from whatwhere.inference.target import Target, make_target, separate_unknown
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import AutoLam, InferenceSpec, Phase, Recipe

NOISE_FACTOR = 4.0
PATCH = 5  # pixels on each side of the patches whose length is an image's strength
STROKES = 4.17  # of 5 × 5 white strokes: the median of the included digits
SAMPLE = 64  # images
CROP = 128  # pixels on each side that the gain is measured on
MEDIAN_OF_NORMAL = 0.6745  # of |x| for a normal x of standard deviation 1


def resolve_lam(
    model: DeconvNet,
    images: ImageSource,
    spec: InferenceSpec,
    plan: Sequence[Phase] = (),
    *,
    mask: ImageSource | None = None,
) -> InferenceSpec:
    """The same settings with λ as a number; those that have one already come back as they are.

    model    whose features explain the images
    images   [N, C, H, W], or what gives them for slices
    spec     settings of inference, with an `AutoLam`
    plan     phases of inference; empty means one joint phase from the top layer
    mask     a weight ≥ 0 for every pixel, [N, 1 or C, H, W]

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")[:3]
    >>> spec = resolve_lam(model, digits, ww.InferenceSpec(lam=ww.AutoLam(share=0.1)))
    >>> ww.infer(model, digits, spec).lam == spec.lam
    True
    """
    if not isinstance(spec.lam, AutoLam):
        return spec
    layer = (tuple(plan) or joint(model.spec.depth))[-1].layer
    rows = sample_rows(len(images))
    with torch.no_grad():
        if spec.lam.relative is not None:
            return replace(spec, lam=spec.lam.relative * strength(model, images, mask, rows) ** (spec.alpha - 2))
        if spec.lam.share is None:
            threshold = noise_threshold(model, images, mask, rows, layer, spec)
        else:
            seen = targets(model, images, mask, rows)
            threshold = spec.lam.share * max(largest_correlation(model, one, layer, spec) for one in seen)
    if threshold <= 0:
        raise ImageError("AutoLam was given with images that no feature correlates with; give lam as a number")
    return replace(spec, lam=1 / threshold)


def resolve_recipe(
    recipe: Recipe, images: ImageSource, *, mask: ImageSource | None = None, start: DeconvNet | None = None
) -> Recipe:
    """The same recipe with every λ as a number, by the filters that training starts from."""
    specs = [recipe.inference, *(learning.inference for learning in recipe.learning)]
    auto = [spec.lam for spec in specs if isinstance(spec.lam, AutoLam)]
    if not auto:
        return recipe
    model = start or DeconvNet(recipe.model, seed=recipe.seed)
    if any(lam.share is not None for lam in auto):
        raise SpecError(
            "AutoLam with a share was given for a training; expected a noise or a number: the share is that of a "
            "learned model (give it to infer, or to whatwhere encode)"
        )
    learning = tuple(
        replace(spec, inference=resolve_lam(model, images, spec.inference, [Phase(layer=k)], mask=mask))
        for k, spec in enumerate(recipe.learning, start=1)
    )
    inference = resolve_lam(model, images, recipe.inference, recipe.plan, mask=mask)
    return replace(recipe, learning=learning, inference=inference)


def strength(model: DeconvNet, images: ImageSource, mask: ImageSource | None, rows: list[int]) -> float:
    """The largest length of a patch of an image's signal, the median over images, in units of STROKES."""
    lengths = []
    for target in targets(model, images, mask, rows):
        power = target.v.square().sum(1, keepdim=True)
        side = min(PATCH, *power.shape[2:])
        lengths.append((F.avg_pool2d(power, side, 1).max() * side**2).sqrt())
    median = float(torch.stack(lengths).median())
    if median == 0:
        raise ImageError("AutoLam was given with images that are mostly plain; give lam as a number")
    return median / STROKES


def noise_level(images: Tensor, mask: Tensor | None = None) -> float:
    """σ of white noise in images [N, C, H, W], by the median rule on their finest details (Donoho, Johnstone):

        σ = median |a - b - c + d| / 2 / 0.6745      over all blocks of 2 × 2 pixels a b / c d

    Where more than half of the blocks are flat, it is 0.

    images   [N, C, H, W]; pixels that are NaN are left out
    mask     [N, 1 or C, H, W]; pixels of weight 0 are left out

    >>> ramp = torch.linspace(0, 1, 64).expand(1, 1, 64, 64)
    >>> noise = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    >>> round(noise_level(ramp + 0.1 * noise), 2)
    0.1
    """
    images, mask = separate_unknown(images, mask)
    a, b, c, d = corners(images)
    detail = ((a - b - c + d) / 2).abs()
    if mask is not None:
        a, b, c, d = corners((mask > 0).expand_as(images))
        detail = detail[a & b & c & d]
    if detail.numel() == 0:
        raise ImageError(f"images {list(images.shape)} have no block of 2 × 2 known pixels to estimate the noise from")
    return float(detail.flatten().cpu().double().median()) / MEDIAN_OF_NORMAL


def corners(images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The pixels a b / c d of every block of 2 × 2, [N, C, H - 1, W - 1] each."""
    above, below = images[..., :-1, :], images[..., 1:, :]
    return above[..., :-1], above[..., 1:], below[..., :-1], below[..., 1:]


def sample_rows(images: int) -> list[int]:
    """At most SAMPLE images, spread evenly over the set."""
    count = min(images, SAMPLE)
    return [images * i // count for i in range(count)]


def targets(model: DeconvNet, images: ImageSource, mask: ImageSource | None, rows: list[int]) -> Iterator[Target]:
    """The images one by one, after the input stage."""
    for row in rows:
        one = slice(row, row + 1)
        yield make_target(model, images[one], None if mask is None else mask[one])


def noise_threshold(
    model: DeconvNet, images: ImageSource, mask: ImageSource | None, rows: list[int], layer: int, spec: InferenceSpec
) -> float:
    """NOISE_FACTOR · gain · σ²/s; σ is that of the signal after the input stage."""
    assert isinstance(spec.lam, AutoLam)
    levels, gains, powers = [], [], []
    for row, target in zip(rows, targets(model, images, mask, rows), strict=True):
        one = slice(row, row + 1)
        known = None if mask is None else torch.as_tensor(mask[one])
        sigma = noise_level(images[one], known) if spec.lam.noise is None else spec.lam.noise
        scale = target.background.scale
        levels.append(sigma if scale is None else sigma * float((1 / scale).median()))
        gains.append(gain(model, target, layer, spec))
        powers.append(power(model, target))
    level, signal = (float(torch.tensor(values).median()) for values in (levels, powers))
    if level == 0:
        raise ImageError(
            "AutoLam was given with images without noise (most of their pixels equal their neighbours); "
            "give AutoLam a noise or a share, or lam as a number"
        )
    return NOISE_FACTOR * float(torch.tensor(gains).mean()) * level**2 / max(level, math.sqrt(signal))


def power(model: DeconvNet, target: Target) -> float:
    """The mean square of the known part of v; ON and OFF channels together are one channel."""
    square = target.v.square()
    if target.mask is not None:
        square = square[(target.mask > 0).expand_as(square)]
    return float(square.mean()) * target.v.shape[1] / model.spec.channels


def gain(model: DeconvNet, target: Target, layer: int, spec: InferenceSpec) -> float:
    """The root mean square length of the columns of R in the middle of an image: what R makes of white noise."""
    height, width = target.v.shape[2:]
    top, left = max(0, height - CROP) // 2, max(0, width - CROP) // 2
    v = target.v[..., top : top + CROP, left : left + CROP]
    noise = torch.randn(v.shape, generator=torch.Generator().manual_seed(0), dtype=v.dtype).to(v.device)
    problem = Problem(model, v, Phase(layer=layer), replace(spec, lam=1.0))
    weights = problem.sized.weights(start_pooling(problem))
    return float(problem.sized.propagate(noise, weights).square().mean().sqrt())


def largest_correlation(model: DeconvNet, target: Target, layer: int, spec: InferenceSpec) -> float:
    """max |Rᵀ M² v|, the smallest 1/λ that leaves no feature; only what is positive counts if features are ≥ 0."""
    problem = Problem(model, target.v, Phase(layer=layer), replace(spec, lam=1.0), mask=target.mask)
    g = problem.sized.propagate(problem.signal, problem.sized.weights(start_pooling(problem)))
    return float((g if model.spec.nonnegative else g.abs()).max())
