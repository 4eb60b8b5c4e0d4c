"""
Morphing
========

Two ways from an upright four to one that leans: the first row interpolates between the features and
Gaussians of the two digits, the second between their pixels. Above, the strokes turn; below, one
four fades out while the other fades in.
"""

import matplotlib.pyplot as plt
import torch

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(
    lam=0.5, penalty=ww.Power(alpha=0.5), steps=200
)  # the settings of training
FIRST, SECOND = 4, 6
first, second = (ww.infer(model, digits[[i]], sparse) for i in (FIRST, SECOND))

t = torch.linspace(0, 1, 9).view(-1, 1, 1)
rows = {
    "what and\nwhere": ww.morph(first, second, count=9)[:, 0, 0],
    "pixels": (1 - t) * digits[FIRST] + t * digits[SECOND],
}
figure, axes = plt.subplots(2, 1, figsize=(9, 2.4), layout="constrained")
for axis, (name, row) in zip(axes, rows.items(), strict=True):
    axis.imshow(torch.cat(list(row), 1), cmap="gray_r", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    axis.set_ylabel(name, rotation=0, ha="right", va="center")
    axis.spines[:].set_visible(False)
