"""`finetune`: back-propagation of a classification loss through unrolled steps of inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whatwhere.classification.linear_svm import check_labels
from whatwhere.distributed import choose_device
from whatwhere.errors import ImageError, RunError, SpecError
from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.finetuning.settings import FinetuneSpec
from whatwhere.inference import infer, resolve_lam
from whatwhere.inference.checks import ImageSource, in_model_units
from whatwhere.model import DeconvNet
from whatwhere.nn import SparseCode2d
from whatwhere.spec import DescriptorSpec, InferenceSpec, StepSpec

CALIBRATION = 200  # images whose line searches give the first sizes of the steps
WARM_UP = 0.05  # share of the updates in which the learning rate rises
PREDICTED_TOGETHER = 500


@dataclass(frozen=True)
class FinetuneEpoch:
    """What one pass over the labelled images measured, in training (with dropout): means per image.

    loss     cross-entropy, without reconstruction
    error    share of the images that were classified wrongly
    cost     of the codes, λ/2 ‖R p - v‖² + Σ|p|^α; None where reconstruction is not in the loss
    """

    epoch: int
    loss: float
    error: float
    cost: float | None
    seconds: float


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned model with its classifier.

    network  what was trained
    classes  the label of every score
    history  one `FinetuneEpoch` a pass
    """

    network: SparseCodeClassifier
    classes: np.ndarray
    history: tuple[FinetuneEpoch, ...] = ()

    @property
    def model(self) -> DeconvNet:
        """The model with the fine-tuned filters, on the CPU."""
        model = self.network.coder.model
        return DeconvNet.from_parts(model.spec, [f.detach() for f in model.filters], model.connectivity).to("cpu")

    @property
    def inference(self) -> InferenceSpec:
        """The fine-tuned steps as settings of `infer`."""
        return self.network.coder.spec

    def decision(self, images: ImageSource) -> np.ndarray:
        """The score of each class for each image, [N, classes]."""
        scores = [self._run(images, rows)[0] for rows in _batches(len(images))]
        return torch.cat(scores).cpu().numpy()

    def predict(self, images: ImageSource) -> np.ndarray:
        """The class of each image, [N]."""
        return np.asarray(self.classes[self.decision(images).argmax(1)])

    def cost(self, images: ImageSource) -> float:
        """The mean cost of the codes of images."""
        return float(torch.cat([self._run(images, rows)[1] for rows in _batches(len(images))]).mean())

    def _run(self, images: ImageSource, rows: slice) -> tuple[Tensor, Tensor]:
        network = self.network.eval()
        with torch.no_grad():
            images = in_model_units(network.coder.model_spec, images)
            return network.scores_and_cost(images[rows].to(network.head.weight))


def finetune(
    model: DeconvNet,
    images: ImageSource,
    labels: np.ndarray | None = None,
    spec: FinetuneSpec | None = None,
    *,
    inference: InferenceSpec | None = None,
    descriptor: DescriptorSpec | None = None,
    device: str = "auto",
    progress: Callable[[FinetuneEpoch], Any] = lambda epoch: None,
) -> FinetunedModel:
    """Fine-tune filters, sizes of the steps and a linear head with labels, end to end.

    The filters stay non-negative (where the model is) and of unit length. All images are held on the device.

    model       the trained model
    images      the labelled images: a float tensor [N, C, H, W], or `Images`
    labels      of the images, [N]; None takes those of `images`
    spec        how it is fine-tuned; None means `FinetuneSpec()`
    inference   λ, α and bounds of the inference that is unrolled, or a schedule to start from; None means the paper's
    descriptor  how features become a vector for the head; None means the paper's
    device      'auto' takes a GPU where there is one
    progress    called after every pass

    >>> model, digits = ww.load(ww.models.path("mnist")), ww.data.load("digits")
    >>> few = digits.subset(ww.data.few_labels(digits.labels, 20, seed=0))
    >>> tuned = ww.finetune(model, few, spec=ww.FinetuneSpec(steps=1, epochs=2, least_updates=0))
    >>> tuned.predict(digits[:3]).shape
    (3,)
    """
    spec, home = spec or FinetuneSpec(), choose_device(device)
    pixels, classes, targets = labelled(model, images, labels)
    model = model.to(home)
    pixels, targets = pixels.to(home, model.dtype), targets.to(home)
    inference = resolve_lam(model, pixels[:CALIBRATION], inference or InferenceSpec())
    if not inference.schedule:
        inference = measured_schedule(model, pixels[:CALIBRATION], inference, spec.steps)
    network = SparseCodeClassifier(
        SparseCode2d.from_model(model, spec.steps, inference),
        descriptor or DescriptorSpec(),
        pixels[:CALIBRATION],
        classes=len(classes),
        dropout=spec.dropout,
    )
    history = train(network, pixels, targets, spec, progress)
    return FinetunedModel(network.eval(), classes, history)


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
    """A schedule to start from: at every step the median of the sizes that the exact line search of images gives."""
    plain = replace(inference, steps=steps, step_size="image", momentum=False, tolerance=0.0)
    sizes = infer(model, images, plain, engine="reference").stats.step.median(1).values.tolist()
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
    size = min(spec.batch_size, len(images))
    batches = len(images) // size
    epochs = max(spec.epochs, -(-spec.least_updates // batches))
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
            loss = F.cross_entropy(scores, targets[batch], label_smoothing=spec.label_smoothing)
            (loss + spec.reconstruction * cost).backward()
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
        history.append(FinetuneEpoch(epoch, loss_mean, error, kept, seconds))
        progress(history[-1])
    return tuple(history)


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


def recorded(network: Training, example: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The same function; on a GPU its thousands of kernels are recorded once and replayed without Python."""
    if example.device.type != "cuda":
        return network
    graphed: Callable[[Tensor], tuple[Tensor, Tensor]] = torch.cuda.make_graphed_callables(
        network, (example.clone(),), allow_unused_input=True
    )
    return graphed


def make_optimizer(network: SparseCodeClassifier, spec: FinetuneSpec) -> torch.optim.Optimizer:
    """Adam, with learning rates of their own for the sizes of the steps, and weight decay for the head alone."""
    coder, rate = network.coder, spec.learning_rate
    groups = [
        {"params": list(coder.filters), "weight_decay": 0.0},
        {"params": [coder.log_sizes, coder.momentum], "lr": spec.size_rate * rate, "weight_decay": 0.0},
        {"params": list(network.head.parameters()), "lr": spec.head_rate * rate, "weight_decay": spec.weight_decay},
    ]
    return torch.optim.AdamW(groups, rate)


def rate(update: int, updates: int) -> float:
    """The learning rate at an update, as a share of its peak: a linear rise, then a cosine."""
    rise = max(1, round(WARM_UP * updates))
    if update < rise:
        return (update + 1) / rise
    return (1 + math.cos(math.pi * (update - rise) / max(1, updates - rise))) / 2


def _batches(images: int) -> list[slice]:
    if images == 0:
        raise ImageError("an empty set of images was given; expected at least one")
    return [slice(start, min(start + PREDICTED_TOGETHER, images)) for start in range(0, images, PREDICTED_TOGETHER)]


def require_steps(spec: FinetuneSpec, inference: InferenceSpec) -> None:
    if inference.schedule and len(inference.schedule) != spec.steps:
        raise SpecError(f"a schedule of {len(inference.schedule)} steps was given; expected {spec.steps}")
