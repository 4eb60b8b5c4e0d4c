"""Rates for many pictures: training, encoding and describing, by a core and by a GPU; two processes
against one.

    python benchmarks/cluster.py OUT.json [speedup] [rates] [nccl]

Images are digits, side by side where they are larger than 28 × 28; the model is `mnist`, which
takes images of any size. Results are written as soon as they are there.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from whatwhere.data.codes import write_block
from whatwhere.learning.processes import joined
from whatwhere.tasks.classification import describe_images
from whatwhere.tasks.coding import block_arrays, code_rows

ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TIMES = 3  # of each measurement, of which the best counts


def pictures(count: int, side: int) -> torch.Tensor:
    """Digits side by side, [count, 1, side, side]."""
    digits = ww.data.load("digits")
    across = -(-side // 28)
    rows = np.random.default_rng(0).integers(0, len(digits), (count, across, across))
    canvas = digits[rows.ravel()].view(count, across, across, 28, 28)
    whole = canvas.permute(0, 1, 3, 2, 4).reshape(count, 1, 28 * across, 28 * across)
    return whole[:, :, :side, :side].contiguous()


# Two processes of one thread against one ---------------------------------------------------------


def together(commands: list[list[str]], environments: list[dict[str, str]]) -> list[str]:
    """Run commands at the same time; what each wrote to standard error."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "whatwhere", *command],
            env={**os.environ, **ONE_THREAD, **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    errors = [process.communicate()[1] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(errors)
    return errors


def training_seconds(processes: int, images: Path, folder: Path, port: int) -> float:
    """Seconds of all epochs, without the start of Python."""
    changes = ["batch_size=100", "learning.each.epochs=2", "learning.each.inference.steps=20"]
    settings = [f"--set={change}" for change in changes]
    command = ["train", str(images), "--recipe=paper", f"--out={folder}", "--device=cpu", *settings]
    environments = [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(processes)
    ]
    together([command] * processes, environments)
    lines = (folder / "history.jsonl").read_text().splitlines()
    return sum(json.loads(line)["seconds"] for line in lines)


def encoding_seconds(processes: int, images: Path, out: Path) -> float:
    """Seconds of the slowest shard, without the start of Python."""
    shards = [f"{number}/{processes}" for number in range(1, processes + 1)]
    common = ["encode", "mnist", str(images), f"--out={out}", "--where", "--device=cpu"]
    errors = together([[*common, f"--shard={shard}"] for shard in shards], [{}] * processes)
    return max(float(re.findall(r": ([\d.]+) s$", text.strip())[-1]) for text in errors)


def speedup(record: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "train.npy", ww.data.load("digits").pixels)
        np.save(folder / "encode.npy", ww.data.load("digits").pixels[:4000])
        # the engine compiles its machine code once: that is not counted
        np.save(folder / "few.npy", ww.data.load("digits").pixels[:200])
        training_seconds(1, folder / "few.npy", folder / "first-run", 29599)
        encoding_seconds(1, folder / "few.npy", folder / "first-codes.npz")
        seconds: dict[str, list[float]] = {}
        for number in range(TIMES):
            for processes in (1, 2):
                place = folder / f"run{number}-{processes}"
                port = 29600 + 10 * number + processes
                took = training_seconds(processes, folder / "train.npy", place, port)
                seconds.setdefault(f"train {processes}", []).append(took)
                place = folder / f"codes{number}-{processes}"
                out = place.with_suffix(".npz") if processes == 1 else place
                took = encoding_seconds(processes, folder / "encode.npy", out)
                seconds.setdefault(f"encode {processes}", []).append(took)
                record("speedup_seconds", seconds)
        best = {key: min(values) for key, values in seconds.items()}
        ratios = {task: best[f"{task} 1"] / best[f"{task} 2"] for task in ("train", "encode")}
        record("speedup", ratios)


# Rates -------------------------------------------------------------------------------------------


def best_seconds(work: Any, device: str) -> float:
    """The least time of a few, after one that is not counted."""
    took = []
    for _ in range(TIMES):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return min(took[1:])


def rates(record: Any, device: str, counts: dict[int, int]) -> None:
    """Images a second for each side."""
    for side, count in counts.items():
        found: dict[str, float] = {"images": count}
        name = f"rates {device} {side}"
        images = pictures(count, side)
        for measure in (coding_rates, describing_rate, training_rates):
            found |= measure(images, device)
            record(name, found)


def coding_rates(images: torch.Tensor, device: str) -> dict[str, float]:
    """Inference in 5 learned steps, and the file of codes."""
    model = ww.load("mnist").to(device)
    count = len(images)
    shape = (images.shape[1], images.shape[2], images.shape[3])

    def infer() -> Any:
        return ww.infer(model, images, steps="learned", batch_size=count)

    def write() -> int:
        file = BytesIO()
        rows = code_rows(model, solution.latents, shape)
        write_block(file, block_arrays(model, [rows]), compress=True)
        return len(file.getvalue())

    inferred = best_seconds(infer, device)
    solution = infer()
    written = best_seconds(write, device)
    return {
        "infer": count / inferred,
        "write codes": count / written,
        "encode": count / (inferred + written),
        "bytes of codes": write() / count,
    }


def describing_rate(images: torch.Tensor, device: str) -> dict[str, float]:
    """Descriptors with the recipe's 50 steps."""
    model = ww.load("mnist").to(device)
    recipe = ww.read_run("mnist").recipe
    seconds = best_seconds(lambda: describe_images(model, images, recipe), device)
    return {"describe": len(images) / seconds}


def training_rates(images: torch.Tensor, device: str) -> dict[str, float]:
    """A stream of the paper's model, each layer by itself."""
    change = {
        "batch_size": max(2, len(images) // 4),
        "learning": {
            "each": {"epochs": 1, "update": "batch", "inference": {"step": {"per": "image"}}}
        },
    }
    recipe = ww.override(ww.Recipe.paper(), change)
    run = ww.train(images, recipe, options=ww.TrainingOptions(device=device))
    return {f"train layer {one.layer}": one.images / one.seconds for one in run.history}


def nccl(record: Any) -> None:
    """A group of one process on one GPU: the time of the filter sums of layer 2."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = "29511"
    device = torch.device("cuda", 0)
    with joined(device, 60.0) as group:
        sums = torch.rand(16, 48, 5, 5, dtype=torch.float64, device=device)
        same = bool(torch.equal(group.all_reduce_sum(sums), sums))
        seconds = best_seconds(lambda: [group.all_reduce_sum(sums) for _ in range(100)], "cuda")
    record("nccl", {"same": same, "milliseconds a sum": 10 * seconds})


def main() -> None:
    out = Path(sys.argv[1])
    wanted = sys.argv[2:] or ["speedup", "rates"]
    results: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "torch": torch.__version__}}

    def record(name: str, value: Any) -> None:
        results[name] = value
        out.write_text(json.dumps(results, indent=1))
        print(name, json.dumps(value), flush=True)

    if "nccl" in wanted and torch.cuda.is_available():
        nccl(record)
    if "speedup" in wanted:
        speedup(record)
    if "rates" in wanted:
        if torch.cuda.is_available():
            results["machine"]["gpu"] = torch.cuda.get_device_name()
            rates(record, "cuda", {28: 8000, 128: 400, 1024: 8})
        torch.set_num_threads(1)
        rates(record, "cpu", {28: 400, 128: 16, 1024: 2})


if __name__ == "__main__":
    main()
