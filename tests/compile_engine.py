"""Compile the CPU engine before the tests, whose processes would otherwise all do it at the same time."""

import torch

import whatwhere as ww

if __name__ == "__main__":
    for dtype in (torch.float32, torch.float64):
        model = ww.DeconvNet(ww.ModelSpec.paper(), dtype=dtype)
        ww.infer(model, torch.ones(1, 1, 12, 12, dtype=dtype), ww.InferenceSpec(steps=1), engine="cpu")
