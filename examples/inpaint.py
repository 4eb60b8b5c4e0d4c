"""Fill in missing pixels of a picture:  python examples/inpaint.py PICTURE OUT.png"""

import sys

import torch
from PIL import Image

import whatwhere as ww

source, out = sys.argv[1:]
truth = ww.data.load(source)[0:1]  # [1, C, H, W], from 0 to 1
known = torch.rand(truth[:, :1].shape, generator=torch.Generator().manual_seed(0)) > 0.5
model = ww.load("photographs")
filled = ww.restoration.inpaint(model, truth * known, known)


def psnr(image: torch.Tensor) -> float:
    return float(-10 * (image - truth).square().mean().log10())


print(f"with holes {psnr(truth * known):.2f} dB, filled in {psnr(filled):.2f} dB")
pixels = torch.cat([truth * known, filled], 3)[0].clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).squeeze(2)
Image.fromarray(pixels.numpy()).save(out)
