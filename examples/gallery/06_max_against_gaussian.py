"""
Max against Gaussian pooling
============================

The same filters with switches instead of Gaussians: a feature then lies on one element of its region, and strokes
break where regions meet.
"""

from dataclasses import replace

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200)  # the settings of training
layers = tuple(replace(layer, pooling_kind="max") for layer in model.spec.layers)
switches = ww.DeconvNet.from_parts(replace(model.spec, layers=layers), model.filters, model.connectivity)
images = digits[20:30]
solutions = {name: (m, ww.infer(m, images, sparse).latents) for name, m in {"Gaussian": model, "max": switches}.items()}
figure = ww.figures.pooling_comparison(images, solutions)
