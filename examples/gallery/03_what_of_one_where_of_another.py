"""
What of one, where of another
=============================

Each picture is drawn with the features of the digit of its row (*what*) and the Gaussians of the
digit of its column (*where*). Along a row, the digit stays the same and its strokes move.
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
solution = ww.infer(model, digits[[0, 1, 4, 7, 8, 11]], sparse)
each = [replace(solution, latents=solution.latents[i : i + 1]) for i in range(6)]
rows = [torch.cat([ww.transfer(what, where)[0, 0] for where in each], 1) for what in each]
figure, axis = plt.subplots(figsize=(6, 6.4), layout="constrained")
axis.imshow(torch.cat(rows), cmap="gray_r", vmin=0, vmax=1)
axis.set(
    xticks=[], yticks=[], xlabel="where", ylabel="what", title="the diagonal is the reconstruction"
)
axis.xaxis.set_label_position("top")
