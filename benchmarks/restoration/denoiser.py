"""Learn the steps of the denoiser from photographs, in three runs of 19 minutes altogether on one
H200.

    LEARN="python -m benchmarks.restoration.denoiser learn cbsd432.tar"      # writes
    FOLDER/state.pt
    as it goes $LEARN --out 1 --seconds 400 --shifts 8 $LEARN --out 2 --seconds 270 --batch 12
    --rate 3e-4 --resume 1/state.pt $LEARN --out 3 --seconds 440 --rate 3e-4 --groups 4 --resume
    2/state.pt python -m benchmarks.restoration.denoiser export 3/state.pt denoiser.safetensors

A run that was interrupted continues with `--resume` of its own state and the seconds that were
left. The archive holds JPEG or PNG files: CBSD432 (the 500 of BSDS less BSD68; Martin et al. 2001).
Every 14th is for validation, 31 of them, and nine more with `--held-out 40`. The filters begin as
cosines under a sine window, a tight frame, so that the first state denoises already. The loss is
the mean over crops of the logarithm of their squared error, which is the mean PSNR. Noise levels
are drawn evenly in log σ, three in ten from 2 to 75 of 255 and seven from 10 to 60. Products are in
half precision. (The first two runs behind what ships were in single precision with levels from 2 to
75 only; `results/denoiser.json` has the logs of all three, and of this script as a whole in 430 s,
without torch.compile: 29.37 dB in validation at σ = 25, 0.16 below what ships;
`results/denoiser_colour.json` in 350 s with it, 40 held out: 29.44.)
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tarfile
import time
from collections.abc import Callable
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
DEVICE, DTYPE = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
LOSS_SCALE = 64.0  # keeps gradients in half precision above the smallest number
NAMES = ("A", "B", "C")
Loss = Callable[["Steps", Tensor, Tensor, Tensor, list[tuple[int, int]]], Tensor]
Note = Callable[[int, float, dict[str, Tensor]], None]


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
        """Blocks [N, 64, h, w] without noise; thresholds t [N, T, M, 1, 1], gains g [N, M,
        1, 1]."""
        kind: Any = {"dtype": DTYPE, "memory_format": torch.channels_last}
        A, B = [f.to(**kind) for f in self.A], [f.to(**kind) for f in self.B]
        y, t, steps = blocks.to(**kind), t.to(DTYPE), t.shape[1]
        z = shrink(F.conv2d(y, A[0]), t[:, 0])
        for k in range(1, steps):
            group = k * len(A) // steps
            error = y - F.conv_transpose2d(z, B[group])
            z = shrink(z + F.conv2d(error, A[group]), t[:, k])
        return F.conv_transpose2d(z * g.to(DTYPE), self.C.to(**kind)).float()

    def at(self, sigma: Tensor, values: Tensor) -> Tensor:
        """Values [L, …] interpolated in log σ, [N, …]."""
        knots = torch.tensor(LEVELS, device=sigma.device).log()
        x = sigma.clamp(LEVELS[0], LEVELS[-1]).log()
        # of the level below; torch.compile fails on searchsorted
        i = (x[:, None] > knots[1:-1]).sum(1)
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
    clean = F.pixel_shuffle(
        model(blocks, t.repeat(len(shifts), 1, 1, 1, 1), g.repeat(len(shifts), 1, 1, 1)), BLOCK
    )
    total = torch.zeros_like(y)
    for part, (a, b) in zip(clean.split(N), shifts, strict=True):
        total = total + F.pad(part, (b, W - w - b, a, H - h - a))
    return total / len(shifts) + 0.5


def as_denoiser(average: dict[str, Tensor]) -> Any:
    """The numbers as the package reads them, rounded as they are stored."""
    A, B, C = (
        average[name].movedim((-2, -1, -3, -4), (-4, -3, -2, -1)).flatten(-4, -2) for name in NAMES
    )
    numbers = {
        "analysis": A,
        "residual": B.mT,
        "synthesis": C.mT,
        "threshold": average["t"],
        "gain": average["g"],
    }
    stored = {name: tensor.half().float().contiguous() for name, tensor in numbers.items()}
    return ww.restoration.Denoiser(levels=torch.tensor(LEVELS, device=A.device) / 255, **stored)


def read(archive: str, mode: str = "L") -> dict[str, Tensor]:
    """The pictures of an archive by name, bytes [H, W] in grey, [H, W, 3] in mode RGB."""
    from PIL import Image

    with tarfile.open(archive) as tar:
        found = {m.name: tar.extractfile(m) for m in tar if m.isfile()}
        pictures = {
            n: Image.open(io.BytesIO(f.read())).convert(mode)
            for n, f in found.items()
            if f is not None
        }
    return {
        Path(name).stem: torch.from_numpy(np.array(pictures[name])) for name in sorted(pictures)
    }


def held_out(pictures: int, count: int = 31) -> list[int]:
    """The numbers of the pictures that are kept from training: every 14th, or these and
    nine more."""
    return [*range(0, pictures, HELD_OUT), *(range(7, pictures, 48) if count == 40 else ())]


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * torch.log10((a - b).square().mean()))


def random_crops(pictures: Tensor, count: int, side: int, random: np.random.Generator) -> Tensor:
    """Crops [count, C, side, side] of pictures [n, C, H, W], turned and mirrored together, from 0
    to 1."""
    n, C, H, W = pictures.shape
    k = torch.from_numpy(random.integers(n, size=count)).to(pictures.device).view(-1, 1, 1, 1)
    rows, columns = (
        torch.from_numpy(random.integers(extent - side + 1, size=count)).to(pictures.device)[
            :, None
        ]
        + torch.arange(side, device=pictures.device)
        for extent in (H, W)
    )
    channels = torch.arange(C, device=pictures.device).view(-1, 1, 1)
    x = pictures[k, channels, rows[:, None, :, None], columns[:, None, None, :]].float() / 255
    flip_x, flip_y, turn = random.integers(2, size=3)
    x = x.flip(3) if flip_x else x
    x = x.flip(2) if flip_y else x
    return x.transpose(2, 3) if turn else x


def learn(a: argparse.Namespace) -> None:
    a.out.mkdir(parents=True, exist_ok=True)
    training, held = split(list(read(a.archive).values()), a.held_out)
    model = Steps(a.steps, a.groups).to(DEVICE)
    if a.resume:
        start(model, torch.load(a.resume, map_location=DEVICE)["average"])

    def note(update: int, seconds: float, average: dict[str, Tensor]) -> None:
        report(a, update, seconds, average, held)
        torch.save({"average": average, "update": update}, a.out / "state.pt")

    train(
        model, training, a, torch.compile(loss, dynamic=False) if DEVICE == "cuda" else loss, note
    )


def split(pictures: list[Tensor], count: int) -> tuple[Tensor, list[Tensor]]:
    """Pictures [H, W, …] to learn from, upright ones turned, as [n, C, 320, 480], and those that
    are held out."""
    held = held_out(len(pictures), count)
    kept = [
        x if x.shape[0] < x.shape[1] else x.transpose(0, 1)
        for i, x in enumerate(pictures)
        if i not in held
    ]
    training = torch.stack([x[:320, :480].reshape(320, 480, -1).permute(2, 0, 1) for x in kept])
    return training.to(DEVICE), [pictures[i] for i in held]


def train(model: Steps, training: Tensor, a: argparse.Namespace, loss_of: Loss, note: Note) -> None:
    """Learn from random crops of pictures [n, C, H, W] for a.seconds or a.updates.

    `note` gets the number of updates, the seconds without its own, and the mean numbers of the
    latest updates.
    """
    torch.manual_seed(a.seed)
    random = np.random.default_rng(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    slow, fast = [getattr(model, name) for name in NAMES], [model.t, model.g]
    optimizer = torch.optim.Adam(
        [{"params": slow}, {"params": fast}], betas=(0.9, 0.99), fused=DEVICE == "cuda"
    )
    began, update, seconds = time.time(), 0, 0.0
    while (progress := max(update / a.updates, seconds / a.seconds)) < 1:
        rate = (
            a.rate
            * min(1.0, (update + 1) / 200)
            * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)
        )
        for group, factor in zip(optimizer.param_groups, (1, 10), strict=True):
            group["lr"] = factor * rate
        x = random_crops(training, a.batch, a.crop, random).contiguous()
        sigma = random_levels(a.batch)
        y = x + (sigma / 255)[:, None, None, None] * torch.randn_like(x)
        optimizer.zero_grad(set_to_none=True)
        (LOSS_SCALE * loss_of(model, x, y, sigma, grid(a.shifts))).backward()
        scale_gradients(list(model.parameters()))
        optimizer.step()
        update, seconds = update + 1, time.time() - began
        for name, value in model.state_dict().items():
            average[name].lerp_(value, 1 - min(0.999, update / (update + 9)))
        if update % a.every == 0:
            note(update, seconds, average)
            began = time.time() - seconds
    note(update, seconds, average)


def start(model: Steps, numbers: dict[str, Tensor]) -> None:
    """Begin with numbers of an earlier run; filters of one group are repeated for all groups."""
    for name, value in model.state_dict().items():
        value.copy_(numbers[name].expand_as(value))


def loss(
    model: Steps, x: Tensor, y: Tensor, sigma: Tensor, shifts: list[tuple[int, int]]
) -> Tensor:
    inside = slice(MARGIN, x.shape[-1] - MARGIN)
    error = (denoise_crops(model, y, sigma, shifts) - x)[:, :, inside, inside]
    return (error.square().mean((1, 2, 3)) + 1e-7).log().mean()


def random_levels(count: int) -> Tensor:
    """Noise levels [count], of 255."""
    choice, place = torch.rand(2, count, device=DEVICE)
    return torch.where(choice < 0.3, 2 * (75 / 2) ** place, 10 * (60 / 10) ** place)


def scale_gradients(parameters: list[nn.Parameter]) -> None:
    """Undo the scale of the loss, cut their norm at 1, and drop an update that half precision
    could not represent."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm() / LOSS_SCALE
    factor = torch.where(norm.isfinite(), 1 / (LOSS_SCALE * norm.clamp(min=1)), 0)
    for gradient in gradients:
        gradient.nan_to_num_(0, 0, 0).mul_(factor)


def grid(count: int) -> list[tuple[int, int]]:
    """8 or 16 places of the grid, spread evenly; random crops move it anyway."""
    return [
        (d, e) for d in range(0, 8, 2) for e in range(0, 8, 2) if count == 16 or (d + e) % 4 == 0
    ]


@torch.no_grad()
def report(
    a: argparse.Namespace,
    update: int,
    seconds: float,
    average: dict[str, Tensor],
    held: list[Tensor],
) -> None:
    """The mean PSNR of 16 validation pictures at four noise levels, as a line of the log."""
    denoiser, random = as_denoiser(average), torch.Generator().manual_seed(1)
    row: dict[str, float] = {"update": update, "seconds": round(seconds, 1)}
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
    save_file(
        {n: v if n == "levels" else v.half() for n, v in numbers.items()},
        a.file,
        metadata={"format": "1"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("learn")
    command.add_argument("archive")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--resume", type=Path)
    command.add_argument(
        "--seconds", type=float, default=400, help="length of the schedule, evaluation aside"
    )
    numbers = {"updates": 200_000, "batch": 16, "crop": 112, "shifts": 16, "every": 5000}
    for name, value in (numbers | {"steps": 8, "groups": 1, "seed": 0}).items():
        command.add_argument(f"--{name}", type=int, default=value)
    command.add_argument("--rate", type=float, default=5e-4)
    command.add_argument("--held-out", type=int, choices=(31, 40), default=31)
    command.set_defaults(run=learn)
    command = commands.add_parser("export")
    command.add_argument("state", type=Path)
    command.add_argument("file", type=Path)
    command.set_defaults(run=export)
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
