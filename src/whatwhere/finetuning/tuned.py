"""What fine-tuning gives: a model with its steps and a classifier, and how it went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.protocol import Score, score_predictions
from whatwhere.errors import ImageError, RunError
from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.inference import LearnedSteps
from whatwhere.inference.checks import ImageSource, in_model_units
from whatwhere.inference.engines import resolve
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.model.files import model_checksum
from whatwhere.spec import InferenceSpec

TOGETHER = 500  # images that are classified at a time


@dataclass(frozen=True)
class FinetuneEpoch:
    """What one pass over the labelled images measured, in training (with dropout): means per image.

    epoch    number of the pass, from 1
    loss     squared hinge of all classes, without regularisation and reconstruction
    error    share of the images that were classified wrongly
    seconds  that it took
    cost     of the codes, λ/2 ‖R p - v‖² + Σ|p|^α; None where reconstruction is not in the loss

    >>> FinetuneEpoch(epoch=1, loss=0.1, error=0.02, seconds=3.0).error
    0.02
    """

    epoch: int
    loss: float
    error: float
    seconds: float
    cost: float | None = None


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned model with its classifier; `finetune` makes it.

    network  what was trained
    classes  the label of every score, [classes]
    history  one `FinetuneEpoch` a pass
    start    the network before the first update, to compare with; None where it was loaded from a file

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> few = digits.subset(ww.data.few_labels(digits.labels, 10, seed=0))
    >>> tuned = ww.finetune(model, few, spec=ww.FinetuneSpec(steps=1, distill=0, epochs=1, least_updates=0))
    >>> tuned.decision(digits[:3]).shape, len(tuned.inference.schedule)
    ((3, 10), 1)
    """

    network: SparseCodeClassifier
    classes: np.ndarray
    history: tuple[FinetuneEpoch, ...] = ()
    start: SparseCodeClassifier | None = None

    @property
    def model(self) -> DeconvNet:
        """The model with the fine-tuned filters, of both passes, on the CPU."""
        model = self.network.coder.model
        filters, upward = ([f.detach() for f in part] for part in (model.filters, model.upward))
        return DeconvNet.from_parts(model.spec, filters, model.connectivity, None if model.tied else upward).to("cpu")

    @property
    def steps(self) -> LearnedSteps:
        """The fine-tuned steps, for `infer` and for a file."""
        model = self.model
        return LearnedSteps(self.inference, model_checksum(model), () if model.tied else model.upward)

    @property
    def inference(self) -> InferenceSpec:
        """The fine-tuned steps as settings of `infer`."""
        return self.network.coder.spec

    def decision(self, images: ImageSource) -> np.ndarray:
        """The score of each class for each image, [N, classes]."""
        return torch.cat([scores for scores, _ in self._run(images)]).cpu().numpy()

    def predict(self, images: ImageSource) -> np.ndarray:
        """The class of each image, [N]."""
        return np.asarray(self.classes[self.decision(images).argmax(1)])

    def score(self, images: ImageSource, labels: np.ndarray) -> Score:
        """The errors on labelled images."""
        return score_predictions(self.predict(images), labels, solver="fine-tuned")

    def cost_before(self, images: ImageSource) -> float:
        """The mean cost before the first update, after as many steps."""
        if self.start is None:
            raise RunError("the cost before fine-tuning was requested of a model from a file, which has no start")
        return FinetunedModel(self.start, self.classes).cost(images)

    def cost(self, images: ImageSource) -> float:
        """The mean cost of the codes of images: how well they are still reconstructed, and how sparsely."""
        return float(torch.cat([cost for _, cost in self._run(images)]).mean())

    def _run(self, images: ImageSource) -> list[tuple[Tensor, Tensor]]:
        if len(images) == 0:
            raise ImageError("an empty set of images was given; expected at least one")
        network = self.network.eval()
        source, like = in_model_units(network.coder.model_spec, images), network.head.weight
        run = self._by_engine if like.device.type == "cpu" else network.scores_and_cost
        with torch.no_grad():
            return [
                run(source[slice(start, min(start + TOGETHER, len(source)))].to(like))
                for start in range(0, len(source), TOGETHER)
            ]

    def _by_engine(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The same as the network gives, by the fastest engine: a tenth of the time on a CPU."""
        model, inference, phase = self.model, self.inference, self.network.coder.phase
        v, _ = model.input_stage.forward(images, None)
        engine = resolve("auto", model, v, phase, inference)
        solution = engine.solve(model, v, Latents(), phase, inference)
        return self.network.scores(solution.latents), solution.stats.cost[-1]
