"""
One example
===========

A model of digits describes letters, which it has never seen. One example of each letter is known
(the top row shows ten). A letter in another typeface gets the name of the nearest example, in a
metric in which small distortions count little. The bottom row shows the first wrong answers.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import whatwhere as ww

LETTERS = "abdefghkmnprstuvwxyz"
TYPEFACES = ["DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono", "STIXGeneral", "cmr10", "cmss10"]
sheet = plt.figure(figsize=(0.28 * len(LETTERS), 0.28 * len(TYPEFACES)), dpi=100, facecolor="black")
for y, family in enumerate(TYPEFACES):
    for x, letter in enumerate(LETTERS):
        where = (x + 0.5) / len(LETTERS), 1 - (y + 0.5) / len(TYPEFACES)
        sheet.text(*where, letter, family=family, size=17, color="white", ha="center", va="center")
sheet.canvas.draw()
pixels = np.asarray(sheet.canvas.buffer_rgba())[..., 0].reshape(
    len(TYPEFACES), 28, len(LETTERS), 28
)
plt.close(sheet)
letters = torch.tensor(pixels).permute(0, 2, 1, 3).reshape(-1, 1, 28, 28) / 255

rows = ww.Labelling(
    letters, run="mnist"
).rows  # of unit length, in a metric that is learned without labels
examples, truth = len(LETTERS), np.arange(len(letters)) % len(LETTERS)
found = (rows @ rows[:examples].T).argmax(1).numpy()
nearest = torch.cdist(letters.flatten(1), letters[:examples].flatten(1)).argmin(1).numpy()

figure, axes = plt.subplots(2, 10, figsize=(10, 2.6), layout="constrained")
for axis, row in zip(axes.flat, [*range(10), *np.flatnonzero(found != truth)[:10]], strict=False):
    axis.imshow(letters[row, 0], cmap="gray_r")
    axis.set_title(LETTERS[found[row]], fontsize=9)
for axis in axes.flat:
    axis.axis("off")
errors = [np.mean((each != truth)[examples:]) for each in (found, nearest)]
figure.suptitle(f"{errors[0]:.0%} errors; {errors[1]:.0%} by the distance of pixels")
