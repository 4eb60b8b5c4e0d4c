"""One example of each class: Omniglot's ten runs of 20-way one-shot classification, and digits in any pose.

    python -m reproduction.studies.one_example --data FOLDER --out FOLDER [--part omniglot] [--tiny]

Omniglot: a model of both layers is learned from the background characters. Rows are descriptors in a metric: that of
small distortions, which needs no labels, or that of drawers, the covariance of the drawings of a character among the
background characters. Matching lets the example of a class move a little, and charges for it. Settings are chosen on
tasks from two alphabets of the background, whose characters then do not make the metric; the ten runs are tested once.

Pose: MNIST in 40 × 40 at random places; test digits are turned ±20°, sheared ±0.2, scaled 0.8 to 1.2 and moved.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reproduction.deskew import deskew
from reproduction.studies import ten_labels as study
from reproduction.studies.ten_labels import DenseCovariance, Describer, Log, Moments, in_batches, stream_model
from whatwhere.classification.linear_svm import fit_svm
from whatwhere.ops.distortions import distort
from whatwhere.spec.distortions import Distortions

CHARACTERS = Distortions(rotation=15, shear=0.2, scale=0.15, shift=0.05, elastic=0.04)
MOVES = 24


def shrunk(v: np.ndarray) -> Tensor:
    """Characters as [N, 1, 35, 35], ink 1, in strokes that are not too thin."""
    small = F.avg_pool2d(torch.from_numpy(v.astype(np.float32))[:, None], 3)
    return (2 * small).clamp(max=1)


def moved(function, v: Tensor) -> tuple[Tensor, Tensor]:
    """Descriptors [N, MOVES, D] of images as they are and moved in some ways, and the size [MOVES] of each way."""
    copies, sizes = [in_batches(function, v, 1000)], [0.0]
    for move in range(1, MOVES if not study.TINY else 3):
        strength = move / MOVES
        kinds = ("rotation", "shear", "scale", "shift", "elastic")
        how = replace(CHARACTERS, **{k: 1.3 * strength * getattr(CHARACTERS, k) for k in kinds})
        generator = torch.Generator().manual_seed(move)
        copies.append(in_batches(function, distort(v.to(study.DEVICE), how, generator), 1000))
        sizes.append(strength**2)
    return torch.stack(copies, 1), torch.tensor(sizes, device=copies[0].device)


def by_metric(metric, moved_rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    x, sizes = moved_rows
    return metric(x.flatten(0, 1)).unflatten(0, x.shape[:2]), sizes


def distances(examples: tuple[Tensor, Tensor], tests: tuple[Tensor, Tensor], charge: float) -> Tensor:
    """Of tests [n] from examples [m], [n, m]: of the best move of either, charged by its size."""
    (a, sizes), (b, _) = examples, tests
    there = 1 - torch.einsum("nr,mkr->nmk", b[:, 0], a) + charge * sizes
    back = 1 - torch.einsum("nkr,mr->nmk", b, a[:, 0]) + charge * sizes
    return there.amin(2) + back.amin(2)


def tasks(names: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tasks like those of the test: 20 characters of an alphabet, the drawings of one person and of another."""
    rng, alphabet = np.random.default_rng(0), np.array([name.split("/")[0] for name in names])
    found = []
    for _ in range(count):
        chosen = rng.choice(np.unique(alphabet))
        characters = rng.permutation(np.unique(names[alphabet == chosen]))[:20]
        one, other = rng.permutation(20)[:2]
        rows = [np.flatnonzero(names == c) for c in characters]
        found.append((np.array([r[one] for r in rows]), np.array([r[other] for r in rows])))
    return found


def drawers(x: Tensor, names: np.ndarray) -> DenseCovariance:
    """The covariance of the drawings of a character."""
    within = DenseCovariance(512)
    parts = []
    for name in np.unique(names):
        rows = x[torch.from_numpy(np.flatnonzero(names == name)).to(x.device)].float()
        parts.append((rows - rows.mean(0)) * (len(rows) / max(len(rows) - 1, 1)) ** 0.5)
    within.add(torch.cat(parts))
    return within


def omniglot(log: Log, data: Path, out: Path) -> None:
    file = np.load(data / "omniglot.npz")
    v, names = shrunk(file["background"]), file["character"]
    if study.TINY:
        keep = [i for n in np.unique(names)[::8] for i in np.flatnonzero(names == n)]
        v, names = v[keep], names[keep]
    model = stream_model("omniglot", v, out, study.MIDDLE)
    function = Describer(model, (1, 2))
    x = in_batches(function, v, 1000)
    alphabets = np.array([name.split("/")[0] for name in names])
    held = np.isin(alphabets, np.unique(alphabets)[-2:])
    learn = torch.from_numpy(np.flatnonzero(~held)).to(x.device)
    total = DenseCovariance(1024)
    total.add(x.float())
    how = study.within_of(function, v[::2], CHARACTERS)
    kinds = {"distortions": (how, how), "drawers": (drawers(x[learn], names[~held]), drawers(x, names))}
    asked = tasks(names[held], 40 if not study.TINY else 2)
    used = np.unique(np.concatenate([np.concatenate(task) for task in asked]))
    known, mean = moved(function, v[torch.from_numpy(np.flatnonzero(held)[used])]), x.float().mean(0)
    asked = [tuple(np.searchsorted(used, part) for part in task) for task in asked]
    best: dict[str, tuple] = {}

    def measure(kind: str, share: float, rank: int) -> dict:
        rows, sizes = by_metric(Moments(kinds[kind][0], total, mean, CHARACTERS).metric(share=share, rank=rank), known)
        errors = {}
        for charge in (1e9, 2.0, 0.5, 0.2, 0.0):
            wrong = [(distances((rows[a], sizes), (rows[b], sizes), charge).argmin(1).cpu()
                      != torch.arange(len(a))).double().mean().item() for a, b in asked]  # fmt: skip
            errors[charge] = round(100 * float(np.mean(wrong)), 2)
            best[kind] = min(best.get(kind, (99.0,)), (errors[charge], share, rank, charge))
        return {"errors": errors}

    for kind, share, rank in product(kinds, (0.1, 0.3, 1.0), (200, 400)):
        key = (kind, share, rank)
        log.step(f"omniglot background {kind} share {share} rank {rank}", lambda key=key: measure(*key), need=4)
    given = [[moved(function, shrunk(file[name][run])) for name in ("training", "test")] for run in range(10)]

    def test(kind: str) -> dict:
        _, share, rank, charge = best[kind]
        metric = Moments(kinds[kind][1], total, mean, CHARACTERS).metric(share=share, rank=rank)
        errors = []
        for run in range(10):
            a, b = (by_metric(metric, each) for each in given[run])
            errors.append((distances(a, b, charge).argmin(1).cpu().numpy() != file["answer"][run]).mean())
        return {"chosen": best[kind], "test": round(100 * float(np.mean(errors)), 2),
                "runs": [round(100 * float(e), 1) for e in errors]}  # fmt: skip

    for kind in best:
        log.step(f"omniglot test {kind}", lambda kind=kind: test(kind))


# pose ----------------------------------------------------------------------------------------------------------


def placed(v: Tensor, seed: int) -> Tensor:
    """Digits at random places of 40 × 40."""
    places = torch.randint(0, 13, (len(v), 2), generator=torch.Generator().manual_seed(seed))
    out = v.new_zeros(len(v), 1, 40, 40)
    for i, (row, column) in enumerate(places.tolist()):
        out[i, :, row : row + 28, column : column + 28] = v[i]
    return out


def small_cnn(v: Tensor, y: Tensor, epochs: int = 8) -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    convolutions = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    top = [nn.Flatten(), nn.Dropout(0.5), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10)]
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


def pose(log: Log, data: Path, out: Path) -> None:
    """The share of digits that are right, of others in other poses."""
    v, y = study.read(data / "mnist", "train")
    v_new, y_new = study.read(data / "mnist", "t10k")
    v, y, v_new = placed(v, 0), torch.from_numpy(y), placed(v_new, 1)
    turned = distort(v_new, Distortions(rotation=20, shear=0.2, scale=0.2, shift=0.05, elastic=0), torch.Generator())

    def network() -> dict:
        net = small_cnn(v, y, 1 if study.TINY else 8)
        right = {}
        for name, images in (("in place", v_new), ("in other poses", turned)):
            with torch.no_grad():
                found = torch.cat([net(part.to(study.DEVICE)).argmax(1).cpu() for part in images.split(1000)])
            right[name] = round(100 * float((found.numpy() == y_new).mean()), 2)
        return right

    def features() -> dict:
        centred = [deskew(images.to(study.DEVICE))[:, :, 6:34, 6:34].cpu() for images in (v, v_new, turned)]
        model = stream_model("pose", centred[0], out, study.SMALL)
        function = Describer(model, (1, 2))
        x = in_batches(function, centred[0])
        moments = study.moments_of(function, x, centred[0], Distortions())
        right: dict = {}
        for rank, power in ((800, 0.0), (800, -0.5)):
            metric = moments.metric(share=1.0, rank=rank, power=power)
            svm = fit_svm(metric(x), y.numpy(), 1.0, device=study.DEVICE)
            for name, images in (("in place", centred[1]), ("in other poses", centred[2])):
                found = svm.predict(metric(in_batches(function, images)))
                right[f"{name}, power {power}"] = round(100 * float((found == y_new).mean()), 2)
        return right

    log.step("pose small network", network)
    log.step("pose features, metric, linear SVM", features)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("omniglot", "pose"), default="omniglot")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--tiny", action="store_true", help="few images, to see that it runs")
    given = parser.parse_args()
    if given.tiny:
        study.TINY, study.BATCH, study.DRAWS = True, 100, 2
    given.out.mkdir(parents=True, exist_ok=True)
    log = Log(given.out / f"one_example_{given.part}.jsonl", given.seconds)
    {"omniglot": omniglot, "pose": pose}[given.part](log, given.data, given.out)


if __name__ == "__main__":
    main()
