"""Pose: MNIST in 40 × 40 at random places; test digits are also turned ±20°, sheared ±0.2 and
scaled 0.8 to 1.2.

    python -m benchmarks.labels.pose --data FOLDER --out FOLDER [--tiny]

A linear SVM on features of one model in the metric of small distortions, images centred and sheared
upright by their moments; next to it a small convolutional network trained on the same images, as
they are and upright. All learn from the first 50,000 digits; the last 10,000, posed like the test
digits, choose.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.labels import ten_labels as study
from benchmarks.labels.ten_labels import Describer, Log, in_batches, stream_model
from reproduction.deskew import deskew
from whatwhere.classification.linear_svm import fit_svm
from whatwhere.classification.metric import distort
from whatwhere.classification.settings import Distortions

POSES = Distortions(rotation=20, shear=0.2, scale=0.2, shift=0, elastic=0)


def placed(v: Tensor, seed: int, how: Distortions | None = None) -> Tensor:
    """Digits [N, 1, 28, 28] at random places of 40 × 40, in other poses if `how` is given."""
    generator = torch.Generator().manual_seed(seed)
    v = F.pad(v, (6, 6, 6, 6))
    v = v if how is None else distort(v, how, generator)
    moves = torch.randint(-6, 7, (len(v), 2), generator=generator).tolist()
    return torch.stack(
        [torch.roll(image, move, (1, 2)) for image, move in zip(v, moves, strict=True)]
    )


def small_cnn(v: Tensor, y: Tensor, epochs: int = 8) -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    convolutions = [
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    size = (v.shape[2] - 4) // 2 // 2 - 2
    top = [
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64 * size**2, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    ]
    net = nn.Sequential(*convolutions, *top).to(study.DEVICE)
    steps = epochs * -(-len(v) // 200)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(v)).split(200):
            optimiser.zero_grad()
            F.cross_entropy(net(v[rows].to(study.DEVICE)), y[rows].to(study.DEVICE)).backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def right(predict, parts: dict[str, tuple[Tensor, np.ndarray]]) -> dict:
    return {name: round(100 * float((predict(v) == y).mean()), 2) for name, (v, y) in parts.items()}


def pose(log: Log, data: Path, out: Path) -> None:
    """The share in % of digits that are right, in place and in other poses, of validation and of
    test images."""
    v, y = study.read(data / "mnist", "train")
    v_new, y_new = study.read(data / "mnist", "t10k")
    held = 300 if study.TINY else 50_000
    v_held, y_held = v[held:], y[held:]
    parts = {
        "validation in place": (placed(v_held, 1), y_held),
        "validation": (placed(v_held, 2, POSES), y_held),
        "test in place": (placed(v_new, 3), y_new),
        "test": (placed(v_new, 4, POSES), y_new),
    }
    learned, y = placed(v[:held], 0), y[:held]

    def upright(images: Tensor) -> Tensor:
        return torch.cat(
            [deskew(part.to(study.DEVICE))[:, :, 6:34, 6:34].cpu() for part in images.split(5000)]
        )

    def network(images: Tensor, before) -> dict:
        net = small_cnn(before(images), torch.from_numpy(y), 1 if study.TINY else 8)

        def predict(images: Tensor) -> np.ndarray:
            with torch.no_grad():
                found = [
                    net(part.to(study.DEVICE)).argmax(1).cpu()
                    for part in before(images).split(1000)
                ]
            return torch.cat(found).numpy()

        return right(predict, parts)

    log.step("pose small network", lambda: network(learned, lambda images: images))
    log.step("pose small network, upright", lambda: network(learned, upright))
    model = stream_model("pose", upright(learned), out, study.SMALL)
    function = Describer(model, (1, 2))
    centred = upright(learned)
    x = in_batches(function, centred)
    moments = study.moments_of(function, x, centred, Distortions())
    for share, rank, power in (
        (1.0, 400, -0.3),
        (1.0, 800, 0.0),
        (0.3, 800, 0.0),
        (1.0, 800, -0.5),
    ):

        def features(share=share, rank=rank, power=power) -> dict:
            metric = moments.metric(share=share, rank=rank, power=power)
            svm = fit_svm(metric(x), y, 1.0, device=study.DEVICE)
            return right(
                lambda images: svm.predict(metric(in_batches(function, upright(images)))), parts
            )

        log.step(f"pose features, share {share} rank {rank} power {power}, linear SVM", features)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--tiny", action="store_true", help="few images, to see that it runs")
    given = parser.parse_args()
    if given.tiny:
        study.TINY, study.BATCH, study.DRAWS = True, 100, 2
    given.out.mkdir(parents=True, exist_ok=True)
    pose(Log(given.out / "pose.jsonl", given.seconds), given.data, given.out)


if __name__ == "__main__":
    main()
