"""Learning: the filters, from latents that inference left."""

from whatwhere.learning.guards import TrainingDiverged, TrainingStopped
from whatwhere.learning.reports import BatchReport, EpochReport
from whatwhere.learning.trainer import TrainedModel, train

__all__ = ["BatchReport", "EpochReport", "TrainedModel", "TrainingDiverged", "TrainingStopped", "train"]
