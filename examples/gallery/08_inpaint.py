"""
Fill in what is missing
=======================

Pixels of weight 0 have no influence on the features; the reconstruction fills them in. Here half of all pixels
are unknown (grey).
"""

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load(ww.models.path("mnist"))
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200)  # the settings of training
images = digits[60:70]
mask = (torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(0)) < 0.5).float()
filled = ww.infer(model, images, sparse, mask=mask).reconstruction

shown = torch.where(mask > 0, images, torch.tensor(0.4))
figure, axes = plt.subplots(3, 1, figsize=(9, 3.1), layout="constrained")
for axis, (name, row) in zip(axes, {"given": shown, "filled in": filled, "the digit": images}.items(), strict=True):
    axis.imshow(torch.cat(list(row[:, 0]), 1), cmap="gray_r", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[], ylabel=name)
