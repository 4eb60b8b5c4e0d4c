"""
Morphing
========

The top row interpolates between the features and Gaussians of two digits; the bottom row
interpolates between their pixels. In the top row, strokes move; in the bottom row, pixels only
fade.
"""

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(
    lam=0.5, penalty=ww.Power(alpha=0.5), steps=200
)  # the settings of training
first, second = (ww.infer(model, digits[[i]], sparse) for i in (2, 14))
morph = ww.morph(first, second, count=9)[:, 0, 0]

t = torch.linspace(0, 1, 9).view(-1, 1, 1)
faded = (1 - t) * digits[2] + t * digits[14]
plt.figure(figsize=(9, 2.2), layout="constrained")
plt.imshow(
    torch.cat([torch.cat(list(morph), 1), torch.cat(list(faded), 1)]), cmap="gray_r", vmin=0, vmax=1
)
plt.axis("off")
