"""What the reset of the features does to the maps of layer 2, and how unused maps come back.

    python -m reproduction.studies.reset --out FOLDER [--scale paper] [--device cuda] [--seeds 0]

The first half of the training of layer 2 is done once for each seed, on the published layer 1. The
second half is repeated with each `Branch`: with the paper's reset, without it, with θ fitted again,
and so on. Every epoch records the cost and how many images use each map. Every branch that ends
with the training is classified as the tables are. Branches that FOLDER has are left out, and none
begins that would not end before `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.machine import machine
from reproduction.models import on_top_of, read_model
from reproduction.reproduce import RESULTS
from reproduction.scale import SCALES, Scale, read_scale
from whatwhere import DeconvNet, Latents, save
from whatwhere.classification import describe_images, fit_svm, protocol
from whatwhere.data import Images
from whatwhere.engines import Engine, resolve
from whatwhere.learning.algorithm import infer_batch, training_phase
from whatwhere.learning.filter_problem import project_filters, solve_filters
from whatwhere.learning.rare_maps import copy_maps, pairs_to_split, share_images, without
from whatwhere.model import Problem
from whatwhere.ops.convolution import convolve_down
from whatwhere.spec import InferenceSpec, Recipe

TOP = 2  # the layer that is trained here


def keep(latents: Latents) -> Latents:
    """Without a reset."""
    return latents


def zero_features(latents: Latents) -> Latents:
    """The reset as training does it: θ stays."""
    return replace(latents, p=torch.zeros_like(latents.features))


def forget(latents: Latents) -> Latents:
    """Features and θ go, so that inference begins as for a new image."""
    return Latents(background=latents.background)


@dataclass
class Training:
    """A training of layer 2 under way; latents stay on the device."""

    recipe: Recipe
    model: DeconvNet
    images: list[Tensor]
    engines: tuple[Engine, ...]
    latents: list[Latents] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, recipe: Recipe, below: DeconvNet, images: Images, device: str) -> Training:
        model = on_top_of(below, recipe).to(device)
        size = recipe.batch_size
        batches = [images[i : i + size].to(device) for i in range(0, len(images), size)]
        engines = tuple(
            resolve(
                "auto",
                Problem(model, batches[0][:1], training_phase(k, learning), learning.inference),
            )
            for k, learning in enumerate(recipe.learning, start=1)
        )
        return cls(recipe, model, batches, engines, [Latents() for _ in batches])

    @property
    def count(self) -> int:
        """The number of images."""
        return sum(map(len, self.images))

    def branch(self) -> Training:
        """The same state; latents are never changed in place, so that copies share them."""
        return replace(self, latents=list(self.latents), history=list(self.history))

    def epoch(self, inference: InferenceSpec, update: bool = True) -> Tensor:
        """Infer every image, then update the filters; returns how many images use each map."""
        began = time.perf_counter()
        learning = replace(self.recipe.learning[TOP - 1], inference=inference)
        recipe = replace(self.recipe, learning=(*self.recipe.learning[: TOP - 1], learning))
        phase = training_phase(TOP, learning)
        used = torch.zeros(self.model.spec.layers[TOP - 1].pooled_maps, device=self.model.device)
        sums = torch.zeros(3, dtype=torch.float64)
        for i, v in enumerate(self.images):
            problem = Problem(self.model, v, phase, inference, self.latents[i])
            solution = infer_batch(problem, recipe, self.engines)
            self.latents[i] = solution.latents
            used += (solution.features != 0).flatten(2).any(2).sum(0)
            stats = solution.stats
            parts = (stats.reconstruction, stats.penalty, stats.nonzeros)
            sums += torch.stack([part[-1].double().sum().cpu() for part in parts])
        if update:
            f = solve_filters(
                self.model, TOP, self._stored, learning.cg_steps, engine=self.engines[TOP - 1]
            )
            self.model = project_filters(self.model, TOP, f)
        reconstruction, penalty, nonzeros = (sums / self.count).tolist()
        self.history.append(
            {
                "epoch": len(self.history) + 1,
                "lam": inference.lam,
                "reconstruction": reconstruction,
                "penalty": penalty,
                "nonzeros": nonzeros,
                "unused": int((used == 0).sum()),
                "images of each map": [int(each) for each in used],
                "seconds": time.perf_counter() - began,
            }
        )
        return used

    def _stored(self) -> Any:
        return ((v, latents, None) for v, latents in zip(self.images, self.latents, strict=True))


def new_filters(training: Training, maps: Tensor, used: Tensor) -> None:
    """Give each of these maps the patch of the residual, at layer 1, where it has most energy, of
    another image for each map; the images of the first batch are searched."""
    v, latents = training.images[0], training.latents[0]
    sized = training.model.at(*v.shape[2:])
    weights = sized.weights(latents.pooling_params)
    residual = v - sized.reconstruct(latents.features, weights)
    missed = sized.propagate(residual, weights[: TOP - 1]).clamp_min(0)
    side = training.model.spec.layers[TOP - 1].filter_shape
    energy = F.avg_pool2d(missed.square().sum(1, keepdim=True), side, stride=1)
    best, place = energy.flatten(1).max(1)
    old = training.model.filters[TOP - 1]
    filters = old.clone()
    chosen = best.topk(len(maps)).indices.tolist()
    for map_, image in zip(maps.tolist(), chosen, strict=True):
        row, column = divmod(int(place[image]), energy.shape[3])
        filters[:, map_] = patch_filter(missed[image], row, column, side)
    fresh = project_filters(training.model, TOP, filters.double()).filters[TOP - 1]
    changed = torch.zeros(old.shape[1], dtype=torch.bool, device=old.device)
    changed[maps] = True
    training.model = training.model.with_filters(
        TOP, torch.where(changed[None, :, None, None], fresh, old)
    )


def insert(training: Training, maps: Tensor, used: Tensor) -> None:
    """As `new_filters`; the maps also get a feature in every image whose cost it lowers, at the
    place where the residual fits best."""
    new_filters(training, maps, used)
    inference = training.recipe.learning[TOP - 1].inference
    lam = float(inference.lam)
    for i, v in enumerate(training.images):
        latents = training.latents[i]
        sized = training.model.at(*v.shape[2:])
        weights = sized.weights(latents.pooling_params)
        p = latents.features.clone()
        p[:, maps] = 0
        for map_ in maps.tolist():
            residual = v - sized.reconstruct(p, weights)
            fits, place = sized.propagate(residual, weights)[:, map_].flatten(1).max(1)
            one = torch.zeros_like(p)
            one[:, map_].flatten(1).scatter_(1, place[:, None], 1.0)
            drawn = sized.reconstruct(one, weights).square().sum((1, 2, 3)).clamp_min(1e-12)
            size = (fits / drawn).clamp_min(0)
            gain = lam / 2 * fits.clamp_min(0) * size - inference.penalty.cost(size)
            p += one * torch.where(gain > 0, size, 0).view(-1, 1, 1, 1)
        training.latents[i] = replace(latents, p=p)


def split(training: Training, maps: Tensor, used: Tensor) -> None:
    """Give each of these maps the filter of a map that many images use, and its features in the
    worse explained half of these images, as `EveryEpoch.split_until` does."""
    pairs = pairs_to_split(used.tolist(), float(used[maps].max()))
    for i, v in enumerate(training.images):
        latents = without(training.latents[i], maps.tolist())
        sized = training.model.at(*v.shape[2:])
        weights = sized.weights(latents.pooling_params)
        missed = (v - sized.reconstruct(latents.features, weights)).square().sum((1, 2, 3))
        training.latents[i] = share_images(latents, pairs, missed)
    training.model = copy_maps(training.model, TOP, pairs)


def patch_filter(signal: Tensor, row: int, column: int, side: tuple[int, int]) -> Tensor:
    """The filter that draws the patch of a signal [B, H, W] whose upper left corner is given."""
    height, width = side
    z = torch.zeros(
        1, 1, signal.shape[1] + height - 1, signal.shape[2] + width - 1, device=signal.device
    )
    z[0, 0, row + height - 1, column + width - 1] = 1
    with torch.enable_grad():  # convolution is linear in the filter, so its gradient is the patch
        f = torch.zeros(len(signal), 1, height, width, device=signal.device, requires_grad=True)
        (convolve_down(z, f) * signal).sum().backward()
    assert f.grad is not None
    return f.grad[:, 0]


@dataclass(frozen=True)
class Branch:
    """One way through the second half of the training.

    reset         what becomes of the latents after the first half
    revive        what becomes of maps that few images use, after each epoch but the last `settle`
    rare          the share of the images that must use a map; 0 revives maps that none uses
    first_update  update the filters in the first epoch after the reset
    lam           factor of λ in the first `eased` epochs after the reset
    epochs        so many of the second half, to save time; None: all, and a classification
    """

    reset: Callable[[Latents], Latents] = zero_features
    revive: Callable[[Training, Tensor, Tensor], None] | None = None
    rare: float = 0.0
    first_update: bool = True
    lam: float = 1.0
    eased: int = 5
    settle: int = 5
    epochs: int | None = None


BRANCHES = {
    "reset": Branch(),
    "no reset": Branch(keep),
    "reset, unused maps restart": Branch(revive=new_filters),
    "reset of features and θ": Branch(forget),
    "no reset, unused maps restart": Branch(keep, revive=new_filters),
    "no reset, unused maps split": Branch(keep, revive=split),
    "no reset, rare maps split": Branch(keep, revive=split, rare=0.001),
    "reset, unused maps split": Branch(revive=split),
    "no reset, unused maps inserted": Branch(keep, revive=insert),
    "reset, unused maps inserted": Branch(revive=insert),
    "reset, filters wait an epoch": Branch(first_update=False, epochs=8),
    "reset, twice λ for five epochs": Branch(lam=2.0, epochs=12),
}


def second_half(training: Training, branch: Branch, half: int) -> Training:
    """The rest of a training after the first half."""
    training = training.branch()
    learning = training.recipe.learning[TOP - 1]
    training.latents = [branch.reset(latents) for latents in training.latents]
    epochs = learning.epochs - half if branch.epochs is None else branch.epochs
    for number in range(1, epochs + 1):
        lam = float(learning.inference.lam) * (branch.lam if number <= branch.eased else 1)
        used = training.epoch(
            replace(learning.inference, lam=lam), branch.first_update or number > 1
        )
        maps = (used <= branch.rare * training.count).nonzero()[:, 0]
        if branch.revive is not None and len(maps) and number <= epochs - branch.settle:
            branch.revive(training, maps, used)
    return training


def test_error(model: DeconvNet, recipe: Recipe, data: tuple[Images, Images], C: float) -> float:
    """The test error in per cent of a linear SVM on the features of all training images."""
    training, test = data
    x, x_test = (describe_images(model, part, recipe, on_device=True) for part in (training, test))
    svm = fit_svm(x, training.labels, C, device=model.device)
    predicted = svm.classes[svm.decision(x_test).argmax(1)]
    return 100 * protocol.score_predictions(predicted, test.labels, svm.classes, C=C).error


class Results:
    """What is measured, in FOLDER/reset.json, and the models next to it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, folder / "reset.json"
        found = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self.content: dict[str, Any] = found or {"machine": machine(), "branches": {}}

    def has(self, name: str, seed: int) -> bool:
        return f"{name}, seed {seed}" in self.content["branches"]

    def put(self, name: str, seed: int, training: Training, about: dict[str, Any]) -> None:
        key = f"{name}, seed {seed}"
        self.content["branches"][key] = {**about, "history": training.history}
        self.file.write_text(json.dumps(self.content, ensure_ascii=False) + "\n", encoding="utf-8")
        save(training.model.to("cpu"), self.folder / f"{key.replace(', ', '-')}.safetensors")
        last = training.history[-1]
        cost = last["reconstruction"] + last["penalty"]
        print(f"{key}: cost {cost:.3f}, unused {last['unused']}, {about}", flush=True)


def study(
    scale: Scale, seed: int, names: list[str], results: Results, device: str, deadline: float
) -> None:
    """The branches of one seed that have no result yet."""
    todo = [name for name in names if not results.has(name, seed)]
    recipe = replace(scale.recipe(), seed=seed)
    below = read_model(RESULTS / scale.name / "models.zip", f"gaussian-1layer-seed{seed}")
    if not todo or below is None:
        return
    data = scale.data.load()
    training = Training.begin(recipe, below, data[0], device)
    learning = recipe.learning[TOP - 1]
    half = learning.reset_at[0]
    for _ in range(half):
        training.epoch(learning.inference)
    print(f"seed {seed}: {training.history[-1]}", flush=True)
    epoch = training.history[-1]["seconds"]
    for name in todo:
        branch = BRANCHES[name]
        needed = (branch.epochs or learning.epochs - half) * epoch + 8
        if time.monotonic() + needed > deadline:
            continue
        done = second_half(training, branch, half)
        about: dict[str, Any] = {}
        if branch.epochs is None:
            about["test error"] = test_error(done.model, recipe, data, C=30.0)
        results.put(name, seed, done, about)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--branches", nargs="+", choices=BRANCHES, default=list(BRANCHES))
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    results = Results(given.out)
    with torch.no_grad():
        for seed in given.seeds:
            study(read_scale(given.scale), seed, given.branches, results, given.device, deadline)


if __name__ == "__main__":
    main()
