"""The settings of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec_checks import check_fields, require, require_count


@dataclass(frozen=True, kw_only=True)
class FinetuneSpec:
    """How a model is fine-tuned.

    steps            unrolled steps of inference, K
    epochs           passes over the labelled images
    least_updates    more passes, where so few labels make fewer updates than this in `epochs` passes
    batch_size       images per update
    learning_rate    of Adam for the filters, at its peak: a short warm-up, then a cosine down to 0
    size_rate        the learning rate of the steps' sizes, as a multiple of `learning_rate`
    head_rate        that of the head, likewise
    weight_decay     of the head
    dropout          share of the descriptor that each update leaves out
    label_smoothing  share of each label that is spread over all classes
    reconstruction   weight of the mean cost of inference in the loss, which keeps the features a code of the image
    seed             of the order of the images, and of dropout

    >>> FinetuneSpec(steps=3, epochs=5).batch_size
    250
    """

    steps: int = 5
    epochs: int = 20
    least_updates: int = 300
    batch_size: int = 250
    learning_rate: float = 2e-3
    size_rate: float = 5.0
    head_rate: float = 5.0
    weight_decay: float = 0.0
    dropout: float = 0.5
    label_smoothing: float = 0.0
    reconstruction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("steps", "epochs", "batch_size"):
            require_count(name, getattr(self, name))
        for name in ("seed", "least_updates"):
            require_count(name, getattr(self, name), least=0)
        require(self.learning_rate > 0, f"learning_rate = {self.learning_rate}", "a number above 0")
        for name in ("size_rate", "head_rate", "weight_decay", "reconstruction"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")
        for name in ("dropout", "label_smoothing"):
            require(0 <= getattr(self, name) < 1, f"{name} = {getattr(self, name)}", "a number from 0 to below 1")
