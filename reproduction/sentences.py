"""Claims of the paper's text that no table holds, each measured with the published models.

    python -m reproduction sentences --scale paper      # writes results/paper/sentences.json

A `Sentence` compares what is measured of a few variants: the first of `below` must be below the
second. The spread is over the seeds of the models, or over the images where there is one model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.machine import machine
from reproduction.claims import FAILS, HOLDS, OPEN, WITHIN_SEEDS
from reproduction.models import read_model
from reproduction.records import ResultStore
from reproduction.results import TrainingResult
from reproduction.scale import Scale
from whatwhere import DeconvNet, Fixed, LineSearch, PoolingParams, infer
from whatwhere.spec import InferenceSpec, Recipe

FILE = "sentences.json"
WITHIN_IMAGES = "no difference within the images"
NOTE = """\
Claims that no table of the paper holds, with the published models. ± is the standard deviation over seeds, or over test
images where there is one model; there a difference counts if it is more than two standard errors."""  # noqa: E501
Values = dict[str, list[float]]
"""What is measured of each variant: a value for each seed, or for each image."""


@dataclass(frozen=True, eq=False)  # equal to itself alone, so that it can be a key
class Material:
    """What the sentences are measured with.

    recipe   of the headline
    images   test images, [N, 1, H, W]
    model    a published model by the name of its training; None if there is none
    history  the record of a training by its name; None if there is none
    searched  so many images for the line search of θ, which is slow
    """

    recipe: Recipe
    images: Tensor
    model: Callable[[str], DeconvNet | None]
    history: Callable[[str], TrainingResult | None]
    searched: int = 10

    def seeds(self, name: str, count: int = 3) -> list[DeconvNet]:
        """The models of all seeds."""
        found = (self.model(f"{name}-seed{seed}") for seed in range(count))
        return [model for model in found if model is not None]


@dataclass(frozen=True)
class Sentence:
    """One claim of the text.

    name     its name in the result file
    section  of the paper
    text     the claim
    what     what is measured
    below    the variants of which the first must be below the second
    measure  the values of every variant, from what there is
    images   whether the values are those of images, not of seeds
    """

    name: str
    section: str
    text: str
    what: str
    below: tuple[str, str]
    measure: Callable[[Material], Values]
    images: bool = False


# The filters of layer 1 --------------------------------------------------------------------------

MOVED = {
    "F₁ fixed": "gaussian-2layers",
    "F₁ moves": "gaussian-2layers-update-lower-filters-no-update-lower-pooling",
    "F₁ and U₁ move": "gaussian-2layers-update-lower-filters",
}


def effective_pixels(filters: Tensor) -> Tensor:
    """How many pixels share the energy of each filter of layer 1, (Σf²)² / Σf⁴; a dot has 1."""
    energy = filters.square().flatten(2)
    return energy.sum(2).square() / energy.square().sum(2)


def pixels_of_filters(material: Material) -> Values:
    return {
        name: [float(effective_pixels(model.filters[0]).mean()) for model in models]
        for name, file in MOVED.items()
        if (models := material.seeds(file))
    }


def cost_of_training(material: Material) -> Values:
    """The cost at the last epoch, in training."""
    found = {
        name: [material.history(f"models/{file}-seed{seed}") for seed in range(3)]
        for name, file in MOVED.items()
    }
    return {
        name: [each.series("cost")[-1] for each in histories if each is not None]
        for name, histories in found.items()
    }


# Reconstructions ---------------------------------------------------------------------------------


def missing_energy(material: Material) -> Values:
    """The share of the energy of the images that the reconstruction misses, in per cent, with the
    settings and the steps of training."""
    spec = replace(material.recipe.learning[-1].inference, steps=500, step=LineSearch())
    names = {"Gaussian pooling": "gaussian-2layers", "max pooling": "max-2layers"} | {
        "Gaussian pooling, F₁ and U₁ move": MOVED["F₁ and U₁ move"]
    }
    v = material.images
    missed: Values = {}
    for name, file in names.items():
        for model in material.seeds(file, 1):
            difference = infer(model, v, spec).reconstruction - v
            share = difference.square().sum((1, 2, 3)) / v.square().sum((1, 2, 3))
            missed[name] = (100 * share).tolist()
    return missed


# Step sizes --------------------------------------------------------------------------------------


def cost_by_step_rule(material: Material) -> Values:
    """The cost of each image after the steps of testing."""
    (model, *_) = material.seeds("gaussian-2layers")
    rules: dict[str, LineSearch | Fixed] = {"line search": LineSearch(), "fixed": Fixed()}
    return {
        name: infer(model, material.images, replace(material.recipe.inference, step=rule))
        .stats.cost[-1]
        .tolist()
        for name, rule in rules.items()
    }


def cost_by_pooling_step(material: Material) -> Values:
    """The cost of each image when β_U is one number, and when a line search chooses it."""
    return {name: costs[-1].tolist() for name, costs in _descents(material).items()}


def rises_by_pooling_step(material: Material) -> Values:
    """The steps that raise the cost of an image, in per cent of all."""
    return {
        name: (100 * (costs[1:] > costs[:-1] * (1 + 1e-5)).float().mean(0)).tolist()
        for name, costs in _descents(material).items()
    }


@cache
def _descents(material: Material) -> dict[str, Tensor]:
    """The cost of some images after every step, by the rule for β_U."""
    (model, *_) = material.seeds("gaussian-2layers")
    rules = {"fixed β_U": False, "line search for θ": True}
    v, spec = material.images[: material.searched], material.recipe.inference
    return {name: descend(model, v, spec, search=search) for name, search in rules.items()}


def descend(model: DeconvNet, v: Tensor, spec: InferenceSpec, *, search: bool) -> Tensor:
    """The cost of each image after every step, [T + 1, N]: Algorithm 1 with autograd's gradient of
    θ.

    search  choose the step of θ as that of p: β = ‖g‖² / (λ ‖J g‖²), J the derivative of the
            reconstruction by θ
    """
    sized = model.at(*v.shape[2:])
    begun = infer(model, v, replace(spec, steps=0), engine="reference").latents
    thetas, p = flat(begun.pooling_params), begun.features
    assert isinstance(spec.lam, float)
    lam = spec.lam
    costs = []

    def reconstruct(p: Tensor, *thetas: Tensor) -> Tensor:
        return sized.reconstruct(p, sized.weights(pooling(thetas)))

    def image_sum(x: Tensor) -> Tensor:
        return x.flatten(1).sum(1)

    for _ in range(spec.steps + 1):
        weights = sized.weights(pooling(thetas))
        e = sized.reconstruct(p, weights) - v
        costs.append(lam / 2 * image_sum(e.square()) + image_sum(p.abs()))
        g = sized.propagate(e, weights)
        gained = lam * image_sum(sized.reconstruct(g, weights).square())
        beta = (image_sum(g.square()) / gained).view(-1, 1, 1, 1)
        back = torch.func.vjp(partial(reconstruct, p), *thetas)[1]
        gradient = back(e)
        step = torch.full((len(v),), spec.pooling_step)
        if search:
            moved = torch.func.jvp(partial(reconstruct, p), thetas, gradient)[1]
            above = torch.stack([image_sum(each.square()) for each in gradient]).sum(0)
            below = lam * image_sum(moved.square())
            step = torch.where(below > 0, above / below, 0)
        thetas = tuple(
            bounded(i, theta - lam * step.view(-1, *[1] * (theta.ndim - 1)) * d, spec)
            for i, (theta, d) in enumerate(zip(thetas, gradient, strict=True))
        )
        p = spec.penalty.shrink(p - lam * beta * g, beta).clamp(min=0)
    return torch.stack(costs)


def flat(thetas: Iterable[PoolingParams]) -> tuple[Tensor, ...]:
    """μ₁, γ₁, μ₂, γ₂, …"""
    return tuple(x for theta in thetas for x in (theta.mu, theta.gamma))


def pooling(thetas: tuple[Tensor, ...]) -> tuple[PoolingParams, ...]:
    """The inverse of `flat`."""
    pairs = zip(thetas[::2], thetas[1::2], strict=True)
    return tuple(PoolingParams(mu, gamma) for mu, gamma in pairs)


def bounded(number: int, x: Tensor, spec: InferenceSpec) -> Tensor:
    """γ within its bounds; μ inside its 2 × 2 region, as in inference."""
    if number % 2:
        return x.clamp(spec.moments.gamma_min, spec.moments.gamma_max)
    return x.clamp(-0.5, 0.5)


# Invariance --------------------------------------------------------------------------------------

SHIFTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # pixels
SCALES = (0.9, 0.95, 1.0, 1.05, 1.1)
POOLED = {"Gaussian pooling": "gaussian-2layers", "max pooling": "max-2layers"}


def transformed(v: Tensor, shift: float = 0.0, scale: float = 1.0) -> Tensor:
    """Images moved to the right and scaled about their centre, by bilinear interpolation."""
    width = v.shape[3]
    matrix = torch.tensor([[1 / scale, 0, -2 * shift / width], [0, 1 / scale, 0]])
    grid = F.affine_grid(matrix.expand(len(v), 2, 3), list(v.shape), align_corners=False)
    return F.grid_sample(v, grid, align_corners=False)


def change(model: DeconvNet, spec: InferenceSpec, first: Tensor, second: Tensor) -> Tensor:
    """The relative change of the features of each image, ‖p - p'‖ / ‖p‖."""
    p, q = (infer(model, v, spec).features.flatten(1) for v in (first, second))
    return (p - q).norm(dim=1) / p.norm(dim=1)


def change_when_moved(material: Material, shift: float = 1.0, scale: float = 1.0) -> Values:
    """The change of the features of layer 2, in per cent."""
    moved = transformed(material.images, shift, scale)
    return {
        name: (100 * change(model, material.recipe.inference, material.images, moved)).tolist()
        for name, file in POOLED.items()
        for model in material.seeds(file, 1)
    }


def invariance(material: Material) -> dict[str, Any]:
    """The curves of the change against shift and scale: the mean over the images."""
    curves: dict[str, Any] = {"shift": {"x": SHIFTS}, "scale": {"x": SCALES}}
    for shift in SHIFTS:
        for name, values in change_when_moved(material, shift=shift).items():
            curves["shift"].setdefault(name, []).append(float(np.mean(values)))
    for scale in SCALES:
        for name, values in change_when_moved(material, shift=0, scale=scale).items():
            curves["scale"].setdefault(name, []).append(float(np.mean(values)))
    return curves


SENTENCES = (
    Sentence(
        "dots",
        "4.1",
        "If F₁ is updated too, the filters of layer 1 become dots",
        "effective pixels of a filter of layer 1",
        ("F₁ and U₁ move", "F₁ fixed"),
        pixels_of_filters,
    ),
    Sentence(
        "cost of dots",
        "4.1",
        "… which lowers the cost",
        "cost in training",
        ("F₁ and U₁ move", "F₁ fixed"),
        cost_of_training,
    ),
    Sentence(
        "sharp",
        "6.1",
        "Reconstructions are sharper with Gaussian pooling",
        "% of the energy of a test image that is missing",
        ("Gaussian pooling", "max pooling"),
        missing_energy,
        images=True,
    ),
    Sentence(
        "fixed steps",
        "3.1",
        "Fixed step sizes are inferior to the line search",
        "cost of a test image",
        ("line search", "fixed"),
        cost_by_step_rule,
        images=True,
    ),
    Sentence(
        "search for θ",
        "3.2",
        "A line search for θ is unstable",
        "% of the steps that raise the cost of a test image",
        ("fixed β_U", "line search for θ"),
        rises_by_pooling_step,
        images=True,
    ),
    Sentence(
        "cost by search for θ",
        "3.2",
        "… and ends with a higher cost (not the paper's words)",
        "cost of a test image",
        ("fixed β_U", "line search for θ"),
        cost_by_pooling_step,
        images=True,
    ),
    Sentence(
        "shift",
        "2.5",
        "Features of Gaussian pooling change less than those of max pooling under small shifts",
        "% change of p₂ when the image moves by a pixel",
        ("Gaussian pooling", "max pooling"),
        change_when_moved,
        images=True,
    ),
    Sentence(
        "scale",
        "2.5",
        "… and under small changes of scale",
        "% change of p₂ when the image grows by 5 %",
        ("Gaussian pooling", "max pooling"),
        partial(change_when_moved, shift=0.0, scale=1.05),
        images=True,
    ),
)


def material_of(scale: Scale, store: ResultStore, images: int) -> Material:
    """The published models of a scale, the records of their trainings, and test images."""
    names = {record.name: record.result for record in store.records.values()}

    def history(name: str) -> TrainingResult | None:
        result = names.get(name)
        return result if isinstance(result, TrainingResult) else None

    _, test = scale.data.load()
    archive = store.folder / "models.zip"
    return Material(scale.recipe(), test[:images], partial(read_model, archive), history)


def measure(material: Material, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Every sentence: the values of its variants; and the curves of invariance."""
    found: dict[str, Any] = {"images": len(material.images), "sentences": {}}
    with torch.no_grad():
        for sentence in SENTENCES:
            values = sentence.measure(material)
            found["sentences"][sentence.name] = values
            means = {name: f"{np.mean(each):.4g}" for name, each in values.items() if each}
            log(f"{sentence.text}: {sentence.what}: {means}")
        found["invariance"] = invariance(material)
    return found


def write(scale: Scale, store: ResultStore, images: int = 40) -> Path:
    """Measure the sentences of a scale into its folder of results."""
    found = {"machine": machine(), **measure(material_of(scale, store, images))}
    path = store.folder / FILE
    path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read(folder: Path) -> Mapping[str, Values] | None:
    """The values of every sentence, by its name; None if they were not measured."""
    path = folder / FILE
    if not path.is_file():
        return None
    return dict(json.loads(path.read_text(encoding="utf-8"))["sentences"])


def verdict(sentence: Sentence, values: Values) -> str:
    """Whether a sentence holds; not if the means differ by no more than their errors."""
    low, high = (values.get(name) or [] for name in sentence.below)
    if not low or not high:
        return OPEN
    if sentence.images:  # the same images for both
        gained = np.array(high) - np.array(low)
        margin = 2 * float(gained.std(ddof=1) / np.sqrt(len(gained))) if len(gained) > 1 else 0.0
        gain = float(gained.mean())
    else:
        gain = float(np.mean(high) - np.mean(low))
        spreads = [float(np.std(each, ddof=1)) for each in (low, high) if len(each) > 1]
        margin = max(spreads, default=0.0)
    if abs(gain) <= margin:
        return WITHIN_IMAGES if sentence.images else WITHIN_SEEDS
    return HOLDS if gain > 0 else FAILS


def value_text(values: Sequence[float]) -> str:
    """The mean, and the standard deviation of several values."""
    spread = f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{spread}"


def filters(folder: Path) -> dict[str, np.ndarray]:
    """The filters of layer 1 of seed 0, [B, H, W], when they stay fixed and when they move."""
    archive = folder / "models.zip"
    found = {name: read_model(archive, f"{file}-seed0") for name, file in MOVED.items()}
    return {
        name: model.filters[0][0].cpu().numpy()
        for name, model in found.items()
        if model is not None
    }


def invariance_curves(folder: Path) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """The curves of the change against shift and scale, as they were measured."""
    return dict(json.loads((folder / FILE).read_text(encoding="utf-8"))["invariance"])
