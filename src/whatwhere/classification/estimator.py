"""The scikit-learn interface: a transformer from images to descriptors of their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from whatwhere.classification import Matrix, describe_images
from whatwhere.classification.image_rows import Images, as_images, like
from whatwhere.classification.metric import learn_metric
from whatwhere.errors import ImageError, MissingExtra, SpecError
from whatwhere.inference import UnrolledInference, distill, infer
from whatwhere.inference.environment import choose_device
from whatwhere.inference.learned_steps import parse_steps
from whatwhere.latents import Latents
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec, InferenceSpec, LayerSpec, LearningSpec, ModelSpec, PoolingKind, Recipe
from whatwhere.spec.checks import Size, require_choice
from whatwhere.spec.distortions import Distortions
from whatwhere.spec.inference import DistillSpec, LineSearch
from whatwhere.spec.recipe import EveryBatch, EveryEpoch

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "DeconvNetFeatures") from None

DESCRIPTOR_STEPS, LEARNED_STEPS, DISTILL_BATCHES = 30, 5, 100


def _invertible(features: DeconvNetFeatures) -> bool:
    if features.output != "code":
        raise AttributeError("a descriptor has no inverse: give output='code', or call decode(encode(X))")
    return True


class DeconvNetFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Sparse, layered features of images, learned without labels.

    Images are arrays or tensors of shape (n, H, W) or (n, C, H, W), or rows of pixels (n, d). A row is a square image
    if d is a square number, otherwise a single line of pixels, unless `shape` is given. Arrays give arrays, and
    tensors give tensors. NaN marks unknown pixels. Images are divided by the largest value seen in `fit`. The result of
    `transform` for an image does not depend on the other images.

    Parameters
    ----------
    maps : number of feature maps of each layer
    filter_size, pool_size : sides of the filters and of the pooling regions, each a number or a pair (height, width)
    pooling_kind : 'gaussian' (inferred for every image), 'max' or 'sum'
    fan_in : number of maps below that each map of layer 2, 3, … is connected to; None for all
    nonnegative : images, features and filters are ≥ 0
    epochs : passes over the images for each layer
    training_lam, training_alpha, training_steps : λ, α and number of steps of inference in training
    lam : λ of inference in `transform` and `encode` (α = 1)
    steps : number of steps of that inference; None takes 30 for descriptors, and for codes as many as they need to
        converge (`InferenceSpec.coding`). 'learned' takes 5 steps whose sizes `fit` learns, too; 'learned-3' takes 3
    output : what `transform` returns: the 'descriptor' of the features for a linear classifier, or the 'code', all
        features and pooling variables of an image in one row, which `inverse_transform` turns back into pixels
    descriptor : how features are described, a `DescriptorSpec`; None means its defaults, `DescriptorSpec(raw=True)`
        the features themselves, scaled to unit length
    size : columns of a descriptor for each layer that it describes, at most; larger images get larger cells, further
        apart
    invariant_to : `Distortions` that leave what an image shows the same. `fit` learns a metric from distorted copies of
        the images, in which they count little, and descriptors become rows of at most 400 numbers
    shape : shape of an image, (H, W) or (C, H, W), for rows of pixels
    warm_start : `fit` continues from the present filters
    batch_size : number of images inferred together
    engine : engine of the inference; 'auto' selects the fastest that supports the model
    device : 'cpu', 'cuda', or 'auto', which selects a GPU if there is one
    random_state : seed of the initial filters

    Attributes
    ----------
    model_ : the trained `DeconvNet`
    learned_steps_ : the `LearnedSteps`, with steps='learned'
    metric_ : the `Metric` of small distortions, with `invariant_to`
    history_ : one `EpochReport` per epoch
    image_shape_ : (C, H, W) of the images
    scale_ : the number by which images are divided

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import LinearSVC
    >>> import whatwhere as ww
    >>> digits = ww.data.load("digits")
    >>> X, y = digits[:50].numpy(), digits.labels[:50]
    >>> features = ww.DeconvNetFeatures(maps=(8,), epochs=2)
    >>> features.fit_transform(X).shape
    (50, 4608)
    >>> pipeline = make_pipeline(features, LinearSVC(C=10)).fit(X, y)
    >>> latents = features.encode(X)          # what: latents.p, where: latents.pooling_params
    >>> latents.p.shape
    (50, 8, 16, 16)
    >>> features.decode(latents).shape        # the reconstruction
    (50, 1, 28, 28)
    """

    def __init__(
        self,
        maps: Sequence[int] = (16, 48),
        *,
        filter_size: Size = 5,
        pool_size: Size = 2,
        pooling_kind: PoolingKind = "gaussian",
        fan_in: int | None = 8,
        nonnegative: bool = True,
        epochs: int = 10,
        training_lam: float = 2.0,
        training_alpha: float = 0.5,
        training_steps: int = 10,
        lam: float = 5.0,
        steps: int | str | None = None,
        output: Literal["descriptor", "code"] = "descriptor",
        descriptor: DescriptorSpec | None = None,
        size: int | None = None,
        invariant_to: Distortions | None = None,
        shape: Sequence[int] | None = None,
        warm_start: bool = False,
        batch_size: int = 1000,
        engine: str = "auto",
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.maps = maps
        self.filter_size = filter_size
        self.pool_size = pool_size
        self.pooling_kind = pooling_kind
        self.fan_in = fan_in
        self.nonnegative = nonnegative
        self.epochs = epochs
        self.training_lam = training_lam
        self.training_alpha = training_alpha
        self.training_steps = training_steps
        self.lam = lam
        self.steps = steps
        self.output = output
        self.descriptor = descriptor
        self.size = size
        self.invariant_to = invariant_to
        self.shape = shape
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.engine = engine
        self.device = device
        self.random_state = random_state

    # Learning -----------------------------------------------------------------------------------------------

    def fit(self, X: Images, y: Any = None) -> DeconvNetFeatures:
        """Learn the filters from images, without labels; with `warm_start`, continue from the present filters."""
        if self.warm_start and hasattr(self, "model_"):
            return self._train(self._check(X), self.model_, self._recipe())
        v = self._check(X, reset=True)
        return self._train(v, self._begin(v), self._recipe())

    def partial_fit(self, X: Images, y: Any = None) -> DeconvNetFeatures:
        """Learn from these images in one pass for each layer, with the filters updated after every few images.

        The first call draws the filters and sets the scale of the images; every other continues from the filters there
        are. Memory does not depend on how many images have been seen.
        """
        first = not hasattr(self, "model_")
        v = self._check(X, reset=first)
        start, recipe = self._begin(v) if first else self.model_, self._recipe()
        inference = replace(recipe.learning[0].inference, step=LineSearch())
        learning = LearningSpec(update=EveryBatch(), inference=inference, epochs=1, cg_steps=1)
        recipe = replace(recipe, learning=(learning,) * recipe.model.depth, batch_size=min(self.batch_size, 50))
        return self._train(v, start, recipe)

    def _begin(self, v: Tensor) -> DeconvNet:
        """The scale of the images, and new filters."""
        self.scale_ = float(v.nan_to_num(0).max()) or 1.0
        seed = int(check_random_state(self.random_state).randint(2**31))
        return DeconvNet(self._recipe().model, seed=seed)

    def _train(self, v: Tensor, start: DeconvNet, recipe: Recipe) -> DeconvNetFeatures:
        require_choice("output", self.output, ("descriptor", "code"))
        learned = (parse_steps(self.steps) or LEARNED_STEPS) if isinstance(self.steps, str) else 0
        v = v / self.scale_
        trained = train(recipe, v, start=start, options=TrainingOptions(engine=self.engine, device=self.device))
        self.model_, self.history_ = trained.model.to("cpu"), trained.history
        if learned:
            unrolled = UnrolledInference(trained.model, learned, InferenceSpec(lam=self.lam))
            distill(unrolled, v, DistillSpec(batches=DISTILL_BATCHES), engine=self.engine)
            self.learned_steps_ = unrolled.learned
        if self._invariant():
            metric = learn_metric(self._model_in_use(), v, self._recipe(), self.invariant_to, engine=self.engine)
            self.metric_ = metric.to("cpu")
        self._n_features_out = self._output(self._blank()).shape[1]
        return self

    # Images and features -------------------------------------------------------------------------------------

    def transform(self, X: Images) -> Any:
        """The descriptors of images, or their codes (see `output`): (n, D), float32."""
        check_is_fitted(self)
        return like(X, self._output(self._check(X) / self.scale_))

    @available_if(_invertible)
    def inverse_transform(self, X: Images) -> Images:
        """The images reconstructed from codes, as rows of pixels, (n, C·H·W)."""
        check_is_fitted(self)
        codes, columns = torch.as_tensor(X), self._encode(self._blank()).tensors()
        if codes.ndim != 2 or codes.shape[1] != sum(column.numel() for column in columns):
            raise ImageError(f"codes of shape {list(codes.shape)} were given; expected [n, {self._n_features_out}]")
        parts = iter(torch.split(codes, [column.numel() for column in columns], 1))
        latents = self._encode(self._blank()).map(lambda column: next(parts).reshape(-1, *column.shape[1:]))
        return like(X, self._decode(latents).flatten(1))

    def encode(self, X: Images) -> Latents:
        """The latents of images: features of the top layer `.p`, and the `.pooling_params` of every layer."""
        check_is_fitted(self)
        return self._encode(self._check(X) / self.scale_).map(lambda tensor: like(X, tensor))

    def decode(self, latents: Latents) -> Images:
        """The images (n, C, H, W) reconstructed from latents."""
        check_is_fitted(self)
        if latents.p is None:
            raise ImageError("latents without features were given; expected what `encode` returns")
        return like(latents.p, self._decode(latents.map(torch.as_tensor)))

    def _output(self, v: Tensor) -> Matrix:
        if self.output == "descriptor":
            rows = describe_images(self._model_in_use(), v, self._recipe(), engine=self.engine)
            return self.metric_(rows).numpy() if self._invariant() else rows
        return torch.cat([tensor.flatten(1) for tensor in self._encode(v).tensors()], 1).cpu().numpy()

    def _invariant(self) -> bool:
        return self.invariant_to is not None and self.output == "descriptor"

    def _model_in_use(self) -> DeconvNet:
        """The model on its device, with the filters that learned steps have on the pass up."""
        model = self.model_.to(choose_device(self.device))
        return self.learned_steps_.model_for(model) if isinstance(self.steps, str) else model

    def _encode(self, v: Tensor) -> Latents:
        spec = InferenceSpec.coding(lam=self.lam) if self.steps is None else self._recipe().inference
        return infer(self._model_in_use(), v, spec, engine=self.engine, batch_size=self.batch_size).latents

    def _decode(self, latents: Latents) -> Tensor:
        assert latents.p is not None
        return self.model_.to(latents.p).at(*self.image_shape_[1:]).decode(latents) * self.scale_

    def _blank(self) -> Tensor:
        """One black image, which shows the shapes of the results."""
        return torch.zeros(1, *self.image_shape_)

    # Input ---------------------------------------------------------------------------------------------------

    def _check(self, X: Images, reset: bool = False) -> Tensor:
        return as_images(self, X, reset=reset, nonnegative=self.nonnegative, allow_nan=True)

    def _recipe(self) -> Recipe:
        layers, below = [], self.image_shape_[0]
        kind: dict[str, Any] = {"filter_size": self.filter_size, "pool_size": self.pool_size}
        if not isinstance(self.maps, Sequence):
            raise SpecError(f"maps = {self.maps!r} was given; expected a number for each layer, such as (16, 48)")
        for k, maps in enumerate(self.maps):
            fan_in = None if k == 0 or self.fan_in is None else min(self.fan_in, below)
            layers.append(LayerSpec(maps=maps, fan_in=fan_in, pooling_kind=self.pooling_kind, **kind))
            below = maps
        training = InferenceSpec(
            lam=self.training_lam, alpha=self.training_alpha, steps=self.training_steps, step=LineSearch(per="batch")
        )
        learning = LearningSpec(inference=training, epochs=self.epochs, update=EveryEpoch(reset_at=()))
        described = self.descriptor or DescriptorSpec()
        return Recipe(
            model=ModelSpec(layers=tuple(layers), channels=self.image_shape_[0], nonnegative=self.nonnegative),
            learning=(learning,) * len(layers),
            inference=self._inference(),
            descriptor=described if self.size is None else replace(described, size=self.size),
            batch_size=self.batch_size,
        )

    def _inference(self) -> InferenceSpec:
        """The settings of `transform`; until steps are learned, the paper's."""
        if isinstance(self.steps, str):
            return self.learned_steps_.spec if hasattr(self, "learned_steps_") else InferenceSpec(lam=self.lam)
        return InferenceSpec(lam=self.lam, steps=DESCRIPTOR_STEPS if self.steps is None else self.steps)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.nonnegative
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
