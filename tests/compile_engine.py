"""Compile the CPU engine for a dtype before the tests, whose processes would otherwise all do it at
the same time.

python tests/compile_engine.py float32 | float64
"""

import sys

import torch

import whatwhere as ww
from whatwhere.engines import get_engine
from whatwhere.model import Problem

if __name__ == "__main__":
    dtype = getattr(torch, sys.argv[1])
    model, v = (
        ww.DeconvNet(ww.ModelSpec.paper(), dtype=dtype),
        torch.ones(1, 1, 12, 12, dtype=dtype),
    )
    solution = ww.infer(model, v, ww.InferenceSpec(steps=1), engine="cpu")
    problem = Problem(model, v, ww.Phase(layer=2), latents=solution.latents)
    get_engine("cpu").filter_map(problem, 2).normal(model.filters[1])
    z = v.requires_grad_()
    p, where = ww.nn.functional.gaussian_pool2d(z, 2, return_where=True)
    ww.nn.functional.gaussian_unpool2d(p, where, 2).sum().backward()
