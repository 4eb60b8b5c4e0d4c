"""
New digits
==========

Nobody wrote these digits. ``ww.generate`` starts from the code of an example. Window by window, it
replaces *what* and *where* with those of other examples that agree with the rest.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits")
spec = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=60)
rows = []
for digit in (0, 3, 4, 7, 8):
    images = digits[np.flatnonzero(digits.labels == digit)[:80]]
    new = ww.generate(ww.infer(model, images, spec), 12)
    rows.append(torch.cat(list(new[:, 0]), 1))
plt.figure(figsize=(9, 4), layout="constrained")
plt.imshow(torch.cat(rows), cmap="gray_r", vmin=0, vmax=1)
plt.axis("off")
