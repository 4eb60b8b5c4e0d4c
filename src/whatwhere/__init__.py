"""whatwhere: sparse, layered representations of images without labels.

import whatwhere as ww

model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
solution = ww.infer(model, images, ww.InferenceSpec(lam=5.0))   # .latents .stats .features
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whatwhere.anomaly import AnomalyDetector as AnomalyDetector
    from whatwhere.classification.estimator import DeconvNetFeatures as DeconvNetFeatures
    from whatwhere.classification.graph import GraphClassifier as GraphClassifier
    from whatwhere.classification.labelling import Labelling as Labelling
    from whatwhere.classification.picture_classifier import load_classifier as load_classifier
    from whatwhere.data.codes import load_codes as load_codes
    from whatwhere.inference import LearnedSteps as LearnedSteps
    from whatwhere.inference import UnrolledInference as UnrolledInference
    from whatwhere.inference import distill as distill
    from whatwhere.inference import find_events as find_events
    from whatwhere.inference import infer as infer
    from whatwhere.inference import infer_tiled as infer_tiled
    from whatwhere.inference.generation import generate as generate
    from whatwhere.inference.generation import morph as morph
    from whatwhere.inference.generation import transfer as transfer
    from whatwhere.latents import Latents as Latents
    from whatwhere.latents import PoolingParams as PoolingParams
    from whatwhere.learning import TrainedRun as TrainedRun
    from whatwhere.learning import TrainingCallbacks as TrainingCallbacks
    from whatwhere.learning import TrainingOptions as TrainingOptions
    from whatwhere.learning import load as load
    from whatwhere.learning import read_run as read_run
    from whatwhere.learning import train as train
    from whatwhere.model import DeconvNet as DeconvNet
    from whatwhere.model import save as save
    from whatwhere.model.events import Events as Events
    from whatwhere.model.solution import Solution as Solution
    from whatwhere.spec import AutoLam as AutoLam
    from whatwhere.spec import DescriptorSpec as DescriptorSpec
    from whatwhere.spec import DistillSpec as DistillSpec
    from whatwhere.spec import EveryBatch as EveryBatch
    from whatwhere.spec import EveryEpoch as EveryEpoch
    from whatwhere.spec import Fixed as Fixed
    from whatwhere.spec import InferenceSpec as InferenceSpec
    from whatwhere.spec import LayerSpec as LayerSpec
    from whatwhere.spec import LearningSpec as LearningSpec
    from whatwhere.spec import LineSearch as LineSearch
    from whatwhere.spec import ModelSpec as ModelSpec
    from whatwhere.spec import MomentFit as MomentFit
    from whatwhere.spec import Phase as Phase
    from whatwhere.spec import Recipe as Recipe
    from whatwhere.spec import Schedule as Schedule
    from whatwhere.spec import StepSpec as StepSpec
    from whatwhere.spec.distortions import Distortions as Distortions
    from whatwhere.spec.toml import override as override
    from whatwhere.spec.toml import read_recipe as read_recipe

__version__ = "0.2.0"

# Loaded when first asked for, so that `whatwhere --help` does not wait for torch.
_HOME = {
    name: home
    for home, names in {
        "anomaly": "AnomalyDetector",
        "classification.estimator": "DeconvNetFeatures",
        "classification.graph": "GraphClassifier",
        "classification.labelling": "Labelling",
        "classification.picture_classifier": "load_classifier",
        "data.codes": "load_codes",
        "inference": "LearnedSteps UnrolledInference distill find_events infer infer_tiled",
        "inference.generation": "generate morph transfer",
        "latents": "Latents PoolingParams",
        "learning": "TrainedRun TrainingCallbacks TrainingOptions load read_run train",
        "model": "DeconvNet save",
        "model.events": "Events",
        "model.solution": "Solution",
        "spec": "AutoLam DescriptorSpec DistillSpec EveryBatch EveryEpoch Fixed InferenceSpec LayerSpec "
        "LearningSpec LineSearch ModelSpec MomentFit Phase Recipe Schedule StepSpec",
        "spec.distortions": "Distortions",
        "spec.toml": "override read_recipe",
    }.items()
    for name in names.split()
}
_PARTS = {
    "anomaly": "anomaly",
    "data": "data",
    "figures": "figures",
    "models": "data.models",
    "nn": "nn",
    "restoration": "restoration",
}

__all__ = sorted([*_HOME, *_PARTS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"whatwhere.{_HOME[name]}"), name)
    if name in _PARTS:
        return importlib.import_module(f"whatwhere.{_PARTS[name]}")
    raise AttributeError(f"module 'whatwhere' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
