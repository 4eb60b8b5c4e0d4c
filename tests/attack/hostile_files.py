"""Damaged and hostile files for every reader:  python tests/attack/hostile_files.py --files 20000
(also: make attack)

A file that the program wrote is damaged in a way drawn from a seed, and read. Files with a checksum
are also forged: their content is changed, and the checksum is right. Right outcomes are a value and
an error of the program (`WhatwhereError`). Anything else counts as a fault: another exception, a
message of more than LONGEST_MESSAGE characters, more than SLOWEST seconds, or more memory than
MEMORY above what the process had. A fault prints what makes it again: the reader and the number.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from parts import attack_in_parts, report, write_counts

import whatwhere as ww
from data_files import write_idx
from examples import random_latents
from tiny_run import PLAIN, bars, make, whatwhere
from whatwhere.classification.picture_classifier import is_classifier
from whatwhere.codes.kept_blocks import KeptBlocks
from whatwhere.data import deep_png
from whatwhere.data.formats import recordings
from whatwhere.data.images import AllPictures
from whatwhere.data.parts import PartRecord
from whatwhere.errors import WhatwhereError
from whatwhere.files import RECORD, claim, write_result
from whatwhere.labelling.exchange import read_foreign_labels
from whatwhere.labelling.label_tables import read_labels
from whatwhere.learning.checkpoint import Checkpoint, RunFacts
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.run_folder import RunFolder
from whatwhere.model.checksums import checksum
from whatwhere.restoration import load_denoiser
from whatwhere.restoration.noise import NoiseEstimate, read_noise_text
from whatwhere.restoration.pictures import Task, plan_jobs, restore_picture

SLOWEST = 10  # seconds for one file
MEMORY = 1 << 30  # bytes
LONGEST_MESSAGE = 2000  # characters, of an error
PICTURES = ("png", "jpg", "bmp", "tiff")
CPU = torch.device("cpu")
VALUES = (
    None,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    math.nan,
    True,
    "",
    "x",
    "x" * 10_000,
    [],
    [[]],
    {},
    [1] * 1000,
    {"x": 1},
)
BIG = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


@dataclass(frozen=True)
class Reader:
    """A way to read a file.

    valid   the file that is damaged;  place  where it lies when it is read
    damage  makes a hostile content of a valid one
    """

    valid: Path
    read: Callable[[Path], Any]
    place: Path
    damage: Callable[[random.Random, bytes], bytes]


def readers(folder: Path) -> dict[str, Reader]:
    """Every reader of the library, with a valid file for each."""
    found = {}

    def add(
        name: str,
        valid: Path,
        read: Callable[[Path], Any],
        place: Path | None = None,
        text: str = "",
    ) -> None:
        """`text` names the metadata that a checksum covers, in a file that has one."""
        place = place or folder / f"hostile{''.join(valid.suffixes)}"
        found[name] = Reader(valid, read, place, damage)
        if text:
            found[f"{name}, forged"] = Reader(
                valid, read, place, lambda chance, content: forge(chance, content, text)
            )

    images, labels = bars(6)
    for path in image_files(folder, images, labels):
        add(path.name, path, lambda path: ww.data.load(path)[:2])

    run, copy = make(folder / "run"), folder / "copy"
    ww.UnrolledInference(ww.load(run), steps=2).learned.save(run)
    latents = LatentStore(1, torch.device("cpu"), run / "checkpoint" / "latents", in_memory=False)
    latents.write(0, random_latents(ww.load(run), torch.ones(2, 1, 10, 10)))
    shutil.copytree(run, copy)
    add("model", run / "model.safetensors", ww.load, text="spec")
    add("recipe", run / "recipe.toml", ww.read_recipe)
    steps = "inference-2.safetensors"
    add(
        "learned steps", run / steps, lambda _: ww.LearnedSteps.load(copy), copy / steps, "settings"
    )
    add(
        "history",
        run / "history.jsonl",
        lambda _: list(ww.read_run(copy).history),
        copy / "history.jsonl",
    )
    state = Path("checkpoint", "state.safetensors")
    images_read = Checkpoint.load(run / "checkpoint").images
    writer = RunFolder(copy, RunFacts(ww.read_recipe(run / "recipe.toml"), images_read))
    add("checkpoint", run / state, lambda _: writer._load(CPU), copy / state, "content")
    batch = latents.folder / "batch1-0.npz"
    add("latents", shutil.copy(batch, folder / "latents.npz"), lambda _: latents.read(0), batch)

    whatwhere("encode", folder / "images.npy", run, "--out", folder / "codes.npz", *PLAIN)
    add("codes", folder / "codes.npz", lambda path: ww.load_codes(path).features)
    ww.AnomalyDetector(aligned=True).fit(images[:, None]).save(folder / "detector.safetensors")
    add(
        "detector",
        folder / "detector.safetensors",
        lambda path: score(path, images),
        text="settings",
    )
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    session.label({0: "cat", 3: "dog"})
    session.save(folder / "classifier.safetensors")
    add("classifier", folder / "classifier.safetensors", read_classifier, text="settings")
    (folder / "labels.csv").write_text(
        "file,class\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels))
    )
    add("labels", folder / "labels.csv", read_labels)
    add("labels of a session", folder / "labels.csv", lambda path: label_with(path))
    add_foreign_labels(folder, add)
    add_signals(folder, add)
    add_extras(folder, images, add)
    add_records(folder, add)
    add_kept_work(folder, add)
    return found


def label_with(path: Path) -> int:
    """Say something in a session whose table is this file; nothing in the table is lost."""
    rows = np.eye(6, dtype=np.float32).repeat(2, 0)
    session = ww.Labelling(rows, labels=path)
    before = dict(session.labels.said) | session.labels.elsewhere
    session.label({1: "new"})
    again = read_labels(path)
    assert again["1"] == "new"
    assert len(again) == len(before | {1: ""}), "a label was lost"
    return len(again)


def add_foreign_labels(folder: Path, add: Callable[..., None]) -> None:
    """Labels of other programs."""
    names = [f"{n}.png" for n in range(6)]
    (folder / "foreign.csv").write_text("name,label\n" + "".join(f"{n},a\n" for n in names))
    session = ww.Labelling(np.eye(6, dtype=np.float32))
    session.label({0: "=1+1", 3: 'a "b", c'})
    shutil.copy(session.export(folder / "predictions.csv"), folder / "own.csv")
    choice = {"from_name": "class", "to_name": "image", "type": "choices"}
    result = [choice | {"value": {"choices": ["a"]}}]
    tasks = [{"data": {"image": n}, "annotations": [{"result": result}]} for n in names]
    (folder / "foreign.json").write_text(json.dumps(tasks))
    tables = {
        "labels of others, csv": folder / "foreign.csv",
        "labels of others, json": folder / "foreign.json",
        "our predictions": folder / "own.csv",
    }
    for name, valid in tables.items():
        add(
            name,
            valid,
            lambda path: (
                read_foreign_labels(path.read_bytes(), path.name, [*names, *"012345"])
                if path.is_file() and path.stat().st_size < 1 << 30
                else None
            ),
        )


def add_signals(folder: Path, add: Callable[..., None]) -> None:
    """Recordings in every format, and a recording that is written again."""
    from scipy.io import savemat, wavfile

    values = np.random.default_rng(0).uniform(-0.9, 0.9, (60, 2))
    tables = {
        "table.csv": "left,right\n" + "".join(f"{a:.6g},{b:.6g}\n" for a, b in values),
        "semicolons.csv": "".join(f"{a:.4f};{b:.4f}\n".replace(".", ",") for a, b in values),
        "times.csv": "time (ms),a (mV)\n"
        + "".join(f"{n / 4:g},{a:.6g}\n" for n, (a, _) in enumerate(values)),
        "rows.csv": "\tday\tvolt\n"
        + "".join(f"{n}\t2020-01-01T00:00:00.{n:03}\t{a:.6g}\n" for n, (a, _) in enumerate(values)),
        "one.csv": "\ufeff" + "".join(f"{a:.6g}\r\n" for a, _ in values),
    }
    for name, text in tables.items():
        (folder / name).write_text(text, encoding="utf-8")
        add(name, folder / name, read_recording)
    for kind in ("int16", "int32", "int64", "uint8", "float32"):
        is_float = kind == "float32"
        scaled = values if is_float else 100 * (values + (kind == "uint8"))
        wavfile.write(folder / f"{kind}.wav", 1000, scaled.astype(kind))
        add(f"{kind}.wav", folder / f"{kind}.wav", read_recording)
    np.save(folder / "signals.npy", values.T.astype(np.float32))
    add("signals.npy", folder / "signals.npy", read_recording)
    savemat(folder / "samples.mat", {"samples": values.T, "fs": 1000.0})
    add("samples.mat", folder / "samples.mat", read_form)
    raw, form = folder / "raw.dat", folder / "raw.json"
    raw.write_bytes((1000 * values).astype("<i2").tobytes())
    form.write_text('{"dtype": "int16", "channels": 2, "rate": 1000}')
    add("raw.dat", shutil.copy(raw, folder / "valid.dat"), read_form, raw)
    add("form of raw.dat", shutil.copy(form, folder / "valid.json"), lambda _: read_form(raw), form)


def read_form(path: Path) -> int:
    """Read a recording whose file gives its rate, which is a positive number; of a long one, the
    beginning."""
    signals = ww.data.load(path, signals=True, allow_nan=True)
    assert signals.rate is None or 0 < signals.rate < math.inf, f"a rate of {signals.rate}"
    return signals.between(None, 0.01)[:].numel() if signals.rate else signals[:].numel()


def read_recording(path: Path) -> int:
    """Read a recording, and write another one like it, which has as many samples."""
    values = ww.data.load(path, signals=True, allow_nan=True)[:].numpy()
    copy = path.with_name(f"copy{path.suffix}")
    copy.write_bytes(recordings().encode(values, path))
    again = ww.data.load(copy, signals=True, allow_nan=True)[:].numpy()
    assert again.shape == values.shape, "the copy is not like the recording"
    return values.size


def add_extras(folder: Path, images: np.ndarray, add: Callable[..., None]) -> None:
    """Pictures with transparency, a profile and a resolution, deep colour, and a folder of them."""
    from whatwhere.data.pictures import read_extras, write_tiff

    alpha = np.stack([(255 * images[n]).astype(np.uint8) for n in range(4)], 2)
    for kind in ("png", "webp", "tif"):
        file = folder / f"alpha.{kind}"
        Image.fromarray(alpha).save(file, icc_profile=b"profile" * 9, dpi=(300, 300))
        add(f"alpha.{kind}", file, lambda path: (read_extras(path), ww.data.load(path)[:]))
    if find_spec("tifffile") is None:
        return
    with open(folder / "deep.tif", "wb") as file:
        write_tiff(file, [alpha.transpose(2, 0, 1)[:3].astype(np.uint16) * 257])
    write_deep_pictures(folder, alpha)
    for name in ("negative.tif", "deep.png"):
        add(name, folder / name, lambda path: (read_extras(path), ww.data.load(path)[:]))
    add("deep.tif", folder / "deep.tif", lambda path: (read_extras(path), ww.data.load(path)[:]))


def write_deep_pictures(folder: Path, alpha: np.ndarray) -> None:
    """Pictures of 16 bits whose reading depends on what the file says about them."""
    import tifffile

    grey = alpha[..., 0].astype(np.uint16) * 257
    tifffile.imwrite(folder / "negative.tif", 65535 - grey, photometric="miniswhite")
    deep = deep_png.encode(grey[None], 255 - alpha[..., 3])
    (folder / "deep.png").write_bytes(deep)


def add_kept_work(folder: Path, add: Callable[..., None]) -> None:
    """What commands keep: a block of codes, the noise of a picture, the record of a part."""
    kept = KeptBlocks(folder / "kept.npz", "identity")

    def read_block(path: Path) -> None:
        if path.is_dir() or not os.path.lexists(path):
            return  # nothing of this kind gets into a folder that the program makes
        kept.folder.mkdir(exist_ok=True)
        kept.about.write_text(kept.identity)
        os.rename(path, kept.block(0))
        with kept.opened():
            assert not kept.has_block(0) or zipfile.is_zipfile(kept.block(0))

    with kept.opened():
        kept.write_block(0, {"features": np.arange(40.0)}, compress=True)
        shutil.copy(kept.block(0), folder / "block.npz")
    add("kept block", folder / "block.npz", read_block)
    (folder / "noise.json").write_text(NoiseEstimate(gain=0.01, sigma=0.02).to_json())
    add("noise", folder / "noise.json", lambda path: read_noise_text(str(path)))
    PartRecord("model", "settings", AllPictures(2, "names")).write(folder / "part.json")
    add("part", folder / "part.json", PartRecord.read)


def add_records(folder: Path, add: Callable[..., None]) -> None:
    """What the program keeps about its results."""
    results = folder / "result"
    claim([results / "a.png"], folder=results)
    write_result(results, results / "b.csv", b"1", "")
    shutil.copy(results / RECORD, folder / "record.json")

    def write(_: Path) -> None:
        write_result(results, results / "b.csv", b"2", "")
        claim([results / "b.csv"], folder=results)

    add("results", folder / "record.json", write, results / RECORD)
    pictures = folder / "to restore"
    pictures.mkdir()
    Image.fromarray(np.full((8, 8), 99, np.uint8)).save(pictures / "a.png")
    out = folder / "restored"
    task = Task("denoise", noise=0.0)
    denoiser = load_denoiser()
    for job in plan_jobs(task, denoiser, pictures, None, out):
        restore_picture(task, denoiser, job, lambda pixels: None)
    shutil.copy(out / "restoration.json", folder / "restoration.json")
    add(
        "restoration",
        folder / "restoration.json",
        lambda _: plan_jobs(task, denoiser, pictures, None, out),
        out / "restoration.json",
    )


def score(path: Path, images: np.ndarray) -> np.ndarray:
    return ww.AnomalyDetector.load(path).score_samples(images[:1, None])


def read_classifier(path: Path) -> np.ndarray | bool:
    return is_classifier(path) and ww.load_classifier(path).predict(np.eye(4, dtype=np.float32))


def image_files(folder: Path, images: np.ndarray, labels: np.ndarray) -> list[Path]:
    """Images in every format that is read."""
    np.save(folder / "images.npy", images)
    np.savez(folder / "images.npz", images=images, labels=labels)
    write_idx(folder / "images-idx3-ubyte", (images * 255).astype(np.uint8))
    first, *others = (Image.fromarray((image * 255).astype(np.uint8)) for image in images)
    pictures = [folder / f"picture.{kind}" for kind in PICTURES]
    for picture in pictures:
        first.save(picture)
    first.save(folder / "pages.tif", save_all=True, append_images=others[:3])
    names = ("pages.tif", "images.npy", "images.npz", "images-idx3-ubyte")
    return [*pictures, *(folder / name for name in names)]


def forge(chance: random.Random, content: bytes, text: str) -> bytes:
    """A safetensors file whose settings, in the metadata `text`, or tensors are changed, with a
    right checksum."""
    size = int.from_bytes(content[:8], "little")
    metadata, tensors = (
        json.loads(content[8 : 8 + size])["__metadata__"],
        safetensors.torch.load(content),
    )
    for _ in range(chance.choice((1, 1, 2))):
        if tensors and chance.random() < 0.5:
            forge_tensor(chance, tensors)
        else:
            metadata[text] = forge_json(chance, metadata[text])
    return safetensors.torch.save(
        tensors, {**metadata, "sha256": checksum(metadata[text], tensors)}
    )


def forge_json(chance: random.Random, text: str) -> str:
    """The text with one value changed, removed or added, anywhere in it."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    inside = value
    while isinstance(inside, dict | list) and inside:
        keys = list(inside) if isinstance(inside, dict) else range(len(inside))
        key = chance.choice(keys)
        if chance.random() < 0.3 or not isinstance(inside[key], dict | list):
            if chance.random() < 0.1:
                del inside[key]
            else:
                inside[key] = chance.choice(VALUES)
            break
        inside = inside[key]
    return json.dumps(value)


def forge_tensor(chance: random.Random, tensors: dict[str, torch.Tensor]) -> None:
    """Replace one tensor by another of its values, with another shape or dtype, or remove it."""
    name = chance.choice(sorted(tensors))
    tensor = tensors.pop(name)
    match chance.randrange(8):
        case 0:
            tensors["x" * chance.choice((0, 1, 5000))] = tensor
        case 1:
            tensors[name] = tensor.flatten()[: chance.choice((0, 1, 2))].clone()
        case 2:
            tensors[name] = tensor[None]
        case 3:
            tensors[name] = tensor.flatten()
        case 4:
            tensors[name] = tensor.to(
                chance.choice((torch.bool, torch.int64, torch.float64, torch.bfloat16))
            )
        case 5:
            tensors[name] = torch.full_like(
                tensor, chance.choice((-1, 0, 1e30, math.nan)), dtype=torch.float32
            )
        case 6:
            tensors[name] = torch.cat([tensor.flatten(), tensor.flatten()])


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
                    changed[at : at + 1] = str(
                        chance.choice((*BIG, -1, "1e999", "NaN", "[" * 2000))
                    ).encode()
    return bytes(changed)


SPECIAL = (
    "pipe",
    "folder",
    "nothing",
    "empty",
    "link to itself",
    "zeros",
    "deep",
    "unreadable name",
)


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
    except WhatwhereError as error:
        length = len(str(error))
        return "error" if length <= LONGEST_MESSAGE else f"FAULT message of {length} characters"
    except Slow:
        return "FAULT slow"
    except BaseException as error:
        return f"FAULT {type(error).__name__}: {str(error)[:100]}"
    return "read"


def attack_reader(name: str, reader: Reader, count: int, seed: int) -> collections.Counter[str]:
    """Let one reader read `count` hostile files, and at least one of every kind in SPECIAL and a
    damaged one."""
    content, tally, place = reader.valid.read_bytes(), collections.Counter[str](), reader.place
    for number in range(max(len(SPECIAL) + 1, count)):
        place.unlink(missing_ok=True)
        if number < len(SPECIAL):
            special(place, SPECIAL[number])
        else:
            place.write_bytes(reader.damage(random.Random(f"{seed} {name} {number}"), content))
        result = outcome(reader.read, place)
        tally[result] += 1
        if result.startswith("FAULT"):
            print(f"{name}, number {number}: {result}", flush=True)
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
    place.unlink(missing_ok=True)
    shutil.copy(reader.valid, place)  # other readers of the same folder need it
    return tally


def attack(
    count: int, seed: int = 0, out: Path | None = None
) -> dict[str, collections.Counter[str]]:
    """Read `count` hostile files, divided among the readers; the outcomes of each reader.

    out  gets the counts after each reader
    """
    torch.set_num_threads(1)
    totals: dict[str, collections.Counter[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        known = readers(folder)
        for name, reader in known.items():
            shutil.copy(reader.valid, reader.place)
            assert (result := outcome(reader.read, reader.place)) == "read", (
                f"{name}: a valid file gives {result}"
            )
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        for name, reader in known.items():
            totals[name] = attack_reader(name, reader, -(-count // len(known)), seed)
            if out is not None:
                write_counts(out, totals)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for several processes")
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.processes > 1:
        size = ["--files", str(-(-arguments.files // arguments.processes))]
        totals = attack_in_parts(
            __file__, size, arguments.seed, arguments.processes, arguments.seconds
        )
    else:
        totals = attack(arguments.files, arguments.seed, arguments.out)
    faults = report(totals)
    who = resource.RUSAGE_CHILDREN if arguments.processes > 1 else resource.RUSAGE_SELF
    peak = resource.getrusage(who).ru_maxrss / 2**20
    print(f"{time.monotonic() - began:.0f} s; peak {peak:.2f} GB")
    if arguments.out:
        write_counts(arguments.out, totals)
    sys.exit(faults)


if __name__ == "__main__":
    main()
