"""Compile machine code before the tests, whose processes would otherwise all do it at the same
time.

python tests/compile_engine.py float32 | float64 | pooling | restoration
"""

import sys

import torch

import whatwhere as ww
from whatwhere.engines import get_engine
from whatwhere.model import Problem
from whatwhere.restoration import denoise, load_denoiser, load_dictionary


def compile_engines(dtype: torch.dtype) -> None:
    """The engines `cpu` and `greedy`, and steps that gradients pass through."""
    model = ww.DeconvNet(ww.ModelSpec.paper(), dtype=dtype)
    v = torch.ones(1, 1, 12, 12, dtype=dtype)
    solution = ww.infer(model, v, ww.InferenceSpec(steps=1), engine="cpu")
    problem = Problem(model, v, ww.Phase(layer=2), latents=solution.latents)
    get_engine("cpu").filter_map(problem, 2).normal(model.filters[1])
    waveforms = ww.DeconvNet(ww.ModelSpec.signals(2, 5, pool_size=1), dtype=dtype)
    signals = torch.ones(1, 1, 1, 20, dtype=dtype)
    ww.infer(waveforms, signals, ww.InferenceSpec.coding(), engine="greedy")
    schedule = ww.spec.Schedule(steps=(ww.spec.StepSpec(size=0.01, threshold=0.01),))
    layer = ww.nn.SparseCode2d.from_model(model, 1, ww.InferenceSpec(step=schedule))
    layer(v).sum().backward()


def compile_pooling() -> None:
    """The pooling layers."""
    for dtype in (torch.float32, torch.float64):
        z = torch.ones(1, 1, 12, 12, dtype=dtype, requires_grad=True)
        p, where = ww.nn.functional.gaussian_pool2d(z, 2, return_where=True)
        ww.nn.functional.gaussian_unpool2d(p, where, 2).sum().backward()


def compile_restoration() -> None:
    """The denoiser and the dictionary."""
    picture = torch.rand(1, 1, 12, 12)
    denoise(picture, load_denoiser(), noise=0.1)
    denoise(picture, load_dictionary(), noise=0.1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parts = {
        "float32": lambda: compile_engines(torch.float32),
        "float64": lambda: compile_engines(torch.float64),
        "pooling": compile_pooling,
        "restoration": compile_restoration,
    }
    parts[sys.argv[1]]()
