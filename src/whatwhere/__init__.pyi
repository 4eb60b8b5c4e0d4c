"""The public names, for type checkers and for `__init__.py`, which loads each from here when it is
first asked for."""

from whatwhere.anomaly import AnomalyDetector as AnomalyDetector
from whatwhere.classification.estimator import DeconvNetFeatures as DeconvNetFeatures
from whatwhere.classification.graph import GraphClassifier as GraphClassifier
from whatwhere.classification.graph import labelled_score as labelled_score
from whatwhere.classification.map_features import MapFeatures as MapFeatures
from whatwhere.classification.picture_classifier import load_classifier as load_classifier
from whatwhere.classification.settings import Distortions as Distortions
from whatwhere.codes.files import load_codes as load_codes
from whatwhere.generation import generate as generate
from whatwhere.generation import morph as morph
from whatwhere.generation import transfer as transfer
from whatwhere.inference import LearnedSteps as LearnedSteps
from whatwhere.inference import UnrolledInference as UnrolledInference
from whatwhere.inference import distill as distill
from whatwhere.inference import infer as infer
from whatwhere.inference import infer_tiled as infer_tiled
from whatwhere.labelling.session import Labelling as Labelling
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
from whatwhere.signals.find import find_events as find_events
from whatwhere.spec import AutoLam as AutoLam
from whatwhere.spec import DescriptorSpec as DescriptorSpec
from whatwhere.spec import DistillSpec as DistillSpec
from whatwhere.spec import EveryBatch as EveryBatch
from whatwhere.spec import EveryEpoch as EveryEpoch
from whatwhere.spec import Fixed as Fixed
from whatwhere.spec import Gaussian as Gaussian
from whatwhere.spec import InferenceSpec as InferenceSpec
from whatwhere.spec import LayerSpec as LayerSpec
from whatwhere.spec import LearningSpec as LearningSpec
from whatwhere.spec import LineSearch as LineSearch
from whatwhere.spec import Max as Max
from whatwhere.spec import ModelSpec as ModelSpec
from whatwhere.spec import MomentFit as MomentFit
from whatwhere.spec import Phase as Phase
from whatwhere.spec import Power as Power
from whatwhere.spec import Recipe as Recipe
from whatwhere.spec import Schedule as Schedule
from whatwhere.spec import StepSpec as StepSpec
from whatwhere.spec import Sum as Sum
from whatwhere.spec.toml import override as override
from whatwhere.spec.toml import read_recipe as read_recipe

from . import anomaly as anomaly
from . import classification as classification
from . import codes as codes
from . import data as data
from . import engines as engines
from . import figures as figures
from . import nn as nn
from . import restoration as restoration
from . import signals as signals
from .data import models as models

__version__: str
