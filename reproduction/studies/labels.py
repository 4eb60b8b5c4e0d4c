"""Labels through inference: the loss of a classifier is back-propagated through unrolled steps into
the filters of both layers and the sizes of the steps.

    python -m reproduction.studies.labels --out FOLDER --explore            # on validation images
    python -m reproduction.studies.labels --out FOLDER --seeds 0 1 2        # test images, once

The network is `UnrolledInference` of the published model (or of random filters), the descriptor of
the tables, and a linear classifier. λ has no parameter of its own: every step has a size, a
threshold and a β_U of its own, and λ is a factor of the first and the last. The cost of
reconstruction stays in the loss, also of images without labels. At the end a linear SVM is fitted
to the descriptors, as everywhere. Results that FOLDER has are left out, and no training begins or
goes on that would not end before `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.machine import machine
from reproduction.few_labels import cross_validation
from reproduction.models import read_model
from reproduction.reproduce import RESULTS
from reproduction.scale import SCALES, Scale, read_scale
from whatwhere import DeconvNet
from whatwhere.classification import LinearSVM, fit_svm, protocol
from whatwhere.classification.descriptors import patch_elements, patch_sizes
from whatwhere.data import Images, few_labels
from whatwhere.inference import UnrolledInference, distill
from whatwhere.model import Objective
from whatwhere.spec import DescriptorSpec, DistillSpec

TOP = 2


@dataclass(frozen=True)
class Variant:
    """One way to learn from labels.

    scratch        begin with random filters and a classifier of zeros, in place of the published
                   model, distilled steps and their SVM
    steps          unrolled steps
    distilled      batches of 100 images that the sizes of the steps are learned from before that
    epochs         passes over the labelled images; with few labels, three times as many
    head           'joint': the classifier learns along; 'held out': an SVM of the other half of the
                   labelled images, fitted again in every epoch, so that the loss of an image is
                   that of an image the classifier has not seen
    reconstruction weight of the logarithm of the mean cost in the loss
    filter_rate    learning rate of Adam for filters; it falls to 0 along a cosine
    size_rate      … for the logarithms of the sizes of the steps
    head_rate      … for the classifier
    dropout        share of the descriptor's numbers that a joint classifier does not see
    decay          weight decay of a joint classifier
    C              of the SVM that begins, and of those of the halves
    batch_size     labelled images in a batch
    """

    scratch: bool = False
    steps: int = 8
    distilled: int = 300
    epochs: int = 8
    head: str = "held out"
    reconstruction: float = 0.1
    filter_rate: float = 3e-4
    size_rate: float = 3e-3
    head_rate: float = 3e-3
    dropout: float = 0.5
    decay: float = 1e-5
    C: float = 10.0
    batch_size: int = 500


VARIANTS = {
    "held out": Variant(),
    "joint": Variant(head="joint", steps=5, epochs=6, filter_rate=1e-3, reconstruction=0.02),
    "scratch": Variant(
        scratch=True,
        head="joint",
        steps=5,
        epochs=6,
        filter_rate=3e-3,
        size_rate=1e-2,
        head_rate=1e-2,
        reconstruction=0.02,
    ),
    "held out, fast": Variant(filter_rate=1e-3),
    "held out, no reconstruction": Variant(reconstruction=0.0),
    "joint, no dropout": Variant(head="joint", dropout=0.0, filter_rate=1e-3),
}
GRID = (3.0, 10.0, 30.0, 100.0)  # of the tables
DESCRIPTOR = DescriptorSpec(where="keep")
EVAL_BATCH = 2000


def rows_of(p: Tensor) -> Tensor:
    """The descriptors of the features of layer 2, [N, D], with a gradient everywhere.

    As `classification.describe`, but the root mean square is rounded off at 0.
    """
    patch, stride, cell = patch_sizes(p.shape[1], (p.shape[2], p.shape[3]), DESCRIPTOR, TOP)
    index = patch_elements(p.shape[1], p.shape[2:], patch, stride, cell, p.device)
    floor = 1e-6
    cells = (F.avg_pool2d(p.square(), cell, stride=1) + floor).sqrt() - floor**0.5
    patches = cells.flatten(1).index_select(1, index.flatten()).unflatten(1, index.shape)
    return F.normalize(F.normalize(patches, dim=-1, eps=1e-6).flatten(1), dim=-1)


def hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of the SVM for each image, Σ_k max(0, 1 - t_k s_k)², t = ±1."""
    signs = 2.0 * F.one_hot(labels, scores.shape[1]) - 1
    return (1 - signs * scores).clamp(min=0).square().sum(1)


class Network(nn.Module):
    """Unrolled steps with filters of their own, and a linear classifier of the descriptors."""

    def __init__(self, model: DeconvNet, steps: int) -> None:
        super().__init__()
        self.unrolled = UnrolledInference(model, steps)
        self.filters = nn.ParameterList([nn.Parameter(f.clone()) for f in model.filters])
        self.head = nn.Linear(rows_of(model.filters[0].new_zeros(1, 48, 10, 10)).shape[1], 10)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.to(model.device)

    @property
    def model(self) -> DeconvNet:
        """The model with the filters as they are now."""
        given = self.unrolled.model
        return DeconvNet.from_parts(given.spec, list(self.filters), given.connectivity)

    def forward(self, images: Tensor) -> tuple[Tensor, Objective]:
        """Descriptors, and the objective after the last step."""
        problem = self.unrolled.problem(self.model, images)
        latents = self.unrolled.run(problem)
        return rows_of(latents.features), problem.objective(latents)

    @torch.no_grad()
    def project(self) -> None:
        """Filters stay masked, non-negative and of unit length."""
        model = self.model
        for k, f in enumerate(self.filters, start=1):
            f.copy_(model.project(k, f))

    @torch.no_grad()
    def describe(self, images: Tensor) -> tuple[Tensor, float]:
        """The descriptors of many images, and their mean cost."""
        parts, cost = [], 0.0
        for v in images.split(EVAL_BATCH):
            rows, parts_of_cost = self(v)
            parts.append(rows)
            cost += float(parts_of_cost.cost.sum())
        return torch.cat(parts), cost / len(images)

    @torch.no_grad()
    def set_head(self, svm: LinearSVM) -> None:
        weight, bias = head_of(svm, self.head.weight)
        self.head.weight.copy_(weight)
        self.head.bias.copy_(bias)


def head_of(svm: LinearSVM, like: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and intercepts of all ten digits; a digit that the SVM does not know scores -1."""
    weight, bias = like.new_zeros(10, svm.weights.shape[1]), like.new_full((10,), -1.0)
    known = torch.from_numpy(svm.classes.astype(np.int64)).to(like.device)
    weight[known] = torch.from_numpy(svm.weights).to(like)
    bias[known] = torch.from_numpy(svm.intercepts).to(like)
    return weight, bias


@dataclass
class Labelled:
    """The images of a training, on the device.

    images, labels  those with labels
    all             those without, for the cost of reconstruction; the same where all have labels
    test            images and labels to evaluate on
    """

    images: Tensor
    labels: np.ndarray
    all: Tensor
    test: tuple[Tensor, np.ndarray]
    few: bool = False
    targets: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.targets = torch.from_numpy(self.labels.astype(np.int64)).to(self.images.device)

    @classmethod
    def of(
        cls, train: Images, test: Images, device: str, labels: int = 0, seed: int = 0
    ) -> Labelled:
        every = train[: len(train)].to(device)
        of_test = (test[: len(test)].to(device), np.asarray(test.labels))
        given = np.asarray(train.labels)
        if not labels:
            return cls(every, given, every, of_test)
        drawn = few_labels(given, labels, seed)
        return cls(every[torch.as_tensor(drawn).to(device)], given[drawn], every, of_test, few=True)


def begin(variant: Variant, published: DeconvNet, seed: int, data: Labelled) -> Network:
    """The network before it learns from labels."""
    torch.manual_seed(seed)
    if variant.scratch:
        model = DeconvNet(published.spec, seed=100 + seed).to(data.images.device)
        return Network(model, variant.steps)
    network = Network(published.to(data.images.device), variant.steps)
    spec = DistillSpec(batches=variant.distilled, batch_size=100, seed=seed)
    with torch.enable_grad():
        distill(network.unrolled, data.all[:10_000].cpu(), spec)
    return network


def learn(
    network: Network, variant: Variant, data: Labelled, seed: int, deadline: float
) -> Iterator[dict[str, Any]]:
    """Learn from labels; yields what every epoch measured. Ends early at the deadline, with the
    rates as they are."""
    generator = torch.Generator().manual_seed(seed)
    steps = network.unrolled
    rates = [
        {"params": list(network.filters), "lr": variant.filter_rate},
        {
            "params": [steps.log_sizes, steps.extrapolation, steps.log_scales],
            "lr": variant.size_rate,
        },
    ]
    joint = variant.head == "joint"
    if joint:
        head = list(network.head.parameters())
        rates.append({"params": head, "lr": variant.head_rate, "weight_decay": variant.decay})
    optimizer = torch.optim.AdamW(rates, weight_decay=0.0, betas=(0.9, 0.99))
    size = min(variant.batch_size, max(len(data.images) // 8, 10))
    batches = -(-len(data.images) // size)
    epochs = variant.epochs * (3 if data.few else 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    for epoch in range(1, epochs + 1):
        began = time.monotonic()
        half = torch.randint(0, 2, (len(data.images),), generator=generator)
        heads = [] if joint else half_heads(network, data, half, variant.C)
        order = torch.randperm(len(data.images), generator=generator)
        total = torch.zeros(3)
        for chosen in order.split(size):
            at = chosen.to(data.images.device)
            with torch.enable_grad():
                rows, objective = network(data.images[at])
                if joint:
                    scores = network.head(F.dropout(rows, variant.dropout))
                else:
                    both = torch.stack([rows @ w.T + b for w, b in heads])
                    scores = both[
                        1 - half[chosen].to(at.device), torch.arange(len(at), device=at.device)
                    ]
                losses = hinge(scores, data.targets[at])
                cost = objective.cost.mean()
                if data.few:
                    others = torch.randint(len(data.all), (size,), generator=generator)
                    cost = network(data.all[others.to(at.device)])[1].cost.mean()
                loss = losses.mean() + variant.reconstruction * cost.log()
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            network.project()
            schedule.step()
            wrong = (scores.argmax(1) != data.targets[at]).float().mean()
            total += torch.stack([losses.mean(), wrong, cost]).detach().cpu() / batches
        seconds = time.monotonic() - began
        hinge_loss, wrong, cost = total.tolist()
        yield {
            "epoch": epoch,
            "hinge": hinge_loss,
            "training error": 100 * wrong,
            "cost": cost,
            "seconds": seconds,
        }
        if time.monotonic() + 1.2 * seconds > deadline:
            return


def half_heads(
    network: Network, data: Labelled, half: Tensor, C: float
) -> list[tuple[Tensor, Tensor]]:
    """The SVM of each half of the labelled images, as weights and intercepts."""
    rows, _ = network.describe(data.images)
    heads = []
    for side in (0, 1):
        chosen = half == side
        svm = fit_svm(
            rows[chosen.to(rows.device)], data.labels[chosen.numpy()], C, device=rows.device
        )
        heads.append(head_of(svm, rows))
    return heads


def evaluate(network: Network, data: Labelled) -> dict[str, Any]:
    """The error in per cent of a linear SVM, C chosen within the labelled images, and the cost of
    an image. C is chosen on the last sixth of many labels, by cross-validation of few."""
    rows, cost = network.describe(data.images)
    test_rows, test_cost = network.describe(data.test[0])
    held = np.arange(len(data.labels)) >= len(data.labels) * 5 // 6
    validation = cross_validation(data.labels) if data.few else [held]
    best, trials = protocol.choose(
        rows, data.labels, grid=GRID, validation=validation, device=rows.device
    )
    score = protocol.evaluate(
        rows, data.labels, test_rows, data.test[1], best.C, device=rows.device
    )
    return {
        "error": 100 * score.error,
        "C": best.C,
        "validation": [[trial.C, trial.error] for trial in trials],
        "cost": test_cost,
        "training cost": cost,
    }


def gradient_of(network: Network, data: Labelled, C: float, seed: int) -> dict[str, Any]:
    """Where the gradient of the classifier's loss goes, on some labelled images: how many images
    have a loss above 0, how much of the gradient of filters the tenth of the images with the
    largest loss makes, and the length of the gradient of each part, relative to the part.

    Once with the SVM of all labelled images, once with that of the half that each is not in.
    """
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(0, 2, (len(data.images),), generator=generator)
    rows, _ = network.describe(data.images)
    svm = fit_svm(rows, data.labels, C, device=rows.device)
    own = head_of(svm, rows)
    other = half_heads(network, data, half, C)
    chosen = torch.randperm(len(data.images), generator=generator)[:2000]
    at = chosen.to(rows.device)
    found: dict[str, Any] = {}
    for name, heads in (("own SVM", [own, own]), ("SVM of the other half", other)):
        with torch.enable_grad():
            described, _ = network(data.images[at])
            both = torch.stack([described @ w.T + b for w, b in heads])
            scores = both[1 - half[chosen].to(at.device), torch.arange(len(at), device=at.device)]
            losses = hinge(scores, data.targets[at])
            share = losses >= losses.quantile(0.9)
            parts = {
                "F1": network.filters[0],
                "F2": network.filters[1],
                "sizes": network.unrolled.log_sizes,
            }
            whole = torch.autograd.grad(losses.mean(), list(parts.values()), retain_graph=True)
            largest = torch.autograd.grad(
                (losses * share).sum() / len(losses), list(parts.values())
            )
        found[name] = {
            "errors, %": 100 * float((scores.argmax(1) != data.targets[at]).float().mean()),
            "hinge": float(losses.mean()),
            "images with a loss, %": 100 * float((losses > 0).float().mean()),
            "loss of the largest tenth, %": 100 * float((losses * share).sum() / losses.sum()),
            "gradient": {
                part: float(g.norm() / parts[part].norm())
                for part, g in zip(parts, whole, strict=True)
            },
            "gradient of the largest tenth": {
                part: float(g.norm() / parts[part].norm())
                for part, g in zip(parts, largest, strict=True)
            },
        }
    return found


class Results:
    """What is measured, in FOLDER/labels.json."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "labels.json"
        found = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self.content: dict[str, Any] = found or {"machine": machine(), "trainings": {}}

    def has(self, key: str) -> bool:
        return key in self.content["trainings"]

    def put(self, key: str, values: dict[str, Any]) -> None:
        self.content["trainings"][key] = values
        self.file.write_text(json.dumps(self.content, ensure_ascii=False) + "\n", encoding="utf-8")
        short = {name: value for name, value in values.items() if name != "history"}
        print(f"{key}: {short}", flush=True)


@torch.no_grad()
def measure(
    key: str,
    variant: Variant,
    published: DeconvNet,
    data: Labelled,
    seed: int,
    results: Results,
    deadline: float,
) -> None:
    """One training, evaluated before and after, unless there is a result."""
    if results.has(key) or time.monotonic() > deadline:
        return
    began = time.monotonic()
    network = begin(variant, published, seed, data)
    values: dict[str, Any] = {"variant": asdict(variant), "labels": len(data.labels)}
    if not variant.scratch:
        values["before"] = evaluate(network, data)
        values["gradient before"] = gradient_of(network, data, variant.C, seed)
        C = values["before"]["C"]
        rows, _ = network.describe(data.images)
        network.set_head(fit_svm(rows, data.labels, C, device=rows.device))
    print(f"{key}: begun in {time.monotonic() - began:.0f} s, {values}", flush=True)
    history = []
    for epoch in learn(network, variant, data, seed, deadline - 5):
        history.append(epoch)
        print(f"{key}: {epoch}", flush=True)
    values["after"] = evaluate(network, data)
    values["gradient after"] = gradient_of(network, data, variant.C, seed)
    values["seconds"] = time.monotonic() - began
    results.put(key, {**values, "history": history})


def explore(
    scale: Scale,
    names: list[str],
    counts: list[int],
    results: Results,
    device: str,
    deadline: float,
) -> None:
    """Every variant on validation images: the last sixth of the training images."""
    train, test = replace(scale.data, eval_split="validation").load()
    published = read_model(RESULTS / scale.name / "models.zip", "gaussian-2layers-seed0")
    assert published is not None
    for labels in counts:
        data = Labelled.of(train, test, device, labels)
        for name in names:
            key = f"validation, {name}, {labels or 'all'} labels"
            measure(key, VARIANTS[name], published, data, 0, results, deadline)


def final(
    scale: Scale,
    names: list[str],
    counts: list[int],
    seeds: list[int],
    results: Results,
    device: str,
    deadline: float,
) -> None:
    """The chosen variants on test images, with the published model of each seed."""
    train, test = scale.data.load()
    for labels in counts:
        for seed in seeds:
            published = read_model(
                RESULTS / scale.name / "models.zip", f"gaussian-2layers-seed{seed}"
            )
            assert published is not None
            data = Labelled.of(train, test, device, labels, seed)
            for name in names:
                key = f"{name}, {labels or 'all'} labels, seed {seed}"
                measure(key, VARIANTS[name], published, data, seed, results, deadline)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--explore", action="store_true", help="on validation images")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[0, 1000], help="0: all")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    torch.backends.cudnn.benchmark = True
    scale, results = read_scale(given.scale), Results(given.out)
    if given.explore:
        explore(scale, given.variants, given.labels, results, given.device, deadline)
    else:
        names, counts, seeds = given.variants, given.labels, given.seeds
        final(scale, names, counts, seeds, results, given.device, deadline)


if __name__ == "__main__":
    main()
