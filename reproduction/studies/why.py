"""An ablation study of the paper's claims that do not hold here (RESULTS.md): where does the
difference come from?

    whatwhere download mnist
    python -m reproduction.studies.why phases pooling_step priors switches moving_switches signs
    sparsity together

The test images are not used: SVMs learn from the first 10,000 training images and are evaluated on
the last 10,000.

phases           the models of the table `joint`, each with its three ways of inference, compared
                 with fewer labels
pooling_step     the headline's model with other β_U at inference, compared in the same way
priors           the headline's model with either prior and three λ at inference, compared in the
                 same way
switches         layer 1, with the filters of one kind of pooling and the inference of another
moving_switches  layer 1 with max pooling whose switches are set anew at every step
signs            without non-negativity: features of either sign apart, and inference with the other
                 kind of pooling
sparsity         max and Gaussian pooling as in training, with several λ: non-zeros against squared
                 error
together         not a claim of the paper: descriptors of models that differ in their seed, side by
                 side
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.machine import machine
from reproduction.jobs import EvaluationJob, ModelFeatures, TrainingJob
from reproduction.models import ModelStore
from reproduction.reproduce import open_store
from reproduction.scale import read_scale
from reproduction.table import Cell, cells_of
from reproduction.whitening import side_by_side
from whatwhere import DeconvNet, data, load
from whatwhere.classification import Matrix, describe, protocol
from whatwhere.data import Images, few_labels
from whatwhere.inference import infer
from whatwhere.spec import InferenceSpec, Power, Recipe

HERE = Path(__file__).parent
OUT = HERE / "results" / "why.json"
SCALE = read_scale("paper")
MODELS = ModelStore(open_store(HERE.parent / "results", SCALE), Path("runs/reproduce/paper"))
PART = 10_000  # images to learn from, and as many to evaluate on
C = {1: 10.0, 2: 30.0}  # what most cells of the paper's scale chose, by layer
DRAWS = 10


def phases() -> Iterator[dict[str, Any]]:
    """Every cell of `joint`."""
    for cell in cells_of("joint", SCALE):
        yield {"cell": cell.name, **errors_of(recipe_of(cell))}


def pooling_step() -> Iterator[dict[str, Any]]:
    """The model of the headline, its pooling variables moved less or more at inference than in its
    training."""
    recipe = next(
        recipe_of(cell) for cell in cells_of("joint", SCALE) if cell.name == "Updating U₁ / 1 phase"
    )
    for step in (0.1, 0.3, 1.0):
        moved = replace(recipe, inference=replace(recipe.inference, pooling_step=step))
        yield {"pooling_step": step, **errors_of(moved)}


def priors() -> Iterator[dict[str, Any]]:
    """The model of the headline, inferred with ℓ1 and with ℓ0.5 where λ is not small."""
    (cell,) = [
        cell for cell in cells_of("pooling", SCALE, 1) if cell.name == "Gaussian pooling / Layer 2"
    ]
    recipe = recipe_of(cell)
    for lam in (20.0, 10.0, 5.0):
        for alpha in (1.0, 0.5):
            inference = replace(recipe.inference, lam=lam, penalty=Power(alpha=alpha))
            yield {"lam": lam, "alpha": alpha, **errors_of(replace(recipe, inference=inference))}


def errors_of(recipe: Recipe) -> dict[str, Any]:
    """Errors with 10,000, 1,000 and 300 labels; with few, of ten draws and on average."""
    first, last = first_and_last()
    x, x_last = (described(trained(recipe), part, recipe) for part in (first, last))
    drawn = {PART: [np.arange(PART)]}
    for count in (1000, 300):
        drawn[count] = [few_labels(np.asarray(first.labels), count, seed) for seed in range(DRAWS)]
    errors = {
        count: [error(x, x_last, first, last, C[2], rows) for rows in draws]
        for count, draws in drawn.items()
    }
    return {"mean": {count: fmean(values) for count, values in errors.items()}, "errors": errors}


def switches() -> Iterator[dict[str, Any]]:
    """Errors of layer 1; 'afterwards': features of every place are inferred, and the largest of
    2×2 is taken then."""
    first, last = first_and_last()
    recipes = {
        cell.row: recipe_of(cell) for cell in cells_of("pooling", SCALE) if cell.column == "Layer 1"
    }
    for filters, pooling, steps in (
        ("Max pooling", "max", 50),
        ("Max pooling", "gaussian", 50),
        ("Gaussian pooling", "max", 50),
        ("Gaussian pooling", "gaussian", 50),
        ("Max pooling", "max", 15),
        ("Max pooling", "max", 7),
        ("Max pooling", "gaussian", 7),
        ("Max pooling", "afterwards", 50),
    ):
        recipe = recipes[filters]
        recipe = replace(recipe, inference=replace(recipe.inference, steps=steps))
        afterwards = pooling == "afterwards"
        changes = {"pooling": "max", "pool_size": 1} if afterwards else {"pooling": pooling}
        model = with_pooling(trained(recipe), **changes)
        change = (lambda p: F.max_pool2d(p, 2)) if afterwards else None
        x, x_last = (described(model, part, recipe, change) for part in (first, last))
        rate = error(x, x_last, first, last, C[1])
        yield {"filters": filters, "inference": pooling, "steps": steps, "error": rate}


def moving_switches() -> Iterator[dict[str, Any]]:
    """Errors of layer 1 with switches that stay, as in Algorithm 1, and with switches that follow
    the features."""
    first, last = first_and_last()
    (cell,) = [
        cell for cell in cells_of("pooling", SCALE, 1) if cell.name == "Max pooling / Layer 1"
    ]
    recipe = recipe_of(cell)
    f = trained(recipe).filters[0]

    def rows(chosen: slice, images: Images, steps: int, moves: bool) -> np.ndarray:
        p = with_switches(f, images[chosen], replace(recipe.inference, steps=steps), moves)
        return describe([p], recipe.descriptor, (1,)).numpy()

    for steps, moves in ((50, False), (50, True), (20, False), (20, True)):
        x, x_last = (
            np.concatenate(
                [rows(slice(i, i + 500), part, steps, moves) for i in range(0, PART, 500)]
            )
            for part in (first, last)
        )
        yield {
            "steps": steps,
            "switches": "move" if moves else "stay",
            "error": error(x, x_last, first, last, C[1]),
        }


def with_switches(f: Tensor, v: Tensor, spec: InferenceSpec, moves: bool) -> Tensor:
    """The features of one layer with 2×2 max pooling; a switch moves to where a step would make
    the feature largest."""
    p, places = F.max_pool2d(convolve_up(v, f), 2, return_indices=True)
    p = torch.zeros_like(p)
    for _ in range(spec.steps):
        z = F.max_unpool2d(p, places, 2)
        g_z = convolve_up(convolve_down(z, f) - v, f)
        g = at(g_z, places)
        through = convolve_down(F.max_unpool2d(g, places, 2), f)
        beta = (squared(g) / (spec.lam * squared(through))).nan_to_num()
        moved = z - spec.lam * beta * g_z
        p, places = (
            F.max_pool2d(moved, 2, return_indices=True) if moves else (at(moved, places), places)
        )
        p = (p - beta).clamp(min=0)  # the shrinkage of α = 1, and no negative features
    return p


def convolve_down(z: Tensor, f: Tensor) -> Tensor:
    return F.conv2d(z, f.flip(2, 3))


def convolve_up(v: Tensor, f: Tensor) -> Tensor:
    return F.conv2d(v, f.transpose(0, 1), padding=f.shape[-1] - 1)


def at(z: Tensor, places: Tensor) -> Tensor:
    return z.flatten(2).gather(2, places.flatten(2)).view_as(places)


def squared(x: Tensor) -> Tensor:
    return x.square().sum((1, 2, 3), keepdim=True)


def signs() -> Iterator[dict[str, Any]]:
    """Errors of two layers without non-negativity; by default the descriptor squares features and
    loses their sign."""
    first, last = first_and_last()
    recipes = {
        c.row: recipe_of(c)
        for c in cells_of("nonnegativity", SCALE, 1)
        if c.column != "Non-negative"
    }
    for filters, pooling, described_as in (
        ("Max pooling", "max", "squares"),
        ("Max pooling", "max", "signs apart"),
        ("Max pooling", "gaussian", "squares"),
        ("Gaussian pooling", "gaussian", "squares"),
        ("Gaussian pooling", "gaussian", "signs apart"),
    ):
        recipe = recipes[filters]
        model = with_pooling(trained(recipe), pooling=pooling)
        change = (
            (lambda p: torch.cat([p.clamp(min=0), p.clamp(max=0)], 1))
            if described_as == "signs apart"
            else None
        )
        x, x_last = (described(model, part, recipe, change) for part in (first, last))
        rate = error(x, x_last, first, last, C[2])
        yield {"filters": filters, "inference": pooling, "described": described_as, "error": rate}


def sparsity() -> Iterator[dict[str, Any]]:
    """200 images, as many steps as a training takes from its reset to its end, with the trained
    filters."""
    images = data.load("mnist")[:200]
    recipes = {
        cell.row: recipe_of(cell) for cell in cells_of("pooling", SCALE) if cell.column == "Layer 2"
    }
    for pooling, lam in (
        ("Gaussian pooling", 0.5),
        ("Max pooling", 0.5),
        ("Max pooling", 0.7),
        ("Max pooling", 1.0),
        ("Gaussian pooling", 0.35),
    ):
        recipe = recipes[pooling]
        spec = replace(recipe.learning[1].inference, lam=lam, steps=2500)
        stats = infer(trained(recipe), images, spec).stats
        nonzeros, squared = stats.nonzeros.float().mean(1), 2 / lam * stats.reconstruction.mean(1)
        for steps in (100, 500, 1000, 2500):
            at = {"nonzeros": float(nonzeros[steps]), "squared_error": float(squared[steps])}
            yield {"pooling": pooling, "lam": lam, "steps": steps, **at}


def together() -> Iterator[dict[str, Any]]:
    """The headline's models of one, two and three seeds, their descriptors side by side."""
    first, last = first_and_last()
    (cell,) = [
        cell for cell in cells_of("pooling", SCALE, 3) if cell.name == "Gaussian pooling / Layer 2"
    ]
    parts: list[tuple[Matrix, Matrix]] = []
    for seed in range(len(cell.jobs)):
        recipe = recipe_of(cell, seed)
        x, x_last = (described(trained(recipe), part, recipe) for part in (first, last))
        parts.append((x, x_last))
        x, x_last = (side_by_side(list(rows)) for rows in zip(*parts, strict=True))
        yield {"models": len(parts), "error": error(x, x_last, first, last, C[2])}


def first_and_last() -> tuple[Images, Images]:
    images = data.load("mnist")
    return images.subset(np.arange(PART)), images.subset(np.arange(len(images) - PART, len(images)))


def recipe_of(cell: Cell, seed: int = 0) -> Recipe:
    """The recipe of an evaluated cell."""
    job = cell.jobs[seed]
    assert isinstance(job, EvaluationJob)
    assert isinstance(job.features, ModelFeatures)
    return job.features.recipe


def trained(recipe: Recipe) -> DeconvNet:
    """The model that was trained by this recipe at the paper's scale."""
    job = TrainingJob(SCALE.data, recipe)
    if MODELS.results.find(job) is not None:
        if (published := MODELS.published(job)) is not None:
            return published
        if MODELS.cached_file(job).is_file():
            return load(MODELS.cached_file(job))
    raise SystemExit(
        "a model is missing: python -m reproduction pooling joint nonnegativity --scale paper"
    )


def with_pooling(model: DeconvNet, **changes: Any) -> DeconvNet:
    """The same filters; these settings of every layer."""
    spec = replace(
        model.spec, layers=tuple(replace(layer, **changes) for layer in model.spec.layers)
    )
    return DeconvNet.from_parts(spec, model.filters, model.connectivity)


def described(
    model: DeconvNet,
    images: Images,
    recipe: Recipe,
    change: Callable[[Tensor], Tensor] | None = None,
) -> Matrix:
    """Descriptors of the top layer's features, which may be changed first."""

    def rows(chosen: slice) -> np.ndarray:
        features = infer(model, images[chosen], recipe.inference, recipe.plan).features
        return describe(
            [change(features) if change else features], recipe.descriptor, (model.spec.depth,)
        ).numpy()

    return np.concatenate([rows(slice(i, i + 1000)) for i in range(0, len(images), 1000)])


def error(
    x: Matrix, x_last: Matrix, first: Images, last: Images, C: float, rows: Any = slice(None)
) -> float:
    """The error on the last images of an SVM that learns from these rows of the first ones."""
    return protocol.evaluate(
        x[rows], np.asarray(first.labels)[rows], x_last, np.asarray(last.labels), C
    ).error


TRIALS = {
    "phases": phases,
    "pooling_step": pooling_step,
    "priors": priors,
    "switches": switches,
    "moving_switches": moving_switches,
    "signs": signs,
    "sparsity": sparsity,
    "together": together,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="+", choices=TRIALS)
    for name in parser.parse_args().trials:
        rows = []
        for row in TRIALS[name]():
            rows.append(row)
            print({key: value for key, value in row.items() if key != "errors"}, flush=True)
            measured = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
            measured[name] = {"machine": machine(), "rows": rows}
            OUT.write_text(
                json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
