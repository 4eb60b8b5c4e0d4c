"""Fine-tuning with labels: a classification loss goes back through unrolled steps of inference into the filters."""

from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.finetuning.folder import load_finetuned
from whatwhere.finetuning.settings import FinetuneSpec
from whatwhere.finetuning.trainer import finetune
from whatwhere.finetuning.tuned import FinetunedModel, FinetuneEpoch

__all__ = ["FinetuneEpoch", "FinetuneSpec", "FinetunedModel", "SparseCodeClassifier", "finetune", "load_finetuned"]
