"""
An invariance
=============

Each row shows one feature of layer 2, drawn alone, in twelve digits that use it. Along a row,
*what* is the same; only the Gaussians, *where*, differ, so the stroke moves and bends a little.
"""

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
latents = ww.infer(
    model, digits[:200], ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=60)
).latents
by_activity = (latents.p > 0).sum((0, 2, 3)).argsort(descending=True)
features = by_activity[2:27:5].tolist()

figure, axes = plt.subplots(len(features), 12, figsize=(9, 3.9), layout="constrained")
for row, feature in zip(axes, features, strict=True):
    image, y, x = latents.p[:, feature].nonzero()[:12].T
    p = torch.zeros(len(image), *latents.p.shape[1:])
    p[torch.arange(len(image)), feature, y, x] = 1.0
    drawn = model.at(28, 28).decode(ww.Latents(p, latents[image].pooling_params))[:, 0]
    for axis, stroke in zip(row, drawn / drawn.amax((1, 2), keepdim=True), strict=True):
        axis.imshow(stroke, cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_color("#cccccc")
    row[0].set_ylabel(f"feature {feature}", rotation=0, ha="right", va="center")
