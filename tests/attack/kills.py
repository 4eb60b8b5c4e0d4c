"""Commands killed at a random moment, then run again:  python tests/attack/kills.py --kills 300
(also: make attack)

Every command runs in a process of its own, which gets SIGKILL, SIGTERM or SIGINT after a time drawn
between 0 and what it takes undisturbed. Then every file of its output must be complete, and the
same command, run again to its end, must give the result of one that nobody disturbed, to the bit,
and leave no temporary file. What differs, is torn or stays counts as a fault and fails the program.
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

from parts import Tallies, attack_in_parts, report, write_counts

import whatwhere as ww
from tiny_run import PLAIN, bars, make

# once, not in every process
from whatwhere import anomaly, classification, data, inference, learning, restoration  # noqa: F401
from whatwhere.app import app
from whatwhere.files import LEFTOVER
from whatwhere.learning.run_folder import read_history

CONTENT = (".npz", ".npy", ".safetensors", ".csv", ".html", ".tif")  # compared byte by byte
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)


@dataclass(frozen=True)
class Command:
    """What is run in a folder, and what is run again after it was killed."""

    first: Callable[[Path], Sequence[object]]
    again: Callable[[Path], Sequence[object]]


def commands(inputs: Path) -> dict[str, Command]:
    """The commands that write, over small inputs."""
    run, images, pictures = inputs / "run", inputs / "images.npy", inputs / "pictures"
    recording, waveforms = inputs / "recording.npy", inputs / "waveforms.safetensors"

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
            # other engines give other bits, and 'auto' takes another one while it compiles
            engine = PLAIN if words[0] in ("encode", "describe", "events") else ()
            return [*words, "--out", out / name, *(PLAIN[:2] if words[0] == "explore" else engine)]

        return Command(
            begin, lambda out: [*begin(out), *(["--overwrite"] if (out / name).is_file() else [])]
        )

    def denoise(out: Path) -> list[object]:
        return ["denoise", pictures, "--out", out / "clean", "--noise", "0.1", "--device", "cpu"]

    def denoise_again(out: Path) -> list[object]:
        """Over results of other settings. Run again, it needs no --overwrite."""
        clean = out / "clean"
        options = ["--noise", "0.2", "--device", "cpu"]
        if clean.exists():
            return ["denoise", pictures, "--out", clean, *options]
        shutil.copytree(inputs / "clean", clean)
        return ["denoise", pictures, "--out", clean, *options, "--overwrite"]

    def denoise_again_or_continue(out: Path) -> list[object]:
        record = out / "clean" / "restoration.json"
        settings = json.loads(record.read_text())["settings"] if record.exists() else {}
        began = settings.get("noise") == 0.2
        return [*denoise_again(out), *([] if began else ["--overwrite"])]

    def inpaint(out: Path) -> list[object]:
        return [
            "inpaint",
            pictures,
            "--mask",
            inputs / "mask.png",
            "--out",
            out / "filled",
            "--device",
            "cpu",
        ]

    def classify(out: Path) -> list[object]:
        table = ("--labels", inputs / "labels.csv", "--out", out / "classes")
        return ["classify", images, run, *table, *PLAIN]

    def classify_new(out: Path) -> list[object]:
        return ["classify", images, inputs / "classifier.safetensors", "--out", out / "classes"]

    def figures(out: Path) -> list[object]:
        options = ("--only", "filters", "--only", "cost-1", "--set", "engine=reference")
        return ["figures", run, "--images", images, "--out", out / "figures", *options]

    def events(out: Path) -> list[object]:
        """Three files at once: the table, the quality of each waveform and the page."""
        files = {"--out": "events.csv", "--quality": "quality.csv", "--page": "events.html"}
        written = [word for option, file in files.items() for word in (option, out / file)]
        again = ["--overwrite"] if any((out / file).exists() for file in files.values()) else []
        options = ("--rate", "1000", "--threshold", "0", *PLAIN)
        return ["events", recording, waveforms, *written, *options, *again]

    def label(out: Path) -> list[object]:
        return ["labels one by one", out / "labels.csv"]

    def distill(out: Path) -> list[object]:
        """Learned steps are saved next to the model, so it works on a copy."""
        if not (out / "run").exists():
            shutil.copytree(run, out / "run")
        return [
            "distill",
            out / "run",
            "--images",
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
        "encode": same("encode", images, run, "--preset", "recipe", name="codes.npz"),
        "decode": same("decode", inputs / "codes.npz", run, name="pictures"),
        "denoise": Command(denoise, denoise),
        "denoise --overwrite": Command(denoise_again, denoise_again_or_continue),
        "denoise a film": same(
            *("denoise", inputs / "film.tif", "--frames", "2", "--noise", "0.1"),
            *("--device", "cpu"),
            name="film.tif",
        ),
        "denoise a recording": same("denoise", recording, waveforms, name="clean.npy"),
        "inpaint": Command(inpaint, inpaint),
        "events": Command(events, events),
        "describe": same("describe", images, run, name="rows.npz"),
        "classify": Command(classify, classify),
        "classify by a classifier": Command(classify_new, classify_new),
        "figures": Command(figures, figures),
        "explore": same("explore", run, "--images", images, name="page.html"),
        "label": Command(label, label),
        "distill": Command(distill, distill),
        "anomaly fit": same("anomaly", "fit", pictures, name="detector.safetensors"),
        "anomaly score": same(
            "anomaly", "score", pictures, inputs / "detector.safetensors", name="report"
        ),
        "anomaly odd": same("anomaly", "odd", pictures, name="odd"),
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
        elif arguments[0] == "make a classifier":
            make_classifier(*(Path(str(path)) for path in arguments[1:]))
        elif arguments[0] == "labels one by one":
            label_one_by_one(Path(str(arguments[1])))
        else:
            app([str(a) for a in arguments], standalone_mode=False)
        status = 0
    finally:
        os._exit(status)


def make_classifier(run: Path, file: Path) -> None:
    """A classifier of bars, as the labelling page saves it."""
    images, kinds = bars(30)
    session = ww.Labelling(images, run=run, invariant_to=ww.Distortions(copies=2))
    session.label({row: f"kind {kind}" for row, kind in enumerate(kinds[:12])})
    session.save(file)


def label_one_by_one(file: Path) -> None:
    """What a person says on the labelling page, with every label in the files."""
    rows = np.eye(6, dtype=np.float32).repeat(4, 0)
    session = ww.Labelling(rows, labels=file)
    said = sorted(session.said)
    assert said == list(range(len(said))), f"labels of {said} were read; the first ones were said"
    for row in range(len(said), len(rows)):
        session.label({row: f"class {row // 4}"})
    session.label({0: "class 0"})  # a session that had said everything writes predictions again


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
        assert finish(["encode", folder / "images.npy", folder / "run", *options])
    if not only or "denoise --overwrite" in only:
        options = ("--noise", "0.1", "--device", "cpu")
        assert finish(["denoise", folder / "pictures", "--out", folder / "clean", *options])
    first, *others = (Image.fromarray((image * 255).astype(np.uint8)) for image in images[:4])
    first.save(folder / "film.tif", save_all=True, append_images=others)
    samples = np.random.default_rng(0).normal(size=400)
    np.save(folder / "recording.npy", samples.astype(np.float32))
    ww.save(ww.DeconvNet(ww.ModelSpec.signals(2, 16)), folder / "waveforms.safetensors")
    mask = np.full((10, 10), 255, np.uint8)
    mask[3:5, 3:5] = 0
    Image.fromarray(mask).save(folder / "mask.png")
    kinds = bars(30)[1]
    lines = [f"{row},{kind}\n" for row, kind in enumerate(kinds[:12])]
    (folder / "labels.csv").write_text("".join(lines))
    if not only or "classify by a classifier" in only:
        assert finish(["make a classifier", folder / "run", folder / "classifier.safetensors"])
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
            elif path.suffix == ".npy":
                np.load(path)
            elif path.suffix in (".png", ".tif"):
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
    pixels. Pages name the folder that they are in, which is another one each time."""
    sums = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".png":
            content = np.asarray(Image.open(path)).tobytes()
        elif path.suffix in CONTENT and "checkpoint" not in name:
            content = path.read_bytes().replace(str(folder).encode(), b"OUT")
        else:
            continue  # times and dates, checkpoints of a finished run
        sums[name] = hashlib.sha256(content).hexdigest()
    return sums


def attack(kills: int, seed: int = 0, only: Sequence[str] = (), out: Path | None = None) -> Tallies:
    """Kill every command, or `only` these, equally often; the outcomes of each.

    out  gets the counts after each command
    """
    torch.set_num_threads(1)
    chance = random.Random(seed)
    totals: Tallies = {}
    with tempfile.TemporaryDirectory() as temporary:
        inputs = make_inputs(Path(temporary) / "inputs", only)
        known = {
            name: command for name, command in commands(inputs).items() if not only or name in only
        }
        # parts of an attack are of different commands if there are few kills for each
        order = sorted(known, key=lambda name: random.Random(f"{seed} {name}").random())
        for name in order:
            share = kills * (len(totals) + 1) // len(known) - kills * len(totals) // len(known)
            totals[name] = attack_command(name, known[name], Path(temporary), share, chance)
            print(f"{name:24} {dict(totals[name])}", flush=True)
            if out is not None:
                write_counts(out, totals)
    return totals


def attack_command(
    name: str, command: Command, folder: Path, share: int, chance: random.Random
) -> collections.Counter[str]:
    """Kill one command `share` times, at times within its duration."""
    tally = collections.Counter[str]()
    if not share:
        return tally
    duration = math.inf
    for _ in range(2):  # the first time may also fill a cache
        whole = folder / "whole"
        whole.mkdir()
        began = time.monotonic()
        assert finish(command.first(whole)), f"{name} fails undisturbed"
        duration = min(duration, time.monotonic() - began)
        expected = result(whole)
        shutil.rmtree(whole)
    assert expected, f"{name} writes nothing"
    for number in range(3 * share):
        if tally["killed"] == share:
            break
        out = folder / f"out{number}"
        out.mkdir()
        pid = start(command.first(out))
        time.sleep(chance.random() * duration)
        os.kill(pid, SIGNALS[number % len(SIGNALS)])
        ended = os.waitpid(pid, 0)[1]
        killed = ended != 0
        faults = torn(out)
        if not finish(command.again(out)):
            faults.append("cannot be run again")
        elif result(out) != expected:
            faults.append("another result")
        elif any(LEFTOVER.fullmatch(path.name) for path in out.rglob("*")):
            faults.append("a temporary file stays")
        tally["killed" if killed else "had ended"] += 1
        for fault in faults:
            tally[f"FAULT {fault}"] += 1
            print(f"{name}, number {number}: {fault}", flush=True)
        shutil.rmtree(out)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", default=(), help="only these")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for several processes")
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    if arguments.processes > 1:
        size = ["--kills", str(-(-arguments.kills // arguments.processes))]
        totals = attack_in_parts(
            __file__, size, arguments.seed, arguments.processes, arguments.seconds
        )
    else:
        only = arguments.commands
        totals = attack(arguments.kills, arguments.seed, only, arguments.out)
    faults = report(totals)
    if arguments.out:
        write_counts(arguments.out, totals)
    sys.exit(faults)


if __name__ == "__main__":
    main()
