"""Remove noise from a picture:  python examples/denoise.py PICTURE OUT.png"""

import sys

import torch
from PIL import Image

import whatwhere as ww

source, out = sys.argv[1:]
truth = ww.data.load(source)[0:1]  # [1, C, H, W], from 0 to 1
noisy = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
model = ww.load("photographs")
clean = ww.restoration.denoise(model, noisy, noise=0.1)  # without `noise` it is estimated


def psnr(image: torch.Tensor) -> float:
    return float(-10 * (image - truth).square().mean().log10())


print(f"noisy {psnr(noisy):.2f} dB, restored {psnr(clean):.2f} dB")
pixels = torch.cat([noisy, clean], 3)[0].clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).squeeze(2)
Image.fromarray(pixels.numpy()).save(out)
