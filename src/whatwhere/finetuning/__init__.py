"""Fine-tuning with labels: a classification loss goes back through unrolled steps of inference into the filters."""

from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.finetuning.settings import FinetuneSpec
from whatwhere.finetuning.trainer import FinetunedModel, FinetuneEpoch, finetune

__all__ = ["FinetuneEpoch", "FinetuneSpec", "FinetunedModel", "SparseCodeClassifier", "finetune"]
