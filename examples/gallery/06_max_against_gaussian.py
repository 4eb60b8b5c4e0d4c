"""
Max against Gaussian pooling
============================

Both reconstructions use the same filters. In the last row, each feature has a switch instead of a
Gaussian and so lies on one element of its region: slanted strokes become stairs and break where
regions meet.
"""

from dataclasses import replace

import matplotlib.pyplot as plt

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(
    lam=0.5, penalty=ww.Power(alpha=0.5), steps=200
)  # the settings of training
layers = tuple(replace(layer, pooling=ww.Max()) for layer in model.spec.layers)
switches = ww.DeconvNet.from_parts(
    replace(model.spec, layers=layers), model.filters, model.connectivity
)
images = digits[[20, 23, 24, 26, 27, 29]]
rows = {"input": images} | {
    name: ww.infer(m, images, sparse).reconstruction
    for name, m in {"Gaussian": model, "max": switches}.items()
}
figure, axes = plt.subplots(3, len(images), figsize=(8, 4), layout="constrained")
for line, (name, row) in zip(axes, rows.items(), strict=True):
    for axis, image in zip(line, row[:, 0], strict=True):
        axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    line[0].set_ylabel(name)
