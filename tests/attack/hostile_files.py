"""Damaged and hostile files for every reader:  python tests/attack/hostile_files.py --files 20000  (also: make attack)

A file that the program wrote is damaged in a way drawn from a seed, and read. Right outcomes are a value and an error
of the program (`WhatwhereError`). Anything else counts as a fault: another exception, more than SLOWEST seconds, or
more memory than MEMORY above what the process had. A fault prints what makes it again: the reader and the number.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

import whatwhere as ww
from idx_writer import write_idx
from tiny_run import PLAIN, bars, make, whatwhere
from whatwhere.errors import WhatwhereError
from whatwhere.files import read_json

SLOWEST = 10  # seconds for one file
MEMORY = 1 << 30  # bytes
PICTURES = ("png", "jpg", "bmp", "tiff")
BIG = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


@dataclass(frozen=True)
class Reader:
    """A way to read a file: the valid file that is damaged, and what reads it."""

    valid: Path
    read: Callable[[Path], Any]


def readers(folder: Path) -> dict[str, Reader]:
    """Every reader of the library, with a valid file for each."""
    images, labels = bars(6)
    run = make(folder / "run")
    model = ww.load(run / "model.safetensors")
    ww.UnrolledInference(model, steps=2).learned.save(run / "model.safetensors")
    np.save(folder / "images.npy", images)
    whatwhere("encode", run, folder / "images.npy", "--out", folder / "codes.npz", *PLAIN)
    np.savez(folder / "images.npz", images=images, labels=labels)
    write_idx(folder / "images-idx3-ubyte", (images * 255).astype(np.uint8))
    picture = Image.fromarray((images[0] * 255).astype(np.uint8))
    for kind in PICTURES:
        picture.save(folder / f"picture.{kind}")
    pages = [Image.fromarray((image * 255).astype(np.uint8)) for image in images[1:4]]
    picture.save(folder / "pages.tif", save_all=True, append_images=pages)
    files = {
        "picture": [folder / f"picture.{kind}" for kind in PICTURES],
        "pages": [folder / "pages.tif"],
        "array": [folder / "images.npy", folder / "images.npz", folder / "images-idx3-ubyte"],
    }
    found = {
        f"{kind} {path.name}": Reader(path, lambda path: ww.data.load(path)[:2])
        for kind, paths in files.items()
        for path in paths
    }
    found["model"] = Reader(run / "model.safetensors", ww.load)
    found["recipe"] = Reader(run / "recipe.toml", ww.read_recipe)
    found["learned steps"] = Reader(run / "inference-2.safetensors", lambda path: read_beside(path, run))
    found["history"] = Reader(run / "history.jsonl", lambda path: read_inside(path, run, lambda r: list(r.history)))
    found["json"] = Reader(run_json(folder), lambda path: read_json(path, 1 << 20))
    found["codes"] = Reader(folder / "codes.npz", lambda path: ww.load_codes(path).features)
    return found


def run_json(folder: Path) -> Path:
    path = folder / "record.json"
    path.write_text(json.dumps({"files": ["a.png", "b.png"], "settings": {"noise": 0.1, "spec": [1, 2, {"x": None}]}}))
    return path


def read_beside(path: Path, run: Path) -> Any:
    """Learned steps next to a copy of the model that they belong to."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(run / "model.safetensors", folder)
        place = Path(folder) / "inference-2.safetensors"
        os.symlink(path, place)
        return ww.LearnedSteps.load(Path(folder) / "model.safetensors")


def read_inside(path: Path, run: Path, read: Callable[[Any], Any]) -> Any:
    """A file in the place that it has in a copy of the run."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy)
        (copy / "history.jsonl").unlink()
        os.symlink(path, copy / "history.jsonl")
        return read(ww.read_run(copy))


def damage(chance: random.Random, content: bytes) -> bytes:
    """The content with one to three faults."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at, size = chance.randrange(len(changed) + 1), chance.choice((1, 2, 4, 8, 64))
        match chance.randrange(9):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = chance.randbytes(size)
            case 2:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                changed[at : at + size] = chance.randbytes(size)
            case 4:
                del changed[at : at + size]
            case 5:  # a length or an offset that lies
                width = chance.choice((2, 4, 8))
                value = chance.choice(BIG) % 256**width
                changed[at : at + width] = value.to_bytes(width, chance.choice(("little", "big")))
            case 6:
                changed[at : at + size] = b"\0" * size
            case 7:
                changed += changed[at : at + 4096]
            case 8:  # a number in a text, such as a shape
                digits = [i for i, byte in enumerate(changed) if 48 <= byte <= 57][:4000]
                if digits:
                    at = chance.choice(digits)
                    changed[at : at + 1] = str(chance.choice((*BIG, -1, "1e999", "NaN", "[" * 2000))).encode()
    return bytes(changed)


SPECIAL = ("pipe", "folder", "nothing", "empty", "link to itself", "zeros", "deep", "unreadable name")


def special(path: Path, kind: str) -> None:
    """What stands in the place of a file without being one."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "zeros":
        with open(path, "wb") as file:
            file.truncate(1 << 34)  # 16 GB that take no room on the disk
    elif kind == "deep":
        path.write_bytes(b"[" * 200_000)


class Slow(BaseException):
    """Reading took too long; no handler of the program catches it."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def outcome(read: Callable[[Path], Any], path: Path) -> str:
    try:
        with time_limit(SLOWEST), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except WhatwhereError:
        return "error"
    except Slow:
        return "FAULT slow"
    except BaseException as error:
        return f"FAULT {type(error).__name__}: {str(error)[:100]}"
    return "read"


def attack(count: int, seed: int = 0) -> dict[str, collections.Counter[str]]:
    """Read `count` hostile files, divided among the readers; the outcomes of each reader."""
    torch.set_num_threads(1)
    totals: dict[str, collections.Counter[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        known = readers(folder)
        for name, reader in known.items():
            assert (result := outcome(reader.read, reader.valid)) == "read", f"{name}: a valid file gives {result}"
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        for name, reader in known.items():
            content, tally = reader.valid.read_bytes(), collections.Counter[str]()
            place = folder / f"hostile{''.join(reader.valid.suffixes)}"
            for number in range(max(len(SPECIAL) + 1, -(-count // len(known)))):
                if number < len(SPECIAL):
                    special(place, SPECIAL[number])
                else:
                    place.write_bytes(damage(random.Random(f"{seed} {name} {number}"), content))
                result = outcome(reader.read, place)
                tally[result] += 1
                if result.startswith("FAULT"):
                    print(f"{name}, number {number}: {result}", flush=True)
                if place.is_dir() and not place.is_symlink():
                    place.rmdir()
                else:
                    place.unlink(missing_ok=True)
            totals[name] = tally
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    began = time.monotonic()
    totals = attack(arguments.files, arguments.seed)
    total = sum(totals.values(), collections.Counter())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for name, tally in totals.items():
        print(f"{name:24} {dict(tally)}")
    print(f"{total.total():,} files: {dict(total)}; {time.monotonic() - began:.0f} s; peak {peak:.2f} GB")
    if arguments.out:
        counts = {name: dict(tally) for name, tally in totals.items()}
        arguments.out.write_text(
            json.dumps({"files": total.total(), "peak_gb": round(peak, 2), "readers": counts}, indent=1)
        )
    sys.exit(any(key.startswith("FAULT") for key in total))


if __name__ == "__main__":
    main()
