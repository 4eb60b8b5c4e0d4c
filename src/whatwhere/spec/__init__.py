"""Every setting of the program, as frozen dataclasses that check their values when they are made.

`toml` reads and writes recipes as files.
"""

from whatwhere.spec.inference import (
    AutoLam,
    DistillSpec,
    Fixed,
    InferenceSpec,
    LineSearch,
    Schedule,
    StepSpec,
)
from whatwhere.spec.model import InputKind, InputSpec, LayerSpec, ModelSpec
from whatwhere.spec.penalty import Penalty, Power
from whatwhere.spec.pooling import (
    Gaussian,
    Max,
    MomentFit,
    Pooling,
    PoolingKind,
    Sum,
    pooling_of,
)
from whatwhere.spec.recipe import (
    DescriptorSpec,
    EveryBatch,
    EveryEpoch,
    LearningSpec,
    Phase,
    Recipe,
    follow_depth,
)
from whatwhere.spec.toml import build

__all__ = [
    "AutoLam",
    "DescriptorSpec",
    "DistillSpec",
    "EveryBatch",
    "EveryEpoch",
    "Fixed",
    "Gaussian",
    "InferenceSpec",
    "InputKind",
    "InputSpec",
    "LayerSpec",
    "LearningSpec",
    "LineSearch",
    "Max",
    "ModelSpec",
    "MomentFit",
    "Penalty",
    "Phase",
    "Pooling",
    "PoolingKind",
    "Power",
    "Recipe",
    "Schedule",
    "StepSpec",
    "Sum",
    "build",
    "follow_depth",
    "pooling_of",
]
