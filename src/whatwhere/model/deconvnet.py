"""The deconvolutional network of the paper: v̂ = R p = F₁ U₁ F₂ U₂ … F_l U_l p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch
from torch import Tensor

from whatwhere.errors import ImageError, InvalidImages, InvalidSetting, NotFinite, WrongShape
from whatwhere.model.checksums import canonical, checksum, layer_tensors, spec_fields
from whatwhere.model.sized import SizedModel, layer_regions, move_filters
from whatwhere.ops.filters import project_filters, random_connectivity
from whatwhere.ops.input_stage import InputStage
from whatwhere.spec import LayerSpec, ModelSpec

if TYPE_CHECKING:
    from whatwhere.model.solution import Solution

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class NegativeImages(ImageError):
    """Images with negative values for a model without negative features and filters.

    Attributes
    ----------
    lowest
        the smallest value
    """

    def __init__(self, lowest: float) -> None:
        self.lowest = lowest
        super().__init__(
            f"Images have values down to {lowest:.4g}, but the model is non-negative; expected"
            " values ≥ 0. Shift them, or make the model with nonnegative=False or"
            " input.kind='onoff'."
        )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DeconvNet:
    """Filters f_k [B_{k-1}, B_k, K, L] and connectivity [B_{k-1}, B_k] of every layer; latents are
    passed in.

    An immutable value: methods that change something return another model. Models are equal if
    their spec, dtype, filters and connectivity are equal. Layers count from 1, as in the paper; 0
    is the image.

    `upward` are the filters of the pass up, from an error to a step. They are the same filters, as
    in the paper, unless `with_upward` set others, as some learned steps need.

    Parameters
    ----------
    spec
        the architecture
    seed
        seed of the random filters and the random connectivity
    dtype
        dtype of the filters

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
    >>> model
    DeconvNet(1 → 16 maps 5×5, gaussian 2×2 → 48 maps 5×5, fan-in 8, gaussian 2×2; float32, cpu)
    >>> [tuple(f.shape) for f in model.filters]
    [(1, 16, 5, 5), (16, 48, 5, 5)]
    """

    spec: ModelSpec
    filters: tuple[Tensor, ...]
    connectivity: tuple[Tensor, ...]
    upward: tuple[Tensor, ...]
    source: Path | None = None  # the file that these filters were loaded from

    def __init__(
        self, spec: ModelSpec, seed: int = 0, *, dtype: torch.dtype = torch.float32
    ) -> None:
        """Draw the connectivity and Gaussian filters, then project and normalise them (paper,
        "Initialization")."""
        generator = torch.Generator().manual_seed(seed)
        filters = []
        connectivity = []
        for k, layer in enumerate(spec.layers, start=1):
            below = spec.maps_below(k)
            connectivity.append(random_connectivity(below, layer.maps, layer.fan_in, generator))
            gaussian = torch.randn(
                below, layer.maps, *layer.filter_shape, generator=generator, dtype=torch.float64
            )
            filters.append(_project(spec, k, gaussian, connectivity[-1]).to(dtype))
        self._set(spec, filters, connectivity)

    @classmethod
    def from_parts(
        cls,
        spec: ModelSpec,
        filters: Sequence[Tensor],
        connectivity: Sequence[Tensor],
        upward: Sequence[Tensor] | None = None,
        *,
        source: Path | None = None,
    ) -> DeconvNet:
        """Return a model with these filters, without projection. Shapes and dtypes must match the
        spec."""
        model = cls.__new__(cls)
        model._set(spec, filters, connectivity)
        if upward is not None:
            _check_parts(spec, upward, connectivity)
            object.__setattr__(model, "upward", tuple(upward))
        object.__setattr__(model, "source", source)
        return model

    def _set(
        self, spec: ModelSpec, filters: Sequence[Tensor], connectivity: Sequence[Tensor]
    ) -> None:
        _check_parts(spec, filters, connectivity)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "filters", tuple(filters))
        object.__setattr__(self, "connectivity", tuple(connectivity))
        object.__setattr__(self, "upward", self.filters)

    # As a value -----------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeconvNet):
            return NotImplemented
        if self.spec != other.spec or self.dtype != other.dtype:
            return False
        ours = self.filters + self.connectivity + self.upward
        theirs = other.filters + other.connectivity + other.upward
        return all(torch.equal(a, b.to(a.device)) for a, b in zip(ours, theirs, strict=True))

    def __hash__(self) -> int:
        return hash((self.spec, self.dtype))  # without the filters, so that it is fast

    def __repr__(self) -> str:
        layers = " → ".join(_describe(layer) for layer in self.spec.layers)
        return (
            f"DeconvNet({self.spec.channels} → {layers}; {str(self.dtype).removeprefix('torch.')},"
            f" {self.device})"
        )

    def __call__(self, *images: object, **settings: object) -> NoReturn:
        """Raise an error that names the functions to call: a model is no network."""
        raise TypeError(
            "A DeconvNet is not called as a network is; its features come from inference. Write"
            " model.infer(images).features, or use ww.nn.SparseCode2d as a layer of a network."
        )

    def infer(self, images: object, *how: object, **settings: object) -> Solution:
        """Infer what and where of images: `ww.infer(model, images, …)`, with the same settings.

        >>> model = ww.load("mnist")
        >>> model.infer(ww.data.load("digits")[:1], steps=2).features.shape
        torch.Size([1, 48, 10, 10])
        """
        # inference is built on the model, which knows it by name only
        found: Solution = import_module("whatwhere.inference").infer(self, images, *how, **settings)
        return found

    def parameters(self) -> NoReturn:
        """Raise an error that says how filters are learned."""
        raise TypeError(
            "A DeconvNet has no parameters for an optimizer. Its filters are model.filters; learn"
            " them with ww.train(images, recipe), or use ww.nn.SparseCode2d to train them by"
            " gradients."
        )

    # Other models ---------------------------------------------------------------------------------

    def project(self, k: int, f: Tensor) -> Tensor:
        """Return filters of layer k masked, projected to ≥ 0 where the model is non-negative, and
        of unit length."""
        return _project(self.spec, k, f, self.connectivity[k - 1])

    def with_filters(self, k: int, f: Tensor) -> DeconvNet:
        """Return the same model with other filters at layer k."""
        filters = [f if i == k else old for i, old in enumerate(self.filters, start=1)]
        return self.from_parts(self.spec, filters, self.connectivity)

    def with_upward(self, filters: Sequence[Tensor] | None) -> DeconvNet:
        """Return the same model with these filters on the pass up; None: with its own."""
        return self.from_parts(
            self.spec, self.filters, self.connectivity, filters, source=self.source
        )

    @property
    def tied(self) -> bool:
        """Whether both passes have the same filters."""
        return self.upward is self.filters

    def to(self, *args: object, **kwargs: object) -> DeconvNet:
        """Return the same model on another device, in another dtype."""
        filters = move_filters(self.filters, *args, **kwargs)
        connectivity = [c.to(f.device) for c, f in zip(self.connectivity, filters, strict=True)]
        upward = None if self.tied else move_filters(self.upward, *args, **kwargs)
        return self.from_parts(self.spec, filters, connectivity, upward, source=self.source)

    @property
    def input_stage(self) -> InputStage:
        """The stage that turns an image into the target that layer 1 explains, and back."""
        return InputStage(self.spec.input)

    def at(self, height: int, width: int) -> SizedModel:
        """Return the model for images of this size, which reconstructs and propagates."""
        regions = layer_regions(self.spec, height, width)
        return SizedModel(self.spec, self.filters, self.upward, height, width, regions)

    @cached_property
    def checksum(self) -> str:
        """A checksum of the architecture and the filters in float32, the same on any device."""
        plain = self.to(torch.float32)
        tensors = layer_tensors(plain.filters, plain.connectivity)
        return checksum(canonical(spec_fields(self.spec)), tensors)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the filters."""
        return self.filters[0].dtype

    @property
    def device(self) -> torch.device:
        """The device that the filters are on, where inference runs."""
        return self.filters[0].device

    def check_images(self, images: Tensor, values: ValueRange | None = None) -> None:
        """Raise an ImageError for images that this model cannot explain.

        Parameters
        ----------
        values
            the smallest and the largest value of the images, where they are known already
        """
        self._check_shape(images)
        if values is None:
            values = ValueRange.of(images)
        if not values.is_finite:
            raise NotFinite("the images", "Replace these values first.")
        spec = self.spec
        if spec.nonnegative_filters and spec.input.kind == "none" and values.lowest < 0:
            raise NegativeImages(values.lowest)

    def _check_shape(self, images: Tensor) -> None:
        """Raise an ImageError for what is not a float tensor of images with the model's
        channels."""
        spec = self.spec
        axes = "T" if spec.for_signals else "H, W"
        expected = f"a float tensor [N, {spec.channels}, {axes}]"
        if not isinstance(images, Tensor):
            raise InvalidImages(type(images).__name__, expected, "Convert with torch.as_tensor.")
        if images.ndim != 4 or images.shape[1] != spec.channels or 0 in images.shape[2:]:
            raise WrongShape("images", images.shape, expected)
        if not images.is_floating_point():
            raise InvalidImages(f"images of {images.dtype}", "floats", "Divide bytes by 255.")


class ValueRange(NamedTuple):
    """The smallest and the largest value of a tensor; both are NaN if it has a NaN, 0 if it is
    empty."""

    lowest: float
    highest: float

    @classmethod
    def of(cls, x: Tensor) -> ValueRange:
        """Return both in one pass, and for a GPU in one wait."""
        if x.numel() == 0:
            return cls(0.0, 0.0)
        return cls(*torch.stack(torch.aminmax(x)).tolist())

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.lowest) and math.isfinite(self.highest)

    @property
    def has_nan(self) -> bool:
        return math.isnan(self.lowest)


def all_finite(x: Tensor) -> bool:
    """Tell whether there is no NaN and no Inf. If there is one, the sum of all values has one, too,
    and the sum takes a quarter of the time."""
    return math.isfinite(x.sum().item()) or bool(x.isfinite().all())


def _project(spec: ModelSpec, k: int, f: Tensor, connected: Tensor) -> Tensor:
    # Several channels of an image share one length: planes of equal length would make every filter
    # grey.
    colour = k == 1 and spec.target_channels > 1
    normalise = "filter" if colour else spec.normalise
    return project_filters(f, connected, nonnegative=spec.nonnegative_filters, normalise=normalise)


def times(shape: Sequence[int]) -> str:
    """Return a shape as a message shows it: 5×5."""
    return "×".join(map(str, shape))


def _describe(layer: LayerSpec) -> str:
    """Return one layer in a few words: 48 maps 5×5, fan-in 8, gaussian 2×2."""
    words = [f"{layer.maps} maps {times(layer.filter_shape)}"]
    if layer.fan_in is not None:
        words.append(f"fan-in {layer.fan_in}")
    pooling = f"{layer.pooling.kind} {times(layer.pool_shape)}"
    if isinstance(layer.pool_stride, int) and layer.strides != layer.pool_shape:
        pooling += f" stride {layer.pool_stride}"
    elif layer.strides != layer.pool_shape:
        pooling += f" stride {times(layer.strides)}"
    if layer.pool_maps > 1:
        pooling += f" of {layer.pool_maps} maps"
    return ", ".join([*words, pooling])


def _check_parts(
    spec: ModelSpec, filters: Sequence[Tensor], connectivity: Sequence[Tensor]
) -> None:
    """Raise a SpecError for filters or connectivity whose number, shapes or dtypes do not match a
    spec."""
    if len(filters) != spec.depth or len(connectivity) != spec.depth:
        given = {"layers of filters": len(filters), "of connectivity": len(connectivity)}
        raise InvalidSetting(given, f"{spec.depth} of each, as in the spec")
    first = filters[0]
    for k, (layer, f, connected) in enumerate(
        zip(spec.layers, filters, connectivity, strict=True), start=1
    ):
        plane = (spec.maps_below(k), layer.maps)
        expected = (*plane, *layer.filter_shape)
        if tuple(f.shape) != expected or tuple(connected.shape) != plane:
            raise InvalidSetting(
                {
                    f"layers.{k}.filters": list(f.shape),
                    f"layers.{k}.connectivity": list(connected.shape),
                },
                f"{list(expected)} and {list(plane)}, as in the spec",
            )
        is_float = f.dtype in DTYPES and (f.dtype, f.device) == (first.dtype, first.device)
        if not is_float or connected.dtype != torch.bool:
            raise InvalidSetting(
                {
                    f"layers.{k}.filters.dtype": f.dtype,
                    f"layers.{k}.connectivity.dtype": connected.dtype,
                },
                "float filters with the same dtype and device at every layer, and connectivity of"
                " torch.bool",
            )
