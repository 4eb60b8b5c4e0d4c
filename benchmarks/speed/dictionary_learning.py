"""Learning of a convolutional dictionary from a real picture, against SPORCO's ConvBPDNDictLearn.

    python -m benchmarks.speed.dictionary_learning [--side 64] [--lmbda 0.1] [--out FILE]

Both start from the same random filters of unit length and minimise ½ ‖Σ d * x - s‖² + λ Σ |x| over
signed codes and filters, on the picture of `sporco_accuracy`; float32, one thread, processor
seconds. After some epochs, or iterations, the cost of a dictionary is that of the optimal code:
`whatwhere` infers it to a duality gap of 1e-3, for both, and this time does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sporco.dictlrn import cbpdndl

import whatwhere as ww
from benchmarks.machine import machine
from benchmarks.speed.sporco_accuracy import picture
from whatwhere.spec import EveryEpoch, LearningSpec, Sum

Row = dict[str, float | int | str]


def first_filters(size: int, maps: int) -> np.ndarray:
    """Return random filters of unit length, [size, size, maps]."""
    filters = np.random.default_rng(0).standard_normal((size, size, maps))
    return filters / np.sqrt((filters**2).sum((0, 1)))


def model_of(filters: np.ndarray) -> ww.DeconvNet:
    size, _, maps = filters.shape
    layer = ww.LayerSpec(maps=maps, filter_size=size, pool_size=1, pooling=Sum())
    spec = ww.ModelSpec(layers=(layer,), nonnegative=False)
    f = torch.from_numpy(filters.transpose(2, 0, 1)[None].copy()).float()
    f = f / f.square().sum((2, 3), keepdim=True).sqrt()
    return ww.DeconvNet.from_parts(spec, [f], ww.DeconvNet(spec, seed=0).connectivity)


def cost_of(filters: np.ndarray, image: np.ndarray, lmbda: float) -> float:
    """Return the cost of the optimal code, as SPORCO scales it."""
    spec = ww.InferenceSpec.coding(lam=1 / lmbda, gap=1e-3)
    v = torch.from_numpy(image)[None, None].float()
    return lmbda * float(ww.infer(model_of(filters), v, spec, engine="cpu").stats.cost[-1])


@dataclass(frozen=True)
class Way:
    """How this program learns: settings of an epoch.

    steps    accelerated steps of inference
    tangent  see `LearningSpec`
    memory   `direction_memory` of `EveryEpoch`
    """

    steps: int
    tangent: bool = True
    memory: float = 0.5

    def __str__(self) -> str:
        moved = f"along the sphere, memory {self.memory}" if self.tangent else "as in the paper"
        return f"whatwhere, {self.steps} steps an epoch, filters {moved}"


def ours(filters: np.ndarray, image: np.ndarray, lmbda: float, epochs: int, way: Way) -> Row:
    """Return the cost after some epochs."""
    start = model_of(filters)
    inference = ww.InferenceSpec(
        lam=1 / lmbda, steps=way.steps, step=ww.LineSearch(momentum=True), pooling_step=0.0
    )
    update = EveryEpoch(reset_at=(), direction_memory=way.memory)
    learning = LearningSpec(inference=inference, epochs=epochs, update=update, tangent=way.tangent)
    recipe = ww.Recipe(model=start.spec, learning=(learning,), inference=inference, batch_size=1)
    v = torch.from_numpy(image)[None, None].float()
    began = time.process_time()
    run = ww.train(v, recipe, start=start, options=ww.TrainingOptions(engine="cpu", device="cpu"))
    seconds = time.process_time() - began
    learned = run.model.filters[0][0].numpy().transpose(1, 2, 0)
    return {
        "method": str(way),
        "epochs": epochs,
        "seconds": round(seconds, 2),
        "cost": cost_of(learned, image, lmbda),
    }


def theirs(filters: np.ndarray, image: np.ndarray, lmbda: float, blocks: list[int]) -> list[Row]:
    """Return the cost after some iterations of SPORCO, with its usual adaptive ρ."""
    options = cbpdndl.ConvBPDNDictLearn.Options(
        {
            "MaxMainIter": blocks[0],
            "CBPDN": {"rho": 50 * lmbda + 0.5, "AutoRho": {"Enabled": True}},
            "CCMOD": {"rho": 10.0, "AutoRho": {"Enabled": True}},
            "DictSize": filters.shape,
        },
        dmethod="cns",
    )
    solver = cbpdndl.ConvBPDNDictLearn(
        filters.astype(np.float32),
        image.astype(np.float32)[..., None],
        lmbda,
        options,
        dmethod="cns",
    )
    rows: list[Row] = []
    seconds, done = 0.0, 0
    for until in blocks:
        solver.opt["MaxMainIter"] = until - done
        began = time.process_time()
        solver.solve()
        seconds += time.process_time() - began
        done = until
        learned = np.asarray(solver.getdict().squeeze(), dtype=np.float64)
        cost = cost_of(learned, image, lmbda)
        rows.append(
            {"method": "SPORCO", "epochs": done, "seconds": round(seconds, 2), "cost": cost}
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--lmbda", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 25, 50, 100, 200])
    parser.add_argument("--iterations", type=int, nargs="+", default=[25, 50, 100, 200, 400])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/speed/results/dictionary_learning.json")
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    image, filters = picture(given.side), first_filters(given.size, given.maps)
    ours(filters, image, given.lmbda, 1, Way(5))  # compiles
    settings = {name: getattr(given, name) for name in ("side", "maps", "size", "lmbda")}
    begin = cost_of(filters, image, given.lmbda)
    rows: list[Row] = []
    for way in (Way(10), Way(5), Way(10, memory=0.0), Way(10, tangent=False, memory=0.0)):
        for epochs in given.epochs:
            rows.append(ours(filters, image, given.lmbda, epochs, way))
            print(rows[-1], flush=True)
    rows += theirs(filters, image, given.lmbda, given.iterations)
    found = {"machine": machine(), **settings, "cost of the first filters": begin, "rows": rows}
    given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
