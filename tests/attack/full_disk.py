"""Every command that writes, on a full disk and on one that nobody may write to:
python tests/attack/full_disk.py --rooms 3   (also: make attack)

A command runs with too little room for its output, in steps from none at all upwards, so that one
file after the other is the one that does not fit. It has to end with an error of the program that
names a place on the disk, and leave no torn file. Then room is made, and the same command must give
the result of one that had room from the beginning. The same is tried on a disk that is read-only.

The disk is a tmpfs in a mount namespace of this process. Who may not mount one gets a limit on the
size of files.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import kills
from kills import Command

from tiny_run import PLAIN
from whatwhere.app import app
from whatwhere.errors import WhatwhereError

NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
PAGE = 4096
LARGEST = 64 << 20  # of the disk
MOST = 4  # times the size of the result; commands take more room while they work


def commands(inputs: Path) -> dict[str, Command]:
    """Those of kills.py and the others that write. A run that a command writes into is copied to
    the disk first."""
    images, pictures, engine = inputs / "images.npy", inputs / "pictures", PLAIN[:2]

    def same(
        *words: object,
        out: str,
        settings: Sequence[object] = (),
    ) -> Command:
        def begin(disk: Path) -> list[object]:
            if "RUN" in words:
                shutil.copytree(inputs / "run", disk / "run", dirs_exist_ok=True)
            known = [disk / "run" if word == "RUN" else word for word in words]
            return [*known, "--out", disk / out, *settings, "--quiet"]

        return Command(
            begin, lambda disk: [*begin(disk), *(["--overwrite"] if (disk / out).is_file() else [])]
        )

    mask = ("inpaint", pictures, "--mask", inputs / "mask.png")  # labelling has a test of its own
    return {
        **{name: known for name, known in kills.commands(inputs).items() if name != "label"},
        "encode": same(
            "encode", images, inputs / "run", "--preset", "recipe", out="codes.npz", settings=PLAIN
        ),
        "inpaint": same(*mask, out="filled", settings=("--device", "cpu")),
        "classify": same(
            "classify",
            images,
            "RUN",
            "--labels",
            inputs / "labels.csv",
            out="classes",
            settings=PLAIN,
        ),
        "figures": same(
            "figures", inputs / "run", "--images", images, out="figures", settings=engine
        ),
        "explore": same(
            "explore", inputs / "run", "--images", images, out="page.html", settings=engine
        ),
    }


def make_inputs(folder: Path, only: Sequence[str]) -> Path:
    return kills.make_inputs(folder, only)


def run(arguments: Sequence[object], largest_file: int | None = None) -> tuple[str, str]:
    """Run a command in a process of its own: how it ended, "done", "error" or another exception,
    and the message."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            if largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
            app([str(a) for a in arguments], standalone_mode=False)
            end = "done\n"
        except WhatwhereError as error:
            end = f"error\n{error}"
        except BaseException as error:
            end = f"{type(error).__name__}\n{error}"
        os.write(writing, end.encode()[:PAGE])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        kind, _, message = pipe.read().decode(errors="replace").partition("\n")
    return (kind, message) if os.waitpid(pid, 0)[1] == 0 else ("died", "")


class Disk:
    """A folder on a disk of its own, where one can be mounted (`own`)."""

    def __init__(self, folder: Path, own: bool) -> None:
        self.folder, self.own, self._filler = folder, own, folder / "filler"

    @property
    def used(self) -> int:
        """Bytes of the files in it, in whole pages."""
        return sum(
            -(-p.stat().st_size // PAGE) * PAGE for p in self.folder.rglob("*") if p.is_file()
        )

    @contextmanager
    def room(self, size: int) -> Iterator[int | None]:
        """Leave so many bytes free. Where the disk is shared, the block gets a limit on the size
        of a file instead."""
        if not self.own:
            yield size
            return
        state = os.statvfs(self.folder)
        self._filler.write_bytes(bytes(state.f_bavail * state.f_frsize - size))
        yield None
        self._filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Nobody may write, not even the administrator, whom permissions do not bind."""
        for mode in ("ro", "rw"):
            options = ["-o", f"remount,{mode}", str(self.folder)]
            subprocess.run(["mount", *options], check=True)
            if mode == "ro":
                yield

    def clear(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def new_disk(folder: Path) -> Iterator[Disk]:
    """A tmpfs that other processes do not see; without the right to mount one, a folder."""
    folder.mkdir()
    own = sys.platform == "linux" and ctypes.CDLL(None).unshare(NEW_NAMESPACE) == 0
    for words in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", f"size={LARGEST}", "tmpfs", str(folder)],
    ):
        own = own and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, own)
    finally:
        if own:
            subprocess.run(["umount", str(folder)], check=True)


def faults_without_room(disk: Disk, ended: tuple[str, str]) -> list[str]:
    """What is wrong with how a command ended that had too little room."""
    kind, message = ended
    faults = kills.torn(disk.folder)
    if kind != "error":
        faults.append(f"{kind}: {message[:100]}")
    elif str(disk.folder) not in message or "\n" in message:
        faults.append(f"not a line that names a file: {message[:100]}")
    return faults


def attack_command(
    disk: Disk, command: Command, rooms: int, say: Callable[[str], None]
) -> collections.Counter[str]:
    """Run one command with less room than it needs, then with enough, at several sizes."""
    arguments = command.first(disk.folder)
    before = disk.used
    assert run(arguments) == ("done", ""), f"{run(arguments)} with enough room"
    need, expected = disk.used - before, kills.result(disk.folder)
    tally = collections.Counter[str]()
    for size in (need * number // rooms // PAGE * PAGE for number in range(MOST * rooms)):
        disk.clear()
        arguments = command.first(disk.folder)
        with disk.room(size) as limit:
            ended = run(arguments, limit)
            faults = (
                [] if ended[0] == "done" and tally["full"] else faults_without_room(disk, ended)
            )
        if ended[0] != "done":
            again = run(command.again(disk.folder))
            if again[0] != "done":
                faults.append(f"cannot be run again: {again}")
        if not faults and kills.result(disk.folder) != expected:
            faults.append("another result")
        tally["had room" if ended[0] == "done" else "full"] += 1
        for fault in faults:
            tally[f"FAULT {fault}"] += 1
            say(f"{size // 1024} kB of room: {fault}")
        if ended[0] == "done" or rooms == 1:  # more room makes no difference
            break
    disk.clear()
    if disk.own:
        tally += attack_read_only(disk, command, expected, say)
    return tally


def attack_read_only(
    disk: Disk, command: Command, expected: dict[str, str], say: Callable[[str], None]
) -> collections.Counter[str]:
    """Run one command where it may not write, then where it may."""
    arguments = command.first(disk.folder)
    before = kills.result(disk.folder)
    with disk.read_only():
        ended = run(arguments)
        faults = faults_without_room(disk, ended)
        if kills.result(disk.folder) != before:
            faults.append("wrote something")
    again = run(command.again(disk.folder))
    if again[0] != "done":
        faults.append(f"cannot be run again: {again}")
    elif kills.result(disk.folder) != expected:
        faults.append("another result")
    disk.clear()
    for fault in faults:
        say(f"read-only: {fault}")
    return collections.Counter({"read-only": 1}) + collections.Counter(
        {f"FAULT {fault}": 1 for fault in faults}
    )


def attack(rooms: int, only: Sequence[str] = ()) -> tuple[str, dict[str, collections.Counter[str]]]:
    """The kind of disk, and the outcomes of each command."""
    torch.set_num_threads(1)
    totals = {}
    with tempfile.TemporaryDirectory() as temporary:
        inputs = make_inputs(Path(temporary) / "inputs", only)
        with new_disk(Path(temporary) / "disk") as disk:
            for name, command in commands(inputs).items():
                if not only or name in only:
                    totals[name] = attack_command(
                        disk,
                        command,
                        rooms,
                        lambda text, name=name: print(f"{name}, {text}", flush=True),
                    )
                    print(f"{name:18} {dict(totals[name])}", flush=True)
            return ("tmpfs" if disk.own else "limit on the size of files"), totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rooms", type=int, default=3, help="steps up to the size of a result; 1: no room at all"
    )
    parser.add_argument("--commands", nargs="+", default=(), help="only these")
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    kind, totals = attack(arguments.rooms, arguments.commands)
    total = sum(totals.values(), collections.Counter())
    print(f"{kind}: {dict(total)}")
    if arguments.out:
        counts = {name: dict(tally) for name, tally in totals.items()}
        arguments.out.write_text(json.dumps({"disk": kind, "commands": counts}, indent=1))
    sys.exit(any(key.startswith("FAULT") for key in total))


if __name__ == "__main__":
    main()
