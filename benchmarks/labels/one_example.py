"""One example of each class: Omniglot's ten runs of 20-way one-shot classification.

    python -m benchmarks.labels.one_example --data FOLDER --out FOLDER [--test] [--tiny]

A model of both layers is learned from the background characters. Rows are descriptors in a metric:
that of small distortions, which needs no labels, or that of drawers, the covariance of the drawings
of a character among the background characters. Matching lets the example of a class move a little,
and charges for it. Settings are chosen on tasks from two alphabets of the background, whose
characters then do not make the metric; the ten runs are tested once.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.labels import ten_labels as study
from benchmarks.labels.ten_labels import (
    DenseCovariance,
    Describer,
    Log,
    Moments,
    in_batches,
    stream_model,
)
from whatwhere.classification.descriptors import unit_length
from whatwhere.classification.metric import distort
from whatwhere.classification.settings import Distortions

CHARACTERS = Distortions(rotation=15, shear=0.2, scale=0.15, shift=0.05, elastic=0.04)
MOVES, DIRECTIONS = 32, 1024
SIDE, SPREAD = 32, 0.4  # pixels, and the deviation of the ink from its centre, in half sides
TEST = False


def normalised(v: np.ndarray, each_axis: bool = False) -> Tensor:
    """Characters as [N, 1, SIDE, SIDE], ink 1: their ink centred, and of one spread, over both
    axes or each."""
    ink = F.avg_pool2d(torch.from_numpy(v.astype(np.float32))[:, None], 3, stride=1, padding=1)
    ink = (2 * F.avg_pool2d(ink, 3, stride=1, padding=1)).clamp(max=1)
    axis = torch.linspace(-1, 1, ink.shape[2])
    mass = ink.sum((1, 2, 3)).clamp(min=1)
    x, y = (ink * axis).sum((1, 2, 3)) / mass, (ink * axis[:, None]).sum((1, 2, 3)) / mass
    across = (ink * (axis - x[:, None, None, None]) ** 2).sum((1, 2, 3)) / mass
    down = (ink * (axis[:, None] - y[:, None, None, None]) ** 2).sum((1, 2, 3)) / mass
    both = ((across + down) / 2).sqrt()
    sizes = [(part.sqrt() * both).sqrt() if each_axis else both for part in (across, down)]
    sizes = [(size / SPREAD).clamp(0.3, 1.5) for size in sizes]
    nought = torch.zeros_like(x)
    moves = torch.stack(
        [torch.stack([sizes[0], nought, x], 1), torch.stack([nought, sizes[1], y], 1)], 1
    )
    grid = F.affine_grid(moves, [len(v), 1, SIDE, SIDE], align_corners=False)
    return F.grid_sample(ink, grid, align_corners=False)


def moved(function, v: Tensor) -> tuple[Tensor, Tensor]:
    """Descriptors [N, MOVES, D] of images as they are and moved in some ways, and the size [MOVES]
    of each way."""
    copies, sizes = [in_batches(function, v, 1000)], [0.0]
    for move in range(1, MOVES if not study.TINY else 3):
        strength = move / MOVES
        kinds = ("rotation", "shear", "scale", "shift", "elastic")
        how = replace(CHARACTERS, **{k: 1.5 * strength * getattr(CHARACTERS, k) for k in kinds})
        generator = torch.Generator().manual_seed(move)
        copies.append(in_batches(function, distort(v.to(study.DEVICE), how, generator), 1000))
        sizes.append(strength**2)
    return torch.stack(copies, 1), torch.tensor(sizes, device=copies[0].device)


def by_metric(metric, moved_rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    x, sizes = moved_rows
    return metric(x.flatten(0, 1)).unflatten(0, x.shape[:2]), sizes


def distances(
    examples: tuple[Tensor, Tensor], tests: tuple[Tensor, Tensor], charge: float
) -> Tensor:
    """Of tests [n] from examples [m], [n, m]: of the best move of either, charged by its size."""
    (a, sizes), (b, _) = examples, tests
    there = 1 - torch.einsum("nr,mkr->nmk", b[:, 0], a) + charge * sizes
    back = 1 - torch.einsum("nkr,mr->nmk", b, a[:, 0]) + charge * sizes
    return there.amin(2) + back.amin(2)


def tasks(names: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tasks like those of the test: 20 characters of an alphabet, the drawings of one person and
    of another."""
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
    within = DenseCovariance(DIRECTIONS)
    for name in np.unique(names):
        rows = x[torch.from_numpy(np.flatnonzero(names == name)).to(x.device)].float()
        within.add((rows - rows.mean(0)) * (len(rows) / max(len(rows) - 1, 1)) ** 0.5)
    return within


def mixed(one: DenseCovariance, other: DenseCovariance) -> DenseCovariance:
    """The mean of two covariances, each scaled to the same sum of variances."""
    out = DenseCovariance(DIRECTIONS)
    out.count, out.squares = 2, 2.0
    out.products = sum(
        each.rows().T @ each.rows() * (each.count / each.squares) for each in (one, other)
    )
    return out


class Kind:
    """Characters described in one way: what metrics are made from, without and with the characters
    that choose."""

    def __init__(
        self, function, v: Tensor, names: np.ndarray, held: np.ndarray, used: np.ndarray
    ) -> None:
        self.function, x = function, in_batches(function, v, 1000)
        self.mean, self.total = x.float().mean(0), DenseCovariance(1024)
        for part in x.split(4096):
            self.total.add(part.float())
        how = study.within_of(function, v[::2], CHARACTERS, DIRECTIONS)
        learn = torch.from_numpy(np.flatnonzero(~held)).to(x.device)
        people = drawers(x[learn], names[~held]), drawers(x, names)
        self.within = {
            "distortions": (how, how),
            "drawers": people,
            "both": tuple(mixed(how, p) for p in people),
        }
        self.known = moved(function, v[torch.from_numpy(np.flatnonzero(held)[used])])

    def metric(self, within: str, final: bool, **settings):
        return Moments(self.within[within][final], self.total, self.mean, CHARACTERS).metric(
            **settings
        )


def together(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return unit_length(torch.cat([rows for rows, _ in parts], 2)), parts[0][1]


def omniglot(log: Log, data: Path, out: Path) -> None:
    file = np.load(data / "omniglot.npz")
    v, names = file["background"], file["character"]
    if study.TINY:
        keep = [i for n in np.unique(names)[::8] for i in np.flatnonzero(names == n)]
        v, names = v[keep], names[keep]
    alphabets = np.array([name.split("/")[0] for name in names])
    held = np.isin(alphabets, np.unique(alphabets)[1::2])  # two of five alphabets choose
    asked = tasks(names[held], 60 if not study.TINY else 2)
    used = np.unique(np.concatenate([np.concatenate(task) for task in asked]))
    asked = [tuple(np.searchsorted(used, part) for part in task) for task in asked]
    model = stream_model("omniglot", normalised(v), out, study.MIDDLE)
    plain, upright = Describer(model, (1, 2)), Describer(model, (1, 2), upright=True)
    views = {"image": (plain, False), "upright": (upright, False), "each axis": (plain, True)}
    kinds = {
        name: Kind(function, normalised(v, each_axis), names, held, used)
        for name, (function, each_axis) in views.items()
    }
    best: dict[str, tuple] = {}

    def measure(
        within: str, chosen: tuple[str, ...], share: float, rank: int, power: float
    ) -> dict:
        settings = {"share": share, "rank": rank, "power": power}
        rows, sizes = together(
            [by_metric(kinds[k].metric(within, False, **settings), kinds[k].known) for k in chosen]
        )
        errors = {}
        for charge in (1e9, 1.0, 0.5, 0.2, 0.1, 0.0):
            wrong = [
                (
                    distances((rows[a], sizes), (rows[b], sizes), charge).argmin(1).cpu()
                    != torch.arange(len(a))
                )
                .double()
                .mean()
                .item()
                for a, b in asked
            ]
            errors[charge] = round(100 * float(np.mean(wrong)), 2)
            found = (errors[charge], chosen, settings, charge)
            best[within] = min(best.get(within, found), found, key=lambda trial: trial[0])
        return {"errors": errors}

    kinds_of_metric, views_together = (
        ("distortions", "both", "drawers"),
        ("image", "upright", "each axis"),
    )
    pairs = ((0.3, 150), (0.3, 100), (1.0, 100), (0.3, 200), (1.0, 200), (0.3, 60), (0.3, 400))
    grid = [(w, views_together, share, rank, 0.0) for share, rank in pairs for w in kinds_of_metric]
    grid += [
        (w, views_together[:count], 0.3, 150, 0.0) for count in (1, 2) for w in kinds_of_metric
    ]
    for key in grid:
        log.step(f"omniglot background {key}", lambda key=key: measure(*key), need=40)
    if not TEST:
        return
    given = {
        k: [
            [moved(f, normalised(file[name][run], each)) for name in ("training", "test")]
            for run in range(10)
        ]
        for k, (f, each) in views.items()
    }

    def test(within: str) -> dict:
        _, chosen, settings, charge = best[within]
        metrics = {k: kinds[k].metric(within, True, **settings) for k in chosen}
        errors = []
        for run in range(10):
            a, b = (
                together([by_metric(metrics[k], given[k][run][part]) for k in chosen])
                for part in (0, 1)
            )
            errors.append(
                (distances(a, b, charge).argmin(1).cpu().numpy() != file["answer"][run]).mean()
            )
        return {
            "chosen": [str(part) for part in best[within]],
            "test": round(100 * float(np.mean(errors)), 2),
            "runs": [round(100 * float(e), 1) for e in errors],
        }

    for within in best:
        log.step(f"omniglot test {within}", lambda within=within: test(within))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--tiny", action="store_true", help="few images, to see that it runs")
    parser.add_argument("--test", action="store_true", help="after the choice, the ten runs")
    given = parser.parse_args()
    global TEST
    TEST = given.test
    if given.tiny:
        study.TINY, study.BATCH, study.DRAWS = True, 100, 2
    given.out.mkdir(parents=True, exist_ok=True)
    omniglot(Log(given.out / "one_example.jsonl", given.seconds), given.data, given.out)


if __name__ == "__main__":
    main()
