"""The settings of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import check_fields, require, require_count


@dataclass(frozen=True, kw_only=True)
class FinetuneSpec:
    """How a model is fine-tuned.

    steps           unrolled steps of inference, K
    distill         batches that the steps are first learned from without labels (`inference.distill`), with filters of
                    their own on the pass up; 0 begins with the sizes of line searches, and with the model's filters
    epochs          passes over the labelled images
    least_updates   more passes, where few labels make fewer updates than this in `epochs` passes
    batch_size      images per update
    learning_rate   of Adam for the filters, at its peak: a short warm-up, then a cosine down to 0
    head_rate       the learning rate of the head, as a multiple of `learning_rate`
    size_rate       the learning rate of the steps' sizes, as a multiple of `learning_rate`
    C               weight of the loss against the regularisation of the head, as in a linear SVM
    dropout         share of the descriptor that each update leaves out
    reconstruction  weight of the mean cost of inference in the loss, which keeps the features a code of the image
    seed            of the order of the images, and of dropout

    >>> FinetuneSpec(steps=3, epochs=5).batch_size
    500
    """

    steps: int = 5
    distill: int = 200
    epochs: int = 9
    least_updates: int = 100
    batch_size: int = 500
    learning_rate: float = 1e-3
    head_rate: float = 10.0
    size_rate: float = 5.0
    C: float = 30.0
    dropout: float = 0.5
    reconstruction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("steps", "epochs", "batch_size"):
            require_count(name, getattr(self, name))
        for name in ("seed", "least_updates", "distill"):
            require_count(name, getattr(self, name), least=0)
        for name in ("learning_rate", "C"):
            require(getattr(self, name) > 0, f"{name} = {getattr(self, name)}", "a number above 0")
        for name in ("head_rate", "size_rate", "reconstruction"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}", "a number of at least 0")
        require(0 <= self.dropout < 1, f"dropout = {self.dropout}", "a number from 0 to below 1")
