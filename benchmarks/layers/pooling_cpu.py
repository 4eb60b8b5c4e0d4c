"""Gaussian pooling on a CPU in a small network, compared with max pooling.

    python -m benchmarks.layers.pooling_cpu --out pooling_cpu.json

The classifier of examples/pooling_in_a_cnn.py is trained for two epochs on the embedded digits, one
thread; and single layers are measured forward, and forward and backward. Times are processor
seconds (wall seconds are reported too: on a shared machine they are longer), the best of several
rounds for layers, the median of several runs for the network (one for the plain form). With
`--compiled` the network is also trained inside `torch.compile(fullgraph=True)`; compiling is not
counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.machine import machine
from whatwhere.data import load
from whatwhere.nn import GaussianPool2d

POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "max": lambda: nn.MaxPool2d(2),
    "Gaussian, fused": lambda: GaussianPool2d(2, form="fused"),
    "Gaussian, plain": lambda: GaussianPool2d(2, form="plain"),
}
SHAPES = ((256, 32, 28, 28), (256, 64, 14, 14), (32, 64, 56, 56))
COMPILED = {"max, compiled": "max", "Gaussian, compiled": "Gaussian, fused"}
EPOCHS, BATCH, RUNS, ROUNDS = 2, 256, 3, 7


def classifier(pooling: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        pooling(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        pooling(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 10),
    )


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds."""
    start = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - start[0], time.perf_counter() - start[1]


@cache
def network_for(pooling: str) -> nn.Module:
    """The network; what torch.compile made of one is used for all runs."""
    if pooling in COMPILED:
        return torch.compile(classifier(POOLINGS[COMPILED[pooling]]), fullgraph=True, dynamic=True)
    return classifier(POOLINGS[pooling])


def train(pooling: str, images: Tensor, labels: Tensor) -> None:
    torch.manual_seed(0)
    network = network_for(pooling)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def measure_network(images: Tensor, labels: Tensor, compiled: bool) -> dict[str, dict[str, float]]:
    names = [*POOLINGS, *(COMPILED if compiled else ())]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for name in names:  # compile
        train(name, images[: BATCH + 8], labels[: BATCH + 8])
    for run in range(RUNS):  # alternating, so that a busy moment affects all of them
        for name, measured in times.items():
            if run == 0 or name != "Gaussian, plain":  # which takes long: one run
                measured.append(seconds(partial(train, name, images, labels)))
    processor = {name: median(p for p, _ in measured) for name, measured in times.items()}
    return {
        name: {
            "processor": round(processor[name], 3),
            "wall": round(median(w for _, w in times[name]), 3),
            "ratio to max": round(processor[name] / processor["max"], 2),
        }
        for name in names
    }


def measure_layer(name: str, shape: tuple[int, ...]) -> dict[str, float]:
    """Milliseconds of processor time of one layer."""
    layer, z = POOLINGS[name](), torch.randn(shape).relu().requires_grad_()
    gradient = torch.randn_like(layer(z))
    forward = min(seconds(lambda: layer(z))[0] for _ in range(ROUNDS))
    both = min(
        seconds(lambda: torch.autograd.grad(layer(z), z, gradient))[0] for _ in range(ROUNDS)
    )
    return {"forward": round(forward * 1e3, 2), "forward and backward": round(both * 1e3, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    out = options.out
    torch.set_num_threads(1)
    digits = load("digits", split="train")
    images = digits[: min(5000, len(digits))]
    labels = torch.as_tensor(digits.labels)[: len(images)]
    report = {
        "benchmark": "Gaussian pooling on a CPU, one thread",
        "machine": machine(),
        "network": {
            "images": len(images),
            "epochs": EPOCHS,
            "seconds": measure_network(images, labels, options.compiled),
        },
        "layers, milliseconds": {
            "×".join(map(str, shape)): {name: measure_layer(name, shape) for name in POOLINGS}
            for shape in SHAPES
        },
    }
    text = json.dumps(report, indent=1, ensure_ascii=False)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
