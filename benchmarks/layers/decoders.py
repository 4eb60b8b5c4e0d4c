"""Ways of going up again in a network that finds key points:
python -m benchmarks.layers.decoders --out FILE [--steps N] [--seeds 3] [--seconds LIMIT]

A digit lies somewhere in a picture of 64 × 64 pixels, among 8 pieces of other digits. The network
finds its four extreme points (the top, bottom, left and right pixel of its strokes). Three
convolutions with pooling lead down to 8 × 8, three convolutions lead up; only the way up differs:

bilinear              enlarge bilinearly
transposed            transposed convolutions, one weight for each channel and element of a region
max                   max pooling; unpooling by its switches
norm and direction    pool the length of each region; unpool by its direction (4 numbers a region)
where                 Gaussian pooling; unpooling by where (2 numbers a region matter)
where, one channel    the same, and one channel of each level is handed to the way up
skip, one channel     bilinear, with that channel
skip                  bilinear, with all channels of each level (a U-Net)

A point counts as found within two pixels. Settings were the same for all and not tuned for any.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whatwhere as ww
from benchmarks.machine import machine

SIDE = 64
PIECES = 8
CHANNELS = (16, 32, 64)
BATCH = 128
RATE = 3e-3
WITHIN = 2.0


def pictures(digits: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures [N, 1, 64, 64] and the key points (row, column) of their digit, [N, 4, 2]."""
    device = digits.device

    def draw(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=generator, device=device)

    chosen = digits[draw(len(digits), count)]
    inside = F.pad(chosen, (0, SIDE - 28, 0, SIDE - 28))
    shift = draw(SIDE - 28 + 1, count, 2)
    picture = moved(inside, shift)
    points = extremes(picture[:, 0] > 0.5)
    for _ in range(PIECES):
        other = digits[draw(len(digits), count)]
        corner = draw(20, count, 2)
        piece = F.pad(moved(other, -corner)[:, :, :8, :8], (0, SIDE - 8, 0, SIDE - 8))
        picture = torch.maximum(picture, moved(piece, draw(SIDE - 8 + 1, count, 2)))
    noise = torch.randn(picture.shape, generator=generator, device=device)
    return picture + 0.1 * noise, points


def moved(maps: Tensor, shift: Tensor) -> Tensor:
    """Every map rolled by its own numbers of rows and columns."""
    n, _, height, width = maps.shape
    rows = (torch.arange(height, device=maps.device) - shift[:, :1]) % height
    columns = (torch.arange(width, device=maps.device) - shift[:, 1:]) % width
    number = torch.arange(n, device=maps.device)[:, None, None]
    return maps[:, 0][number, rows[:, :, None], columns[:, None]][:, None]


def extremes(strokes: Tensor) -> Tensor:
    """The top, bottom, left and right pixel of strokes [N, H, W]: the mean place where several are
    equally far out."""
    _, height, width = strokes.shape
    found = []
    for axis, sign in ((0, -1), (0, 1), (1, -1), (1, 1)):
        place = torch.arange(height if axis == 0 else width, device=strokes.device) * sign
        place = place[:, None] if axis == 0 else place[None]
        far = torch.where(strokes, place, -1000)
        outer = far == far.amax((1, 2), keepdim=True)
        total = outer.sum((1, 2)).clamp(min=1)
        row = (outer * torch.arange(height, device=strokes.device)[:, None]).sum((1, 2)) / total
        column = (outer * torch.arange(width, device=strokes.device)).sum((1, 2)) / total
        found.append(torch.stack([row, column], -1))
    return torch.stack(found, 1)


# --- ways down and up: down(z) → p and what is kept; up(p, kept) → z


def elements(z: Tensor) -> Tensor:
    """The elements of every 2 × 2 region, [N, C, 4, h, w]."""
    return F.pixel_unshuffle(z, 2).unflatten(1, (-1, 4))


def direction_down(z: Tensor) -> tuple[Tensor, Tensor]:
    parts = elements(z)
    length = (parts.square().sum(2) + 1e-12).sqrt()
    return length, parts / length[:, :, None]


def direction_up(p: Tensor, direction: Tensor) -> Tensor:
    return F.pixel_shuffle((p[:, :, None] * direction).flatten(1, 2), 2)


class Network(nn.Module):
    """Three levels down and up again, with one of the `WAYS`: channels of a picture → maps."""

    def __init__(self, way: str, channels: int = 1, maps: int = 4) -> None:
        super().__init__()
        self.way = way
        widths = (channels, *CHANNELS)
        self.handed = {"skip": None, "where, one channel": 1, "skip, one channel": 1}.get(way, 0)
        self.down = nn.ModuleList(
            nn.Conv2d(below, above, 5, padding=2) for below, above in itertools.pairwise(widths)
        )
        self.middle = nn.Conv2d(CHANNELS[-1], CHANNELS[-1], 5, padding=2)
        extra = [width if self.handed is None else self.handed for width in CHANNELS]
        outputs = (maps, *CHANNELS)
        self.up = nn.ModuleList(
            nn.Conv2d(outputs[k + 1] + extra[k], outputs[k], 5, padding=2) for k in range(3)
        )
        if self.handed == 1:
            self.hand = nn.ModuleList(nn.Conv2d(width, 1, 1) for width in CHANNELS)
        if way == "transposed":
            self.enlarge = nn.ModuleList(
                nn.ConvTranspose2d(width, width, 2, 2, groups=width) for width in CHANNELS
            )

    def forward(self, z: Tensor) -> Tensor:
        kept = []
        for k in range(3):
            z = F.relu(self.down[k](z))
            handed = z if self.handed is None else self.hand[k](z) if self.handed else None
            z, where = self.pool(z)
            kept.append((where, handed))
        z = F.relu(self.middle(z))
        for k in (2, 1, 0):
            where, handed = kept[k]
            z = self.unpool(z, where, k)
            z = self.up[k](z if handed is None else torch.cat([z, handed], 1))
            z = F.relu(z) if k else z
        return z

    def pool(self, z: Tensor) -> tuple[Tensor, object]:
        if self.way.startswith("where"):
            return ww.nn.functional.gaussian_pool2d(z, 2, return_where=True)
        if self.way == "norm and direction":
            return direction_down(z)
        return F.max_pool2d(z, 2, return_indices=True)

    def unpool(self, p: Tensor, where: object, level: int) -> Tensor:
        if self.way.startswith("where"):
            return ww.nn.functional.gaussian_unpool2d(p, where, 2)
        if self.way == "norm and direction":
            return direction_up(p, where)
        if self.way == "max":
            return F.max_unpool2d(p, where, 2)
        if self.way == "transposed":
            return self.enlarge[level](p)
        return F.interpolate(p, scale_factor=2, mode="bilinear", align_corners=False)


WAYS = (
    "bilinear",
    "transposed",
    "max",
    "norm and direction",
    "where",
    "where, one channel",
    "skip, one channel",
    "skip",
)


def distance(maps: Tensor, points: Tensor) -> Tensor:
    """From the largest element of each heat map to its key point, [N, 4]."""
    best = maps.flatten(2).argmax(2)
    return (torch.stack([best // SIDE, best % SIDE], -1) - points).norm(dim=-1)


def run(way: str, seed: int, steps: int, device: torch.device) -> dict[str, object]:
    """Train one network, and test it once."""
    torch.manual_seed(seed)
    network = Network(way).to(device)
    train, test = (ww.data.load("digits", split=split)[:].to(device) for split in ("train", "test"))
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    began = 0.0
    for step in range(steps):
        if step == min(20, steps // 2):
            synchronize(device)
            began = time.perf_counter()
        images, points = pictures(train, BATCH, generator)
        place = points.round().long()
        target = place[..., 0] * SIDE + place[..., 1]
        maps = network(images).flatten(2)
        loss = F.cross_entropy(maps.flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    synchronize(device)
    per_step = (time.perf_counter() - began) / max(1, steps - min(20, steps // 2))
    network.eval()
    away = torch.Generator(device).manual_seed(1000)
    found = []
    with torch.no_grad():
        for _ in range(40):
            images, points = pictures(test, 250, away)
            found.append(distance(network(images), points))
    away_by = torch.cat(found)
    return {
        "way": way,
        "seed": seed,
        "steps": steps,
        "within two pixels, %": round(100 * float((away_by <= WITHIN).float().mean()), 2),
        "within one pixel, %": round(100 * float((away_by <= 1).float().mean()), 2),
        "median distance": round(float(away_by.median()), 2),
        "last loss": round(float(loss.detach()), 4),
        "milliseconds a step": round(1e3 * per_step, 2),
        "parameters": sum(p.numel() for p in network.parameters()),
    }


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    done = {(row["way"], row["seed"], row["steps"]) for row in rows}
    longest = 0.0
    for seed in range(given.seeds):
        for way in WAYS:
            if (way, seed, given.steps) in done or time.monotonic() + longest > end:
                continue
            began = time.monotonic()
            rows.append(run(way, seed, given.steps, device))
            longest = max(longest, time.monotonic() - began)
            print(rows[-1], flush=True)
            given.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
