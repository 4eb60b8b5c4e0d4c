"""
Denoise a photograph
====================

The denoiser is a few steps of sparse coding, learned from pairs of clean and noisy photographs. It
estimates the noise level.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_sample_image

import whatwhere as ww

denoiser = ww.restoration.load_denoiser()
pixels = load_sample_image("flower.jpg")[60:220, 230:390]
truth = torch.from_numpy(pixels / 255.0).permute(2, 0, 1)[None].float()
noisy = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
restored = ww.restoration.denoise(noisy, denoiser)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, (name, image) in zip(
    axes, {"noisy": noisy, "restored": restored, "the truth": truth}.items(), strict=True
):
    decibels = -10 * (image - truth).square().mean().log10()
    axis.imshow(image[0].clamp(0, 1).permute(1, 2, 0))
    axis.set(xticks=[], yticks=[], title=name if image is truth else f"{name}, {decibels:.1f} dB")
