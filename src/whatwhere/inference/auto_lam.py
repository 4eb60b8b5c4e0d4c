"""λ chosen from the images (`AutoLam`): as a share of the largest useful penalty, by their strength
or by their noise.

The code of λ/2 ‖M ⊙ (R p - v)‖² + Σ|p| starts at p = 0, and a feature leaves 0 only if it
correlates with the image by more than 1/λ. So 1/λ is a threshold:

    by share     1/λ = share · max |Rᵀ M² v|     at a share of 1 the code is empty
    by strength  λ = relative · (strength / strokes)^(α - 2)
    by noise     1/λ = deviations · σ            white noise of standard deviation σ correlates with
                 unit filters by σ

R is the map at the start of inference, where the pooling variables are fitted to the images. The
strength of an image is the largest length of a patch of its target v. An image that is s times as
strong has s times the code, as it should, if λ is multiplied by s^(α - 2): then both terms of the
objective grow by s^α. `strokes` is the strength of the included digits, white on black.

λ is chosen once for all images of a call, from at most `sample` of them spread evenly over the set.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.errors import ImageError, InvalidSetting
from whatwhere.inference.target import ImageSource, Target, make_target
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import AutoLam, InferenceSpec, Phase, Recipe
from whatwhere.spec.recipe import joint


class NoLam(ImageError):
    """Images from which `AutoLam` cannot choose λ.

    Attributes
    ----------
    reason
        why, as a clause
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"AutoLam cannot choose lam: {reason}. Give lam as a number.")


@dataclass(frozen=True)
class AutoLamRule:
    """How the strength of images is measured, and from how many of them λ is chosen.

    Parameters
    ----------
    patch
        pixels on each side of the patches whose length is an image's strength
    strokes
        the unit of strength: the median over the included digits of 5 × 5 white strokes
    sample
        the largest number of images that are looked at, spread evenly over the set
    """

    patch: int = 5
    strokes: float = 4.17
    sample: int = 64


_USUAL = AutoLamRule()


def resolve_lam(
    model: DeconvNet,
    images: ImageSource,
    spec: InferenceSpec,
    plan: Sequence[Phase] = (),
    *,
    mask: ImageSource | None = None,
    rule: AutoLamRule = _USUAL,
) -> InferenceSpec:
    """Return the settings with λ as a number; settings that have one already are returned
    unchanged.

    Parameters
    ----------
    model
        the model whose features explain the images
    images
        [N, C, H, W], or an object that returns them for slices
    spec
        settings of inference, with an `AutoLam`
    plan
        phases of inference; empty means one joint phase from the top layer
    mask
        a weight ≥ 0 for every pixel, [N, 1 or C, H, W]
    rule
        how strength is measured, and from how many images

    Examples
    --------
    >>> model, digits = ww.load("mnist"), ww.data.load("digits")[:3]
    >>> spec = resolve_lam(model, digits, ww.InferenceSpec(lam=ww.AutoLam(share=0.1)))
    >>> ww.infer(model, digits, spec).lam == spec.lam
    True
    """
    if not isinstance(spec.lam, AutoLam):
        return spec
    layer = (tuple(plan) or joint(model.spec.depth))[-1].layer
    seen = sample_targets(model, images, mask, rule)
    with torch.no_grad():
        if spec.lam.deviations is not None:
            threshold = spec.lam.deviations * _noise_level(seen)
        elif spec.lam.share is not None:
            largest = max(_largest_correlation(model, one, layer, spec) for one in seen)
            threshold = spec.lam.share * largest
        else:
            exponent = spec.penalty.degree - 2
            return replace(spec, lam=spec.lam.relative * _strength(seen, rule) ** exponent)
    if threshold <= 0:
        raise NoLam("the images have no noise, or no feature correlates with them")
    return replace(spec, lam=1 / threshold)


def resolve_recipe(
    recipe: Recipe,
    images: ImageSource,
    *,
    mask: ImageSource | None = None,
    start: DeconvNet | None = None,
) -> Recipe:
    """Return the same recipe with every λ as a number, chosen with the filters that training starts
    from."""
    specs = [recipe.inference, *(learning.inference for learning in recipe.learning)]
    auto = [spec.lam for spec in specs if isinstance(spec.lam, AutoLam)]
    if not auto:
        return recipe
    model = start or DeconvNet(recipe.model, seed=recipe.seed)
    if any(lam.share is not None for lam in auto):
        raise InvalidSetting(
            "AutoLam with `share` for training",
            "`relative` or a number, because `share` needs a learned model",
            "Give the share to infer or to whatwhere encode.",
        )
    learning = []
    for k, spec in enumerate(recipe.learning, start=1):
        resolved = resolve_lam(model, images, spec.inference, [Phase(layer=k)], mask=mask)
        learning.append(replace(spec, inference=resolved))
    inference = resolve_lam(model, images, recipe.inference, recipe.plan, mask=mask)
    return replace(recipe, learning=tuple(learning), inference=inference)


def _strength(seen: Iterable[Target], rule: AutoLamRule) -> float:
    """Return the strength of images, in units of `strokes`: the largest length of a patch of an
    image's target, as the median over images."""
    lengths = []
    for target in seen:
        power = target.v.square().sum(1, keepdim=True)
        side = min(rule.patch, *power.shape[2:])
        lengths.append((F.avg_pool2d(power, side, 1).max() * side**2).sqrt())
    median = float(torch.stack(lengths).median())
    if median == 0:
        raise NoLam("most of the images have no contrast")
    return median / rule.strokes


def _noise_level(seen: Iterable[Target]) -> float:
    """Estimate σ of white noise, by the median rule: median |a - 2 b + c| / √6 / 0.6745 over all
    neighbours a b c in rows."""
    levels = []
    for target in seen:
        v = target.v
        detail = (v[..., :-2] - 2 * v[..., 1:-1] + v[..., 2:]).abs()
        if target.mask is not None:  # where all three are known
            known = target.mask.expand_as(v) > 0
            detail = detail[known[..., :-2] & known[..., 1:-1] & known[..., 2:]]
        detail = detail.flatten()
        if len(detail):
            levels.append(float(detail.median()) / 6**0.5 / 0.6745)
    return float(np.median(levels)) if levels else 0.0


def sample_rows(images: int, rule: AutoLamRule = _USUAL) -> list[int]:
    """Choose at most `rule.sample` images, spread evenly over the set."""
    count = min(images, rule.sample)
    return [images * i // count for i in range(count)]


def sample_targets(
    model: DeconvNet,
    images: ImageSource,
    mask: ImageSource | None = None,
    rule: AutoLamRule = _USUAL,
) -> Iterator[Target]:
    """Yield the images of `sample_rows` one by one, after the input stage; one without a known
    pixel, such as a tile in a gap, is left out."""
    is_known = False
    for row in sample_rows(len(images), rule):
        one = slice(row, row + 1)
        given = None if mask is None else mask[one]
        target = make_target(model, images[one], given, allow_unknown=True)
        if target.mask is None or target.mask.any():
            is_known = True
            yield target
    if not is_known:
        raise NoLam("no value is known, because all are NaN or the mask is 0 everywhere")


def _largest_correlation(
    model: DeconvNet, target: Target, layer: int, spec: InferenceSpec
) -> float:
    """Compute max |Rᵀ M² v|, the smallest 1/λ that leaves no feature; only positive correlations
    count if features are ≥ 0."""
    problem = Problem(model, target.v, Phase(layer=layer), replace(spec, lam=1.0), mask=target.mask)
    g = problem.sized.propagate(
        problem.masked_target, problem.sized.weights(start_pooling(problem))
    )
    return float((g if model.spec.nonnegative else g.abs()).max())
