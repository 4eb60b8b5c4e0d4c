"""
Defects of a surface
====================

This example simulates ground metal with grinding lines, uneven light and grain. The detector learns
what is normal from 24 flawless pictures. Then it gets four new pictures: one is flawless, and the
others have a crack, a hole, or a region where the lines end. Red marks places that are rare in
normal pictures; it is strongest where a picture is least normal.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import zoom

import whatwhere as ww

generator = np.random.default_rng(0)
rows, columns = np.mgrid[:112, :128]


def smooth(size: int) -> np.ndarray:
    """Noise with bumps of `size` pixels."""
    return zoom(generator.normal(size=(2 + 112 // size, 2 + 128 // size)), size, order=1)[
        :112, :128
    ]


def surface() -> np.ndarray:
    lines = (
        0.05 * generator.normal(size=128)
        + 0.03 * generator.normal(size=(112, 128))
        + 0.1 * smooth(32)
    )
    light = generator.uniform(0.3, 0.7) * np.exp(
        -(((columns - generator.uniform(20, 108)) / 90) ** 2)
    )
    return (light * np.exp(lines)).astype(np.float32)


detector = ww.AnomalyDetector().fit([surface() for _ in range(24)])

pictures = {name: surface() for name in ("flawless", "crack", "hole", "lines end")}
path = 40 + 0.4 * columns + 4 * np.sin(columns / 6)
pictures["crack"][(abs(rows - path) < 1.2) & (abs(columns - 60) < 18)] *= 0.6
pictures["hole"][(rows - 70) ** 2 + (columns - 80) ** 2 < 12] *= 0.5
pictures["lines end"][60:] = surface()[60:]

# %%
# The number is the score minus the threshold. A picture above 0 is an anomaly.

figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
outline, maps = detector.outline_, detector.anomaly_map(list(pictures.values()))
decisions = detector.decision_function(list(pictures.values()))
for axis, (name, picture), values, decision in zip(
    axes, pictures.items(), maps, decisions, strict=True
):
    axis.imshow(picture, cmap="gray")
    alpha = ((values - outline) / max(values.max() - outline, 1)).clip(0, 0.8)
    axis.imshow(np.ones_like(values), cmap="Reds", alpha=alpha, vmin=0, vmax=1.2)
    axis.set(title=f"{name}: {-decision:+.1f}", xticks=[], yticks=[])
