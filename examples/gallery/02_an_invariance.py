"""
An invariance
=============

Each row shows one feature of layer 2, drawn alone, wherever it is active in 200 digits. Along a
row, *what* is the same; only the Gaussians, *where*, differ.
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

rows = []
for feature in by_activity[2:27:5].tolist():
    image, y, x = latents.p[:, feature].nonzero()[:12].T
    p = torch.zeros(len(image), *latents.p.shape[1:])
    p[torch.arange(len(image)), feature, y, x] = 1.0
    drawn = model.at(28, 28).decode(ww.Latents(p, latents[image].pooling_params))[:, 0]
    rows.append(torch.cat(list(drawn / drawn.amax((1, 2), keepdim=True)), 1))
plt.figure(figsize=(9, 3.9), layout="constrained")
plt.imshow(torch.cat(rows), cmap="gray_r")
plt.axis("off")
