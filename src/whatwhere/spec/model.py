"""The settings of a model: its input stage and its layers. Import them from `whatwhere.spec`, with all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whatwhere.spec.checks import check_fields, require, require_count

PoolingKind = Literal["gaussian", "max", "sum"]
InputKind = Literal["none", "highpass", "onoff"]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One layer: its unpooled maps z, the filters that reconstruct the layer below, the pooling above.

    maps          number of unpooled maps, B
    filter_size   side of the square filters, K, in elements of the map below
    pooling_kind  'gaussian' (inferred for every image), 'max' (switches) or 'sum' (flat)
    pool_size     side of the square pooling region, in elements
    pool_stride   distance between regions; None means they do not overlap
    pool_maps     neighbouring maps pooled together (the paper's footnote on 3-D pooling)
    fan_in        how many maps below each map connects to, drawn at random; None means all

    >>> ww.LayerSpec(maps=48, fan_in=8).pool_size
    2
    """

    maps: int
    filter_size: int = 5
    pooling_kind: PoolingKind = "gaussian"
    pool_size: int = 2
    pool_stride: int | None = None
    pool_maps: int = 1
    fan_in: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("maps", "filter_size", "pool_size", "pool_maps"):
            require_count(name, getattr(self, name))
        if self.pool_stride is not None:
            require_count("pool_stride", self.pool_stride)
            require(
                self.pool_stride <= self.pool_size,
                f"pool_stride = {self.pool_stride} with pool_size = {self.pool_size}",
                "a stride no larger than the region, so that every element has a region",
            )
        require(
            self.maps % self.pool_maps == 0,
            f"maps = {self.maps} with pool_maps = {self.pool_maps}",
            "a number of maps that pool_maps divides",
        )
        if self.fan_in is not None:
            require_count("fan_in", self.fan_in)

    @property
    def stride(self) -> int:
        """The distance between regions, in elements."""
        return self.pool_size if self.pool_stride is None else self.pool_stride

    @property
    def pooled_maps(self) -> int:
        """The number of pooled maps."""
        return self.maps // self.pool_maps


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What happens to an image before the model explains it, and is undone in the reconstruction.

    kind             'none' (the image as it is), 'highpass' (a Gaussian low-pass is subtracted) or
                     'onoff' (its positive and negative part as channels, for non-negative models)
    sigma            of the low-pass, in pixels
    contrast         strength of local contrast normalisation, from 0 (none) to 1 (all)
    contrast_sigma   of the neighbourhood whose contrast is measured, in pixels
    contrast_floor   a contrast, in units of the image, below which little is amplified
    white            the value of white: integers are scaled so that the largest of their type has it, and floats of
                     more than twice this value give a warning
    """

    kind: InputKind = "none"
    sigma: float = 4.0
    contrast: float = 0.0
    contrast_sigma: float = 4.0
    contrast_floor: float = 0.1
    white: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("sigma", "contrast_sigma", "contrast_floor", "white"):
            value = getattr(self, name)
            require(0 < value < 1e6, f"{name} = {value}", "a number above 0")
        require(0 <= self.contrast <= 1, f"contrast = {self.contrast}", "a number from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture: colour channels of the image, its input stage, and the layers from the image upwards.

    layers       one `LayerSpec` for each layer
    channels     of the images: 1 for grey, 3 for colour
    nonnegative  features and filters are projected to be ≥ 0, images must be ≥ 0
    normalise    unit length per 'filter' (all planes of one map together) or per 'plane'; the channels of an image
                 always share one length, so that filters can have a colour
    input        what happens to an image before the model explains it, an `InputSpec`

    >>> spec = ww.ModelSpec(layers=(ww.LayerSpec(maps=16), ww.LayerSpec(maps=48, fan_in=8)))
    >>> spec == ww.ModelSpec.paper()
    True
    """

    layers: tuple[LayerSpec, ...]
    channels: int = 1
    nonnegative: bool = True
    normalise: Literal["filter", "plane"] = "plane"
    input: InputSpec = InputSpec()

    def __post_init__(self) -> None:
        check_fields(self)
        require(len(self.layers) > 0, "a model without layers", "at least one LayerSpec")
        require_count("channels", self.channels)
        require(
            self.input.kind != "highpass" or not self.nonnegative,
            "input.kind = 'highpass' with nonnegative = true",
            "nonnegative = false, since a high-passed image has both signs, or input.kind = 'onoff'",
        )
        below = self.signal_channels
        for k, layer in enumerate(self.layers, start=1):
            require(
                layer.fan_in is None or layer.fan_in <= below,
                f"fan_in = {layer.fan_in} at layer {k}",
                f"at most the {below} maps that the layer below has",
            )
            below = layer.pooled_maps

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def signal_channels(self) -> int:
        """Channels of the signal that layer 1 explains: those of the image, twice as many with ON and OFF apart."""
        return 2 * self.channels if self.input.kind == "onoff" else self.channels

    def maps_below(self, k: int) -> int:
        """Maps of the signal that layer k reconstructs: the input stage's channels, or the pooled maps below."""
        return self.signal_channels if k == 1 else self.layers[k - 2].pooled_maps

    @classmethod
    def paper(cls) -> ModelSpec:
        """16 and 48 maps, 5×5 filters, 2×2 regions, each map of layer 2 joined to 8 of the 16 below."""
        return cls(layers=(LayerSpec(maps=16), LayerSpec(maps=48, fan_in=8)))
