"""Labels through inference: the loss of a classifier is back-propagated through unrolled steps into
the filters of both layers and the sizes of the steps.

    python -m reproduction.studies.labels --out FOLDER --explore            # on validation images
    python -m reproduction.studies.labels --out FOLDER --seeds 0 1 2        # test images, once

The network is `UnrolledInference` of the published model (or of random filters), the descriptor of
the tables, and a linear classifier. λ has no parameter of its own: every step has a size, a
threshold and a β_U of its own, and λ is a factor of the first and the last. The cost of
reconstruction stays in the loss, also of images without labels. At the end a linear SVM is fitted
to the descriptors, as everywhere. Results that FOLDER has are left out, and no training begins
that would not end before `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.machine import machine
from reproduction.few_labels import cross_validation
from reproduction.models import read_model
from reproduction.reproduce import RESULTS
from reproduction.scale import SCALES, Scale, read_scale
from reproduction.whitening import fit_whitening
from whatwhere import DeconvNet
from whatwhere.classification import LinearSVM, fit_svm, protocol
from whatwhere.classification.descriptors import patch_elements, patch_sizes
from whatwhere.data import Images, few_labels
from whatwhere.inference import UnrolledInference, distill
from whatwhere.spec import DescriptorSpec, DistillSpec

TOP = 2


@dataclass(frozen=True)
class Variant:
    """One way to learn from labels.

    scratch        begin with random filters and a classifier of zeros, in place of the published
                   model, distilled steps and their SVM
    steps          unrolled steps
    distilled      batches of 100 images that the sizes of the steps are learned from before that
    epochs         passes over the images that are learned from, at most
    head           'joint': the classifier learns along; 'held out': an SVM of the other half of the
                   labelled images, fitted again in every epoch, so that the loss of an image is
                   that of an image the classifier has not seen
    teacher        who labels the images without labels, again in every epoch: 'none', they stay
                   without; 'svm', the SVM of the labelled images; 'graph', a graph of neighbours
                   that the labels spread along
    trusted        share of the images that a teacher is surest of, which are learned from
    reconstruction weight of the logarithm of the mean cost in the loss
    easy           share of the images without a loss in the last pass that a pass visits: the
                   others have no gradient
    filter_rate    learning rate of Adam for filters; it falls to 0 along a cosine
    size_rate      … for the logarithms of the sizes of the steps
    head_rate      … for the classifier
    dropout        share of the descriptor's numbers that a joint classifier does not see
    decay          weight decay of a joint classifier
    C              of the SVM that begins, and of those of the halves and the teacher
    batch_size     labelled images in a batch; at most an eighth of them
    average        decay of the running mean of everything that learns, which is evaluated in place
                   of the last values; 0: the last values
    """

    scratch: bool = False
    steps: int = 5
    distilled: int = 300
    epochs: int = 24
    head: Literal["held out", "joint"] = "held out"
    teacher: Literal["none", "svm", "graph"] = "none"
    trusted: float = 0.8
    reconstruction: float = 0.1
    easy: float = 1.0
    filter_rate: float = 3e-4
    size_rate: float = 3e-3
    head_rate: float = 3e-3
    dropout: float = 0.5
    decay: float = 1e-5
    C: float = 10.0
    batch_size: int = 500
    average: float = 0.0


# few passes over images that have no gradient, so that there is time for many passes; the rates are
# high, as from random filters
JOINT = Variant(
    distilled=60,
    epochs=80,
    head="joint",
    easy=0.2,
    filter_rate=3e-3,
    size_rate=1e-2,
    head_rate=1e-2,
    reconstruction=0.02,
    dropout=0.2,
    batch_size=250,
)
AVERAGED = replace(JOINT, dropout=0.5, batch_size=500, average=0.999)
VARIANTS = {
    "published": JOINT,
    "scratch": replace(JOINT, scratch=True),
    "averaged": AVERAGED,
    "averaged, ten steps": replace(AVERAGED, steps=10, distilled=100),
    "averaged, ten steps, less dropout": replace(AVERAGED, steps=10, distilled=100, dropout=0.2),
    "averaged, scratch": replace(AVERAGED, scratch=True, steps=10),
    "held out": Variant(),
    "taught by the graph": replace(JOINT, teacher="graph", epochs=8, dropout=0.5),
    "taught by the SVM": replace(JOINT, teacher="svm", epochs=8, dropout=0.5),
}
GRID = (3.0, 10.0, 30.0, 100.0)  # of the tables
WHITE_GRID = (0.3, 1.0, 3.0)  # for whitened rows
DESCRIPTOR = DescriptorSpec(where="keep")
EVAL_BATCH = 2000


class Patches(NamedTuple):
    """Where a descriptor's numbers come from: side of a cell, and the cells of every patch."""

    cell: int
    index: Tensor


def patches_of(grid: tuple[int, int, int], device: torch.device) -> Patches:
    """The patches of the features of layer 2, for a grid of features, (maps, rows, columns)."""
    maps, rows, columns = grid
    patch, stride, cell = patch_sizes(maps, (rows, columns), DESCRIPTOR, TOP)
    return Patches(cell, patch_elements(maps, (rows, columns), patch, stride, cell, device))


def rows_of(p: Tensor, patches: Patches) -> Tensor:
    """The descriptors of the features of layer 2, [N, D], with a gradient everywhere.

    As `classification.describe`, but the root mean square is rounded off at 0.
    """
    cell, index = patches
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
        self.patches = patches_of((48, 10, 10), model.device)
        self.head = nn.Linear(self.patches.index.numel(), 10)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.recorded = 0  # images in the batches of a recording, which is used in training mode
        self.to(model.device)

    @property
    def model(self) -> DeconvNet:
        """The model with the filters as they are now."""
        given = self.unrolled.model
        return DeconvNet.from_parts(given.spec, list(self.filters), given.connectivity)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Descriptors, and the cost after the last step."""
        problem = self.unrolled.problem(self.model, images)
        latents = self.unrolled.run(problem)
        return rows_of(latents.features, self.patches), problem.objective(latents).cost

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
        self.eval()  # a recording is for batches of training
        for v in images.split(EVAL_BATCH):
            rows, costs = self(v)
            parts.append(rows)
            cost += float(costs.sum())
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


def error_of(scores: Tensor, data: Labelled) -> float:
    """The error on test images in per cent."""
    return 100 * float((scores.argmax(1).cpu().numpy() != data.test[1]).mean())


def head_scores(svm: LinearSVM, rows: Tensor) -> Tensor:
    """The scores of all ten digits."""
    weight, bias = head_of(svm, rows)
    return rows @ weight.T + bias


@dataclass
class Labelled:
    """The images of a training, on the device.

    images, labels  those with labels
    all             those without, for the cost of reconstruction; the same where all have labels
    test            images and labels to evaluate on
    drawn           which of `all` have labels
    """

    images: Tensor
    labels: np.ndarray
    all: Tensor
    test: tuple[Tensor, np.ndarray]
    drawn: np.ndarray
    few: bool = False
    targets: Tensor = field(init=False)
    drawn_on_device: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.drawn_on_device = torch.as_tensor(self.drawn).to(self.images.device)
        self.targets = torch.from_numpy(self.labels.astype(np.int64)).to(self.images.device)

    @classmethod
    def of(
        cls, train: Images, test: Images, device: str, labels: int = 0, seed: int = 0
    ) -> Labelled:
        every = train[: len(train)].to(device)
        of_test = (test[: len(test)].to(device), np.asarray(test.labels))
        given = np.asarray(train.labels)
        drawn = few_labels(given, labels, seed) if labels else np.arange(len(given))
        chosen = every[torch.as_tensor(drawn).to(device)] if labels else every
        return cls(chosen, given[drawn], every, of_test, drawn, few=labels > 0)


def begin(variant: Variant, published: DeconvNet, seed: int, data: Labelled) -> Network:
    """The network before it learns from labels: of random filters, by a seed, or of the published
    ones."""
    torch.manual_seed(seed)
    if variant.scratch:
        model = DeconvNet(published.spec, seed=100 + seed).to(data.images.device)
        return Network(model, variant.steps)
    network = Network(published.to(data.images.device), variant.steps)
    spec = DistillSpec(batches=variant.distilled, batch_size=100, seed=seed)
    with torch.enable_grad():
        distill(network.unrolled, data.all[:10_000].cpu(), spec)
    return network


@dataclass(frozen=True)
class Taught:
    """Images to learn from, with their targets; on the device."""

    images: Tensor
    targets: Tensor
    index: Tensor  # of `Labelled.all`


def learn(
    network: Network,
    variant: Variant,
    data: Labelled,
    seed: int,
    limit: float,
) -> Iterator[dict[str, Any]]:
    """Learn from labels; yields what every epoch measured. The rates fall along a cosine of the
    passes that are done, or of the time that is over: it takes at most `limit` seconds."""
    generator = torch.Generator().manual_seed(seed)
    optimizer, highest = optimizer_of(network, variant)
    began, progress = time.monotonic(), 0.0
    last = torch.full((len(data.all),), math.inf, device=data.images.device)
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    mean = [parameter.detach().clone() for parameter in learned]
    for epoch in range(1, variant.epochs + 1):
        taught = Taught(data.images, data.targets, data.drawn_on_device)
        if variant.teacher != "none":
            taught = teach(network, variant, data)
        device, count = taught.images.device, len(taught.images)
        size = min(variant.batch_size, max(count // 8, 10))
        half = torch.randint(0, 2, (count,), generator=generator)
        heads = half_heads(network, data, half, variant.C) if variant.head == "held out" else []
        batches = chosen_batches(last[taught.index].cpu() > 0, variant.easy, size, generator)
        total, seen = torch.zeros(3, device=device), 0
        for chosen in batches:
            passed = (epoch - 1 + seen / len(batches)) / variant.epochs
            progress = max(passed, (time.monotonic() - began) / limit)
            if progress >= 1:
                break
            for group, rate in zip(optimizer.param_groups, highest, strict=True):
                group["lr"] = rate * (1 + math.cos(math.pi * progress)) / 2
            at = chosen.to(device)
            with torch.enable_grad():
                images = taught.images[at]
                if data.few and variant.teacher == "none" and variant.reconstruction:
                    others = torch.randint(len(data.all), (size,), generator=generator)
                    images = torch.cat([images, data.all[others.to(device)]])
                network.train(network.recorded == len(images))
                rows, costs = network(images)
                rows, cost = rows[:size], costs[-size:].mean()
                if not heads:
                    scores = network.head(F.dropout(rows, variant.dropout))
                else:
                    both = torch.stack([rows @ w.T + b for w, b in heads])
                    scores = both[1 - half[chosen].to(device), torch.arange(size, device=device)]
                losses = hinge(scores, taught.targets[at])
                loss = losses.mean() + variant.reconstruction * cost.log()
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            network.project()
            if variant.average:
                torch._foreach_lerp_(mean, learned, 1 - variant.average)
            seen += 1
            last[taught.index[at]] = losses.detach()
            wrong = (scores.argmax(1) != taught.targets[at]).float().mean()
            total += torch.stack([losses.mean(), wrong, cost]).detach()
        if not seen:
            break
        hinge_loss, wrong_share, mean_cost = (total / seen).tolist()
        yield {
            "epoch": epoch,
            "batches": seen,
            "hinge": hinge_loss,
            "training error": 100 * wrong_share,
            "cost": mean_cost,
            "seconds": time.monotonic() - began,
        }
    if variant.average:
        for parameter, value in zip(learned, mean, strict=True):
            parameter.copy_(value)
        network.project()


def chosen_batches(hard: Tensor, easy: float, size: int, generator: torch.Generator) -> Tensor:
    """The images of a pass, [batches, size]: all hard ones and a share of the easy ones, at least
    one batch."""
    wanted = hard | (torch.rand(len(hard), generator=generator) < easy)
    order = (torch.rand(len(hard), generator=generator) + wanted).argsort(descending=True)
    count = max(int(wanted.sum()) // size, 1)
    order = order[: count * size]
    return order[torch.randperm(len(order), generator=generator)].view(count, size)


def optimizer_of(network: Network, variant: Variant) -> tuple[torch.optim.Optimizer, list[float]]:
    """Adam for filters, sizes and a joint classifier, and the highest rate of each."""
    steps = network.unrolled
    sizes = [steps.log_sizes, steps.extrapolation, steps.log_scales]
    parts: list[tuple[list[nn.Parameter], float, float]] = [
        (list(network.filters), variant.filter_rate, 0.0),
        (sizes, variant.size_rate, 0.0),
    ]
    if variant.head == "joint":
        parts.append((list(network.head.parameters()), variant.head_rate, variant.decay))
    groups = [{"params": each, "lr": rate, "weight_decay": decay} for each, rate, decay in parts]
    return torch.optim.AdamW(groups, betas=(0.9, 0.99)), [rate for _, rate, _ in parts]


@torch.no_grad()
def teach(network: Network, variant: Variant, data: Labelled) -> Taught:
    """The images that a teacher is surest of, with its labels, and those that have labels."""
    rows, _ = network.describe(data.all)
    scores = teacher_scores(rows, variant, data)
    top = scores.topk(2, dim=1)
    margin = top.values[:, 0] - top.values[:, 1]
    targets = top.indices[:, 0].clone()
    drawn = torch.as_tensor(data.drawn).to(rows.device)
    targets[drawn] = data.targets
    # of each class the same share, or the hard classes would vanish
    sure = torch.zeros_like(margin, dtype=torch.bool)
    for digit in range(scores.shape[1]):
        of_class = (targets == digit).nonzero().flatten()
        wanted = int(variant.trusted * len(of_class))
        sure[of_class[margin[of_class].argsort(descending=True)[:wanted]]] = True
    sure[drawn] = True
    return Taught(data.all[sure], targets[sure], sure.nonzero().flatten())


def teacher_scores(rows: Tensor, variant: Variant, data: Labelled) -> Tensor:
    """The score of every class for all images, by a teacher."""
    drawn = torch.as_tensor(data.drawn).to(rows.device)
    if variant.teacher == "graph":
        return spread(rows, drawn, data.targets)
    w, b = head_of(fit_svm(rows[drawn], data.labels, variant.C, device=rows.device), rows)
    return rows @ w.T + b


def spread(
    rows: Tensor,
    drawn: Tensor,
    targets: Tensor,
    *,
    neighbours: int = 10,
    share: float = 0.99,
    rounds: int = 100,
) -> Tensor:
    """Spread labels along the graph of nearest neighbours, Y ← a S Y + (1 - a) Y₀ (Zhou et al.
    2004), with S = D^-½ W D^-½ and weights that fall with the distance.

    drawn, targets  which rows have labels, and which
    share           a
    """
    near, similar = [], []
    for block in rows.split(4000):
        top = (block @ rows.T).topk(min(neighbours + 1, len(rows)), dim=1)
        near.append(top.indices[:, 1:])
        similar.append(top.values[:, 1:])
    index, distance = torch.cat(near), (1 - torch.cat(similar)).clamp(min=0)
    weights = torch.exp(-distance / distance.mean())
    heads = torch.arange(len(rows), device=rows.device)[:, None].expand_as(index)
    ends = torch.stack([torch.cat([heads, index]).flatten(), torch.cat([index, heads]).flatten()])
    both = torch.cat([weights, weights]).flatten()
    degree = rows.new_zeros(len(rows)).index_add(0, ends[0], both)
    scaled = both / (degree[ends[0]] * degree[ends[1]]).sqrt()
    size = (len(rows), len(rows))
    graph = torch.sparse_coo_tensor(ends, scaled, size, check_invariants=False).coalesce()
    given = rows.new_zeros(len(rows), 10)
    given[drawn, targets] = 1.0
    found = given
    for _ in range(rounds):
        found = share * torch.sparse.mm(graph, found) + (1 - share) * given
    return found


def record(network: Network, images: Tensor) -> None:
    """Record the network, forward and backward, as CUDA graphs for batches of the size of
    `images`: calling thousands of small kernels takes longer than they run."""
    began = time.monotonic()
    network.train()
    with torch.enable_grad():
        torch.cuda.make_graphed_callables(network, (images,), allow_unused_input=True)
    network.recorded = len(images)
    print(f"recorded in {time.monotonic() - began:.0f} s", flush=True)


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


def evaluate(
    network: Network, variant: Variant, data: Labelled
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluate linear SVMs of the descriptors: errors in per cent and the cost of an image, and the
    scores of the test images.

    C is chosen on the last sixth of many labels, by cross-validation of few. With a teacher, also
    the error of an SVM of its labels, so that it is seen what learning adds.
    """
    rows, cost = network.describe(data.images)
    test_rows, test_cost = network.describe(data.test[0])
    held = np.arange(len(data.labels)) >= len(data.labels) * 5 // 6
    validation = cross_validation(data.labels) if data.few else [held]
    best, trials = protocol.choose(
        rows, data.labels, grid=GRID, validation=validation, device=rows.device
    )
    svm = fit_svm(rows, data.labels, best.C, device=rows.device)
    scores = {"error": head_scores(svm, test_rows)}
    if variant.teacher != "none":
        every, _ = network.describe(data.all)
        targets = teacher_scores(every, variant, data).argmax(1)
        targets[torch.as_tensor(data.drawn).to(targets.device)] = data.targets
        svm = fit_svm(every, targets.cpu().numpy(), 3.0, device=rows.device)
        scores["error with the teacher's labels"] = head_scores(svm, test_rows)
    if variant.head == "joint":
        scores["error of the classifier that learns along"] = network.head(test_rows)
    if not data.few:
        # decorrelated columns, as in the table of the best errors
        whitening = fit_whitening(rows, 1.0, device=rows.device)
        white, white_test = whitening(rows), whitening(test_rows)
        chosen, _ = protocol.choose(
            white, data.labels, grid=WHITE_GRID, validation=validation, device=rows.device
        )
        svm = fit_svm(white, data.labels, chosen.C, device=rows.device)
        scores["error with whitened rows"] = head_scores(svm, white_test)
    found = {
        **{name: error_of(each, data) for name, each in scores.items()},
        "C": best.C,
        "validation": [[trial.C, trial.error] for trial in trials],
        "cost": test_cost,
        "training cost": cost,
    }
    return found, {name: each.cpu().numpy() for name, each in scores.items()}


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
            network.eval()
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

    def put(self, key: str, values: dict[str, Any], scores: dict[str, np.ndarray]) -> None:
        self.content["trainings"][key] = values
        np.savez_compressed(self.file.parent / f"{key}.npz", **scores)
        self.write()
        short = {name: value for name, value in values.items() if name != "history"}
        print(f"{key}: {short}", flush=True)

    def write(self) -> None:
        self.file.write_text(json.dumps(self.content, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass
class Prepared:
    """A network before it learns from labels, for several trainings.

    state   its parameters before a training
    before  its evaluation, by the number of labels
    """

    network: Network
    state: dict[str, Tensor]
    before: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """When to stop, and what else to measure.

    deadline   no training begins after this time, by `time.monotonic`
    each       seconds for the passes of one training
    gradients  whether it is measured where the gradient goes
    """

    deadline: float
    each: float
    gradients: bool


@torch.no_grad()
def measure(
    key: str,
    variant: Variant,
    published: DeconvNet,
    data: Labelled,
    seed: int,
    results: Results,
    limits: Limits,
    prepared: dict[tuple[bool, int, int], Prepared],
) -> None:
    """One training, evaluated before and after, unless there is a result."""
    # a training needs about half as long again: distilled steps and evaluations
    if results.has(key) or time.monotonic() + 1.5 * limits.each > limits.deadline:
        return
    began = time.monotonic()
    start = (variant.scratch, variant.steps, seed)
    if start not in prepared:
        network = begin(variant, published, seed, data)
        state = {name: value.clone() for name, value in network.state_dict().items()}
        prepared[start] = Prepared(network, state)
    ready = prepared[start]
    network = ready.network
    network.load_state_dict(ready.state)
    torch.manual_seed(seed)
    values: dict[str, Any] = {"variant": asdict(variant), "labels": len(data.labels)}
    if not variant.scratch:
        rows, _ = network.describe(data.images)
        network.set_head(fit_svm(rows, data.labels, variant.C, device=rows.device))
        if len(data.labels) not in ready.before:
            ready.before[len(data.labels)], _ = evaluate(network, variant, data)
        values["before"] = ready.before[len(data.labels)]
        if limits.gradients:
            values["gradient before"] = gradient_of(network, data, variant.C, seed)
    print(f"{key}: begun in {time.monotonic() - began:.0f} s, {values}", flush=True)
    large = variant.teacher != "none" or not data.few
    if data.images.is_cuda and large and not network.recorded:
        record(network, data.all[: variant.batch_size])
    history = []
    for epoch in learn(network, variant, data, seed, limits.each):
        history.append(epoch)
        print(f"{key}: {epoch}", flush=True)
    values["after"], scores = evaluate(network, variant, data)
    if limits.gradients:
        values["gradient after"] = gradient_of(network, data, variant.C, seed)
    values["seconds"] = time.monotonic() - began
    results.put(key, {**values, "history": history}, scores)


def study(
    scale: Scale,
    names: list[str],
    counts: list[int],
    seeds: list[int],
    results: Results,
    device: str,
    limits: Limits,
    *,
    explore: bool,
) -> None:
    """The variants, by each seed with another published model, other labels and random numbers: on
    test images, or to `explore` on validation images, the last sixth of the training images."""
    spec = replace(scale.data, eval_split="validation") if explore else scale.data
    train, test = spec.load()
    file = RESULTS / scale.name / "models.zip"
    prepared: dict[tuple[bool, int, int], Prepared] = {}
    for seed in seeds:
        published = read_model(file, f"gaussian-2layers-seed{seed}")
        assert published is not None
        for labels in counts:
            data = Labelled.of(train, test, device, labels, seed)
            for name in names:
                begins = "validation, " if explore else ""
                key = f"{begins}{name}, {labels or 'all'} labels, seed {seed}"
                measure(key, VARIANTS[name], published, data, seed, results, limits, prepared)
    average(results.file.parent, np.asarray(test.labels), results)


def average(folder: Path, labels: np.ndarray, results: Results) -> None:
    """The error of the mean of the test scores over the seeds of every variant."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(folder.glob("*.npz")):
        groups.setdefault(re.sub(r", seed \d+$", "", file.stem), []).append(file)
    means: dict[str, dict[str, Any]] = {}
    for key, files in groups.items():
        scores = [dict(np.load(file)) for file in files]
        means[key] = {"seeds": len(files)} | {
            name: 100 * float((sum(each[name] for each in scores).argmax(1) != labels).mean())
            for name in scores[0]
        }
    results.content["means of scores"] = means
    results.write()


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
    parser.add_argument("--seconds", type=float, default=3600.0, help="for everything")
    parser.add_argument("--each", type=float, default=600.0, help="for the passes of a training")
    parser.add_argument("--gradients", action="store_true", help="measure where the gradient goes")
    given = parser.parse_args()
    limits = Limits(time.monotonic() + given.seconds, given.each, given.gradients)
    torch.set_float32_matmul_precision("high")
    study(
        read_scale(given.scale),
        given.variants,
        given.labels,
        given.seeds,
        Results(given.out),
        given.device,
        limits,
        explore=given.explore,
    )


if __name__ == "__main__":
    main()
