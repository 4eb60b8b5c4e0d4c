"""Photographs in a file of a few megabytes that NumPy alone reads, for machines without Pillow.

    python -m benchmarks.restoration.packed_photographs cbsd432.tar photographs.npz --step 7

Grey pictures, turned to 320 × 480, as cosines of 8 × 8 pixels that are rounded to multiples of
`step` grey levels. Coefficients of one frequency lie together, which bzip2 packs.
"""

from __future__ import annotations

import argparse
import bz2
from pathlib import Path

import numpy as np

SIDE = 8


def cosines() -> np.ndarray:
    n = np.arange(SIDE)
    basis = np.cos(np.pi * (n + 0.5) * n[:, None] / SIDE) * np.sqrt(2 / SIDE)
    basis[0] /= np.sqrt(2)
    return basis


def pack(pictures: np.ndarray, step: float) -> np.ndarray:
    """Bytes of pictures [N, H, W]."""
    n, h, w = pictures.shape
    blocks = pictures.reshape(n, h // SIDE, SIDE, w // SIDE, SIDE).astype(np.float32) - 128
    c = cosines().astype(np.float32)
    rough = np.einsum("ui,naibj,vj->uvnab", c, blocks, c, optimize=True) / step
    # values between are rounded towards 0: they are mostly noise
    numbers = np.sign(rough) * np.floor(np.abs(rough) + 0.4)
    numbers[0, 0, ..., 1:] -= numbers[0, 0, ..., :-1].copy()
    low = np.ascontiguousarray(numbers, np.int16).view(np.uint8).reshape(*numbers.shape, 2)
    packed = bz2.compress(low[..., 0].tobytes() + low[..., 1].tobytes())
    head = np.array([n, h, w, round(100 * step)], np.int32).tobytes()
    return np.frombuffer(head + packed, np.uint8)


def unpack(content: np.ndarray) -> np.ndarray:
    """Pictures [N, H, W] as bytes."""
    data = content.tobytes()
    n, h, w, step = np.frombuffer(data[:16], np.int32).tolist()
    shape = SIDE, SIDE, n, h // SIDE, w // SIDE
    low = np.frombuffer(bz2.decompress(data[16:]), np.uint8).reshape(2, -1)
    numbers = np.ascontiguousarray(low.T).view(np.int16).reshape(shape).astype(np.float32)
    numbers[0, 0] = numbers[0, 0].cumsum(-1)
    c = cosines().astype(np.float32)
    blocks = np.einsum("ui,uvnab,vj->naibj", c, numbers * (step / 100), c, optimize=True)
    return np.rint(blocks.reshape(n, h, w) + 128).clip(0, 255).astype(np.uint8)


def main() -> None:
    from benchmarks.restoration.denoiser import read

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive")
    parser.add_argument("out", type=Path)
    parser.add_argument("--step", type=float, default=7.0)
    parser.add_argument("--held", type=int, default=8, help="the first ones are held out")
    parser.add_argument("--learned", type=int, default=95)
    a = parser.parse_args()
    from benchmarks.restoration.denoiser import held_out

    every = [x.numpy() for x in read(a.archive).values()]
    held = held_out(len(every))
    learned = np.delete(np.arange(len(every)), held)
    grey = [every[k] for k in (*held[: a.held], *learned[:: -(-len(learned) // a.learned)])]
    upright = [x if x.shape[0] < x.shape[1] else x.T for x in grey]
    pictures = np.stack([x[:320, :480] for x in upright])
    content = pack(pictures, a.step)
    a.out.write_bytes(content.tobytes())
    error = unpack(content).astype(np.float32) - pictures
    size, rms = len(content) / 2**20, np.sqrt((error**2).mean())
    print(f"{len(pictures)} pictures, {size:.1f} MiB, error {rms:.2f} grey levels")


if __name__ == "__main__":
    main()
