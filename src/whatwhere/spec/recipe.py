"""The settings of an experiment. `Recipe.paper()` has those that the paper gives; what it leaves
open has a default.

The defaults were chosen on validation images (reproduction/scales/paper.toml says how).
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Literal

from whatwhere.errors import listed
from whatwhere.spec.checks import Checked, Count, CountOrZero, NotEmpty, Within, require
from whatwhere.spec.inference import InferenceSpec, LineSearch
from whatwhere.spec.model import ModelSpec
from whatwhere.spec.penalty import Power


@dataclass(frozen=True, kw_only=True)
class Phase(Checked):
    """What one run of ISTA infers.

    Parameters
    ----------
    layer
        the layer whose features are inferred
    update_pooling
        the layers whose pooling variables are updated; in other layers they stay as they were
        fitted

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> first = ww.Phase(layer=1, update_pooling=(1,))
    >>> plan = (first, ww.Phase(layer=2, update_pooling=(2,)))   # two phases
    >>> ww.infer(model, ww.data.load("digits")[:2], ww.InferenceSpec(steps=2), plan).features.shape
    torch.Size([2, 48, 10, 10])
    """

    layer: Count
    update_pooling: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for k in self.update_pooling:
            require(
                1 <= k <= self.layer,
                {"update_pooling": self.update_pooling, "layer": self.layer},
                f"layers from 1 to {self.layer}",
            )


@cache
def joint(depth: int) -> tuple[Phase, ...]:
    """Return one phase from the top, the pooling variables of every layer moving: the default for a
    model of any depth."""
    return (Phase(layer=depth, update_pooling=tuple(range(1, depth + 1))),)


@dataclass(frozen=True, kw_only=True)
class EveryEpoch(Checked):
    """Filters are updated once an epoch, from the stored latents of all images (the paper).

    Parameters
    ----------
    reset_at
        epochs after which all features are set to 0
    direction_memory
        share of the last epoch's change of the filters that is added to the next one; 0: none (the
        paper)
    split_until
        up to this epoch, a rare map takes over the filter of the map that most images use, and its
        features in half of these images; 0: never (the paper)
    split_below
        a map is rare if at most this share of the images uses it: a thousandth keeps all 48 maps of
        the paper's layer 2 in use, and lowers the cost

    Examples
    --------
    >>> ww.EveryEpoch(reset_at=(5, 10)).reset_at
    (5, 10)
    """

    kind: Literal["epoch"] = field(default="epoch", init=False, repr=False)
    reset_at: tuple[Count, ...] = (25,)
    direction_memory: Annotated[float, Within(0, 1, below=True)] = 0.0
    split_until: CountOrZero = 0
    split_below: Annotated[float, Within(0, 1, below=True)] = 0.001


@dataclass(frozen=True, kw_only=True)
class EveryBatch(Checked):
    """Filters are updated after every batch of a stream, whose latents are not stored.

    Parameters
    ----------
    direction_memory
        share of the last batch's direction that the next one keeps
    shuffle
        take the images in a random order, the same in every run, if they can be read in any order

    Examples
    --------
    >>> ww.EveryBatch().direction_memory
    0.5
    """

    kind: Literal["batch"] = field(default="batch", init=False, repr=False)
    direction_memory: Annotated[float, Within(0, 1, below=True)] = 0.5
    shuffle: bool = False


@dataclass(frozen=True, kw_only=True)
class LearningSpec(Checked):
    """How one layer is trained.

    Parameters
    ----------
    inference
        settings of the inference inside training
    epochs
        passes over the images
    update
        when filters are updated: `EveryEpoch`, or `EveryBatch` of a stream
    cg_steps
        conjugate-gradient steps of a filter update
    tangent
        filters move along the sphere of unit filters: the steps leave out what changes their
        lengths, which the projection undoes. Dictionaries of a lower cost in the same time; False:
        the paper
    update_lower_filters
        also update the filters of the layers below
    update_lower_pooling
        also update the pooling variables of the layers below

    Examples
    --------
    >>> ww.LearningSpec(inference=ww.InferenceSpec(lam=2.0, steps=100), epochs=10).cg_steps
    2
    """

    inference: InferenceSpec
    epochs: CountOrZero = 50
    update: EveryEpoch | EveryBatch = EveryEpoch()
    cg_steps: Count = 2
    tangent: bool = False
    update_lower_filters: bool = False
    update_lower_pooling: bool = True

    @property
    def reset_at(self) -> tuple[int, ...]:
        """Epochs after which all features are set to 0; a stream stores none."""
        return self.update.reset_at if isinstance(self.update, EveryEpoch) else ()

    @property
    def change_memory(self) -> float:
        """Share of the last epoch's change of the filters that the next one repeats; 0 in a
        stream."""
        return self.update.direction_memory if isinstance(self.update, EveryEpoch) else 0.0

    @property
    def split_until(self) -> int:
        """The last epoch after which rare maps take over images of others; 0 in a stream."""
        return self.update.split_until if isinstance(self.update, EveryEpoch) else 0

    @property
    def streams(self) -> bool:
        """Are filters updated after every batch, without stored latents?"""
        return isinstance(self.update, EveryBatch)


Where = Literal["auto", "keep", "forget", "both"]


@dataclass(frozen=True, kw_only=True)
class DescriptorSpec(Checked):
    """How features become the vector that a linear classifier sees.

    Parameters
    ----------
    layers
        layers whose features are described, concatenated; empty means the top one
    patch
        side of the overlapping patches at layer 1, 2, … (the last one serves every layer above)
    stride
        distance between patches at layer 1, 2, … (the last one serves all layers above)
    cell
        side of the cells that each patch is pooled in
    size
        the largest number of columns of a layer, but at least one for each map. If patches and
        cells give more columns, strides become larger, then patches and cells
    cell_statistic
        the statistic of each cell: 'rms' (root mean square), 'max' or 'mean'
    raw
        use the features themselves instead
    where
        'keep' describes what is at each place, with the settings above. 'forget' describes how
        strong each feature is anywhere, for textures. 'both' uses the two side by side. 'auto'
        chooses from the images, by how much of the features the places explain

    Examples
    --------
    >>> both = {"descriptor": {"layers": [1, 2], "cell": 2}}
    >>> ww.override(ww.Recipe.paper(), both).descriptor.layers
    (1, 2)
    """

    layers: tuple[Count, ...] = ()
    patch: Annotated[tuple[Count, ...], NotEmpty()] = (9, 6)
    stride: Annotated[tuple[Count, ...], NotEmpty()] = (1,)
    cell: Count = 3
    size: Count = 10_000
    cell_statistic: Literal["rms", "max", "mean"] = "rms"
    raw: bool = False
    where: Where = "auto"


def _paper_learning() -> tuple[LearningSpec, ...]:
    first = InferenceSpec(
        lam=2.0, penalty=Power(alpha=0.5), steps=100, step=LineSearch(per="batch")
    )
    second = replace(first, lam=0.5)
    return LearningSpec(inference=first), LearningSpec(inference=second)


@dataclass(frozen=True, kw_only=True)
class Recipe(Checked):
    """An entire experiment: the model, how each layer is trained, how features are inferred and
    described.

    Parameters
    ----------
    model
        the architecture
    learning
        how each layer is trained, one `LearningSpec` for each
    inference
        how features are inferred at test time
    plan
        phases of inference at test time; empty means one joint phase from the top layer
    descriptor
        how features become a vector for a classifier
    batch_size
        number of images inferred together; fixed for a run, because the batch rule of the step size
        depends on it
    seed
        seed of the initial filters

    Examples
    --------
    >>> recipe = ww.Recipe.paper()
    >>> recipe
    Recipe(layers of 16 and 48 maps, 50 and 50 epochs, batch_size=1000, seed=0)
    >>> ww.override(recipe, {"learning": {"each": {"epochs": 10}}, "seed": 1})
    Recipe(layers of 16 and 48 maps, 10 and 10 epochs, batch_size=1000, seed=1)
    """

    model: ModelSpec = field(default_factory=ModelSpec.paper)
    learning: tuple[LearningSpec, ...] = field(default_factory=_paper_learning)
    inference: InferenceSpec = field(default_factory=InferenceSpec)
    plan: tuple[Phase, ...] = ()
    descriptor: DescriptorSpec = DescriptorSpec(where="keep")
    batch_size: Count = 1000
    seed: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        depth = self.model.depth
        require(
            len(self.learning) == depth,
            {"learning": len(self.learning), "layers": depth},
            "one LearningSpec for each layer",
        )
        updates = [learning.update.kind for learning in self.learning]
        require(len(set(updates)) == 1, {"update": updates}, "the same for every layer")
        for k, (layer, learning) in enumerate(
            zip(self.model.layers, self.learning, strict=True), start=1
        ):
            require(
                not learning.split_until or layer.pool_maps == 1,
                {
                    f"learning.{k}.split_until": learning.split_until,
                    f"model.layers.{k}.pool_maps": layer.pool_maps,
                },
                "split_until = 0 there",
            )
        for phase in self.plan:
            require(phase.layer <= depth, {"plan.layer": phase.layer}, f"layers up to {depth}")
        for k in self.descriptor.layers:
            require(k <= depth, {"descriptor.layers": k}, f"layers up to {depth}")

    @classmethod
    def paper(cls, model: ModelSpec | None = None) -> "Recipe":
        """Return the paper: λ 2 and 0.5, α ½, 100 steps, 50 epochs, reset after 25; tested at λ 5,
        α 1, 50 steps. Rows describe what is at each place, so runs with different pooling are
        comparable.

        Another model is trained with the same settings; layers above the second use the settings of
        the second.
        """
        if model is None:
            return cls()
        return cls(model=model, learning=follow_depth(_paper_learning(), model.depth))

    def __repr__(self) -> str:
        maps = listed(layer.maps for layer in self.model.layers)
        epochs = listed(learning.epochs for learning in self.learning)
        return (
            f"Recipe(layers of {maps} maps, {epochs} epochs, batch_size={self.batch_size},"
            f" seed={self.seed})"
        )


def follow_depth(learning: tuple[LearningSpec, ...], depth: int) -> tuple[LearningSpec, ...]:
    """Return learning settings for this number of layers: the settings of layers above are dropped,
    and the last one applies to all layers after it."""
    return (*learning[:depth], *learning[-1:] * (depth - len(learning)))
