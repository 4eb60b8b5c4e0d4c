"""Does a model of three channels denoise colour better than the grey one on opponent planes?

    python -m benchmarks.restoration.denoiser_colour cbsd432.tar --out FOLDER --seconds 150      #
    one GPU, 2 × 150 s

Both runs begin as the denoiser that ships, on brightness and two differences of colour: 256
features of each plane, 768 altogether. In the run `joint` every filter may then become one of all
three planes (5.3 million numbers, 10.6 MB in half precision, where the grey model has 1.2); in
`planes`, its control, filters stay within their plane but differ from plane to plane. The same
steps, loss and pictures as in `benchmarks/restoration/denoiser.py`; 31 pictures are held out.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whatwhere as ww
from benchmarks.restoration.denoiser import (
    BLOCK,
    DEVICE,
    LEVELS,
    MARGIN,
    NAMES,
    Steps,
    denoise_crops,
    grid,
    psnr,
    read,
    split,
    train,
)
from whatwhere.restoration.denoiser import reflect
from whatwhere.restoration.planes import PLANE_NOISE, from_opponent, to_opponent

PLANES = 3
SHIFTS = 16  # of the grid, in training and evaluation


class ColourSteps(Steps):
    """Steps on three planes that begin as the grey denoiser on each of them; σ is that of red,
    green and blue."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        grey = ww.restoration.load_denoiser()
        stored = {"A": grey.analysis, "B": grey.residual.mT, "C": grey.synthesis.mT}
        for name, numbers in stored.items():
            filters = numbers.unflatten(-2, (2, 2, BLOCK**2)).movedim(
                (-4, -3, -2, -1), (-2, -1, -3, -4)
            )
            *groups, M, size, _, _ = filters.shape
            wide = filters.new_zeros(*groups, PLANES, M, PLANES, size, 2, 2)
            for plane in range(PLANES):
                wide[..., plane, :, plane, :, :, :] = filters
            self.register_parameter(
                name, nn.Parameter(wide.flatten(-6, -5).flatten(-4, -3).contiguous())
            )
        at: Any = [[s / 255 * factor for factor in PLANE_NOISE] for s in LEVELS]
        t = [
            torch.cat([grey.at_level(s, grey.threshold) + math.log(255 * s / L) for s in row], -1)
            for L, row in zip(LEVELS, at, strict=True)
        ]
        g = [torch.cat([grey.at_level(s, grey.gain) for s in row], -1) for row in at]
        self.t, self.g = nn.Parameter(torch.stack(t)), nn.Parameter(torch.stack(g))


@torch.no_grad()
def denoise_picture(model: Steps, noisy: Tensor, sigma: float) -> Tensor:
    """A picture [3, H, W] from 0 to 1 without noise; σ of 255."""
    H, W = noisy.shape[1:]
    planes = torch.stack([reflect(plane, 16) for plane in to_opponent(noisy)])
    padded = F.pad(planes, (0, -planes.shape[2] % BLOCK, 0, -planes.shape[1] % BLOCK), value=0.5)[
        None
    ]
    clean = denoise_crops(
        model, padded, torch.tensor([float(sigma)], device=noisy.device), grid(SHIFTS)
    )[0]
    return from_opponent(clean[:, 16 : 16 + H, 16 : 16 + W]).clamp(0, 1)


def evaluate(model: Steps | None, held: list[Tensor]) -> dict[str, float]:
    """Mean PSNR of the held-out pictures [H, W, 3]; without a model that of what ships."""
    shipped, spec = (
        ww.restoration.load_denoiser().to(DEVICE),
        ww.restoration.RestorationSpec(quality=SHIFTS),
    )
    row = {}
    for sigma in (15, 25, 50):
        scores = []
        for i, picture in enumerate(held):
            x = picture.permute(2, 0, 1).float() / 255
            random = torch.Generator().manual_seed(1000 * sigma + i)
            y = (x + sigma / 255 * torch.randn(x.shape, generator=random)).to(DEVICE)
            if model is None:
                clean = ww.restoration.denoise(y[None], shipped, sigma / 255, spec=spec)[0].clamp(
                    0, 1
                )
            else:
                clean = denoise_picture(model, y, sigma)
            scores.append(psnr(clean.cpu(), x))
        row[f"psnr{sigma}"] = round(float(np.mean(scores)), 3)
    return row


def loss(
    model: Steps, x: Tensor, y: Tensor, sigma: Tensor, shifts: list[tuple[int, int]]
) -> Tensor:
    """As in `benchmarks/restoration/denoiser.py`, of red, green and blue."""
    inside = slice(MARGIN, x.shape[-1] - MARGIN)
    error = (from_opponent(denoise_crops(model, to_opponent(y), sigma, shifts)) - x)[
        :, :, inside, inside
    ]
    return (error.square().mean((1, 2, 3)) + 1e-7).log().mean()


def learn(
    name: str, training: Tensor, held: list[Tensor], a: argparse.Namespace
) -> list[dict[str, float]]:
    """The log of a run of a.seconds."""
    model, smooth, log = ColourSteps().to(DEVICE), ColourSteps().to(DEVICE), []
    for parameter in (getattr(model, n) for n in NAMES if name == "planes"):
        parameter.register_hook(lambda gradient, own=parameter != 0: gradient * own)

    def note(update: int, seconds: float, average: dict[str, Tensor]) -> None:
        smooth.load_state_dict(average)
        log.append({"update": update, "seconds": round(seconds, 1)} | evaluate(smooth, held))
        print(name, log[-1], flush=True)
        torch.save({n: v.half() for n, v in average.items()}, a.out / f"{name}.pt")

    note(0, 0.0, model.state_dict())
    train(model, training, a, loss, note)
    return log


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150, help="of each run, evaluation aside")
    for name, value in {
        "updates": 10**6,
        "batch": 8,
        "crop": 112,
        "every": 4000,
        "held": 31,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.set_defaults(shifts=SHIFTS, seed=0)
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    training, held = split(list(read(a.archive, "RGB").values()), 31)
    held = held[: a.held]
    result: dict[str, Any] = {
        "pictures": len(held),
        "shifts": SHIFTS,
        "shipped": evaluate(None, held),
    }
    print(result, flush=True)
    for name in ("joint", "planes"):
        result[name] = learn(name, training, held, a)
        (a.out / "denoiser_colour.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
