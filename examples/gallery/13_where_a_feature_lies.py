"""
Where a feature lies
====================

The figure shows the Gaussians of one feature of layer 1 in 100 digits. Each ellipse shows the mean
and the standard deviation of one region in one image.
"""

import whatwhere as ww

model = ww.load("mnist")
digits = ww.data.load("digits", split="test")
images = digits[:100]
latents = ww.infer(
    model, images, ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=60)
).latents  # as in training
figure = ww.figures.where_map(model, images, latents, layer=1, feature=4)
