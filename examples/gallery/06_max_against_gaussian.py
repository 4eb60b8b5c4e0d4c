"""
Max against Gaussian pooling
============================

The last row uses the same filters with switches instead of Gaussians. Each feature then lies on one
element of its region, and strokes break where regions meet.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(
    lam=0.5, penalty=ww.Power(alpha=0.5), steps=200
)  # the settings of training
layers = tuple(replace(layer, pooling=ww.Max()) for layer in model.spec.layers)
switches = ww.DeconvNet.from_parts(
    replace(model.spec, layers=layers), model.filters, model.connectivity
)
images = digits[20:30]
rows = {"input": images} | {
    name: ww.infer(m, images, sparse).reconstruction
    for name, m in {"Gaussian": model, "max": switches}.items()
}
figure, axes = plt.subplots(3, 1, figsize=(8, 2.6), layout="constrained")
for axis, (name, row) in zip(axes, rows.items(), strict=True):
    axis.imshow(torch.cat(list(row[:, 0]), 1), cmap="gray_r", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[], ylabel=name)
