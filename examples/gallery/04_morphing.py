"""
Morphing
========

Between two digits: features and Gaussians interpolated (top), and pixels interpolated (bottom). Strokes move in
between; pixels only fade.
"""

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load(ww.models.path("mnist"))
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200)  # the settings of training
pair = digits[[2, 14]]
a, b = (ww.infer(model, pair[i : i + 1], sparse).latents for i in (0, 1))
t = torch.linspace(0, 1, 9).view(-1, 1, 1, 1)


def between(x, y):
    s = t.view(-1, *[1] * (x.ndim - 1))
    return (1 - s) * x + s * y


where = tuple(
    ww.PoolingParams(between(u.mu, v.mu), between(u.gamma, v.gamma))
    for u, v in zip(a.pooling_params, b.pooling_params, strict=True)
)
morph = model.at(28, 28).decode(ww.Latents(between(a.p, b.p), where))[:, 0]
faded = between(pair[:1], pair[1:])[:, 0]
plt.figure(figsize=(9, 2.2), layout="constrained")
plt.imshow(torch.cat([torch.cat(list(morph), 1), torch.cat(list(faded), 1)]), cmap="gray_r", vmin=0, vmax=1)
plt.axis("off")
