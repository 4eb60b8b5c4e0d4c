"""Rates for many pictures: training, encoding and describing, by a core and by a GPU; two processes
against one.

    python -m benchmarks.learning.cluster OUT.json [train] [encode] [core] [gpu] [nccl] [OPTIONS]
    python -m benchmarks.learning.cluster OUT.json --earlier SOURCES [OPTIONS]

`train` and `encode` compare two processes with one; `core` and `gpu` are the rates of one thread
and of a GPU with one thread. `--earlier` compares the training of one process by this version with
that by an earlier one, whose package is in the folder SOURCES.

Images are digits, side by side where they are larger than 28 × 28; the model is `mnist`, which
takes images of any size. Results are written as soon as they are there.
"""

import argparse
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.classification import describe_images
from whatwhere.codes.files import write_block
from whatwhere.codes.rows import block_arrays, code_rows
from whatwhere.learning.processes import joined

ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TIMES = 3  # of each measurement, of which the best counts
# of one training, so that it takes seconds
SETTINGS = ("batch_size=100", "learning.each.epochs=2", "learning.each.inference.steps=20")


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


def training_seconds(processes: int, images: Path, folder: Path) -> float:
    """Seconds of all epochs, without the start of Python."""
    port = free_port()
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
    together([training_command(images, folder)] * processes, environments)
    return seconds_of_epochs(folder)


def training_command(images: Path, folder: Path) -> list[str]:
    settings = [f"--set={change}" for change in SETTINGS]
    return ["train", str(images), "--recipe=paper", f"--out={folder}", "--device=cpu", *settings]


def seconds_of_epochs(folder: Path) -> float:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return sum(json.loads(line)["seconds"] for line in lines)


def encoding_seconds(processes: int, images: Path, out: Path) -> float:
    """Seconds of the slowest shard, without the start of Python."""
    shards = [f"{number}/{processes}" for number in range(1, processes + 1)]
    common = ["encode", str(images), "mnist", f"--out={out}", "--where", "--device=cpu"]
    errors = together([[*common, f"--shard={shard}"] for shard in shards], [{}] * processes)
    return max(float(re.findall(r": ([\d.]+) s$", text.strip())[-1]) for text in errors)


def speedup(record: Any, tasks: Sequence[str], count: int | None, times: int) -> None:
    """One process, then two, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = save_digits(folder / "images.npy", count)
        few = save_digits(folder / "few.npy", 200)
        # the engine compiles its machine code once: that is not counted
        for task in tasks:
            seconds_of(task, 1, few, folder / f"first-{task}")
        seconds: dict[str, list[float]] = {}
        for number in range(times):
            for processes in (1, 2):
                for task in tasks:
                    out = folder / f"{task}-{number}-{processes}"
                    took = seconds_of(task, processes, images, out)
                    seconds.setdefault(f"{task} {processes}", []).append(took)
                    record("speedup_seconds", seconds)
            best = {key: min(values) for key, values in seconds.items()}
            record("speedup", {task: best[f"{task} 1"] / best[f"{task} 2"] for task in tasks})


def seconds_of(task: str, processes: int, images: Path, out: Path) -> float:
    """Seconds of training or of encoding in so many processes."""
    if task == "train":
        return training_seconds(processes, images, out)
    return encoding_seconds(processes, images, out if processes > 1 else out.with_suffix(".npz"))


def save_digits(file: Path, count: int | None) -> Path:
    """The first digits in a file, or all."""
    np.save(file, ww.data.load("digits").pixels[:count])
    return file


def compare_with_earlier(record: Any, sources: Path, count: int | None, times: int) -> None:
    """Seconds of all epochs in one process, by this version and by an earlier one, in turns; and
    seconds of the processor for the whole command, which do not depend on other work."""
    versions = {"this version": Path(ww.__file__).parents[1], "earlier version": sources}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = save_digits(folder / "images.npy", count)
        few = save_digits(folder / "few.npy", 200)
        for version, path in versions.items():  # compiles, which is not counted
            command = training_command(few, folder / f"first {version}")
            together([command], [{"PYTHONPATH": str(path)}])
        seconds: dict[str, list[float]] = {}
        processor: dict[str, list[float]] = {}
        for number in range(times):
            for version, path in versions.items():
                out = folder / f"{version} {number}"
                before = processor_seconds()
                together([training_command(images, out)], [{"PYTHONPATH": str(path)}])
                processor.setdefault(version, []).append(processor_seconds() - before)
                seconds.setdefault(version, []).append(seconds_of_epochs(out))
                record("one_process_seconds", seconds)
                record("one_process_processor_seconds", processor)


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def free_port() -> int:
    """A port where processes can meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# Rates -------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """How many pictures of a side are measured.

    infer  in one batch
    write  into a file of codes, by one core
    train  in batches of a quarter
    times  of each measurement, of which the first does not count if there are several
    """

    side: int
    infer: int
    write: int
    train: int
    times: int = TIMES


# The core measures its large picture once: it takes minutes, and the machine code is there.
CORE = (Size(28, 200, 200, 200), Size(128, 8, 8, 8), Size(1024, 1, 1, 1, times=1))
GPU = (Size(28, 8000, 1000, 8000), Size(128, 400, 40, 400), Size(1024, 8, 1, 8))


def best_seconds(work: Any, device: str, times: int = TIMES) -> float:
    """The least time of several, without the first: machine code is made in it."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return min(took[1:] or took)


def rates(record: Any, device: str, sizes: Sequence[Size]) -> None:
    """Images a second for each side; each number is recorded as soon as it is there."""
    for size in sizes:
        rate: dict[str, Any] = {"pictures": size._asdict()}
        for measure in (inference_rate, writing_rate, describing_rate, training_rates):
            try:
                rate |= measure(size, device)
            except Exception as error:  # the other sizes are worth having
                rate[f"error of {measure.__name__}"] = str(error)
            record(f"rates {device} {size.side}", rate)


def inference_rate(size: Size, device: str) -> dict[str, float]:
    """Inference in the model's 5 learned steps."""
    model = ww.load("mnist").to(device)
    images = pictures(size.infer, size.side)

    def infer() -> Any:
        return ww.infer(model, images, steps="learned", batch_size=len(images))

    return {"infer": len(images) / best_seconds(infer, device, size.times)}


def writing_rate(size: Size, device: str) -> dict[str, float]:
    """The file of codes with *where*: what it takes after inference."""
    model = ww.load("mnist").to(device)
    images = pictures(size.write, size.side)
    shape = (1, size.side, size.side)
    latents = ww.infer(model, images, steps="learned", batch_size=len(images)).latents

    def write() -> int:
        file = BytesIO()
        rows = code_rows(model, latents, shape)
        write_block(file, block_arrays(model, [rows]), compress=True)
        return len(file.getvalue())

    seconds = best_seconds(write, device, size.times)
    return {"write codes": len(images) / seconds, "bytes of codes": write() / len(images)}


def describing_rate(size: Size, device: str) -> dict[str, float]:
    """Descriptors with the recipe's 50 steps."""
    model = ww.load("mnist").to(device)
    images = pictures(size.infer, size.side)
    recipe = ww.read_run("mnist").recipe
    seconds = best_seconds(lambda: describe_images(model, images, recipe), device, size.times)
    return {"describe": len(images) / seconds}


def training_rates(size: Size, device: str) -> dict[str, float]:
    """A stream of the paper's model, each layer by itself: its best epoch."""
    images = pictures(size.train, size.side)
    change = {
        "batch_size": max(1, len(images) // 4),
        "learning": {
            "each": {
                "epochs": size.times,
                "update": "batch",
                "inference": {"step": {"per": "image"}},
            }
        },
    }
    recipe = ww.override(ww.Recipe.paper(), change)
    run = ww.train(images, recipe, options=ww.TrainingOptions(device=device))
    best: dict[str, float] = {}
    for epoch in run.history:
        name = f"train layer {epoch.layer}"
        best[name] = max(best.get(name, 0.0), epoch.images / epoch.seconds)
    return best


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    names = ["train", "encode", "core", "gpu", "nccl"]
    parser.add_argument("wanted", nargs="*", metavar="train encode core gpu nccl")
    parser.add_argument("--earlier", type=Path, help="the folder with an earlier package")
    parser.add_argument("--images", type=int, help="digits in training and encoding (all)")
    parser.add_argument("--times", type=int, default=TIMES, help="of each comparison")
    sides = [size.side for size in GPU]
    parser.add_argument("--sides", type=int, nargs="+", default=sides, help="of rates")
    arguments = parser.parse_args()
    unknown = set(arguments.wanted) - set(names)
    if unknown:
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    results: dict[str, Any] = {"machine": machine()}

    def record(name: str, value: Any) -> None:
        results[name] = value
        arguments.out.write_text(json.dumps(results, indent=1))
        print(name, json.dumps(value), flush=True)

    if arguments.earlier:
        compare_with_earlier(record, arguments.earlier, arguments.images, arguments.times)
        return
    wanted = arguments.wanted or names[:4]
    has_gpu = torch.cuda.is_available()
    if "nccl" in wanted and has_gpu:
        nccl(record)
    tasks = [task for task in ("train", "encode") if task in wanted]
    if tasks:
        speedup(record, tasks, arguments.images, arguments.times)
    torch.set_num_threads(1)
    if "gpu" in wanted and has_gpu:
        rates(record, "cuda", [size for size in GPU if size.side in arguments.sides])
    if "core" in wanted:
        rates(record, "cpu", [size for size in CORE if size.side in arguments.sides])


if __name__ == "__main__":
    main()
