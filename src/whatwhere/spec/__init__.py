"""Every setting of the program, as frozen dataclasses that check their values when they are made.

`toml` reads and writes recipes as files.
"""

from whatwhere.spec.inference import InferenceSpec, MomentFit, StepSize, StepSpec
from whatwhere.spec.model import InputKind, InputSpec, LayerSpec, ModelSpec, PoolingKind
from whatwhere.spec.recipe import DescriptorSpec, LearningSpec, Phase, Recipe, follow_depth

__all__ = [
    "DescriptorSpec",
    "InferenceSpec",
    "InputKind",
    "InputSpec",
    "LayerSpec",
    "LearningSpec",
    "ModelSpec",
    "MomentFit",
    "Phase",
    "PoolingKind",
    "Recipe",
    "StepSize",
    "StepSpec",
    "follow_depth",
]
