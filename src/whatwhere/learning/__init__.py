"""Learning: the filters, from latents that inference left."""

from whatwhere.learning.trainer import EpochReport, TrainedModel, train

__all__ = ["EpochReport", "TrainedModel", "train"]
