"""Large pictures in tiles: are they equal to the whole, how much memory do they take, how many
cores do they use?

    python -m benchmarks.memory.large_pictures equality --size 2048
    python -m benchmarks.memory.large_pictures memory --sizes 1024 2048 4096 8192
    python -m benchmarks.memory.large_pictures cores --size 1024

One layer of 32 Gabor filters of 8×8 (`--maps 8`: of 8) with 2×2 regions on the high-passed
photograph china.jpg of scikit-learn, mirrored until it has the size. Every call adds its result to
benchmarks/results/logs.json.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor

from benchmarks.log import Log
from benchmarks.machine import machine
from whatwhere.codes.encoder import Encoder
from whatwhere.codes.settings import EncodeOptions
from whatwhere.data import load
from whatwhere.inference import infer, infer_tiled
from whatwhere.model import DeconvNet
from whatwhere.spec import (
    Fixed,
    InferenceSpec,
    InputSpec,
    LayerSpec,
    LearningSpec,
    ModelSpec,
    Recipe,
)

RESULTS = Log("large_pictures")


def gabor_model(dtype: torch.dtype = torch.float32, maps: int = 32) -> DeconvNet:
    """8 directions, then 2 frequencies, then 2 phases."""
    layer = LayerSpec(maps=maps, filter_size=8)
    spec = ModelSpec(
        layers=(layer,), nonnegative=False, input=InputSpec(kind="highpass", sigma=4.0)
    )
    place = torch.arange(8, dtype=torch.float64) - 3.5
    y, x = torch.meshgrid(place, place, indexing="ij")
    filters = []
    for i in range(maps):
        angle, frequency, phase = (
            math.pi * (i % 8) / 8,
            (0.12, 0.22)[i // 8 % 2],
            math.pi / 2 * (i // 16),
        )
        wave = torch.cos(
            2 * math.pi * frequency * (x * math.cos(angle) + y * math.sin(angle)) + phase
        )
        f = torch.exp(-(x**2 + y**2) / 8) * wave
        filters.append((f - f.mean()) / (f - f.mean()).norm())
    return DeconvNet.from_parts(
        spec, [torch.stack(filters)[None].to(dtype)], [torch.ones(1, maps, dtype=torch.bool)]
    )


def photograph(size: int) -> Tensor:
    """Grey, [1, size, size], in [0, 1]."""
    grey = load_sample_image("china.jpg").mean(2).astype(np.float32) / 255
    while min(grey.shape) < size:
        grey = np.block([[grey, grey[:, ::-1]], [grey[::-1], grey[::-1, ::-1]]])
    return torch.from_numpy(np.ascontiguousarray(grey[:size, :size]))[None]


def equality(args: argparse.Namespace) -> dict[str, Any]:
    """The largest differences between tiles and whole, and where a code differs by more
    than 1e-5."""
    dtype = getattr(torch, args.dtype)
    model, picture = gabor_model(dtype), photograph(args.size).to(dtype)
    spec = InferenceSpec(
        step=Fixed(), lam=args.lam, steps=args.steps, pooling_step=args.pooling_step
    )
    start = time.perf_counter()
    tiled = infer_tiled(model, picture, spec, tile=args.tile, overlap=args.overlap)
    tiled_seconds = time.perf_counter() - start
    start = time.perf_counter()
    whole = infer(model, picture[None], spec)
    whole_seconds = time.perf_counter() - start
    codes = (tiled.latents.features.dense() - whole.features).abs()
    pixels = (tiled.reconstruction - whole.reconstruction[0]).abs()
    return {
        "what": "equality",
        "size": args.size,
        "dtype": args.dtype,
        "tile": args.tile,
        "overlap": args.overlap,
        "lam": args.lam,
        "steps": args.steps,
        "pooling_step": args.pooling_step,
        "tiles": tiled.tiles,
        "engine": [tiled.engine, whole.engine],
        "largest_code": float(whole.features.abs().max()),
        "share_of_non_zeros": float(whole.features.count_nonzero() / whole.features.numel()),
        "largest_difference_of_codes": float(codes.max()),
        "codes_beyond_1e-5": int((codes > 1e-5).sum()),
        "codes": codes.numel(),
        "largest_difference_of_pixels": float(pixels.max()),
        "pixels_beyond_1e-5": int((pixels > 1e-5).sum()),
        "pixels": pixels.numel(),
        "seconds_in_tiles": tiled_seconds,
        "seconds_whole": whole_seconds,
    }


def memory(args: argparse.Namespace) -> dict[str, Any]:
    """The peak of resident memory while a picture in a file is encoded into a file, each size in
    its own process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory.large_pictures",
        "encode",
        "--steps",
        str(args.steps),
        "--tile",
        str(args.tile),
    ]
    command += ["--overlap", str(args.overlap), "--lam", str(args.lam), "--maps", str(args.maps)]
    rows = []
    for size in args.sizes:
        finished = subprocess.run(
            [*command, "--size", str(size)], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(finished.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    settings = {name: getattr(args, name) for name in ("maps", "steps", "tile", "overlap", "lam")}
    return {"what": "memory", **settings, "sizes": rows}


def encode(args: argparse.Namespace) -> dict[str, Any]:
    """Encode one picture with pooling variables, as `whatwhere encode --where`."""
    spec = InferenceSpec(step=Fixed(), lam=args.lam, steps=args.steps)
    learning = (LearningSpec(inference=spec),)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "picture.npy"
        write_picture(path, args.size)
        model = gabor_model(maps=args.maps)
        recipe = Recipe(model=model.spec, learning=learning, inference=spec)
        groups = [(load(path), None)]
        options = EncodeOptions(where=True, tile=args.tile, overlap=args.overlap)
        encoder = Encoder(recipe, model, groups, options)
        start = time.perf_counter()
        encoder.write(Path(folder) / "codes.npz", lambda _: None)
        seconds = time.perf_counter() - start
        written = (Path(folder) / "codes.npz").stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "size": args.size,
        "peak_resident_MiB": peak,
        "seconds": seconds,
        "picture_MiB": args.size**2 * 4 / 2**20,
        "codes_MiB": written / 2**20,
    }


def write_picture(path: Path, size: int) -> None:
    """A picture [1, size, size] in a file, written by rows, so that making it needs no memory
    either."""
    part = photograph(1024)[0].numpy()
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (1, size, size)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, size, 1024):
            band = np.tile(part, (1, -(-size // 1024)))[: size - first, :size]
            file.write(np.ascontiguousarray(band).tobytes())


def cores(args: argparse.Namespace) -> dict[str, Any]:
    """One picture: the time as a whole and in tiles, with one thread and with all."""
    model, picture = gabor_model(), photograph(args.size)
    spec = InferenceSpec(step=Fixed(), lam=args.lam, steps=args.steps)
    infer_tiled(model, picture[:, :64, :64], spec)  # compiled now
    rows = []
    for _ in range(args.repeats):
        for way in ("whole", "tiles"):
            for threads in (1, args.threads):
                torch.set_num_threads(threads)
                wall, processor = time.perf_counter(), time.process_time()
                if way == "whole":
                    infer(model, picture[None], spec)
                else:
                    infer_tiled(model, picture, spec, tile=args.tile, overlap=args.overlap)
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                rows.append(
                    {
                        "way": way,
                        "threads": threads,
                        "seconds": wall,
                        "processor_seconds": processor,
                    }
                )
                print(rows[-1], flush=True)
    return {
        "what": "cores",
        "size": args.size,
        "steps": args.steps,
        "tile": args.tile,
        "overlap": args.overlap,
        "runs": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["equality", "memory", "encode", "cores"])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--maps", type=int, default=32, help="of the model that `memory` uses")
    parser.add_argument("--tile", type=int, default=256)
    parser.add_argument("--overlap", type=int, default=64)
    parser.add_argument("--lam", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--pooling-step", type=float, default=InferenceSpec.pooling_step)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--folder", help="where `encode` puts its files; default: the system's temporary folder"
    )
    args = parser.parse_args()
    result = {"equality": equality, "memory": memory, "encode": encode, "cores": cores}[args.what](
        args
    )
    print(json.dumps(result))
    if args.what != "encode":
        earlier = RESULTS.read({"machine": machine(), "results": []})
        earlier["results"].append(result)
        RESULTS.write(earlier)


if __name__ == "__main__":
    main()
