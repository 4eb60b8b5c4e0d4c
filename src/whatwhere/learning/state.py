"""How far training has come."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from whatwhere.learning.reports import EpochReport
from whatwhere.learning.stats import EpochStats
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe


@dataclass(frozen=True)
class TrainingState:
    """The model, and what comes next; past the top layer training is finished.

    batch    the first batch of the epoch that is not inferred yet; above 0 only if training was stopped
    stats    of the epoch in progress, if there is one
    memory   of the algorithm within a layer: tensors by name
    """

    model: DeconvNet
    layer: int
    epoch: int
    batch: int = 0
    stats: EpochStats | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    history: tuple[EpochReport, ...] = ()

    def after(self, recipe: Recipe) -> tuple[int, int]:
        """Layer and epoch that follow this epoch."""
        return first_epoch(recipe, self.layer, self.epoch + 1)


def first_epoch(recipe: Recipe, layer: int = 1, epoch: int = 1) -> tuple[int, int]:
    """This layer and epoch, or the first after them that the recipe has; past the top layer training is finished."""
    while layer <= recipe.model.depth and epoch > recipe.learning[layer - 1].epochs:
        layer, epoch = layer + 1, 1
    return layer, epoch
