"""Do filters of their own for every step, or more steps, improve the denoiser that ships?

    python -m benchmarks.restoration.deeper photographs.bin --start denoiser.pt --steps 12 --out OUT

Continues from what ships: filters of one of four groups of steps become filters of single steps,
and with 12 steps two of three source steps are taken twice. Pictures come from
`benchmarks/restoration/packed_photographs.py`; steps, loss and levels are those of
`benchmarks/restoration/denoiser.py`. An interrupted run continues from the state in OUT.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.restoration.denoiser import (
    BLOCK,
    DEVICE,
    NAMES,
    Steps,
    denoise_crops,
    grid,
    loss,
    psnr,
    train,
)
from benchmarks.restoration.packed_photographs import unpack


def shipped(steps: int) -> dict[str, Tensor]:
    """The numbers that ship as those of a model of so many steps."""
    import whatwhere as ww

    grey = ww.restoration.load_denoiser()
    stored = {"A": grey.analysis, "B": grey.residual.mT, "C": grey.synthesis.mT}
    numbers = {
        name: values.unflatten(-2, (2, 2, BLOCK**2)).movedim((-4, -3, -2, -1), (-2, -1, -3, -4))
        for name, values in stored.items()
    }
    numbers |= {"t": grey.threshold, "g": grey.gain}
    return longer(numbers, steps)


def longer(numbers: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    """The same with filters of every step, some of them repeated."""
    before, groups = numbers["t"].shape[1], len(numbers["A"])
    source = [int((k + 0.5) * before / steps) for k in range(steps)]
    result = dict(numbers)
    for name in ("A", "B"):
        result[name] = numbers[name][[k * groups // before for k in source]]
    result["t"] = numbers["t"][:, source]
    return {name: values.contiguous().clone() for name, values in result.items()}


@torch.no_grad()
def evaluate(model: Steps, held: Tensor, count: int) -> dict[str, float]:
    """Mean PSNR of held-out pictures [N, 320, 480]."""
    row = {}
    for sigma in (5, 15, 25, 50):
        scores = []
        for number, picture in enumerate(held[:count]):
            random = torch.Generator().manual_seed(1000 * sigma + number)
            x = picture.float()[None, None] / 255
            y = (x + sigma / 255 * torch.randn(x.shape, generator=random)).to(DEVICE)
            padded = F.pad(y, (16, 24, 16, 24), mode="reflect")
            level = torch.tensor([float(sigma)], device=DEVICE)
            clean = denoise_crops(model, padded, level, grid(16))
            inside = clean[..., 16 : 16 + x.shape[2], 16 : 16 + x.shape[3]].clamp(0, 1)
            scores.append(psnr(inside.cpu(), x))
        row[f"psnr{sigma}"] = round(float(np.mean(scores)), 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--start", type=Path, help="numbers of four groups, as `pack` writes them")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--held", type=int, default=8, help="the first pictures")
    for name, value in {
        "updates": 10**6,
        "batch": 16,
        "crop": 112,
        "shifts": 16,
        "every": 5000,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.set_defaults(seed=1)
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    pictures = unpack(np.frombuffer(a.photographs.read_bytes(), np.uint8))
    kept = torch.from_numpy(pictures[a.held :])[:, None].to(DEVICE)
    test = torch.from_numpy(pictures[: a.held])
    state = a.out / "state.pt"
    if state.exists():
        numbers = torch.load(state, map_location="cpu")["average"]
    elif a.start:
        numbers = longer(torch.load(a.start, map_location="cpu"), a.steps)
    else:
        numbers = shipped(a.steps)
    numbers = {name: values.float().to(DEVICE) for name, values in numbers.items()}
    model, smooth = (Steps(a.steps, a.steps).to(DEVICE) for _ in range(2))
    model.load_state_dict(numbers)
    began = time.time()

    def note(update: int, seconds: float, average: dict[str, Tensor]) -> None:
        smooth.load_state_dict(average)
        row = {"steps": a.steps, "update": update, "seconds": round(seconds, 1)}
        row |= {"clock": round(time.time() - began, 1)} | evaluate(smooth, test, a.held)
        with (a.out / "log.jsonl").open("a") as log:
            print(json.dumps(row), file=log)
        print(row, flush=True)
        partial = a.out / "state.part"
        numbers = {name: average[name].half().cpu() for name in (*NAMES, "t", "g")}
        torch.save({"average": numbers, "update": update}, partial)
        partial.replace(state)

    note(0, 0.0, model.state_dict())
    compiled = torch.compile(loss, dynamic=False) if DEVICE == "cuda" else loss
    train(model, kept, a, compiled, note)


if __name__ == "__main__":
    main()
