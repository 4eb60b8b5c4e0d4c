"""The scikit-learn face: a transformer from images to the descriptors of the features that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification import Matrix, describe_images
from whatwhere.distributed import choose_device
from whatwhere.errors import ImageError, MissingExtra, SpecError
from whatwhere.inference import infer
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
    Recipe,
)
from whatwhere.spec_checks import require_choice

try:
    from scipy import sparse
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "DeconvNetFeatures") from None

Images = np.ndarray | Tensor


def _invertible(features: DeconvNetFeatures) -> bool:
    if features.output != "code":
        raise AttributeError(
            "a descriptor does not say where its features are, so it has no inverse: make the transformer with "
            "output='code', or call decode(encode(X))"
        )
    return True


class DeconvNetFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Sparse, layered features of images, learned without labels.

        features = DeconvNetFeatures()
        pipeline = make_pipeline(features, LinearSVC(C=10))
        latents  = features.fit(X).encode(X)        # what: latents.p, where: latents.pooling_params
        pixels   = features.decode(latents)         # the reconstruction

    Images are arrays or tensors (n, H, W), (n, C, H, W), or (n, d): a row of d pixels is a square image where d is a
    square number, one line of pixels where it is not, or has the `shape` that is given. Arrays in, arrays out;
    tensors in, tensors out. Images are divided by the largest value seen in `fit`. What becomes of an image in
    `transform` does not depend on the images it comes with.

    Parameters
    ----------
    maps : number of feature maps of each layer
    filter_size, pool_size : sides of the filters and of the pooling regions
    pooling_kind : 'gaussian' (inferred for every image), 'max' or 'sum'
    fan_in : how many maps below each map of layer 2, 3, … joins; None for all
    nonnegative : images, features and filters are ≥ 0
    epochs : passes over the images for each layer
    training_lam, training_alpha, training_steps : λ, α and steps of inference while learning
    lam, steps : λ and steps of inference in `transform` (α = 1)
    output : what `transform` gives: the 'descriptor' of the features for a linear classifier, or the whole 'code',
        all features and pooling variables of an image in one row, which `inverse_transform` turns back into pixels
    descriptor : how features are described, a `DescriptorSpec`; None means its defaults, `DescriptorSpec(raw=True)`
        the features as they are, scaled to unit length
    sparse_output : descriptors come as a CSR array
    shape : of an image, (H, W) or (C, H, W), for rows of pixels
    warm_start : `fit` goes on from the filters it has
    batch_size : images inferred together
    engine : what computes; 'auto' takes the fastest that can
    device : where: 'cpu', 'cuda', or 'auto', a GPU where there is one
    random_state : of the filters at the start

    Attributes
    ----------
    model_ : the trained `DeconvNet`
    history_ : one report an epoch
    image_shape_ : (C, H, W) of the images
    scale_ : what images are divided by
    """

    def __init__(
        self,
        maps: Sequence[int] = (16, 48),
        *,
        filter_size: int = 5,
        pool_size: int = 2,
        pooling_kind: PoolingKind = "gaussian",
        fan_in: int | None = 8,
        nonnegative: bool = True,
        epochs: int = 10,
        training_lam: float = 2.0,
        training_alpha: float = 0.5,
        training_steps: int = 10,
        lam: float = 5.0,
        steps: int = 30,
        output: Literal["descriptor", "code"] = "descriptor",
        descriptor: DescriptorSpec | None = None,
        sparse_output: bool = False,
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
        self.sparse_output = sparse_output
        self.shape = shape
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.engine = engine
        self.device = device
        self.random_state = random_state

    # Learning -----------------------------------------------------------------------------------------------

    def fit(self, X: Images, y: Any = None) -> DeconvNetFeatures:
        """Learn the filters from images alone; with `warm_start`, go on from those there are."""
        if self.warm_start and hasattr(self, "model_"):
            return self.partial_fit(X)
        v = self._check(X, reset=True)
        self.scale_ = float(v.max()) or 1.0
        seed = int(check_random_state(self.random_state).randint(2**31))
        return self._train(v, DeconvNet(self._recipe().model, seed=seed))

    def partial_fit(self, X: Images, y: Any = None) -> DeconvNetFeatures:
        """Go on learning from these images, with the filters there are."""
        if not hasattr(self, "model_"):
            return self.fit(X)
        return self._train(self._check(X), self.model_)

    def _train(self, v: Tensor, start: DeconvNet) -> DeconvNetFeatures:
        require_choice("output", self.output, ("descriptor", "code"))
        options = TrainingOptions(engine=self.engine, device=self.device)
        done = train(self._recipe(), v / self.scale_, start=start, options=options)
        self.model_, self.history_ = done.model.to("cpu"), done.history
        self._n_features_out = self._output(self._blank()).shape[1]
        return self

    # What becomes of images ---------------------------------------------------------------------------------

    def transform(self, X: Images) -> Images:
        """The descriptors of images, or their whole code (see `output`): (n, D), float32."""
        check_is_fitted(self)
        found = self._output(self._check(X) / self.scale_)
        if self.sparse_output and self.output == "descriptor":
            return sparse.csr_array(found)
        return _like(X, found if isinstance(found, np.ndarray) else found.toarray())

    @available_if(_invertible)
    def inverse_transform(self, X: Images) -> Images:
        """The images that codes reconstruct, as rows of pixels, (n, C·H·W)."""
        check_is_fitted(self)
        given = torch.as_tensor(X)
        columns = self._encode(self._blank()).tensors()
        if given.ndim != 2 or given.shape[1] != sum(column.numel() for column in columns):
            raise ImageError(f"codes of shape {list(given.shape)} were given; expected [n, {self._n_features_out}]")
        parts = iter(given.split([column.numel() for column in columns], 1))
        latents = self._encode(self._blank()).map(lambda column: next(parts).reshape(-1, *column.shape[1:]))
        return _like(X, self._decode(latents).flatten(1))

    def encode(self, X: Images) -> Latents:
        """What and where of images: the top layer's features `.p`, and every layer's `.pooling_params`."""
        check_is_fitted(self)
        return self._encode(self._check(X) / self.scale_).map(lambda tensor: _like(X, tensor))

    def decode(self, latents: Latents) -> Images:
        """The images, (n, C, H, W), that what and where reconstruct."""
        check_is_fitted(self)
        if latents.p is None:
            raise ImageError("latents without features were given; expected what `encode` returns")
        return _like(latents.p, self._decode(latents.map(torch.as_tensor)))

    def _output(self, v: Tensor) -> Matrix:
        if self.output == "descriptor":
            return describe_images(self.model_.to(choose_device(self.device)), v, self._recipe(), engine=self.engine)
        return torch.cat([tensor.flatten(1) for tensor in self._encode(v).tensors()], 1).cpu().numpy()

    def _encode(self, v: Tensor) -> Latents:
        model, spec = self.model_.to(choose_device(self.device)), self._recipe().inference
        return infer(model, v, spec, engine=self.engine, batch_size=self.batch_size).latents

    def _decode(self, latents: Latents) -> Tensor:
        assert latents.p is not None
        return self.model_.to(latents.p).at(*self.image_shape_[1:]).decode(latents) * self.scale_

    def _blank(self) -> Tensor:
        """One black image: what becomes of it shows the sizes."""
        return torch.zeros(1, *self.image_shape_)

    # Borders ------------------------------------------------------------------------------------------------

    def _check(self, X: Images, reset: bool = False) -> Tensor:
        """Images as a float32 tensor [n, C, H, W], refused where they are not like those that were learned from."""
        values = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X) if isinstance(X, list) else X
        given = tuple(getattr(values, "shape", ()))
        if len(given) in (3, 4):  # scikit-learn would take the second axis for the features
            values = np.reshape(values, (given[0], -1))
        values = validate_data(self, values, reset=reset, dtype=np.float32, order="C")
        if reset:
            self.image_shape_ = self._image_shape(given if len(given) in (3, 4) else values.shape)
        elif len(given) in (3, 4) and self._image_shape(given) != self.image_shape_:
            raise ImageError(f"images of shape {given[1:]} were given; expected {self.image_shape_}, as in fit")
        if self.nonnegative:
            check_non_negative(values, f"{type(self).__name__} (shift the images, or give nonnegative=False)")
        return torch.from_numpy(values).view(len(values), *self.image_shape_)

    def _image_shape(self, given: tuple[int, ...]) -> tuple[int, ...]:
        if len(given) == 4:
            return given[1:]
        if len(given) == 3:
            return (1, *given[1:])
        pixels = given[1]
        if self.shape is None:
            side = isqrt(pixels)
            return (1, side, side) if side * side == pixels else (1, 1, pixels)
        shape = (1, *self.shape) if len(self.shape) == 2 else tuple(self.shape)
        if len(shape) != 3 or int(np.prod(shape)) != pixels:
            raise SpecError(f"shape = {self.shape} with rows of {pixels} pixels; expected (H, W) or (C, H, W) of them")
        return shape

    def _recipe(self) -> Recipe:
        layers, below = [], self.image_shape_[0]
        if not isinstance(self.maps, Sequence):
            raise SpecError(f"maps = {self.maps!r} was given; expected a number for each layer, such as (16, 48)")
        for k, maps in enumerate(self.maps):
            fan_in = None if k == 0 or self.fan_in is None else min(self.fan_in, below)
            layers.append(
                LayerSpec(
                    maps=maps,
                    filter_size=self.filter_size,
                    pool_size=self.pool_size,
                    pooling_kind=self.pooling_kind,
                    fan_in=fan_in,
                )
            )
            below = maps
        training = InferenceSpec(
            lam=self.training_lam, alpha=self.training_alpha, steps=self.training_steps, step_size="batch"
        )
        learning = LearningSpec(inference=training, epochs=self.epochs, reset_at=())
        return Recipe(
            model=ModelSpec(layers=tuple(layers), channels=self.image_shape_[0], nonnegative=self.nonnegative),
            learning=(learning,) * len(layers),
            inference=InferenceSpec(lam=self.lam, steps=self.steps),
            descriptor=self.descriptor or DescriptorSpec(),
            batch_size=self.batch_size,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.nonnegative
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _like(given: Images, found: Images) -> Images:
    """An array where an array was given, a tensor on the same device where a tensor was."""
    if isinstance(given, Tensor):
        return torch.as_tensor(found).to(given.device)
    return found.cpu().numpy() if isinstance(found, Tensor) else found
