"""Every setting of the program, as frozen dataclasses that check their values when they are made.

`toml` reads and writes recipes as files.
"""

from whatwhere.spec.inference import (
    AutoLam,
    DistillSpec,
    Fixed,
    InferenceSpec,
    LineSearch,
    MomentFit,
    Schedule,
    StepSpec,
)
from whatwhere.spec.model import InputKind, InputSpec, LayerSpec, ModelSpec, PoolingKind
from whatwhere.spec.recipe import (
    DescriptorSpec,
    EveryBatch,
    EveryEpoch,
    LearningSpec,
    Phase,
    Recipe,
    follow_depth,
)
from whatwhere.spec.tasks import RestorationSpec
from whatwhere.spec.toml import build

__all__ = [
    "AutoLam",
    "DescriptorSpec",
    "DistillSpec",
    "EveryBatch",
    "EveryEpoch",
    "Fixed",
    "InferenceSpec",
    "InputKind",
    "InputSpec",
    "LayerSpec",
    "LearningSpec",
    "LineSearch",
    "ModelSpec",
    "MomentFit",
    "Phase",
    "PoolingKind",
    "Recipe",
    "RestorationSpec",
    "Schedule",
    "StepSpec",
    "build",
    "follow_depth",
]
