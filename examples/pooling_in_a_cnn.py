"""Max, average, strided and Gaussian pooling in the same small networks, on MNIST and
Fashion-MNIST.

    WHATWHERE_DATA=… python examples/pooling_in_a_cnn.py --out results.json     (a GPU helps)

The classifier has two convolutions, each followed by a layer that halves the size of the map, and a
linear layer. The networks have the same number of parameters and differ only in how they halve the
map. The autoencoder has the same two stages and a decoder that receives the position of each
feature: the switches of max pooling, or the Gaussians. The script trains every network with five
seeds and reports the mean and the standard deviation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import whatwhere as ww
from whatwhere.nn import GaussianPool2d, GaussianUnpool2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Trial:
    """One network to train."""

    task: str
    images: str
    pooling: str
    seed: int
    epochs: int
    batch: int = 256
    learning_rate: float = 1e-3


def halving(pooling: str) -> nn.Module:
    kinds: dict[str, Callable[[], nn.Module]] = {
        "max": lambda: nn.MaxPool2d(2),
        "average": lambda: nn.AvgPool2d(2),
        "strided": nn.Identity,  # the convolution has a stride of 2 instead
        "gaussian": lambda: GaussianPool2d(2),
    }
    return kinds[pooling]()


def classifier(pooling: str) -> nn.Module:
    stride = 2 if pooling == "strided" else 1
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, stride, padding=1),
        nn.ReLU(),
        halving(pooling),
        nn.Conv2d(32, 64, 3, stride, padding=1),
        nn.ReLU(),
        halving(pooling),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 10),
    )


class Autoencoder(nn.Module):
    """`What` passes through 8 maps of 7 × 7; `where` goes from each pooling to its unpooling."""

    def __init__(self, pooling: str) -> None:
        super().__init__()
        gaussian = pooling == "gaussian"
        self.pool = (
            GaussianPool2d(2, return_where=True)
            if gaussian
            else nn.MaxPool2d(2, return_indices=True)
        )
        self.unpool = GaussianUnpool2d(2) if gaussian else nn.MaxUnpool2d(2)
        self.down = nn.ModuleList([nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 8, 5, padding=2)])
        self.up = nn.ModuleList([nn.Conv2d(8, 16, 5, padding=2), nn.Conv2d(16, 1, 5, padding=2)])

    def forward(self, images: Tensor) -> Tensor:
        first, where_1 = self.pool(self.down[0](images).relu())
        second, where_2 = self.pool(self.down[1](first).relu())
        back = self.up[0](self.unpool(second, where_2)).relu()
        return self.up[1](self.unpool(back, where_1))


@cache
def images_and_labels(name: str, split: str) -> tuple[Tensor, Tensor]:
    loaded = ww.data.load(name, split=split)
    return loaded[:].to(DEVICE), torch.as_tensor(loaded.labels).to(DEVICE)


def batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    return iter(order.split(size))


def train(trial: Trial) -> tuple[Trial, float, int]:
    """Test error in percent of a classifier, or mean squared test error of an autoencoder; number
    of parameters."""
    torch.manual_seed(trial.seed)
    classify = trial.task == "classifier"
    network = (classifier if classify else Autoencoder)(trial.pooling).to(DEVICE)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.learning_rate)
    images, labels = images_and_labels(trial.images, "train")
    for epoch in range(trial.epochs):
        for rows in batches(len(images), trial.batch, seed=1000 * trial.seed + epoch):
            v, target = images[rows], labels[rows] if classify else images[rows]
            loss = (cross_entropy if classify else mse_loss)(network(v), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return (
        trial,
        evaluate(network, trial),
        sum(parameter.numel() for parameter in network.parameters()),
    )


@torch.no_grad()
def evaluate(network: nn.Module, trial: Trial) -> float:
    images, labels = images_and_labels(trial.images, "test")
    outputs = [network(v) for v in images.split(1000)]
    if trial.task == "classifier":
        return 100 * (torch.cat(outputs).argmax(1) != labels).double().mean().item()
    return mse_loss(torch.cat(outputs).double(), images.double()).item()


def trials(sets: list[str], seeds: int, epochs: int) -> list[Trial]:
    kinds = {
        "classifier": ("max", "average", "strided", "gaussian"),
        "autoencoder": ("max", "gaussian"),
    }
    return [
        Trial(task, images, pooling, seed, epochs)
        for task, poolings in kinds.items()
        for images in sets
        for pooling in poolings
        for seed in range(seeds)
    ]


def table(results: list[tuple[Trial, float, int]]) -> str:
    lines = []
    for task, unit in (("classifier", "test error, %"), ("autoencoder", "mean squared test error")):
        groups: dict[tuple[str, str, int], list[float]] = {}
        for trial, value, parameters in results:
            if trial.task == task:
                groups.setdefault((trial.images, trial.pooling, parameters), []).append(value)
        lines.append(
            f"{task}: {unit}, mean ± standard deviation of {max(map(len, groups.values()))} seeds"
        )
        for (images, pooling, parameters), values in groups.items():
            spread = stdev(values) if len(values) > 1 else 0.0
            digits = 2 if task == "classifier" else 5
            lines.append(
                f"  {images:14} {pooling:9} {mean(values):.{digits}f} ± {spread:.{digits}f}  "
                f" {parameters} parameters"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1, help="networks trained at the same time")
    parser.add_argument("--out", type=Path, help="where to write every single result")
    options = parser.parse_args()
    start, todo = time.perf_counter(), trials(options.sets, options.seeds, options.epochs)
    if options.jobs == 1:
        results = [train(trial) for trial in todo]
    else:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(train, todo))
    print(
        f"{len(todo)} networks, {options.epochs} epochs each, {time.perf_counter() - start:.0f} s"
        f" on {DEVICE}"
    )
    print(table(results))
    if options.out:
        rows = [
            {**asdict(trial), "value": value, "parameters": count}
            for trial, value, count in results
        ]
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
