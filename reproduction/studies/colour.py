"""Colour: a denoiser of its own against brightness and differences of colour with the grey one.

    python -m reproduction.studies.colour crops.tar photographs.tar state.pt --seconds 330 --out results.jsonl

`own` learns filters over all three planes of an orthonormal transform, 256 that begin with brightness and 64 with each
difference of colour, as `studies/denoiser.py` learns grey ones: one group, 8 shifts. `planes` is the state of a grey
run of one group on brightness and both differences. `crops.tar` holds colour crops to learn from, `photographs.tar`
those for validation.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whatwhere as ww
from reproduction.studies.denoiser import (
    BLOCK,
    DEVICE,
    DTYPE,
    LEVELS,
    LOSS_SCALE,
    MARGIN,
    Steps,
    as_denoiser,
    grid,
    psnr,
    random_levels,
    scale_gradients,
    shrink,
)

COLOUR_FEATURES = 64  # of each difference of colour
PLANES = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], device=DEVICE)
PLANES = PLANES / PLANES.norm(dim=1, keepdim=True)


class ColourSteps(Steps):
    """Filters [M, 3 · 64, 2, 2] over blocks of all planes."""

    def __init__(self) -> None:
        super().__init__()
        grey = self.C.detach()  # [M, 64, 2, 2], by frequency
        parts = [
            F.pad(grey[:count], (0, 0, 0, 0, BLOCK**2 * plane, BLOCK**2 * (2 - plane)))
            for plane, count in enumerate((len(grey), COLOUR_FEATURES, COLOUR_FEATURES))
        ]
        filters = torch.cat(parts)
        self.A, self.B = (nn.Parameter(filters[None].clone()) for _ in range(2))
        self.C = nn.Parameter(filters.clone())
        t = torch.zeros(len(LEVELS), self.t.shape[1], len(filters))
        t[:, :, [0, len(grey), len(grey) + COLOUR_FEATURES]] = math.log(0.05)
        self.t, self.g = nn.Parameter(t), nn.Parameter(torch.zeros(len(LEVELS), len(filters)))

    def forward(self, blocks: Tensor, t: Tensor, g: Tensor) -> Tensor:
        A, B, C = (f.to(DTYPE) for f in (self.A[0], self.B[0], self.C))
        y, t = blocks.to(DTYPE), t.to(DTYPE)
        z = shrink(F.conv2d(y, A), t[:, 0])
        for k in range(1, t.shape[1]):
            z = shrink(z + F.conv2d(y - F.conv_transpose2d(z, B), A), t[:, k])
        return F.conv_transpose2d(z * g.to(DTYPE), C).float()


def mean_over_shifts(model: Steps, y: Tensor, sigma: Tensor, shifts: list[tuple[int, int]]) -> Tensor:
    """Planes y [N, 3, H, W] as the mean over shifts; σ [N] of 255."""
    H, W = y.shape[2:]
    h, w = (H - BLOCK) // BLOCK * BLOCK, (W - BLOCK) // BLOCK * BLOCK
    t = (model.at(sigma, model.t).exp() * (sigma / 255)[:, None, None])[..., None, None]
    g = model.at(sigma, model.g).exp()[..., None, None]
    blocks = F.pixel_unshuffle(torch.cat([y[:, :, a : a + h, b : b + w] for a, b in shifts]), BLOCK)
    clean = F.pixel_shuffle(model(blocks, t.repeat(len(shifts), 1, 1, 1, 1), g.repeat(len(shifts), 1, 1, 1)), BLOCK)
    total = torch.zeros_like(y)
    for part, (a, b) in zip(clean.split(len(y)), shifts, strict=True):
        total = total + F.pad(part, (b, W - w - b, a, H - h - a))
    return total / len(shifts)


def to_planes(pixels: Tensor) -> Tensor:
    """[N, 3, H, W] from 0 to 1 in red, green and blue → orthonormal planes of what deviates from grey."""
    return torch.einsum("oc,nchw->nohw", PLANES, pixels - 0.5)


def loss(model: Steps, x: Tensor, y: Tensor, sigma: Tensor, shifts: list[tuple[int, int]]) -> Tensor:
    inside = slice(MARGIN, x.shape[-1] - MARGIN)
    error = (mean_over_shifts(model, y, sigma, shifts) - x)[:, :, inside, inside]
    return (error.square().mean((1, 2, 3)) + 1e-7).log().mean()


def learn(a: argparse.Namespace, training: Tensor) -> tuple[ColourSteps, int]:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model = ColourSteps().to(DEVICE)
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    groups = [{"params": [model.A, model.B, model.C]}, {"params": [model.t, model.g]}]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    loss_of = torch.compile(loss, dynamic=False) if DEVICE == "cuda" else loss
    began, update = time.time(), 0
    while (progress := (time.time() - began) / a.seconds) < 1:
        rate = 5e-4 * min(1.0, (update + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)
        for group, factor in zip(optimizer.param_groups, (1, 10), strict=True):
            group["lr"] = factor * rate
        x = to_planes(random_crops(training, a.batch, a.crop, random)).contiguous()
        sigma = random_levels(a.batch)
        y = x + (sigma / 255)[:, None, None, None] * torch.randn_like(x)
        optimizer.zero_grad(set_to_none=True)
        (LOSS_SCALE * loss_of(model, x, y, sigma, grid(8))).backward()
        scale_gradients(list(model.parameters()))
        optimizer.step()
        update += 1
        for name, value in model.state_dict().items():
            average[name].lerp_(value, 1 - min(0.999, update / (update + 9)))
        if update % 1000 == 0:
            print("colour", update, round(time.time() - began), flush=True)
    model.load_state_dict(average)
    return model, update


def random_crops(pictures: Tensor, count: int, side: int, random: np.random.Generator) -> Tensor:
    """Crops [count, 3, side, side] of pictures [n, 3, H, W], mirrored and turned together, from 0 to 1."""
    n, _, H, W = pictures.shape
    places = zip(*(random.integers(extent, size=count) for extent in (n, H - side + 1, W - side + 1)), strict=True)
    x = torch.stack([pictures[k, :, top : top + side, left : left + side] for k, top, left in places]).float() / 255
    flip, turn = random.integers(2, size=2)
    x = x.flip(3) if flip else x
    return x.transpose(2, 3) if turn else x


def read(archive: str) -> list[Tensor]:
    """The pictures of an archive by name, bytes [3, H, W]."""
    from PIL import Image

    with tarfile.open(archive) as tar:
        found = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        pictures = [Image.open(io.BytesIO(found[name].read())).convert("RGB") for name in sorted(found)]  # type: ignore[union-attr]
    return [torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures]


@torch.no_grad()
def validate(model: ColourSteps, grey: ww.restoration.Denoiser, held: list[Tensor]) -> dict[str, dict[int, float]]:
    """The mean PSNR of both, with 16 shifts."""
    scores: dict[str, dict[int, float]] = {"own": {}, "planes": {}}
    spec = ww.restoration.RestorationSpec(quality=16)
    for sigma in (15, 25, 50):
        results: dict[str, list[float]] = {"own": [], "planes": []}
        for i, picture in enumerate(held):
            x = picture.float() / 255
            y = (x + sigma / 255 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1000 * sigma + i)))[
                None
            ]
            padded = to_planes(F.pad(y, (MARGIN, MARGIN + 2 * BLOCK) * 2, mode="reflect").to(DEVICE))
            own = mean_over_shifts(model, padded, torch.tensor([float(sigma)], device=DEVICE), grid(16))
            own = (torch.einsum("oc,nohw->nchw", PLANES, own) + 0.5)[0, :, MARGIN:, MARGIN:][
                :, : x.shape[1], : x.shape[2]
            ]
            results["own"].append(psnr(own.clamp(0, 1).cpu(), x))
            planes = ww.restoration.denoise(grey, y.to(DEVICE), sigma / 255, spec=spec)[0]
            results["planes"].append(psnr(planes.clamp(0, 1).cpu(), x))
        for name, values in results.items():
            scores[name][sigma] = round(float(np.mean(values)), 3)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("crops", "photographs", "state"):
        parser.add_argument(name)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--crop", type=int, default=104)
    parser.add_argument("--held", type=int, default=31)
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model, updates = learn(a, torch.stack(read(a.crops)).to(DEVICE))
    grey = as_denoiser(torch.load(a.state, map_location=DEVICE)["average"])
    row = {"what": "colour", "seconds": a.seconds, "updates": updates, "batch": a.batch, "crop": a.crop}
    row |= {"psnr": validate(model, grey, read(a.photographs)[: a.held])}
    with a.out.open("a") as results:
        print(json.dumps(row), file=results)
    print(row, flush=True)


if __name__ == "__main__":
    main()
