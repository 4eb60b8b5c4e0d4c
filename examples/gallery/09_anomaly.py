"""
What does not belong
====================

The detector has seen zeros, ones and twos only. Colour marks the places that are more unusual than
99 % of the places of 50 other normal digits; a frame marks the digits that it calls odd. Of the
nine digits of other kinds it finds eight, and misses a six.
"""

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww

digits = ww.data.load("digits")
normal = digits[np.flatnonzero(np.isin(digits.labels, (0, 1, 2)))[:200]].numpy()
detector = ww.AnomalyDetector(aligned=True).fit(normal[:150])
usual = np.quantile(detector.anomaly_map(normal[150:]), 0.99)

test = ww.data.load("digits", split="test")
images = test[:16].numpy()
odd, maps = detector.predict(images) < 0, np.stack(detector.anomaly_map(images))
figure, axes = plt.subplots(2, 8, figsize=(9, 2.6), layout="constrained")
for axis, image, is_odd, surprise in zip(axes.flat, images, odd, maps, strict=True):
    axis.imshow(image[0], cmap="gray_r")
    beyond = np.ma.masked_less(surprise, usual)
    axis.imshow(beyond, cmap="Reds", alpha=0.7, vmin=0, vmax=np.max(maps))
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(color="#D55E00" if is_odd else "#cccccc", linewidth=3 if is_odd else 1)
print("odd:", [int(label) for label in np.asarray(test.labels)[:16][odd]])
print("normal:", [int(label) for label in np.asarray(test.labels)[:16][~odd]])
