"""
Taking a digit apart
====================

The reconstruction is linear in the features, so every active feature can be drawn alone.
"""

import whatwhere as ww

model = ww.load(ww.models.path("mnist"))
digits = ww.data.load("digits", split="test")
solution = ww.infer(model, digits[:1], ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200))
figure = ww.figures.decomposition(model, digits[0], solution.latents)
