"""`finetune`: the loss of a linear SVM, back-propagated through unrolled steps of inference.

The head begins as the linear SVM of the features as they are, and its objective is what all parameters then lower:

    ‖w‖² / 2CN + mean_i Σ_k max(0, 1 - t_ik s_ik)²,     s = w · descriptor,  t = ±1

Dropout keeps a loss that the features can learn from, where the SVM separates all images. In the end the head becomes
the SVM of the features that were learned.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whatwhere.classification.linear_svm import check_labels, fit_svm
from whatwhere.errors import ImageError, RunError
from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.finetuning.folder import check_unused, save_finetuned
from whatwhere.finetuning.settings import FinetuneSpec
from whatwhere.finetuning.tuned import FinetunedModel, FinetuneEpoch
from whatwhere.inference import UnrolledInference, distill, infer, resolve_lam
from whatwhere.inference.checks import ImageSource, in_model_units
from whatwhere.learning.distributed import choose_device
from whatwhere.model import DeconvNet
from whatwhere.nn import SparseCode2d
from whatwhere.spec import InferenceSpec, Recipe, StepSpec

CALIBRATION = 200  # images whose line searches give the first sizes of the steps
LOWEST = 0.1  # share of those images whose line search gives a smaller size
WARM_UP = 0.05  # share of the updates in which the learning rate rises
TOGETHER = 500  # images that are described at a time


def finetune(
    model: DeconvNet,
    images: ImageSource,
    labels: np.ndarray | None = None,
    spec: FinetuneSpec | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    unlabelled: ImageSource | None = None,
    recipe: Recipe | None = None,
    device: str = "auto",
    progress: Callable[[FinetuneEpoch], Any] = lambda epoch: None,
) -> FinetunedModel:
    """Fine-tune filters, sizes of the steps and a linear head with labels, end to end.

    The filters stay non-negative (where the model is) and of unit length. All images are held on the device.

    model       the trained model
    images      the labelled images: a float tensor [N, C, H, W], or `Images`
    labels      of the images, [N]; None takes those of `images`
    spec        how it is fine-tuned; None means `FinetuneSpec()`
    out         folder of the fine-tuned model; None keeps it in memory
    unlabelled  images that the steps are first learned from (`FinetuneSpec.distill`); None takes the labelled ones
    recipe      its settings of inference are unrolled, and its descriptor is what the head sees; None means the paper's
    device      'auto' takes a GPU where there is one
    progress    called after every pass

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> few = digits.subset(ww.data.few_labels(digits.labels, 20, seed=0))
    >>> tuned = ww.finetune(model, few, spec=ww.FinetuneSpec(steps=1, distill=0, epochs=2, least_updates=0))
    >>> tuned.predict(digits[:3]).shape
    (3,)
    """
    spec, recipe, home = spec or FinetuneSpec(), recipe or Recipe.paper(model.spec), choose_device(device)
    if out is not None:
        check_unused(Path(out))
    pixels, classes, targets = labelled(model, images, labels)
    pixels, targets = pixels.to(home, model.dtype), targets.to(home)
    network = start_network(model.to(home), pixels, len(classes), spec, recipe, unlabelled)
    fit_head(network, pixels, targets, spec.C)
    start = copy.deepcopy(network).eval()
    history = train(network, pixels, targets, spec, progress)
    fit_head(network, pixels, targets, spec.C)
    tuned = FinetunedModel(network.eval(), classes, history, start)
    if out is not None:
        save_finetuned(tuned, out, recipe)
    return tuned


def start_network(
    model: DeconvNet,
    images: Tensor,
    classes: int,
    spec: FinetuneSpec,
    recipe: Recipe,
    unlabelled: ImageSource | None = None,
) -> SparseCodeClassifier:
    """The network before the first update; some images give the first sizes of its steps."""
    few = images[:CALIBRATION]
    inference = resolve_lam(model, few, recipe.inference)
    if spec.distill:
        unrolled = UnrolledInference(model, spec.steps, replace(inference, schedule=()), untied=True)
        source = images if unlabelled is None else in_model_units(model.spec, unlabelled)
        distill(unrolled, source, batches=spec.distill, seed=spec.seed)
        model, inference = unrolled.learned.model_for(model), unrolled.spec
    elif not inference.schedule:
        inference = measured_schedule(model, few, inference, spec.steps)
    coder = SparseCode2d.from_model(model, spec.steps, inference, untied=not model.tied)
    return SparseCodeClassifier.for_images(coder, recipe.descriptor, few, classes=classes, dropout=spec.dropout)


@torch.no_grad()
def fit_head(network: SparseCodeClassifier, images: Tensor, targets: Tensor, C: float) -> None:
    """Set the head to the linear SVM of the descriptors as they are."""
    batches = images.split(TOGETHER)
    described = torch.cat([network.describe(network.coder.code(batch)).float() for batch in batches])
    svm = fit_svm(described, targets.cpu().numpy(), C, solver="newton", device=described.device)
    network.head.weight.copy_(torch.from_numpy(svm.weights))
    network.head.bias.copy_(torch.from_numpy(svm.intercepts))


def labelled(model: DeconvNet, images: ImageSource, labels: np.ndarray | None) -> tuple[Tensor, np.ndarray, Tensor]:
    """Pixels, the classes, and the number of each image's class, once they are what the model can explain."""
    labels = getattr(images, "labels", None) if labels is None else labels
    if labels is None:
        raise ImageError("images without labels were given; fine-tuning needs one for each (labels=, or `Images`)")
    if len(images) == 0:
        raise ImageError("an empty set was given; expected at least one image of each of two classes")
    pixels = in_model_units(model.spec, images)[slice(0, len(images))]
    check_labels(pixels, np.asarray(labels))
    model.check_images(pixels)
    classes, targets = np.unique(labels, return_inverse=True)
    return pixels, classes, torch.from_numpy(targets)


def measured_schedule(model: DeconvNet, images: Tensor, inference: InferenceSpec, steps: int) -> InferenceSpec:
    """A schedule to start from: of the sizes that line searches give images at a step, one that few are below.

    A step that is too large for an image can take it further from its code than it began; one that is too small cannot.
    """
    plain = replace(inference, steps=steps, step_size="image", search_every=1, momentum=False, tolerance=0.0)
    sizes = infer(model, images, plain, engine="reference").stats.step.quantile(LOWEST, dim=1).tolist()
    schedule = [StepSpec(size=beta, threshold=beta, pooling_step=(inference.pooling_step,)) for beta in sizes]
    return replace(plain, schedule=tuple(schedule), step_size="fixed")


def train(
    network: SparseCodeClassifier,
    images: Tensor,
    targets: Tensor,
    spec: FinetuneSpec,
    progress: Callable[[FinetuneEpoch], Any],
) -> tuple[FinetuneEpoch, ...]:
    """All updates. Every batch has the same size, so that a GPU replays one recorded graph of kernels."""
    batches, epochs = passes(len(images), spec)
    size = min(spec.batch_size, len(images))
    optimizer = make_optimizer(network, spec)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: rate(update, epochs * batches))
    generator, history = torch.Generator().manual_seed(spec.seed), []
    torch.manual_seed(spec.seed)  # of dropout
    forward = recorded(Training(network.train(), spec.reconstruction > 0), images[:size])
    for epoch in range(1, epochs + 1):
        began, sums = time.monotonic(), torch.zeros(3, dtype=torch.float64, device=images.device)
        order = torch.randperm(len(images), generator=generator).to(images.device)
        for batch in order[: batches * size].view(batches, size):
            scores, cost = forward(images[batch])
            loss = squared_hinge(scores, targets[batch])
            decay = sum(p.square().sum() for p in network.head.parameters()) / (2 * spec.C * len(images))
            (loss + decay + spec.reconstruction * cost).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            network.coder.project_()
            wrong = (scores.argmax(1) != targets[batch]).double().mean()
            sums += torch.stack([loss.detach().double(), wrong, cost.detach().double()])
        loss_mean, error, cost_mean = (sums / batches).tolist()
        if not math.isfinite(loss_mean):
            raise RunError(
                f"the loss is {loss_mean} after epoch {epoch}; choose a learning rate below {spec.learning_rate:g}"
            )
        seconds, kept = time.monotonic() - began, cost_mean if spec.reconstruction else None
        history.append(FinetuneEpoch(epoch, loss_mean, error, seconds, kept))
        progress(history[-1])
    return tuple(history)


def squared_hinge(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over images of Σ_k max(0, 1 - t_k s_k)², t = ±1 for the true class and the others."""
    signs = 2.0 * nn.functional.one_hot(targets, scores.shape[1]) - 1
    return (1 - signs * scores).clamp(min=0).square().sum(1).mean()


def passes(images: int, spec: FinetuneSpec) -> tuple[int, int]:
    """Batches of a pass, and how many passes there are."""
    batches = images // min(spec.batch_size, images)
    return batches, max(spec.epochs, -(-spec.least_updates // batches))


class Training(nn.Module):
    """What is recorded: the scores, and the mean cost where it is part of the loss."""

    def __init__(self, network: SparseCodeClassifier, with_cost: bool) -> None:
        super().__init__()
        self.network, self.with_cost = network, with_cost

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if not self.with_cost:
            return self.network(images), images.new_zeros(())
        scores, cost = self.network.scores_and_cost(images)
        return scores, cost.mean()


def recorded(network: Training, example: Tensor) -> Training:
    """The same function; on a GPU its thousands of kernels are recorded once and replayed without Python."""
    if example.device.type == "cuda":
        torch.cuda.make_graphed_callables(network, (example.clone(),), allow_unused_input=True)  # changes it in place
    return network


def make_optimizer(network: SparseCodeClassifier, spec: FinetuneSpec) -> torch.optim.Optimizer:
    """Adam, with learning rates of their own for the head and for the sizes of the steps."""
    coder, rate = network.coder, spec.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": [*coder.filters, *(coder.upward or ())]},
        {"params": list(network.head.parameters()), "lr": spec.head_rate * rate},
        {"params": [coder.log_sizes, coder.momentum, coder.log_scales], "lr": spec.size_rate * rate},
    ]
    return torch.optim.Adam(groups, rate)


def rate(update: int, updates: int) -> float:
    """The learning rate at an update, as a share of its peak: a linear rise, then a cosine."""
    rise = max(1, round(WARM_UP * updates))
    if update < rise:
        return (update + 1) / rise
    return (1 + math.cos(math.pi * (update - rise) / max(1, updates - rise))) / 2
