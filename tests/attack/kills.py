"""Commands killed at a random moment, then run again:  python tests/attack/kills.py --kills 300
(also: make attack)

Every command runs in a process of its own, which is killed (SIGKILL) after a time drawn between 0
and what it takes undisturbed. Then every file of its output must be complete, and the same command,
run again to its end, must give the result of one that nobody disturbed, to the bit. What differs or
is torn counts as a fault and fails the program.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

import whatwhere as ww
from tiny_run import PLAIN, bars, make

# once, not in every process
from whatwhere import anomaly, classification, data, inference, learning, restoration  # noqa: F401
from whatwhere.cli import app
from whatwhere.files import LEFTOVER
from whatwhere.learning.run_folder import read_history


@dataclass(frozen=True)
class Command:
    """What is run in a folder, and what is run again after it was killed."""

    first: Callable[[Path], Sequence[object]]
    again: Callable[[Path], Sequence[object]]


def commands(inputs: Path) -> dict[str, Command]:
    """The commands that write, over small inputs."""
    run, images, pictures = inputs / "run", inputs / "images.npy", inputs / "pictures"

    def train(*settings: str) -> Command:
        def begin(out: Path) -> list[object]:
            return [
                "train",
                images,
                "--out",
                out / "run",
                "--recipe",
                inputs / "recipe.toml",
                *PLAIN,
                *settings,
            ]

        def resume(out: Path) -> list[object]:
            there = (out / "run" / "checkpoint" / "state.safetensors").exists()
            return (
                ["train", images, "--resume", out / "run", "--device", "cpu"]
                if there
                else begin(out)
            )

        return Command(begin, resume)

    def same(*words: object, name: str) -> Command:
        def begin(out: Path) -> list[object]:
            return [*words, "--out", out / name, *(PLAIN if words[0] == "encode" else ())]

        return Command(
            begin, lambda out: [*begin(out), *(["--overwrite"] if (out / name).is_file() else [])]
        )

    def denoise(out: Path) -> list[object]:
        return ["denoise", pictures, out / "clean", "--noise", "0.1", "--device", "cpu"]

    def distill(out: Path) -> list[object]:
        """Learned steps are saved next to the model, so it works on a copy."""
        if not (out / "run").exists():
            shutil.copytree(run, out / "run")
        return [
            "distill",
            out / "run",
            images,
            "--steps",
            "2",
            "--set",
            "batches=4",
            "--set",
            "batch_size=4",
            *PLAIN,
        ]

    return {
        "train": train(),
        "train in a stream": train("--set", "learning.each.update=batch"),
        "encode": same("encode", run, images, "--preset", "recipe", name="codes.npz"),
        "decode": same("decode", run, inputs / "codes.npz", name="pictures"),
        "denoise": Command(denoise, denoise),
        "distill": Command(distill, distill),
        "anomaly fit": same("anomaly", "fit", pictures, name="detector.safetensors"),
        "anomaly score": same(
            "anomaly", "score", inputs / "detector.safetensors", pictures, name="report"
        ),
    }


def start(arguments: Sequence[object]) -> int:
    """Run a command in a new process, quietly; its number. This process computes nothing: a fork
    has no threads."""
    pid = os.fork()
    if pid:
        return pid
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    status = 1
    try:
        if arguments[0] == "make":
            make(Path(str(arguments[1])))
        else:
            app([str(a) for a in arguments], standalone_mode=False)
        status = 0
    finally:
        os._exit(status)


def finish(arguments: Sequence[object]) -> bool:
    """Run a command to its end; whether it succeeded."""
    return os.waitpid(start(arguments), 0)[1] == 0


def make_inputs(folder: Path, only: Sequence[str] = ()) -> Path:
    """What the commands read: images, pictures, a run, its recipe, and for those that read them
    codes and a detector. Children compute it."""
    (folder / "pictures").mkdir(parents=True)
    images = bars(30)[0]
    np.save(folder / "images.npy", images)
    for number, image in enumerate(images[:4]):
        Image.fromarray((image * 255).astype(np.uint8)).save(folder / "pictures" / f"{number}.png")
    assert finish(["make", folder / "run"])
    shutil.copy(folder / "run" / "recipe.toml", folder)
    if not only or "decode" in only:
        options = ("--out", folder / "codes.npz", "--where", "--preset", "recipe", *PLAIN)
        assert finish(["encode", folder / "run", folder / "images.npy", *options])
    if not only or "anomaly score" in only:
        assert finish(
            ["anomaly", "fit", folder / "pictures", "--out", folder / "detector.safetensors"]
        )
    return folder


def torn(folder: Path) -> list[str]:
    """Files that are there and not complete. Those of the temporary name are nobody's result."""
    faults = []
    for path in sorted(
        p for p in folder.rglob("*") if p.is_file() and not LEFTOVER.fullmatch(p.name)
    ):
        try:
            if path.suffix == ".safetensors" and path.name == "model.safetensors":
                ww.load(path)
            elif path.suffix == ".npz":
                assert zipfile.ZipFile(path).testzip() is None
            elif path.suffix == ".png":
                Image.open(path).load()
            elif path.name == "history.jsonl":
                read_history(path)
            elif path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".toml":
                ww.read_recipe(path)
        except Exception as error:
            faults.append(f"{path.name}: {type(error).__name__} {str(error)[:80]}")
    return faults


def result(folder: Path) -> dict[str, str]:
    """The checksums of what a command made: of models and codes their content, of pictures the
    pixels."""
    sums = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".png":
            content = np.asarray(Image.open(path)).tobytes()
        elif path.suffix in (".npz", ".safetensors", ".csv", ".html") and "checkpoint" not in name:
            content = path.read_bytes()
        else:
            continue  # times and dates, checkpoints of a finished run
        sums[name] = hashlib.sha256(content).hexdigest()
    return sums


def attack(
    kills: int, seed: int = 0, only: Sequence[str] = ()
) -> dict[str, collections.Counter[str]]:
    """Kill every command, or `only` these, equally often; the outcomes of each."""
    torch.set_num_threads(1)
    chance = random.Random(seed)
    totals: dict[str, collections.Counter[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        inputs = make_inputs(Path(temporary) / "inputs", only)
        known = {
            name: command for name, command in commands(inputs).items() if not only or name in only
        }
        for name, command in known.items():
            whole, duration = Path(temporary) / "whole", math.inf
            for _ in range(2):  # the first time may also fill a cache
                whole.mkdir()
                began = time.monotonic()
                assert finish(command.first(whole)), f"{name} fails undisturbed"
                duration, expected = min(duration, time.monotonic() - began), result(whole)
                shutil.rmtree(whole)
            assert expected, f"{name} writes nothing"
            tally, share = collections.Counter[str](), -(-kills // len(known))
            for number in range(3 * share):
                if tally["killed"] == share:
                    break
                out = Path(temporary) / f"out{number}"
                out.mkdir()
                pid = start(command.first(out))
                time.sleep(chance.random() * duration)
                os.kill(pid, signal.SIGKILL)
                killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
                faults = torn(out)
                if not finish(command.again(out)):
                    faults.append("cannot be run again")
                elif result(out) != expected:
                    faults.append("another result")
                tally["killed" if killed else "had ended"] += 1
                for fault in faults:
                    tally[f"FAULT {fault}"] += 1
                    print(f"{name}, number {number}: {fault}", flush=True)
                shutil.rmtree(out)
            totals[name] = tally
            print(f"{name:18} {dict(tally)}", flush=True)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", default=(), help="only these")
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    totals = attack(arguments.kills, arguments.seed, arguments.commands)
    total = sum(totals.values(), collections.Counter())
    print(dict(total))
    if arguments.out:
        arguments.out.write_text(
            json.dumps({name: dict(tally) for name, tally in totals.items()}, indent=1)
        )
    sys.exit(any(key.startswith("FAULT") for key in total))


if __name__ == "__main__":
    main()
