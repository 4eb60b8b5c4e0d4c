"""
Taking a digit apart
====================

The figure takes a seven apart, from sixteen features in ten maps of layer 2 (top) down to the
pixels. Every map has its own colour. The bars show how much ink its features draw.
"""

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
sparse = ww.InferenceSpec(
    lam=0.5, penalty=ww.Power(alpha=0.5), steps=200
)  # the settings of training
solution = ww.infer(model, digits[:1], sparse)
figure = ww.figures.decomposition(model, digits[0], solution.latents)
