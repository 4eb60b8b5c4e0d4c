"""How steps of inference are learned."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import check_fields, require, require_count


@dataclass(frozen=True, kw_only=True)
class DistillSpec:
    """Settings of `distill`.

    batches        how many random batches to learn from
    batch_size     images in a batch
    learning_rate  of Adam for the sizes, at the beginning
    filter_rate    the learning rate of untied filters, as a multiple of `learning_rate`
    imitation      weight of the distance from the features of many plain steps; 0: the cost alone
    seed           of the choice of images

    >>> ww.DistillSpec(batches=50).batch_size
    20
    """

    batches: int = 200
    batch_size: int = 20
    learning_rate: float = 0.1
    filter_rate: float = 0.03
    imitation: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("batches", "batch_size"):
            require_count(name, getattr(self, name))
        for name in ("learning_rate", "filter_rate", "imitation"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")
