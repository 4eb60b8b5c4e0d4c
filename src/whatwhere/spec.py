"""Every setting of the program, as frozen dataclasses that check their values when they are made.

`Recipe.paper()` holds the settings the paper gives; what it leaves open has the default written here, chosen on
validation images (reproduction/scales/paper.toml says how).
`spec_toml` reads and writes recipes as files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from whatwhere.spec_checks import check_fields, require, require_count

PoolingKind = Literal["gaussian", "max", "sum"]
InputKind = Literal["none", "highpass", "onoff"]
StepSize = Literal["image", "batch", "fixed"]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One layer: its unpooled maps z, the filters that reconstruct the layer below, the pooling above.

    maps         number of unpooled maps, B
    filter_size  side of the square filters, K
    pooling_kind 'gaussian' (inferred for every image), 'max' (switches) or 'sum' (flat)
    pool_size    side of the square pooling region
    pool_stride  distance between regions; None means they do not overlap
    pool_maps    neighbouring maps pooled together (the paper's footnote on 3-D pooling)
    fan_in       how many maps below each map connects to, drawn at random; None means all
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
        return self.pool_size if self.pool_stride is None else self.pool_stride

    @property
    def pooled_maps(self) -> int:
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
    """

    kind: InputKind = "none"
    sigma: float = 4.0
    contrast: float = 0.0
    contrast_sigma: float = 4.0
    contrast_floor: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("sigma", "contrast_sigma", "contrast_floor"):
            value = getattr(self, name)
            require(0 < value < 1e6, f"{name} = {value}", "a number above 0")
        require(0 <= self.contrast <= 1, f"contrast = {self.contrast}", "a number from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture: colour channels of the image, its input stage, and the layers from the image upwards.

    nonnegative  features and filters are projected to be ≥ 0, images must be ≥ 0
    normalise    unit length per 'filter' (all planes of one map together) or per 'plane'; the channels of an image
                 always share one length, so that filters can have a colour
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


@dataclass(frozen=True)
class MomentFit:
    """How a region's Gaussian is fitted: μ and 1/γ are the mean and variance of the position, weighted by |s|^power.

    gamma_min, gamma_max  bounds of the precision γ, in 1 / element²
    power                 of the signal s: 1 or 2
    """

    gamma_min: float = 0.01
    gamma_max: float = 100.0
    power: int = 2

    def __post_init__(self) -> None:
        require(
            0 <= self.gamma_min <= self.gamma_max < float("inf"),
            f"gamma_min = {self.gamma_min}, gamma_max = {self.gamma_max}",
            "0 ≤ gamma_min ≤ gamma_max, both finite",
        )
        require(self.power in (1, 2), f"moments with power = {self.power}", "1 or 2")


@dataclass(frozen=True, kw_only=True)
class InferenceSpec:
    """How features and pooling variables are inferred.

    lam           λ, the weight of the reconstruction against the sparsity penalty
    alpha         α of the penalty Σ|p|^α, between ½ and 1
    shrinkage     'gradient' (the paper: soft threshold at α = 1, its printed step at α = ½) or
                  'exact' (the proximal map; α = ½ or 1)
    steps         ISTA steps, T
    step_size     β for each 'image', one for the 'batch' (the paper), or the safe 'fixed' one
    momentum      accelerate the features' steps (FISTA with restart)
    pooling_step  β_U, the step of the pooling variables
    gamma_min, gamma_max, moment_power  see `MomentFit`
    """

    lam: float = 5.0
    alpha: float = 1.0
    shrinkage: Literal["gradient", "exact"] = "gradient"
    steps: int = 50
    step_size: StepSize = "image"
    momentum: bool = False
    pooling_step: float = 3.0
    gamma_min: float = MomentFit.gamma_min
    gamma_max: float = MomentFit.gamma_max
    moment_power: int = MomentFit.power

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.lam > 0, f"lam = {self.lam}", "a number above 0")
        require(0.5 <= self.alpha <= 1, f"alpha = {self.alpha}", "a number from 0.5 to 1")
        require(
            self.shrinkage == "gradient" or self.alpha in (0.5, 1),
            f"shrinkage = 'exact' with alpha = {self.alpha}",
            "alpha = 0.5 or 1 (the proximal map has a closed form there), or shrinkage = 'gradient'",
        )
        require_count("steps", self.steps, least=0)
        require(self.pooling_step >= 0, f"pooling_step = {self.pooling_step}", "a number of at least 0")
        _ = self.moment_fit  # raises where its values are not possible

    @property
    def moment_fit(self) -> MomentFit:
        """How the pooling variables start, and the bounds that they keep."""
        return MomentFit(self.gamma_min, self.gamma_max, self.moment_power)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What one run of ISTA infers: the features of `layer`, the pooling variables of the layers in `update_pooling`."""

    layer: int
    update_pooling: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        require_count("layer", self.layer)
        for k in self.update_pooling:
            require(
                1 <= k <= self.layer,
                f"update_pooling = {self.update_pooling} with layer = {self.layer}",
                f"layers from 1 to {self.layer}",
            )


@dataclass(frozen=True, kw_only=True)
class LearningSpec:
    """How one layer is trained.

    inference      settings of the inference inside training
    epochs         passes over the images; the filters are updated once an epoch
    reset_at       epochs after which all features are set to 0
    cg_steps       conjugate-gradient steps of a filter update
    update_lower_filters  do the filters of the layers below move too?
    update_lower_pooling  do the pooling variables of the layers below move too?
    """

    inference: InferenceSpec
    epochs: int = 50
    reset_at: tuple[int, ...] = (25,)
    cg_steps: int = 2
    update_lower_filters: bool = False
    update_lower_pooling: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        require_count("epochs", self.epochs, least=0)
        require_count("cg_steps", self.cg_steps)
        for epoch in self.reset_at:
            require_count("reset_at", epoch)


@dataclass(frozen=True, kw_only=True)
class DescriptorSpec:
    """How features become the vector that a linear classifier sees.

    layers   layers whose features are described, concatenated; empty means the top one
    patch    side of the overlapping patches at layer 1, 2, … (the last one serves every layer above)
    stride   distance from one patch to the next at layer 1, 2, … (likewise)
    cell     side of the cells that each patch is pooled in
    pooling  of a cell: 'rms' (root mean square), 'max' or 'mean'
    raw      take the features as they are instead
    """

    layers: tuple[int, ...] = ()
    patch: tuple[int, ...] = (9, 6)
    stride: tuple[int, ...] = (1,)
    cell: int = 3
    cell_statistic: Literal["rms", "max", "mean"] = "rms"
    raw: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("patch", "stride"):
            require(len(getattr(self, name)) > 0, f"{name} = ()", f"a {name} for each layer, or one for all")
        for name in ("layers", "patch", "stride"):
            for value in getattr(self, name):
                require_count(name, value)
        require_count("cell", self.cell)


def _paper_learning() -> tuple[LearningSpec, ...]:
    training = InferenceSpec(lam=2.0, alpha=0.5, steps=100, step_size="batch")
    return (LearningSpec(inference=training), LearningSpec(inference=replace(training, lam=0.5)))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An entire experiment: the model, how each layer is trained, how features are inferred and described.

    plan        phases of inference at test time; empty means one joint phase from the top layer
    batch_size  images inferred together; fixed for a run, since the batch rule of the step size sees it
    """

    model: ModelSpec = field(default_factory=ModelSpec.paper)
    learning: tuple[LearningSpec, ...] = field(default_factory=_paper_learning)
    inference: InferenceSpec = InferenceSpec()
    plan: tuple[Phase, ...] = ()
    descriptor: DescriptorSpec = DescriptorSpec()
    batch_size: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        depth = self.model.depth
        require(
            len(self.learning) == depth,
            f"{len(self.learning)} learning settings for {depth} layers",
            "one LearningSpec for each layer",
        )
        for phase in self.plan:
            require(phase.layer <= depth, f"a phase of layer {phase.layer}", f"layers up to {depth}")
        for k in self.descriptor.layers:
            require(k <= depth, f"a descriptor of layer {k}", f"layers up to {depth}")
        require_count("batch_size", self.batch_size)
        require_count("seed", self.seed, least=0)

    @classmethod
    def paper(cls, model: ModelSpec | None = None) -> Recipe:
        """The paper: λ 2 and 0.5, α ½, 100 steps, 50 epochs, reset after 25; tested at λ 5, α 1, 50 steps.

        Another model is trained with the same settings; layers above the second with those of the second.
        """
        if model is None:
            return cls()
        return cls(model=model, learning=follow_depth(_paper_learning(), model.depth))

    def __repr__(self) -> str:
        maps = " and ".join(str(layer.maps) for layer in self.model.layers)
        epochs = " and ".join(str(learning.epochs) for learning in self.learning)
        return f"Recipe(layers of {maps} maps, {epochs} epochs, batch_size={self.batch_size}, seed={self.seed})"


def follow_depth(learning: tuple[LearningSpec, ...], depth: int) -> tuple[LearningSpec, ...]:
    """Learning settings for this number of layers: those above it are dropped, the last serves all layers after it."""
    return (*learning[:depth], *learning[-1:] * (depth - len(learning)))
