"""Learn the steps of the denoiser from photographs; a GPU takes about 12 minutes.

    python -m reproduction.studies.denoiser learn cbsd432.tar --out FOLDER          # writes FOLDER/state.pt as it goes
    python -m reproduction.studies.denoiser learn cbsd432.tar --out FOLDER --resume FOLDER/state.pt
    python -m reproduction.studies.denoiser export FOLDER/state.pt denoiser.safetensors
    python -m reproduction.studies.denoiser test denoiser.safetensors bsd68.tar set12.tar --out results.jsonl

The pictures are archives of JPEG or PNG files: CBSD432 (the 500 of BSDS without BSD68; Martin et al. 2001), BSD68 and
Set12. Every 14th of the 432 is for validation. The filters begin as cosines under a sine window, a tight frame, so that
the first state denoises already. The loss is the mean over crops of the logarithm of their squared error, which is the
mean PSNR; noise levels are drawn evenly in log σ from 2 to 75 of 255. What ships was learned by two runs: 400 s with
the mean over 8 shifts in batches of 16, then 270 s with --shifts 16 --batch 12 --rate 3e-4 (`results/denoiser.json` has
both logs).
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whatwhere as ww

BLOCK, SIDE = 8, 16
LEVELS = (2.0, 8.0, 20.0, 40.0, 75.0)  # of noise, of 255, at which thresholds and gains are learned
MARGIN = 3 * BLOCK  # of a crop that the loss leaves out: its codes are not complete there
HELD_OUT = 14  # every 14th picture
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("A", "B", "C")


class Steps(nn.Module):
    """The numbers that are learned, as convolutions of 2 × 2 over blocks of 8 × 8 pixels.

    A and B may differ between `groups` of steps.
    """

    def __init__(self, steps: int = 8, groups: int = 1) -> None:
        super().__init__()
        n = torch.arange(SIDE, dtype=torch.float64)
        basis = torch.cos(math.pi * (n + 0.5) * n[:, None] / SIDE) * math.sqrt(2 / SIDE)
        basis[0] /= math.sqrt(2)
        basis = basis * torch.sin(math.pi * (n + 0.5) / SIDE)
        order = (n[:, None] + n).flatten().argsort(stable=True)
        atoms = torch.einsum("iy,jx->ijyx", basis, basis).reshape(-1, 1, SIDE, SIDE)[order].float()
        filters = F.pixel_unshuffle(atoms, BLOCK).contiguous()
        self.A, self.B = (nn.Parameter(filters.repeat(groups, 1, 1, 1, 1)) for _ in range(2))
        self.C = nn.Parameter(filters)
        t = torch.zeros(len(LEVELS), steps, len(atoms))  # log of the threshold in units of σ
        t[:, :, 0] = math.log(0.05)
        self.t, self.g = nn.Parameter(t), nn.Parameter(torch.zeros(len(LEVELS), len(atoms)))

    def forward(self, blocks: Tensor, t: Tensor, g: Tensor) -> Tensor:
        """Blocks [N, 64, h, w] without noise; thresholds t [N, T, M, 1, 1], gains g [N, M, 1, 1]."""
        z = shrink(F.conv2d(blocks, self.A[0]), t[:, 0])
        for k in range(1, t.shape[1]):
            group = k * len(self.A) // t.shape[1]
            error = blocks - F.conv_transpose2d(z, self.B[group])
            z = shrink(z + F.conv2d(error, self.A[group]), t[:, k])
        return F.conv_transpose2d(z * g, self.C)

    def at(self, sigma: Tensor, values: Tensor) -> Tensor:
        """Values [L, …] interpolated in log σ, [N, …]."""
        knots = torch.tensor(LEVELS, device=sigma.device).log()
        x = sigma.clamp(LEVELS[0], LEVELS[-1]).log()
        i = torch.searchsorted(knots[1:-1].contiguous(), x)
        share = ((x - knots[i]) / (knots[i + 1] - knots[i])).view(-1, *[1] * (values.ndim - 1))
        return values[i] * (1 - share) + values[i + 1] * share


def shrink(z: Tensor, t: Tensor) -> Tensor:
    return z - z.clamp(-t, t)


def denoise_crops(model: Steps, y: Tensor, sigma: Tensor, shifts: list[tuple[int, int]]) -> Tensor:
    """Crops y [N, 1, H, W] as the mean over shifts; σ [N] of 255."""
    N, _, H, W = y.shape
    t = (model.at(sigma, model.t).exp() * (sigma / 255)[:, None, None])[..., None, None]
    g = model.at(sigma, model.g).exp()[..., None, None]
    h, w = H - BLOCK, W - BLOCK
    moved = torch.cat([y[:, :, a : a + h, b : b + w] - 0.5 for a, b in shifts])
    blocks = F.pixel_unshuffle(moved, BLOCK).contiguous(memory_format=torch.channels_last)
    clean = F.pixel_shuffle(model(blocks, t.repeat(len(shifts), 1, 1, 1, 1), g.repeat(len(shifts), 1, 1, 1)), BLOCK)
    total = torch.zeros_like(y)
    for part, (a, b) in zip(clean.split(N), shifts, strict=True):
        total = total + F.pad(part, (b, W - w - b, a, H - h - a))
    return total / len(shifts) + 0.5


def as_denoiser(average: dict[str, Tensor]) -> Any:
    """The numbers as the package reads them, rounded as they are stored."""
    A, B, C = (average[name].movedim((-2, -1, -3, -4), (-4, -3, -2, -1)).flatten(-4, -2) for name in NAMES)
    numbers = {"analysis": A, "residual": B.mT, "synthesis": C.mT, "threshold": average["t"], "gain": average["g"]}
    stored = {name: tensor.half().float().contiguous() for name, tensor in numbers.items()}
    return ww.restoration.Denoiser(levels=torch.tensor(LEVELS, device=A.device) / 255, **stored)


def read(archive: str) -> dict[str, Tensor]:
    """The grey pictures of an archive by name, bytes [H, W]."""
    from PIL import Image

    with tarfile.open(archive) as tar:
        found = {m.name: tar.extractfile(m) for m in tar if m.isfile()}
        pictures = {n: Image.open(io.BytesIO(f.read())).convert("L") for n, f in found.items() if f is not None}
    return {Path(name).stem: torch.from_numpy(np.array(pictures[name])) for name in sorted(pictures)}


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * torch.log10((a - b).square().mean()))


def random_crops(pictures: Tensor, count: int, side: int, random: np.random.Generator) -> Tensor:
    """Crops [count, 1, side, side] of pictures [n, H, W], turned and mirrored together, from 0 to 1."""
    n, H, W = pictures.shape
    k = torch.from_numpy(random.integers(n, size=count)).to(pictures.device)
    rows, columns = (
        torch.from_numpy(random.integers(extent - side + 1, size=count)).to(pictures.device)[:, None]
        + torch.arange(side, device=pictures.device)
        for extent in (H, W)
    )
    x = pictures[k[:, None, None], rows[:, :, None], columns[:, None, :]][:, None].float() / 255
    flip_x, flip_y, turn = random.integers(2, size=3)
    x = x.flip(3) if flip_x else x
    x = x.flip(2) if flip_y else x
    return x.transpose(2, 3) if turn else x


def learn(a: argparse.Namespace) -> None:
    a.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    pictures = list(read(a.archive).values())
    held = pictures[::HELD_OUT]
    kept = [x if x.shape[0] < x.shape[1] else x.T for i, x in enumerate(pictures) if i % HELD_OUT]
    training = torch.stack([x[:320, :480] for x in kept]).to(DEVICE)
    model = Steps(a.steps, a.groups).to(DEVICE)
    slow, fast = [getattr(model, name) for name in NAMES], [model.t, model.g]
    optimizer = torch.optim.Adam([{"params": slow}, {"params": fast}], betas=(0.9, 0.99))
    first = 0
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    if a.resume:
        state = torch.load(a.resume, map_location=DEVICE)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["opt"])
        average, first = state["average"], state["update"]
    began = time.time()
    for update in range(first, a.updates):
        progress = max(update / a.updates, (time.time() - began) / a.seconds)
        if progress >= 1:
            break
        rate = a.rate * min(1.0, (update - first + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)
        for group, factor in zip(optimizer.param_groups, (1, 10), strict=True):
            group["lr"] = factor * rate
        x = random_crops(training, a.batch, a.crop, random)
        sigma = torch.exp(torch.rand(a.batch, device=DEVICE) * math.log(75 / 2)) * 2
        y = x + (sigma / 255)[:, None, None, None] * torch.randn_like(x)
        inside = slice(MARGIN, a.crop - MARGIN)
        error = denoise_crops(model, y, sigma, grid(a.shifts, random)) - x
        loss = (error[:, :, inside, inside].square().mean((1, 2, 3)) + 1e-7).log().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for name, value in model.state_dict().items():
            average[name].lerp_(value, 1 - min(0.999, (update + 1) / (update + 10)))
        if (update + 1) % a.every == 0:
            report(a, update + 1, began, average, held)
            state = {
                "model": model.state_dict(),
                "opt": optimizer.state_dict(),
                "average": average,
                "update": update + 1,
            }
            torch.save(state, a.out / "state.pt")


def grid(count: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """8 or 16 places of the grid, spread evenly, from a random one on."""
    top, left = (int(v) for v in random.integers(4, size=2))
    every = [(d, e) for d in range(0, 8, 2) for e in range(0, 8, 2) if count == 16 or (d // 2 + e // 2) % 2 == 0]
    return [((top + d) % 8, (left + e) % 8) for d, e in every]


@torch.no_grad()
def report(a: argparse.Namespace, update: int, began: float, average: dict[str, Tensor], held: list[Tensor]) -> None:
    """The mean PSNR of 16 validation pictures at four noise levels, as a line of the log."""
    denoiser, random = as_denoiser(average), torch.Generator().manual_seed(1)
    row: dict[str, float] = {"update": update, "seconds": round(time.time() - began, 1)}
    for sigma in (5, 15, 25, 50):
        scores = []
        for picture in held[:16]:
            x = picture.float() / 255
            y = (x + sigma / 255 * torch.randn(x.shape, generator=random)).to(DEVICE)
            scores.append(psnr(denoiser.denoise(y, sigma / 255, 16).clamp(0, 1).cpu(), x))
        row[f"psnr{sigma}"] = round(float(np.mean(scores)), 3)
    with (a.out / "log.jsonl").open("a") as log:
        print(json.dumps(row), file=log)
    print(row, flush=True)


def export(a: argparse.Namespace) -> None:
    from safetensors.torch import save_file

    denoiser = as_denoiser(torch.load(a.state, map_location="cpu")["average"])
    numbers = {name: getattr(denoiser, name) for name in denoiser.__dataclass_fields__}
    save_file({n: v if n == "levels" else v.half() for n, v in numbers.items()}, a.file, metadata={"format": "1"})


@torch.no_grad()
def test(a: argparse.Namespace) -> None:
    from safetensors.torch import load_file

    numbers = {name: tensor.float().to(DEVICE) for name, tensor in load_file(a.file).items()}
    denoiser = ww.restoration.Denoiser(**numbers)
    for archive in a.archives:
        for sigma in (15, 25, 50):
            for shifts in (16, 64):
                scores = []
                for i, picture in enumerate(read(archive).values()):
                    x = picture.to(DEVICE).float() / 255
                    random = torch.Generator().manual_seed(1000 * sigma + i)
                    y = x + sigma / 255 * torch.randn(x.shape, generator=random).to(DEVICE)
                    scores.append(psnr(denoiser.denoise(y, sigma / 255, shifts).clamp(0, 1), x))
                row = {"data": Path(archive).stem, "sigma": sigma, "shifts": shifts, "psnr": float(np.mean(scores))}
                with a.out.open("a") as results:
                    print(json.dumps(row), file=results)
                print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("learn")
    command.add_argument("archive")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--resume", type=Path)
    command.add_argument("--seconds", type=float, default=400, help="length of the schedule")
    for name, value in {
        "updates": 200_000,
        "batch": 16,
        "crop": 112,
        "shifts": 8,
        "every": 5000,
        "steps": 8,
        "groups": 1,
    }.items():
        command.add_argument(f"--{name}", type=int, default=value)
    command.add_argument("--rate", type=float, default=5e-4)
    command.set_defaults(run=learn)
    command = commands.add_parser("export")
    command.add_argument("state", type=Path)
    command.add_argument("file", type=Path)
    command.set_defaults(run=export)
    command = commands.add_parser("test")
    command.add_argument("file", type=Path)
    command.add_argument("archives", nargs="+")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=test)
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
