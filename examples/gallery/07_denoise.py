"""
Denoise digits
==============

Noise has no sparse explanation by strokes. The weight λ of the reconstruction says how much of an image is worth
explaining: the noisier, the smaller.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load(ww.models.path("mnist"))
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200)  # the settings of training
clean = digits[40:50]
noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
restored = ww.infer(model, noisy.clamp(min=0), replace(sparse, lam=0.25)).reconstruction

rows = {"clean": clean, "noisy": noisy, "restored": restored}
figure, axes = plt.subplots(3, 1, figsize=(9, 3.1), layout="constrained")
for axis, (name, images) in zip(axes, rows.items(), strict=True):
    axis.imshow(torch.cat(list(images[:, 0]), 1), cmap="gray_r", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[], ylabel=name)
print({name: round(float((images - clean).square().mean().sqrt()), 3) for name, images in rows.items()})
