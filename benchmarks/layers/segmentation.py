"""Ways of going up again in a network that segments white blood cells.

    git clone https://github.com/zxaoyou/segmentation_WBC CLONE
    python -m benchmarks.layers.segmentation pack --data CLONE --to cells.npz
    python -m benchmarks.layers.segmentation run --data cells.npz --out FILE [--steps N] [--seeds 3]

Every picture has one cell, whose nucleus and cytoplasm are outlined by hand (Zheng et al. 2018):
300 pictures of up to 120 × 120 pixels, of which the middle 104 × 104 are used (a few are smaller
and left out), and 100 of 300 × 300 pixels with another stain, at half their size. Two thirds, drawn
by the seed, are learned from, and the others are the test; turned and mirrored pictures are learned
from as well. The networks are those of `decoders`; learning ends when the rate has fallen to 0.
Settings were the same for all and not tuned for any. Score: intersection over union, the mean of
nucleus and cytoplasm, each over all pixels of the test; at borders, the same for pixels within two
pixels of an outline.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.layers.decoders import WAYS, Network
from benchmarks.machine import machine

SETS = {"one": ("Dataset 1", 104, 1), "two": ("Dataset 2", 144, 2)}  # folder, side, reduced by
BATCH = 32
RATE = 3e-3


def pack(folder: Path, to: Path) -> None:
    """Write pictures [N, 3, S, S] and the class of every pixel [N, S, S] of both sets."""
    from PIL import Image

    arrays: dict[str, np.ndarray] = {}
    for name, (part, side, factor) in SETS.items():
        pictures, classes = [], []
        for file in sorted((folder / part).glob("*.bmp")):
            mask = Image.open(io.BytesIO(file.with_suffix(".png").read_bytes())).convert("L")
            picture = Image.open(file).convert("RGB").reduce(factor)
            if min(picture.size) < side:
                continue
            top, left = ((n - side) // 2 for n in picture.size[::-1])
            window = slice(top, top + side), slice(left, left + side)
            pictures.append(np.asarray(picture)[window].transpose(2, 0, 1))
            small = np.asarray(mask)[factor // 2 :: factor, factor // 2 :: factor][window]
            # 0 ground, 128 cytoplasm, 255 nucleus
            classes.append((small > 64).astype(np.uint8) + (small > 192))
        arrays |= {f"{name}_pictures": np.stack(pictures), f"{name}_classes": np.stack(classes)}
    np.savez_compressed(to, **arrays)  # type: ignore[arg-type]


def turned(pictures: Tensor, classes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch, all turned by the same quarter and mirrored or not."""
    quarter, mirrored = torch.randint(4, (2,), generator=generator).tolist()
    pictures, classes = (torch.rot90(t, quarter, (-2, -1)) for t in (pictures, classes))
    return (pictures.flip(-1), classes.flip(-1)) if mirrored % 2 else (pictures, classes)


def overlap(found: Tensor, classes: Tensor, where: Tensor) -> float:
    """Intersection over union in per cent, the mean of both parts of a cell."""
    each = []
    for part in (1, 2):
        a, b = (found == part) & where, (classes == part) & where
        each.append(float((a & b).sum() / (a | b).sum().clamp(min=1)))
    return 100 * sum(each) / len(each)


def borders(classes: Tensor) -> Tensor:
    """Where another class is within two pixels."""
    values = classes[:, None].float()
    return (F.max_pool2d(values, 5, 1, 2) + F.max_pool2d(-values, 5, 1, 2))[:, 0] > 0


def run(way: str, seed: int, steps: int, pictures: Tensor, classes: Tensor) -> dict[str, object]:
    """Train one network, and test it once."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pictures), generator=generator).to(pictures.device)
    train, test = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
    network = Network(way, channels=3, maps=3).to(pictures.device)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    losses = []
    began = time.perf_counter()
    for _ in range(steps):
        chosen = train[torch.randint(len(train), (BATCH,), generator=generator).to(train.device)]
        x, y = turned(pictures[chosen], classes[chosen], generator)
        loss = F.cross_entropy(network(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    last = torch.stack(losses).cpu()
    seconds = time.perf_counter() - began
    network.eval()
    with torch.no_grad():
        found = torch.cat([network(x).argmax(1) for x in pictures[test].split(50)])
    truth = classes[test]
    return {
        "way": way,
        "seed": seed,
        "steps": steps,
        "overlap, %": round(overlap(found, truth, torch.ones_like(truth, dtype=torch.bool)), 2),
        "overlap at borders, %": round(overlap(found, truth, borders(truth)), 2),
        "wrong pixels, %": round(100 * float((found != truth).float().mean()), 3),
        "loss": [round(float(part.mean()), 4) for part in last.chunk(10)],
        "milliseconds a step": round(1e3 * seconds / steps, 2),
        "parameters": sum(p.numel() for p in network.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["pack", "run"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    if given.what == "pack":
        pack(given.data, given.to)
        return
    end = time.monotonic() + given.seconds
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    done = {(row["set"], row["way"], row["seed"], row["steps"]) for row in rows}
    longest = 0.0
    arrays = np.load(given.data)
    for name in given.sets:
        pictures = torch.from_numpy(arrays[f"{name}_pictures"]).to(device).float() / 255
        pictures = (pictures - pictures.mean((0, 2, 3), keepdim=True)) / pictures.std()
        classes = torch.from_numpy(arrays[f"{name}_classes"]).to(device).long()
        for seed in given.seeds:
            for way in WAYS:
                late = time.monotonic() + longest > end
                if late or (name, way, seed, given.steps) in done:
                    continue
                began = time.monotonic()
                row = {"set": name, **run(way, seed, given.steps, pictures, classes)}
                rows.append(row)
                longest = max(longest, time.monotonic() - began)
                print(row, flush=True)
                content = {"machine": machine(), "rows": rows}
                given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
