"""Learn to tell the correlated noise of cameras from texture, from cameras that are simulated.

    python -m benchmarks.restoration.camera_noise measure --data DATA
    python -m benchmarks.restoration.camera_noise learn

`measure` computes the features of `whatwhere.restoration.camera` for photographs and other colour
pictures as they are, for photographs as a simulated camera of random exposure, interpolation, tone
and compression shows them, and for the real cameras of `unseen/noisy.zip`, which are never learned
from. `learn` fits a logistic regression to every second photograph and prints how it does on the
others.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.restoration.any_picture import bytes_of, hash_of, jpeg, pictures
from whatwhere.restoration.camera import camera_features

OUT = Path(__file__).parent / "results" / "camera_noise.jsonl"
Pixels = np.ndarray


def simulated(x: Pixels, random: np.random.Generator) -> Pixels:
    """A picture [H, W, 3] as a camera may show it."""
    gain = float(np.exp(random.uniform(np.log(3e-4), np.log(2e-2))))
    linear = (x / 255.0) ** 2.2
    counts = random.poisson(linear / gain) * gain
    counts = counts + random.uniform(0, 2) * gain * random.normal(size=linear.shape)
    balance = np.array([random.uniform(1.3, 2.2), 1.0, random.uniform(1.3, 2.2)])
    # photons are counted before the colours are balanced
    noise = (counts - linear) * np.sqrt(balance)
    shown = interpolated(linear + noise, random.random() < 0.5)
    if random.random() < 0.3:
        shown = smoothed_colour(shown)
    picture = bytes_of(255 * shown.clip(0, 1) ** (1 / 2.2))
    if random.random() < 0.2:
        picture = sharpened(picture)
    return jpeg(picture, int(random.integers(85, 100)))


def planes_of(values: Pixels) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))[:, None].double()


def blurred(values: Pixels, kernel: torch.Tensor) -> Pixels:
    pad = kernel.shape[0] // 2
    padded = torch.nn.functional.pad(planes_of(values), (pad,) * 4, mode="reflect")
    result = torch.nn.functional.conv2d(padded, kernel[None, None].double())
    return result[:, 0].permute(1, 2, 0).numpy()


def interpolated(linear: Pixels, by_difference: bool) -> Pixels:
    """What a colour mosaic sees of a picture, interpolated linearly; or green so, and red and blue
    as differences to it."""
    seen = np.zeros_like(linear)
    for channel, row, column in ((0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)):
        seen[row::2, column::2, channel] = 1
    kernel = torch.tensor([[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]])
    weights = blurred(seen, kernel)
    full = blurred(linear * seen, kernel) / weights
    if not by_difference:
        return full
    green = np.where(seen[..., 1] > 0, linear[..., 1], full[..., 1])[..., None]
    return green + blurred((linear - green) * seen, kernel) / weights


def smoothed_colour(values: Pixels) -> Pixels:
    """Differences of colour blurred, as cameras do against coloured noise."""
    grey = values.mean(2, keepdims=True)
    return grey + blurred(values - grey, torch.full((3, 3), 1 / 9))


def sharpened(values: Pixels) -> Pixels:
    shown = values.astype(float)
    return bytes_of(shown + 0.5 * (shown - blurred(shown, torch.full((3, 3), 1 / 9))))


def features_of(x: Pixels) -> list[float] | None:
    image = torch.from_numpy(x.astype(np.float64).transpose(2, 0, 1).copy())
    span = float(image.max() - image.min())
    found = camera_features([(image - image.min()) / span]) if span else None
    return None if found is None else found.values.tolist()


def measure(a: argparse.Namespace) -> None:
    with a.out.open("w", encoding="utf-8") as file:

        def write(kind: str, name: str, x: Pixels) -> None:
            found = features_of(x)
            if found is not None:
                row = {"kind": kind, "name": name, "features": [round(v, 4) for v in found]}
                file.write(json.dumps(row) + "\n")

        tar = tarfile.open(a.data / "photographs" / "cbsd432.tar")  # noqa: SIM115
        members = sorted((m for m in tar.getmembers() if m.isfile()), key=lambda m: m.name)
        for number, member in enumerate(members):
            stream = tar.extractfile(member)
            assert stream is not None
            x = np.asarray(Image.open(io.BytesIO(stream.read())).convert("RGB"))
            random = np.random.default_rng(hash_of(member.name))
            half = "learned" if number % 2 else "kept"
            write(f"clean photograph, {half}", member.name, x)
            write(f"clean crop, {half}", member.name, x[:224, :224])
            write(f"camera, {half}", member.name, simulated(x, random))
            write(f"camera crop, {half}", member.name, simulated(x, random)[:224, :224])
        for group, name, x in pictures(a.data, 60, 320):
            if x.ndim == 3 and group not in ("photographs", "cameras"):
                write(f"clean {group}", name, x)
        with zipfile.ZipFile(a.data / "unseen" / "noisy.zip") as files:
            for name in sorted(files.namelist()):
                if name.startswith("camera/") and name.endswith(".png"):
                    x = np.asarray(Image.open(io.BytesIO(files.read(name))))
                    kind = name.split("/")[1]
                    write(f"real {kind}", name, x)
                    for top in (0, 256):
                        for left in (0, 256):
                            crop = x[top : top + 256, left : left + 256]
                            write(f"real {kind} crop", f"{name} {top} {left}", crop)


def learn(a: argparse.Namespace) -> None:
    from sklearn.linear_model import LogisticRegression

    rows = [json.loads(line) for line in a.out.read_text(encoding="utf-8").splitlines()]
    # faint noise is left as it is, whatever it looks like
    rows = [row for row in rows if row["features"][0] >= np.log(a.weakest)]
    x = np.array([row["features"][1:] for row in rows])
    kinds = np.array([row["kind"] for row in rows])
    noisy = np.array([kind.startswith(("camera", "real noisy")) for kind in kinds])
    learned = np.array(["learned" in kind for kind in kinds])
    mean, deviation = x[learned].mean(0), x[learned].std(0)
    model = LogisticRegression(C=a.strength, class_weight="balanced", max_iter=5000)
    model.fit((x[learned] - mean) / deviation, noisy[learned])
    weights = model.coef_[0] / deviation
    bias = float(model.intercept_[0] - weights @ mean)
    scores = x @ weights + bias
    print("weights", [round(float(w), 2) for w in weights], "bias", round(bias, 2))
    by_kind = defaultdict(list)
    for kind, score in zip(kinds, scores, strict=True):
        by_kind[kind].append(score)
    for kind, values in by_kind.items():
        quantiles = np.quantile(values, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]).round(1).tolist()
        shares = [round(float(np.mean(np.array(values) > limit)), 3) for limit in (0, 1, 2, 3)]
        print(f"{kind:26} {len(values):4}: {quantiles}, above 0, 1, 2, 3: {shares}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "learn"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--weakest", type=float, default=0.007)
    a = parser.parse_args()
    measure(a) if a.what == "measure" else learn(a)
