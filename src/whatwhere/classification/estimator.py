"""The scikit-learn interface: a transformer from images to descriptors of their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere import data
from whatwhere.classification import Matrix
from whatwhere.classification.anywhere import (
    describe_anywhere,
    describe_where,
    learn_anywhere,
)
from whatwhere.classification.columns import column_names
from whatwhere.classification.descriptors import describe_images, unit_length
from whatwhere.classification.metric import learn_metric
from whatwhere.classification.settings import Distortions
from whatwhere.classification.where import choose_where
from whatwhere.data.arrays import is_one_picture
from whatwhere.data.cells import is_list_of_pictures
from whatwhere.engines.devices import choose_device
from whatwhere.errors import ImageError, MissingExtra, SpecError
from whatwhere.inference import infer
from whatwhere.inference.target import scaled
from whatwhere.latents import Latents
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import DeconvNet
from whatwhere.spec import (
    DescriptorSpec,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    ModelSpec,
    PoolingKind,
    Power,
    Recipe,
    pooling_of,
)
from whatwhere.spec.checks import Size, pair
from whatwhere.spec.inference import LineSearch
from whatwhere.spec.recipe import EveryBatch, EveryEpoch

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data
except ImportError:
    raise MissingExtra("scikit-learn", "DeconvNetFeatures") from None


class DeconvNetFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Sparse, layered features of images, learned without labels.

    Images are a folder, a path or a list of paths, pictures of Pillow, `Images`, or arrays or
    tensors of shape (n, H, W), (n, C, H, W) or (n, H, W, 3); or rows of pixels (n, d), as
    everywhere in scikit-learn. A row is a square image if d is a square number, otherwise a single
    line of pixels, unless `shape` is given. Tensors give tensors, and everything else arrays. With
    a `filter_size` of height 1, such as (1, 16), three axes are signals (n, C, T). NaN marks
    unknown pixels. Images are divided by the largest value seen in `fit`. The result of `transform`
    for an image does not depend on the other images.

    Parameters
    ----------
    maps
        number of feature maps of each layer; of the only layer, if it is one number
    filter_size, pool_size
        sides of the filters and of the pooling regions, each a number or a pair (height, width)
    pooling_kind
        'gaussian' (inferred for every image), 'max' or 'sum'
    fan_in
        number of maps below that each map of layer 2, 3, … is connected to; None for all
    nonnegative
        images, features and filters are ≥ 0
    epochs
        passes over the images for each layer
    training_lam, training_alpha, training_steps
        λ, α and number of steps of inference in training
    lam
        λ of inference in `transform` and `encode` (α = 1)
    steps
        number of steps of that inference; None takes 30 in `transform`, and in `encode` as many as
        codes need to converge (`InferenceSpec.coding`)
    descriptor
        how features are described, a `DescriptorSpec`. None describes what is at a place;
        `DescriptorSpec()` chooses from the images of `fit` whether places matter;
        `DescriptorSpec(raw=True, where="keep")` takes the features themselves, scaled to unit
        length
    size
        the largest number of columns of a descriptor for each layer that it describes; None leaves
        it to `descriptor`
    invariant_to
        `Distortions` that do not change what an image shows. `fit` learns a metric from distorted
        copies of the images, in which these distortions count little, and descriptors become rows
        of at most 400 numbers
    shape
        shape of an image, (H, W) or (C, H, W), for rows of pixels
    batch_size
        number of images inferred together
    engine
        engine of the inference; 'auto' selects the fastest that supports the model
    device
        'cpu', 'cuda', or 'auto', which selects a GPU if there is one
    random_state
        seed of the initial filters

    Attributes
    ----------
    model_
        the trained `DeconvNet`
    metric_
        the `Metric` of small distortions, with `invariant_to`
    where_
        what is described, with `DescriptorSpec(where="auto")`: 'keep', 'forget' or 'both'
    history_
        one `EpochReport` per epoch
    image_shape_
        (C, H, W) of the images
    scale_
        the number by which images are divided

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
        maps: int | Sequence[int] = (16, 48),
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
        steps: int | None = None,
        descriptor: DescriptorSpec | None = None,
        size: int | None = None,
        invariant_to: Distortions | None = None,
        shape: Sequence[int] | None = None,
        batch_size: int = 1000,
        engine: str = "auto",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = 0,
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
        self.descriptor = descriptor
        self.size = size
        self.invariant_to = invariant_to
        self.shape = shape
        self.batch_size = batch_size
        self.engine = engine
        self.device = device
        self.random_state = random_state

    # Learning -------------------------------------------------------------------------------------

    def fit(self, X: Images, y: object = None) -> DeconvNetFeatures:
        """Learn the filters from images, without labels."""
        v = self._check(X, reset=True)
        return self._train(v, self._begin(v), self._recipe())

    def partial_fit(self, X: Images, y: object = None) -> DeconvNetFeatures:
        """Learn from these images in one pass for each layer, with the filters updated after every
        few images.

        The first call draws the filters and sets the scale of the images; later calls continue with
        the current filters. Memory does not depend on how many images have been seen.
        """
        first = not hasattr(self, "model_")
        v = self._check(X, reset=first)
        start = self._begin(v) if first else self.model_
        recipe = self._recipe()
        inference = replace(recipe.learning[0].inference, step=LineSearch())
        learning = LearningSpec(update=EveryBatch(), inference=inference, epochs=1, cg_steps=1)
        recipe = replace(
            recipe, learning=(learning,) * recipe.model.depth, batch_size=min(self.batch_size, 50)
        )
        return self._train(v, start, recipe)

    def _begin(self, v: Tensor) -> DeconvNet:
        self.scale_ = float(v.nan_to_num(0).max()) or 1.0
        seed = int(check_random_state(self.random_state).randint(2**31))
        return DeconvNet(self._recipe().model, seed=seed)

    def _train(self, v: Tensor, start: DeconvNet, recipe: Recipe) -> DeconvNetFeatures:
        v = v / self.scale_
        trained = train(
            v, recipe, start=start, options=TrainingOptions(engine=self.engine, device=self.device)
        )
        self.model_ = trained.model.to("cpu")
        self.history_ = trained.history
        if self.descriptor is not None and self.descriptor.where == "auto":
            # every fit chooses again
            recipe = replace(self._recipe(), descriptor=self.descriptor)
            choice = choose_where(self._model_in_use(), v, recipe, self.engine)
            self.where_ = choice.where
        if self.invariant_to is not None:
            self._learn_metrics(v, self.invariant_to)
        self._n_features_out = self._describe(torch.zeros(1, *self.image_shape_)).shape[1]
        return self

    def _learn_metrics(self, v: Tensor, how: Distortions) -> None:
        model = self._model_in_use()
        recipe = self._recipe()
        if recipe.descriptor.where != "forget":
            self.metric_ = learn_metric(model, v, recipe, how, engine=self.engine).to("cpu")
        if recipe.descriptor.where != "keep":
            self.anywhere_ = learn_anywhere(model, v, recipe, engine=self.engine).metric.to("cpu")

    # Images and features --------------------------------------------------------------------------

    def transform(self, X: Images) -> Matrix:
        """Return the descriptors of images, (n, D), float32."""
        check_is_fitted(self)
        return like(X, self._describe(self._check(X) / self.scale_))

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the columns of `transform`, which say which map and which place they
        measure (`column_names`); numbered ones with `invariant_to`, whose columns mix them."""
        check_is_fitted(self)
        if self.invariant_to is not None:
            return np.asarray(super().get_feature_names_out(input_features))
        _, height, width = self.image_shape_
        names = column_names(self.model_, height, width, self._recipe().descriptor)
        return np.asarray(names, dtype=object)

    def encode(self, X: Images) -> Latents:
        """Return the latents of images: features of the top layer `.p`, and the `.pooling_params`
        of every layer."""
        check_is_fitted(self)
        spec = (
            InferenceSpec.coding(lam=self.lam) if self.steps is None else self._recipe().inference
        )
        v = self._check(X) / self.scale_
        solution = infer(
            self._model_in_use(), v, spec, engine=self.engine, batch_size=self.batch_size
        )
        return solution.latents.map(lambda tensor: like(X, tensor))

    def decode(self, latents: Latents) -> Images:
        """Return the images (n, C, H, W) reconstructed from latents."""
        check_is_fitted(self)
        if latents.p is None:
            raise ImageError("These latents have no features; expected what `encode` returns.")
        given = latents.map(torch.as_tensor)
        return like(
            latents.p,
            self.model_.to(given.p).at(*self.image_shape_[1:]).decode(given) * self.scale_,
        )

    def _describe(self, v: Tensor) -> Matrix:
        model = self._model_in_use()
        recipe = self._recipe()
        if self.invariant_to is None:
            return describe_where(model, v, recipe, engine=self.engine)
        parts = []
        if recipe.descriptor.where != "keep":
            anywhere = describe_anywhere(model, v, recipe, engine=self.engine)
            parts.append(self.anywhere_(anywhere))
        if recipe.descriptor.where != "forget":
            parts.append(self.metric_(describe_images(model, v, recipe, engine=self.engine)))
        rows = parts[0] if len(parts) == 1 else unit_length(torch.cat(parts, 1))
        return rows.numpy()

    def _model_in_use(self) -> DeconvNet:
        return self.model_.to(choose_device(self.device, self.engine))

    # Input ----------------------------------------------------------------------------------------

    def _check(self, X: Images, reset: bool = False) -> Tensor:
        """Return images as a float32 tensor [n, C, H, W]; with `reset` their shape is recorded,
        otherwise it is compared."""
        values = _as_plain_array(X)
        if pair(self.filter_size)[0] > 1:
            values = _channels_first(values, self.shape)
        given = tuple(getattr(values, "shape", ()))
        if len(given) == 3 and pair(self.filter_size)[0] == 1:  # signals are images of height 1
            given = (*given[:2], 1, given[2])
        are_images = len(given) in (3, 4)
        if are_images:  # scikit-learn would treat the second axis as the features
            values = np.reshape(values, (given[0], prod(given[1:])))
        values = validate_data(
            self, values, reset=reset, dtype=np.float32, order="C", ensure_all_finite="allow-nan"
        )
        if reset:
            self.image_shape_ = image_shape(given if are_images else values.shape, self.shape)
        elif are_images and (1, *given[1:])[-3:] != self.image_shape_:
            raise ImageError(
                f"Got images of shape {given[1:]}; expected {self.image_shape_}, as in fit."
            )
        if self.nonnegative:
            whom = f"{type(self).__name__} (shift the images, or give nonnegative=False)"
            check_non_negative(np.where(np.isnan(values), 0, values), whom)
        return torch.from_numpy(values).view(len(values), *self.image_shape_)

    def _recipe(self) -> Recipe:
        layers = []
        below = self.image_shape_[0]
        kind: dict[str, Any] = {
            "filter_size": self.filter_size,
            "pool_size": self.pool_size,
            "pooling": pooling_of(self.pooling_kind),
        }
        maps_of_layers = [self.maps] if isinstance(self.maps, int) else self.maps
        if not isinstance(maps_of_layers, Sequence):
            raise SpecError(
                f"Got maps = {self.maps!r}; expected a number for each layer, such as (16, 48)."
            )
        for k, maps in enumerate(maps_of_layers):
            fan_in = None if k == 0 or self.fan_in is None else min(self.fan_in, below)
            layers.append(LayerSpec(maps=maps, fan_in=fan_in, **kind))
            below = maps
        training = InferenceSpec(
            lam=self.training_lam,
            penalty=Power(alpha=self.training_alpha),
            steps=self.training_steps,
            step=LineSearch(per="batch"),
        )
        learning = LearningSpec(
            inference=training, epochs=self.epochs, update=EveryEpoch(reset_at=())
        )
        described = self.descriptor or DescriptorSpec(where="keep")
        if described.where == "auto":
            described = replace(described, where=getattr(self, "where_", "keep"))
        return Recipe(
            model=ModelSpec(
                layers=tuple(layers), channels=self.image_shape_[0], nonnegative=self.nonnegative
            ),
            learning=(learning,) * len(layers),
            inference=InferenceSpec(lam=self.lam, steps=30 if self.steps is None else self.steps),
            descriptor=described if self.size is None else replace(described, size=self.size),
            batch_size=self.batch_size,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.nonnegative
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


Images = data.Source


def _as_plain_array(images: Images) -> Any:
    """Return pictures as an array, and anything else as it is, for scikit-learn's checks.

    Integers of pictures become shares of the largest, as in files, so that what was learned from
    one form holds for the others.
    """
    if isinstance(images, str | Path) or hasattr(images, "getbands") or is_list_of_pictures(images):
        images = data.load(images)
    if isinstance(images, data.Images):
        images = images[:]
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, list):
        images = np.asarray(images)
    if isinstance(images, np.ndarray) and images.ndim in (3, 4):
        return scaled(torch.from_numpy(images), 1).numpy() if images.dtype in _SHARES else images
    return images


_SHARES = (np.bool_, np.uint8, np.uint16, np.int8, np.int16)


def _channels_first(values: Any, shape: Sequence[int] | None) -> Any:
    """Return one picture [H, W, 3], or pictures [n, H, W, C], as [n, C, H, W], unless `shape` says
    that the second axis holds the channels; anything else as it is."""
    given = tuple(getattr(values, "shape", ()))
    if len(given) == 3 and is_one_picture(given):
        return np.moveaxis(values, -1, 0)[None]
    usual = (1, 3, 4)  # numbers of channels
    if len(given) == 4 and given[3] in usual and given[1] not in usual and shape is None:
        return np.moveaxis(values, -1, 1)
    return values


def image_shape(given: tuple[int, ...], shape: Sequence[int] | None) -> tuple[int, ...]:
    """(C, H, W) of images, from the shape of the array that was given and, for rows of pixels,
    what `shape` says."""
    if len(given) == 4:
        return given[1:]
    if len(given) == 3:
        return (1, *given[1:])
    pixels = given[1]
    if shape is None:
        side = isqrt(pixels)
        return (1, side, side) if side * side == pixels else (1, 1, pixels)
    full = (1, *shape) if len(shape) == 2 else tuple(shape)
    if len(full) != 3 or prod(full) != pixels:
        raise SpecError(
            f"Got shape = {shape} for rows of {pixels} pixels; expected (H, W) or (C, H, W) with"
            " that number of pixels."
        )
    return full


def like(given: Images, values: Images) -> Images:
    """Return the values as an array if an array was given, or as a tensor on the same device if a
    tensor was given."""
    if isinstance(given, Tensor):
        return torch.as_tensor(values).to(given.device)
    return values.cpu().numpy() if isinstance(values, Tensor) else values
