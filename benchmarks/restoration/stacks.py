"""Four frames of a field: restored one by one, averaged and restored, and by `--frames 4`.

    python -m benchmarks.restoration.stacks measure --data noisy.zip
    python -m benchmarks.restoration.stacks table

The fields are those of `real_noise.py`, four frames each. `static` takes the same crop of 256²
pixels of all frames. In `moving`, the crop moves by 1 to 3 pixels from frame to frame, so that the
picture moves the other way; the truth moves with it. `object` shows whether anything is seen twice:
a square of 24² pixels of another field moves by 3 pixels from frame to frame over a static field,
and the error is measured where it is or was.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from pathlib import Path

import numpy as np

import whatwhere as ww
from benchmarks.restoration.real_noise import pairs, psnr

OUT = Path(__file__).parent / "results" / "stacks.jsonl"
SIDE = 256
STEPS = np.array([[0, 0], [1, 2], [3, 1], [2, -2]])  # pixels that a frame lies away from the first


def fields(archive: Path) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Return noisy and clean frames by the name of their field."""
    with zipfile.ZipFile(archive) as files:
        assert any("micrographs" in name for name in files.namelist())
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for name, noisy, clean in pairs(archive, None, ""):
        if name.startswith("micrographs"):
            found.setdefault(name.rsplit("_", 1)[0], []).append((noisy, clean))
    return found


def crop(picture: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the middle of a picture, moved by a step."""
    top, left = (np.array(picture.shape) - SIDE) // 2 + step
    return picture[top : top + SIDE, left : left + SIDE]


def films(
    frames: list[tuple[np.ndarray, np.ndarray]], other: list[tuple[np.ndarray, np.ndarray]]
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return noisy films, their truths, and where their error is measured: static, moving, and with
    an object of another field that moves."""
    still = np.zeros((4, 2), int)
    everywhere = np.ones((4, SIDE, SIDE), bool)
    result = {}
    for name, steps in (("static", still), ("moving", STEPS)):
        noisy, clean = (
            np.stack([crop(frame[k], step) for frame, step in zip(frames, steps, strict=True)])
            for k in (0, 1)
        )
        result[name] = (noisy, clean, everywhere)
    noisy, clean = result["static"][0].copy(), result["static"][1].copy()
    seen = np.zeros_like(everywhere)
    for number in range(4):
        place = slice(100, 124), slice(90 + 3 * number, 114 + 3 * number)
        seen[:, *place] = True
        for film, k in ((noisy, 0), (clean, 1)):
            film[number][place] = crop(other[number][k], still[0])[100:124, 100:124]
    result["object"] = (noisy, clean, seen)
    return result


def measure(a: argparse.Namespace) -> None:
    """Write a line for every field and film."""
    own = fields(a.data)
    names = list(own)
    spec = ww.restoration.RestorationSpec(frames=4)
    with a.out.open("w", encoding="utf-8") as file:
        for number, name in enumerate(names):
            made = films(own[name], own[names[number - 1]])
            for kind, (noisy, clean, where) in made.items():
                noise = ww.restoration.estimate_noise(list(_tensors(noisy)))
                row = {"field": name, "film": kind, "noisy": _mean_psnr(noisy, clean, where)}
                alone = np.stack([ww.restoration.denoise(frame) for frame in noisy])
                row["alone"] = _mean_psnr(alone, clean, where)
                alike = np.stack([ww.restoration.denoise(frame, noise=noise) for frame in noisy])
                row["alike"] = _mean_psnr(alike, clean, where)
                began = time.process_time()
                together = ww.restoration.denoise(noisy, spec=spec)
                row["seconds"] = round(time.process_time() - began, 2)
                row["frames"] = _mean_psnr(together, clean, where)
                if kind == "static":
                    mean = ww.restoration.denoise(noisy.astype(np.float32).mean(0))
                    row["mean"] = _mean_psnr(np.stack([mean] * 4), clean, where)
                row["noise"] = noise.summary()
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(row, flush=True)


def _tensors(frames: np.ndarray):
    import torch

    return torch.from_numpy(frames[:, None].astype(np.float64))


def _mean_psnr(film: np.ndarray, truth: np.ndarray, where: np.ndarray) -> float:
    pairs_of = zip(film, truth, where, strict=True)
    return round(float(np.mean([psnr(x[seen], y[seen]) for x, y, seen in pairs_of])), 3)


def table(a: argparse.Namespace) -> None:
    """Print means over fields, of all and of each kind of film."""
    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    for kind in ("static", "moving", "object"):
        part = [row for row in rows if row["film"] == kind]
        names = [name for name in ("noisy", "alone", "alike", "frames", "mean") if name in part[0]]
        means = {name: round(float(np.mean([row[name] for row in part])), 2) for name in names}
        least = min(row["frames"] - row["alone"] for row in part)
        print(f"{kind} ({len(part)}): {means}, least gain {least:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else table(a)


if __name__ == "__main__":
    main()
