"""Draw the learning curves of howto/streaming.md from benchmarks/results:  python docs/learning_pictures.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
WAYS = {"stream": ("in a stream", "#D55E00", "o"), "epochs": ("by epochs", "#0072B2", "s")}
Row = dict[str, Any]


def learned(rows: list[Row], layer: int, key: str) -> tuple[list[float], list[float]]:
    """Since the layer began: seconds or images, and the cost."""
    before = max((row[key] for row in rows if row["layer"] < layer), default=0)
    return [row[key] - before for row in rows if row["layer"] == layer], [
        row["cost"] for row in rows if row["layer"] == layer
    ]


def draw(curves: dict[str, list[Row]], title: str, name: str) -> None:
    figure, panels = plt.subplots(2, 2, figsize=(7, 4.6), sharey="row", layout="constrained")
    for layer, line in enumerate(panels, start=1):
        for axis, key in zip(line, ("seconds", "images"), strict=True):
            for way, rows in curves.items():
                text, colour, marker = WAYS[way]
                axis.semilogx(*learned(rows, layer, key), color=colour, marker=marker, ms=4, label=text)
            label_axis(axis, key, layer)
    panels[0, 0].legend(frameon=False)
    figure.suptitle(title, fontsize=9)
    figure.savefig(HERE / "images" / name, dpi=120)


def label_axis(axis: Axes, label: str, layer: int) -> None:
    axis.grid(alpha=0.3, which="both")
    axis.set_xlabel(f"{label} of layer {layer}")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if label == "seconds" else (1, 3)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1000 else f"{value:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    if label == "seconds":
        axis.set_ylabel(f"layer {layer}: cost")


def main() -> None:
    gpu = json.loads((RESULTS / "streaming_gpu.json").read_text())["curves"]
    draw(gpu, "One H200, 55,000 digits: cost on 5,000 held-out training digits", "learning-gpu.png")
    cpu = json.loads((RESULTS / "streaming_cpu.json").read_text())
    title = f"Two CPU cores, {cpu['images']:,} digits: cost on {cpu['held_out']:,} held-out training digits"
    draw(cpu["curves"], title, "learning-cpu.png")


if __name__ == "__main__":
    main()
