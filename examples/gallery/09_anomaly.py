"""
What does not belong
====================

The detector was fitted only to zeros, ones and twos. Red pixels are those that make a digit unlike
them. The number is the score of the digit; lower means more anomalous.
"""

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww

digits = ww.data.load("digits")
normal = digits[np.flatnonzero(np.isin(digits.labels, (0, 1, 2)))[:150]].numpy()
detector = ww.AnomalyDetector(aligned=True).fit(normal)

test = ww.data.load("digits", split="test")
images = test[:16].numpy()
scores, maps = detector.score_samples(images), np.stack(detector.anomaly_map(images))
figure, axes = plt.subplots(2, 8, figsize=(9, 2.9), layout="constrained")
for axis, image, score, surprise in zip(axes.flat, images, scores, maps, strict=True):
    axis.imshow(image[0], cmap="gray_r")
    axis.imshow(np.clip(surprise / np.max(maps), 0, 1), cmap="Reds", alpha=0.6, vmin=0, vmax=1)
    axis.set_title(f"{float(score):.1f}", fontsize=9)
    axis.set_axis_off()
