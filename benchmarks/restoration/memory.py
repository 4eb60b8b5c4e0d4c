"""The memory and the time that `denoise` takes for one large picture, in a process of its own.

    python -m benchmarks.restoration.memory 4000 photons
    python -m benchmarks.restoration.memory 4000 white --out FILE

Waves of 8 bits with white noise (σ = 20) or that of photons (gain 4). One thread; megabytes of
memory before, with the picture and after a small one was denoised, and at most.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import time
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww


def picture(side: int, noise: str) -> np.ndarray:
    """A picture of waves with noise, made in strips."""
    random = np.random.default_rng(0)
    result = np.empty((side, side), np.uint8)
    columns = np.cos(np.arange(side) / 17)
    for top in range(0, side, 500):
        rows = np.sin(np.arange(top, min(top + 500, side)) / 30)
        clean = 128 + 40 * np.add.outer(rows, columns)
        photons = noise == "photons"
        noisy = 4 * random.poisson(clean / 4) if photons else random.normal(clean, 20)
        result[top : top + 500] = np.rint(noisy).clip(0, 255)
    return result


def megabytes(key: str) -> int:
    """A line of the process's status: VmRSS, the memory now; VmHWM, at most."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return round(int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("side", type=int)
    parser.add_argument("noise", choices=["white", "photons"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    noisy = picture(given.side, given.noise)
    ww.restoration.denoise(noisy[:256, :256].copy())
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # VmHWM starts again
    before, began = megabytes("VmRSS"), time.process_time()
    ww.restoration.denoise(noisy)
    row = {
        "side": given.side,
        "noise": given.noise,
        "MB_before": before,
        "MB": megabytes("VmHWM"),
        "processor_seconds": round(time.process_time() - began, 1),
    }
    print(json.dumps(row))
    if given.out:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
