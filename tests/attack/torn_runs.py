"""Folders of runs in which a file is missing, cut, or of another moment:
python tests/attack/torn_runs.py   (also: make attack)

Every file of a run that was stopped, and of one that is finished, is removed, emptied, cut in half
or replaced by the same file of an earlier checkpoint. Then commands read the run. Each must succeed
or end with an error of the program. A training that continues must end with the same bits as one
that nobody disturbed, or say what is wrong.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from full_disk import run
from parts import Tallies, report, write_counts

import whatwhere as ww
from tiny_run import PLAIN, bars, recipe
from tiny_training import StopAfter
from whatwhere.learning import TrainingCallbacks, TrainingOptions, TrainingStopped

OPTIONS = TrainingOptions(engine="reference", device="cpu", store="file")
STOPS = {"early": 2, "later": 8}  # batches after which a run is stopped
DAMAGES = ("missing", "empty", "half", "of an earlier checkpoint")


def stopped_run(folder: Path, images: ww.data.Images, batches: int) -> Path:
    """A run with a checkpoint in the middle, and latents in files."""
    callbacks = TrainingCallbacks(stop=StopAfter(batches))
    try:
        ww.train(images, recipe(), folder, options=OPTIONS, callbacks=callbacks)
    except TrainingStopped:
        return folder
    raise AssertionError("it was not stopped")


def damaged_runs(whole: Path, earlier: Path, copy: Path) -> Iterator[str]:
    """Make one damaged copy of a run after the other; yields what was done to it."""
    for file in sorted(path for path in whole.rglob("*") if path.is_file()):
        name = file.relative_to(whole)
        for damage in DAMAGES:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            content = file.read_bytes()
            if damage == "missing":
                (copy / name).unlink()
            elif damage == "empty":
                (copy / name).write_bytes(b"")
            elif damage == "half":
                (copy / name).write_bytes(content[: len(content) // 2])
            elif (earlier / name).exists() and (earlier / name).read_bytes() != content:
                shutil.copy(earlier / name, copy / name)
            else:
                continue
            yield f"{name} {damage}"


def commands(images: Path, copy: Path, out: Path) -> dict[str, list[object]]:
    """What reads a run; training comes last, as it writes into it."""
    return {
        "encode": ["encode", images, copy, "--out", out / "codes.npz", *PLAIN, "--quiet"],
        "explore": [
            "explore",
            copy,
            "--images",
            images,
            "--out",
            out / "page.html",
            *PLAIN[:2],
            "--quiet",
        ],
        "figures": [
            "figures",
            copy,
            "--images",
            images,
            "--out",
            out / "f",
            "--only",
            "filters",
            "--quiet",
        ],
        "train": ["train", images, "--resume", copy, *PLAIN, "--quiet"],
    }


def attack(say: Callable[[str], None] = print) -> Tallies:
    """The outcomes of every command on every damaged run."""
    torch.set_num_threads(1)
    totals: Tallies = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        file = folder / "images.npy"
        np.save(file, bars(40)[0])
        images = ww.data.load(file)
        finished = folder / "finished"
        ww.train(images, recipe(), finished, options=OPTIONS)
        expected = ww.load(finished)
        early, later = (stopped_run(folder / name, images, STOPS[name]) for name in STOPS)
        shutil.copytree(later, folder / "copy")
        whole_run = commands(file, folder / "copy", folder)["train"]
        assert run(whole_run) == ("done", ""), "a run that nobody damaged continues"
        assert ww.load(folder / "copy") == expected
        for kind, whole, earlier in (("stopped", later, early), ("finished", finished, later)):
            for damage in damaged_runs(whole, earlier, folder / "copy"):
                for name, arguments in commands(file, folder / "copy", folder / "out").items():
                    shutil.rmtree(folder / "out", ignore_errors=True)
                    (folder / "out").mkdir()
                    ended, message = run(arguments)
                    tally = totals.setdefault(f"{name}, {kind}", collections.Counter())
                    if ended not in ("done", "error"):
                        ended = f"FAULT {ended}: {message[:100]}"
                    elif name == "train" and ended == "done":
                        same = ww.load(folder / "copy") == expected
                        ended = "done" if same else "FAULT another model"
                    tally[ended] += 1
                    if ended.startswith("FAULT"):
                        say(f"{name} of a {kind} run, {damage}: {ended}")
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    totals = attack(lambda text: print(text, flush=True))
    faults = report(totals)
    if arguments.out:
        write_counts(arguments.out, totals)
    sys.exit(faults)


if __name__ == "__main__":
    main()
