"""How steps of inference are learned."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, NonNegative


@dataclass(frozen=True, kw_only=True)
class DistillSpec(Checked):
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

    batches: Count = 200
    batch_size: Count = 20
    learning_rate: NonNegative = 0.1
    filter_rate: NonNegative = 0.03
    imitation: NonNegative = 10.0
    seed: int = 0
