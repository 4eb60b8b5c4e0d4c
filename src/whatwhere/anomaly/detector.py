"""The scikit-learn interface of anomaly detection: what a model fails to explain, and codes unlike normal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.anomaly.patch_bank import PatchBank
from whatwhere.anomaly.pixel_map import UsualResidual, smooth, spread_patches, to_pixels
from whatwhere.classification.descriptors import layer_patches
from whatwhere.classification.image_rows import Images, as_images, like
from whatwhere.errors import MissingExtra
from whatwhere.inference import infer
from whatwhere.inference.environment import choose_device
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryBatch, InferenceSpec, LearningSpec, LineSearch, ModelSpec, Recipe, follow_depth
from whatwhere.spec.checks import require, require_count

try:
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "AnomalyDetector") from None

SMOOTHED = 5  # pixels: the residual of one is too noisy to judge it by
BATCH = 1000  # images inferred together
INFERENCE = InferenceSpec(steps=20, step=LineSearch(momentum=True))
TEXTURE_INFERENCE = replace(INFERENCE, lam=50.0)  # in codes with few features an empty place is nothing unusual


@dataclass(frozen=True)
class Evidence:
    """What speaks against an image: two values for each image [2, N] and each pixel [2, N, H, W].

    They are the residual (squared error of the reconstruction) and the surprise (distance of the code from others).
    """

    images: Tensor
    pixels: Tensor


class AnomalyDetector(OutlierMixin, BaseEstimator):
    """Finds images unlike the normal ones that it was fitted to, and the pixels that make them so.

    Two things speak against an image: its residual, what the model fails to reconstruct, and the surprise of its code,
    the distance of its patches from the nearest patches of normal codes. Both are measured in standard deviations of
    the normal images and added up. Images are given as to `DeconvNetFeatures`.

    Parameters
    ----------
    model : a trained `DeconvNet`, for images in the units it was trained on; None trains one on the normal images
    recipe : how a model is trained and how images are inferred and described; None means a recipe that learns two
        layers in a stream
    aligned : compare a patch with normal patches at the same place (digits, parts in a fixed position); False compares
        it with those of all places (textures)
    residual_weight : share of the residual in the score, from 0 to 1; the rest is the share of the surprise. None
        means 0 if `aligned` (a model of strokes also explains digits that it does not know), otherwise 0.3
    neighbours : number of nearest normal patches that the distance is averaged over
    bank_size : number of normal patches remembered for each place
    contamination : share of the images in `fit` for which `predict` returns -1
    shape : shape of an image, (H, W) or (C, H, W), for rows of pixels
    engine, device : of the inference, see `DeconvNetFeatures`
    random_state : seed of the filters and of the patches that are remembered

    Attributes
    ----------
    model_ : the `DeconvNet`
    offset_ : `score_samples` minus `decision_function`
    image_shape_ : (C, H, W) of the images
    scale_ : the number by which images are divided; 1 if a model was given

    Examples
    --------
    >>> import whatwhere as ww
    >>> digits = ww.data.load("digits")
    >>> X, y = digits[:50].numpy(), digits.labels[:50]
    >>> detector = ww.AnomalyDetector(ww.load("mnist")).fit(X[y != 7])
    >>> detector.predict(X[:3]).shape         # -1 for anomalies, 1 for normal images
    (3,)
    >>> detector.anomaly_map(X[:2]).shape
    (2, 28, 28)
    """

    def __init__(
        self,
        model: DeconvNet | None = None,
        *,
        recipe: Recipe | None = None,
        aligned: bool = True,
        residual_weight: float | None = None,
        neighbours: int = 1,
        bank_size: int = 5000,
        contamination: float = 0.05,
        shape: Sequence[int] | None = None,
        engine: str = "auto",
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.aligned = aligned
        self.residual_weight = residual_weight
        self.neighbours = neighbours
        self.bank_size = bank_size
        self.contamination = contamination
        self.shape = shape
        self.engine = engine
        self.device = device
        self.random_state = random_state

    def fit(self, X: Images, y: Any = None) -> AnomalyDetector:
        """Learn what normal images are like."""
        require(0 <= self._residual_weight <= 1, f"residual_weight = {self.residual_weight}", "a number from 0 to 1")
        require(0 < self.contamination <= 0.5, f"contamination = {self.contamination}", "a number above 0, up to 0.5")
        for name in ("neighbours", "bank_size"):
            require_count(name, getattr(self, name))
        v = as_images(self, X, reset=True, nonnegative=self._nonnegative)
        seed = int(check_random_state(self.random_state).randint(2**31))
        self.scale_ = float(v.max()) or 1.0 if self.model is None else 1.0
        self.model_ = self._train(v / self.scale_, seed) if self.model is None else self.model
        residual, patches = self._explain(v)
        self.usual_residual_ = UsualResidual.of(smooth(residual, SMOOTHED))
        self.bank_ = PatchBank.of(
            patches,
            aligned=self.aligned,
            size=self.bank_size,
            neighbours=self.neighbours,
            generator=torch.Generator().manual_seed(seed),
        )
        evidence = self._evidence(residual, patches)
        self.image_normal_, self.pixel_normal_ = (mean_and_std(part) for part in (evidence.images, evidence.pixels))
        self.offset_ = float(np.quantile(self._score(evidence), self.contamination))
        return self

    def score_samples(self, X: Images) -> Any:
        """How normal images are, (n,): the higher, the more normal; normal ones are around 0."""
        return self._score(self._judge(X))

    def decision_function(self, X: Images) -> Any:
        """The same with the threshold at 0: negative for anomalies."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Images) -> Any:
        """-1 for anomalies, 1 for normal images."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def anomaly_map(self, X: Images) -> Images:
        """How anomalous each pixel is, (n, H, W): in standard deviations of the pixels of normal images."""
        return like(X, self._combine(self._judge(X).pixels, self.pixel_normal_))

    def decision_and_map(self, X: Images) -> tuple[Any, Images]:
        """`decision_function` and `anomaly_map` of the same images, which are inferred once."""
        evidence = self._judge(X)
        return self._score(evidence) - self.offset_, like(X, self._combine(evidence.pixels, self.pixel_normal_))

    # Inside ---------------------------------------------------------------------------------------------------

    def _train(self, v: Tensor, seed: int) -> DeconvNet:
        options = TrainingOptions(engine=self.engine, device=self.device)
        return train(replace(self._recipe(), seed=seed), v, options=options).model.to("cpu")

    def _explain(self, v: Tensor) -> tuple[Tensor, Tensor]:
        return explain(self.model_.to(choose_device(self.device)), v / self.scale_, self._recipe(), self.engine)

    def _evidence(self, residual: Tensor, patches: Tensor) -> Evidence:
        """Residual and surprise of images and pixels, before they are compared with normal ones."""
        sized, recipe = self.model_.at(*self.image_shape_[1:]), self._recipe()
        surprise = self.bank_.surprise(patches)
        on_map = spread_patches(surprise, recipe.descriptor, sized.spec.depth, sized.regions[-1].grid[1:])
        local, unlike = smooth(residual, SMOOTHED), to_pixels(on_map, sized)
        if self.aligned:
            whole = torch.stack([residual.mean((1, 2)), self.bank_.image_surprise(patches)])
            return Evidence(whole, torch.stack([local, unlike]))
        worst = torch.stack([local.amax((1, 2)), unlike.amax((1, 2))])  # a defect is small, so the worst place counts
        return Evidence(worst, torch.stack([self.usual_residual_.unusual(local), unlike]))

    def _judge(self, X: Images) -> Evidence:
        check_is_fitted(self)
        return self._evidence(*self._explain(as_images(self, X, reset=False, nonnegative=self._nonnegative)))

    def _score(self, evidence: Evidence) -> Any:
        return -self._combine(evidence.images.double(), self.image_normal_).numpy()

    def _combine(self, values: Tensor, normal: tuple[Tensor, Tensor]) -> Tensor:
        """Residual and surprise in standard deviations of normal ones, weighted and added up."""
        mean, deviation = (part.view(2, *[1] * (values.ndim - 1)).to(values.dtype) for part in normal)
        residual, surprise = ((values - mean) / deviation).unbind(0)
        weight = self._residual_weight
        return weight * residual + (1 - weight) * surprise

    @property
    def _residual_weight(self) -> float:
        if self.residual_weight is None:
            return 0.0 if self.aligned else 0.3
        return float(self.residual_weight)

    @property
    def _nonnegative(self) -> bool:
        """Whether images must be ≥ 0: those of a non-negative model without an input stage."""
        spec = self.model.spec if self.model is not None else self._recipe().model
        return spec.nonnegative and spec.input.kind == "none"

    def _recipe(self) -> Recipe:
        recipe = self.recipe or self._default_recipe()
        if self.aligned:
            return recipe
        entire = replace(recipe.descriptor, cell=max(recipe.descriptor.patch))  # places in a patch do not matter either
        return replace(recipe, descriptor=entire)

    def _default_recipe(self) -> Recipe:
        inference = INFERENCE if self.aligned else TEXTURE_INFERENCE
        if self.model is not None:
            return replace(Recipe.paper(self.model.spec), inference=inference)
        channels = self.image_shape_[0] if hasattr(self, "image_shape_") else 1
        recipe = streaming_recipe(ModelSpec(layers=ModelSpec.paper().layers, channels=channels))
        return replace(recipe, inference=inference)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self._nonnegative
        tags.input_tags.three_d_array = True
        return tags


def explain(model: DeconvNet, v: Tensor, recipe: Recipe, engine: str = "auto") -> tuple[Tensor, Tensor]:
    """The squared residual of every pixel [N, H, W], and the patches of the codes [N, rows, columns, D]."""
    parts = []
    for batch in v.split(BATCH):
        images = batch.to(model.device, model.dtype)
        solution = infer(model, images, recipe.inference, recipe.plan, engine=engine)
        error = (solution.reconstruction - images).square().sum(1)
        patches = layer_patches(solution.features, recipe.descriptor, model.spec.depth)
        parts.append((error.cpu(), patches.cpu()))
    errors, codes = zip(*parts, strict=True)
    return torch.cat(errors), torch.cat(codes)


def streaming_recipe(model: ModelSpec) -> Recipe:
    """Learning in one pass over the normal images for each layer."""
    training = InferenceSpec(lam=2.0, alpha=0.5, steps=20, step=LineSearch(momentum=True))
    learning = LearningSpec(inference=training, update=EveryBatch(), epochs=1, cg_steps=1)
    return Recipe(model=model, learning=follow_depth((learning,), model.depth), inference=INFERENCE, batch_size=50)


def mean_and_std(values: Tensor) -> tuple[Tensor, Tensor]:
    """Of both kinds of evidence, [2] each; a deviation of 0 becomes 1, since nothing is known about its unit."""
    flat = values.flatten(1).double()
    deviation = flat.std(1, correction=0)
    return flat.mean(1), torch.where(deviation > 0, deviation, 1)
