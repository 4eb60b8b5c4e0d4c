"""What both fast engines support: one declaration, since their kernels compile the same formulas.

An engine that supports less has a separate declaration (`cpu.GREEDY`) or adds a reason
(`triton.engine.unsupported_size`).
"""

from whatwhere.engines.support import ALL, ANY, Kinds, Support
from whatwhere.spec import Fixed, Gaussian, LineSearch, Max, Power, Schedule, Sum

FAST = Support(
    inference={
        "lam": ANY,
        "penalty": Kinds(Power),
        "penalty.alpha": ANY,
        "steps": ANY,
        "tolerance": ANY,  # `engines.convergence` runs blocks of steps
        "gap": ANY,
        "step": Kinds(LineSearch, Fixed, Schedule),
        "step.per": ANY,
        "step.momentum": ANY,
        "step.steps": ANY,
        "step.steps.each.size": ANY,
        "step.steps.each.threshold": ANY,
        "step.steps.each.extrapolation": ANY,
        "step.steps.each.pooling_step": ANY,
        "step.contrast": ANY,
        "step.mu_scale": ANY,
        "step.gamma_scale": ANY,
        "pooling_step": ANY,
        "moments.gamma_min": ANY,
        "moments.gamma_max": ANY,
        "moments.power": ANY,
    },
    model={
        "layers.each.maps": ANY,
        "layers.each.filter_size": ANY,
        "layers.each.pooling": Kinds(Gaussian, Max, Sum),
        "layers.each.pool_size": ANY,  # on the GPU within its `unsupported_size`
        "layers.each.pool_stride": ANY,
        "layers.each.fan_in": ANY,  # filters that are not connected are 0
        "channels": ANY,
        "nonnegative": ANY,
        # how filters are projected when they are learned, and what happens to images before
        "signed_filters": ANY,
        "normalise": ANY,
        "input": ALL,
    },
)
"""The declaration of the engines `cpu` and `triton`."""
