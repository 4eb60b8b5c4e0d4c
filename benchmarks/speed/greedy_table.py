"""Where `greedy` codes signals faster than `cpu`: lengths of signals, numbers of waveforms and λ.

    PYTHONPATH=src python3 -m benchmarks.speed.greedy_table --out greedy_table.json

A signal is a sum of random waveforms at random times with noise. λ is given as a share: at 1 the
code is empty, at 0.02 it is dense. Both engines run `InferenceSpec.coding` on one thread, each
twice, the second time counts. A row has processor seconds and the objective that each ends with.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.spec import AutoLam

LENGTHS = (300, 3_000, 30_000)
WAVEFORMS = (2, 8, 32)
SHARES = (0.5, 0.2, 0.05, 0.02)
SAMPLES = 32  # of a waveform
EVENTS_PER_SAMPLE = 0.01
NOISE = 0.1


def example(length: int, waveforms: int) -> tuple[ww.DeconvNet, torch.Tensor]:
    """A model with random smooth waveforms, and a signal that they make, [1, 1, length]."""
    generator = torch.Generator().manual_seed(length + waveforms)
    spec = ww.ModelSpec.signals(waveforms, SAMPLES, pool_size=1)
    filters = torch.randn(waveforms, 1, SAMPLES + 4, generator=generator)
    filters = torch.nn.functional.avg_pool1d(filters, 5, stride=1)
    filters = filters / filters.norm(dim=2, keepdim=True)
    model = ww.DeconvNet(spec).with_filters(1, filters.permute(1, 0, 2)[:, :, None])
    events = torch.rand(1, waveforms, length + SAMPLES - 1, generator=generator)
    strengths = 1 + torch.rand(events.shape, generator=generator)
    sparse = torch.where(events < EVENTS_PER_SAMPLE / waveforms, strengths, 0)
    signal = torch.nn.functional.conv1d(sparse, filters.permute(1, 0, 2).flip(2))
    return model, signal + NOISE * torch.randn(signal.shape, generator=generator)


def measure(model: ww.DeconvNet, signal: torch.Tensor, share: float, engine: str) -> dict[str, Any]:
    spec = ww.InferenceSpec.coding(lam=AutoLam(share=share))
    for _ in range(2):  # the first run may compile
        began = time.process_time()
        solution = ww.infer(model, signal, spec, engine=engine)
        seconds = time.process_time() - began
    return {
        "seconds": round(seconds, 4),
        "cost": float(solution.stats.cost[-1]),
        "steps": len(solution.stats.step),
        "nonzeros": int(solution.stats.nonzeros[-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine(), "rows": []}
    for length, waveforms, share in product(LENGTHS, WAVEFORMS, SHARES):
        model, signal = example(length, waveforms)
        greedy = measure(model, signal, share, "greedy")
        cpu = measure(model, signal, share, "cpu")
        row = {
            "samples": length,
            "waveforms": waveforms,
            "share": share,
            "greedy": greedy,
            "cpu": cpu,
            "time, greedy / cpu": round(greedy["seconds"] / cpu["seconds"], 3),
            "cost, greedy / cpu - 1": greedy["cost"] / cpu["cost"] - 1,
        }
        found["rows"].append(row)
        print(json.dumps(row), flush=True)
        out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
