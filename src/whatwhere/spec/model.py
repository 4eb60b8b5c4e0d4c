"""The settings of a model: its input stage and its layers. Import them from `whatwhere.spec`, with
all others."""

from dataclasses import dataclass
from typing import Annotated, Literal

from whatwhere.spec.checks import (
    Checked,
    Count,
    NotEmpty,
    Size,
    Within,
    pair,
    require,
)
from whatwhere.spec.pooling import Gaussian, Pooling

InputKind = Literal["none", "highpass", "onoff", "baseline", "rise", "louder"]
RISES: tuple[InputKind, ...] = ("rise", "louder")
"""Input stages that keep how much a signal rises."""

Scale = Annotated[float, Within(0, 1e6, above=True, below=True)]


@dataclass(frozen=True, kw_only=True)
class LayerSpec(Checked):
    """One layer: its unpooled maps z, the filters that reconstruct the layer below, the pooling
    above.

    Parameters
    ----------
    maps
        number of unpooled maps, B
    filter_size
        size of the filters, K, in elements of the map below: their side, or a pair (height, width)
    pooling
        'gaussian' (`Gaussian`, inferred for every image), 'max' (`Max`, switches) or 'sum' (`Sum`,
        flat)
    pool_size
        size of the pooling regions, in elements: their side, or a pair (height, width)
    pool_stride
        distance between regions, a number or a pair; None means they do not overlap
    pool_maps
        number of neighbouring maps to pool together (the paper's footnote on 3-D pooling)
    fan_in
        how many maps below each map connects to, drawn at random; None means all

    Examples
    --------
    >>> ww.LayerSpec(maps=48, fan_in=8).pool_size
    2
    >>> ww.LayerSpec(maps=8, filter_size=(1, 64), pool_size=(1, 4)).filter_shape    # of signals
    (1, 64)
    """

    maps: Count
    filter_size: Size = 5
    pooling: Pooling = Gaussian()
    pool_size: Size = 2
    pool_stride: Size | None = None
    pool_maps: Count = 1
    fan_in: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("filter_size", "pool_size", "pool_stride"):
            size = getattr(self, name)
            # a square is a number, however it was given
            if size is not None and len(set(pair(size))) == 1:
                object.__setattr__(self, name, pair(size)[0])
        require(
            all(step <= side for step, side in zip(self.strides, self.pool_shape, strict=True)),
            {"pool_stride": self.pool_stride, "pool_size": self.pool_size},
            "a stride no larger than the region, so that every element has a region",
        )
        require(
            self.maps % self.pool_maps == 0,
            {"maps": self.maps, "pool_maps": self.pool_maps},
            "a number of maps that pool_maps divides",
        )

    @property
    def filter_shape(self) -> tuple[int, int]:
        """Height and width of the filters."""
        return pair(self.filter_size)

    @property
    def pool_shape(self) -> tuple[int, int]:
        """Height and width of a region."""
        return pair(self.pool_size)

    @property
    def strides(self) -> tuple[int, int]:
        """The distance between regions along rows and columns."""
        return self.pool_shape if self.pool_stride is None else pair(self.pool_stride)

    @property
    def square(self) -> bool:
        """Whether filters, regions and strides are the same along rows and columns."""
        return not any(
            isinstance(size, tuple) for size in (self.filter_size, self.pool_size, self.pool_stride)
        )

    @property
    def pooled_maps(self) -> int:
        """The number of pooled maps."""
        return self.maps // self.pool_maps


@dataclass(frozen=True, kw_only=True)
class InputSpec(Checked):
    """What happens to an image before the model explains it, and is undone in the reconstruction.

    Parameters
    ----------
    kind
        'none' (the image as it is), 'highpass' (subtracts a Gaussian low-pass), 'onoff' (positive
        and negative parts as separate channels, for non-negative models) or, for signals,
        'baseline' (subtracts a smooth running median), 'rise' (how much the signal rises) or
        'louder' (by how many decibels it becomes louder)
    sigma
        width of the low-pass, in pixels
    span
        length of the running median, in samples: several times the length of a waveform; or the
        samples on each side of a place that a rise compares
    hum
        frequency of the mains, in cycles per sample, which 'baseline' subtracts with its harmonics;
        0 if there is none
    contrast
        strength of local contrast normalisation, from 0 (none) to 1 (all)
    contrast_sigma
        width of the neighbourhood in which contrast is measured, in pixels
    contrast_floor
        contrast, in units of the image, below which it is hardly amplified
    white
        the value of white. Integers are scaled so that the largest value of their type becomes
        white; floats above twice this value give a warning
    """

    kind: InputKind = "none"
    sigma: Scale = 4.0
    span: Count = 256
    hum: Annotated[float, Within(0, 0.5, below=True)] = 0.0
    contrast: Annotated[float, Within(0, 1)] = 0.0
    contrast_sigma: Scale = 4.0
    contrast_floor: Scale = 0.1
    white: Scale = 1.0


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Checked):
    """The architecture: colour channels of the image, its input stage, and the layers from the
    image upwards.

    Parameters
    ----------
    layers
        one `LayerSpec` for each layer
    channels
        number of channels of the images: 1 for grey, 3 for colour
    nonnegative
        project features and filters to be ≥ 0; images must be ≥ 0
    signed_filters
        project only features: filters and images may have both signs, as waveforms and recordings
        do
    normalise
        scale each 'filter' (all planes of one map together) or each 'plane' to unit length; the
        channels of an image always share one length, so that filters can have a colour
    input
        what happens to an image before the model explains it, an `InputSpec`

    Examples
    --------
    >>> spec = ww.ModelSpec(layers=(ww.LayerSpec(maps=16), ww.LayerSpec(maps=48, fan_in=8)))
    >>> spec == ww.ModelSpec.paper()
    True
    """

    layers: Annotated[tuple[LayerSpec, ...], NotEmpty()]
    channels: Count = 1
    nonnegative: bool = True
    signed_filters: bool = False
    normalise: Literal["filter", "plane"] = "plane"
    input: InputSpec = InputSpec()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.input.kind in ("none", "onoff") or not self.nonnegative_filters,
            {"input.kind": self.input.kind, "nonnegative": True},
            "nonnegative = false, because a high-passed image has both signs, or input.kind ="
            " 'onoff'",
        )
        require(
            self.input.kind not in ("baseline", *RISES) or self.for_signals,
            f"input.kind = '{self.input.kind}' with filters of pictures",
            "filters and regions of height 1, such as filter_size = [1, 24] and pool_size = [1, 2]"
            " (train: --waveforms 2 --length 24), or input.kind = 'highpass'",
        )
        require(
            not self.input.hum or self.input.kind == "baseline",
            {"input.hum": self.input.hum, "input.kind": self.input.kind},
            "input.kind = 'baseline'",
        )
        below = self.target_channels
        for k, layer in enumerate(self.layers, start=1):
            require(
                layer.fan_in is None or layer.fan_in <= below,
                {f"layers.{k}.fan_in": layer.fan_in},
                f"at most {below}, the number of maps below",
            )
            below = layer.pooled_maps

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def target_channels(self) -> int:
        """Channels of the target that layer 1 explains: the image's, or twice as many with
        separate ON and OFF channels."""
        return 2 * self.channels if self.input.kind == "onoff" else self.channels

    @property
    def nonnegative_filters(self) -> bool:
        """Are filters ≥ 0, and images, too?"""
        return self.nonnegative and not self.signed_filters

    @property
    def for_signals(self) -> bool:
        """Are all filters and regions of height 1, so that the model explains signals [N, C, T]?"""
        return all(layer.filter_shape[0] == layer.pool_shape[0] == 1 for layer in self.layers)

    def maps_below(self, k: int) -> int:
        """Count the maps of what layer k reconstructs: the input stage's channels, or the pooled
        maps below."""
        return self.target_channels if k == 1 else self.layers[k - 2].pooled_maps

    @classmethod
    def paper(cls) -> "ModelSpec":
        """Return the paper's model: 16 and 48 maps, 5×5 filters, 2×2 regions, each map of layer 2
        connected to 8 of the 16 below."""
        return cls(layers=(LayerSpec(maps=16), LayerSpec(maps=48, fan_in=8)))

    @classmethod
    def signals(
        cls,
        maps: int = 8,
        length: int = 64,
        *,
        channels: int = 1,
        pool_size: int = 2,
        pool_stride: int = 1,
    ) -> "ModelSpec":
        """Return a model of waveforms of signals [N, channels, T], of both signs, each with
        features ≥ 0: what, when and how strongly.

        Parameters
        ----------
        maps
            number of waveforms
        length
            length of a waveform, in samples
        pool_size, pool_stride
            size and distance of the regions, in samples. The defaults give the most accurate times;
            a size of 1 is the plain convolutional sparse code

        Examples
        --------
        >>> ww.DeconvNet(ww.ModelSpec.signals(maps=5, length=32))
        DeconvNet(1 → 5 maps 1×32, gaussian 1×2 stride 1×1; float32, cpu)
        """
        layer = LayerSpec(
            maps=maps,
            filter_size=(1, length),
            pool_size=(1, pool_size),
            pool_stride=(1, pool_stride),
        )
        return cls(layers=(layer,), channels=channels, signed_filters=True, normalise="filter")
