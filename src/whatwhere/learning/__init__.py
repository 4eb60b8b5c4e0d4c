"""Learning: the filters, from the latents that inference leaves."""

from whatwhere.learning.checkpoint import has_checkpoint
from whatwhere.learning.reports import BatchReport, EpochReport, TrainingCallbacks
from whatwhere.learning.run_folder import TrainedRun, load, read_run
from whatwhere.learning.session import TrainingDiverged, TrainingStopped
from whatwhere.learning.trainer import train
from whatwhere.learning.training_data import StreamError
from whatwhere.spec.execution import TrainingOptions

__all__ = [
    "BatchReport",
    "EpochReport",
    "StreamError",
    "TrainedRun",
    "TrainingCallbacks",
    "TrainingDiverged",
    "TrainingOptions",
    "TrainingStopped",
    "has_checkpoint",
    "load",
    "read_run",
    "train",
]
