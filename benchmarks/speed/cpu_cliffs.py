"""The CPU engine compared with the reference over sizes of filters, regions and layers, one thread
each.

    python -m benchmarks.speed.cpu_cliffs --out cpu_cliffs.json --page docs/engines/cpu.md

One layer on 28×28 digits, image step, no momentum, α = 1. The ratio is that of the best processor
times of several rounds (on a shared machine wall times measure the other users, too). --page
replaces the table between the marks in that file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import torch

from benchmarks.machine import machine
from whatwhere import infer
from whatwhere.data import load
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec

FILTERS, REGIONS, MAPS = (3, 5, 8, 12), (1, 2, 4, 7), (4, 16, 64, 128)
IMAGES, STEPS, ROUNDS, LEAST_SECONDS = 16, 6, 5, 0.2
BEGIN, END = "<!-- cpu_cliffs -->", "<!-- end of cpu_cliffs -->"


def seconds(engine: str, model: DeconvNet, images: torch.Tensor, spec: InferenceSpec) -> float:
    """Processor seconds of one solve."""
    start = time.process_time()
    infer(model, images, spec, engine=engine)
    return time.process_time() - start


def measure(filter_size: int, pool_size: int, maps: int, images: torch.Tensor) -> dict[str, float]:
    torch.manual_seed(0)
    layer = LayerSpec(maps=maps, filter_size=filter_size, pool_size=pool_size)
    model, spec = DeconvNet(ModelSpec(layers=(layer,)), seed=0), InferenceSpec(steps=STEPS)
    times: dict[str, list[float]] = {"cpu": [], "reference": []}
    for engine in times:
        infer(model, images, InferenceSpec(steps=1), engine=engine)  # compile, allocate
    while len(times["cpu"]) < ROUNDS or (
        sum(times["cpu"]) < LEAST_SECONDS and len(times["cpu"]) < 4 * ROUNDS
    ):
        for engine, measured in times.items():  # in turn, so that a noisy moment meets both
            measured.append(seconds(engine, model, images, spec))
    best = {engine: min(measured) for engine, measured in times.items()}
    per_step = {engine: round(t / (len(images) * STEPS) * 1e6, 1) for engine, t in best.items()}
    return {
        "filter": filter_size,
        "region": pool_size,
        "maps": maps,
        **per_step,
        "ratio": round(best["reference"] / best["cpu"], 2),
    }


def table(rows: list[dict[str, float]]) -> str:
    """Ratios: a row for each filter and region, a column for each number of maps."""
    ratio = {(row["filter"], row["region"], row["maps"]): row["ratio"] for row in rows}
    columns = sorted({row["maps"] for row in rows})
    lines = [
        "| filter | region | "
        + " | ".join(f"{maps} map{'s' * (maps > 1)}" for maps in columns)
        + " |",
        "| --- | --- | " + " | ".join("---" for _ in columns) + " |",
    ]
    for size, region in sorted({(row["filter"], row["region"]) for row in rows}):
        cells = [
            f"{ratio[size, region, maps]:.1f}" if (size, region, maps) in ratio else ""
            for maps in columns
        ]
        lines.append(f"| {size}×{size} | {region}×{region} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--filters", type=int, nargs="+", default=FILTERS)
    parser.add_argument("--regions", type=int, nargs="+", default=REGIONS)
    parser.add_argument("--maps", type=int, nargs="+", default=MAPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = load("digits")[slice(0, IMAGES)]
    cases = list(itertools.product(options.filters, options.regions, options.maps))
    if (8, 1, 1) not in cases and 8 in options.filters and 1 in options.regions:
        cases.append((8, 1, 1))  # the case of one map without pooling
    rows = []
    for case in cases:
        rows.append(measure(*case, images))
        print(json.dumps(rows[-1]), flush=True)
    report = {
        "benchmark": "CPU engine and reference, µs of processor time per image and step",
        "machine": machine(),
    }
    if options.out:
        options.out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    if options.page:
        before, _, rest = options.page.read_text().partition(BEGIN)
        options.page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    print(table(rows))


if __name__ == "__main__":
    main()
