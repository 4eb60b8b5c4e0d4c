"""
Fill in what is missing
=======================

The trained denoiser fills in missing pixels in rounds. In each round, it removes what does not look
like a photograph, and ``inpaint`` puts the known pixels back. Here, seven of ten pixels are
unknown, and a scratch goes through the picture.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_sample_image

import whatwhere as ww

denoiser = ww.restoration.load_denoiser()
pixels = load_sample_image("china.jpg")[90:250, 200:360]
truth = torch.from_numpy(pixels / 255.0).permute(2, 0, 1)[None].float()
known = torch.rand(1, 1, 160, 160, generator=torch.Generator().manual_seed(0)) < 0.3
known &= (torch.arange(160)[:, None] - torch.arange(160) - 20).abs() > 2
filled = ww.restoration.inpaint(truth * known, known, denoiser)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
shown = {"known": truth * known, "filled in": filled, "the truth": truth}
for axis, (name, image) in zip(axes, shown.items(), strict=True):
    axis.imshow(image[0].clamp(0, 1).permute(1, 2, 0))
    axis.set(xticks=[], yticks=[], title=name)
