"""Settings of earlier versions, and what a recipe says instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INSTEAD: Final[Mapping[tuple[str, str], str]] = {
    ("InferenceSpec", "step_size"): 'step = {{ kind = "line_search", per = "image" }}, or per = "batch", or '
    'step = "fixed"',
    ("InferenceSpec", "momentum"): "step.momentum = {value}",
    ("InferenceSpec", "shrinkage"): "nothing: a step shrinks as the paper prints it",
    ("InferenceSpec", "search_every"): "nothing: β is searched for in every step",
    ("InferenceSpec", "noise"): "lam as a number; `whatwhere denoise` removes noise",
    ("AutoLam", "noise"): "lam as a number; `whatwhere denoise` removes noise",
    ("InferenceSpec", "sparsity_share"): 'lam = {{ kind = "auto", share = {value} }}',
    ("InferenceSpec", "sparsity"): "lam = 1 / {value}, as a number",
    ("InferenceSpec", "gamma_min"): "moments.gamma_min = {value}",
    ("InferenceSpec", "gamma_max"): "moments.gamma_max = {value}",
    ("InferenceSpec", "moment_power"): "moments.power = {value}",
    ("InferenceSpec", "schedule"): 'step = {{ kind = "schedule", steps = … }}',
    ("InferenceSpec", "contrast"): "step.contrast = {value}, of a schedule",
    ("InferenceSpec", "mu_scale"): "step.mu_scale = {value}, of a schedule",
    ("InferenceSpec", "gamma_scale"): "step.gamma_scale = {value}, of a schedule",
    ("DescriptorSpec", "where"): "nothing: positions did not help a classifier",
    ("StepSpec", "momentum"): "extrapolation = {value}",
    ("LearningSpec", "reset_at"): 'update.reset_at = {value}; nothing with update = "batch"',
    ("LearningSpec", "momentum"): 'update.direction_memory = {value}, with update = "batch"',
}
"""By spec and old name."""


def instead_of(spec: type, key: str, value: str) -> str | None:
    """What to write for a setting that has another name now; None if there was none of this name."""
    text = INSTEAD.get((spec.__name__, key))
    return None if text is None else text.format(value=value)
