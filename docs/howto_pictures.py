"""Draw pictures of the how-tos:  python docs/howto_pictures.py [generation pooling learning
labelling signals]"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from torch import Tensor

import whatwhere as ww
from whatwhere.nn import functional as F

IMAGES = Path(__file__).parent / "images"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LABELLED = {
    "digits": "5,000 digits",
    "fashion": "10,000 of Fashion-MNIST",
    "defects": "236 defects of tiles",
    "tiles": "811 tiles, most of them normal",
}
COLUMNS = 12
WAYS = {"stream": ("in a stream", "#D55E00", "o"), "epochs": ("by epochs", "#0072B2", "s")}
Row = dict[str, Any]


def independent(examples: ww.Solution, count: int) -> Tensor:
    """Every feature and every pooling variable from an example of its own."""
    generator = torch.Generator().manual_seed(0)

    def draw(values: Tensor) -> Tensor:
        return values.gather(
            0, torch.randint(len(values), (count, *values.shape[1:]), generator=generator)
        )

    assert examples.decoder is not None
    return examples.decoder.decode(examples.latents.map(draw))


def generated_rows() -> dict[str, Tensor]:
    model, digits = ww.load("mnist"), ww.data.load("digits")
    examples = ww.infer(
        model, digits[:700], ww.InferenceSpec(steps=15, step=ww.LineSearch(momentum=True))
    )

    def some(numbers: list[int]) -> ww.Solution:
        return replace(examples, latents=examples.latents[numbers])

    what, where = some(list(range(20, 20 + COLUMNS))), some(list(range(40, 40 + COLUMNS)))
    new = ww.generate(examples, 3 * COLUMNS)
    threes, eights = (
        torch.from_numpy(digits.labels[:700] == kind).nonzero()[0].tolist() for kind in (3, 8)
    )
    sevens, nines = (
        torch.from_numpy(digits.labels[:700] == kind).nonzero()[0].tolist() for kind in (7, 9)
    )
    return {
        "generated": new[:COLUMNS],
        " ": new[COLUMNS : 2 * COLUMNS],
        "  ": new[2 * COLUMNS :],
        "every feature\nby itself": independent(examples, COLUMNS),
        "what of these": what.reconstruction,
        "where of these": where.reconstruction,
        "both: transfer": ww.transfer(what, where),
        "morph": ww.morph(some(threes), some(eights), COLUMNS)[:, 0],
        "   ": ww.morph(some(sevens), some(nines), COLUMNS)[:, 0],
    }


def draw_generation() -> None:
    """Of howto/generate.md."""
    drawn = generated_rows()
    figure, axes = plt.subplots(len(drawn), COLUMNS, figsize=(8, 0.62 * len(drawn)))
    for line, (name, pictures) in zip(axes, drawn.items(), strict=True):
        line[0].set_ylabel(name.strip(), rotation=0, ha="right", va="center", fontsize=8)
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture[0], cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
    figure.subplots_adjust(wspace=0.05, hspace=0.05)
    figure.savefig(IMAGES / "generate.png", dpi=110, bbox_inches="tight")


def weights(mu: tuple[float, float], gamma: float, size: int) -> Tensor:
    """w of one region: what unpooling makes of a feature of 1."""
    where = ww.PoolingParams(
        torch.tensor(mu).view(1, 2, 1, 1, 1), torch.full((1, 2, 1, 1, 1), gamma)
    )
    return F.gaussian_unpool2d(torch.ones(1, 1, 1, 1), where, size)[0, 0]


def draw_weights() -> None:
    """One Gaussian from sum pooling to max pooling."""
    gammas = (0.0, 0.2, 1.0, 4.0, 1e4)
    figure, axes = plt.subplots(1, len(gammas), figsize=(9, 2.2))
    for axis, gamma in zip(axes, gammas, strict=True):
        axis.imshow(weights((-0.5, 0.5), gamma, 4), vmin=0, vmax=1, cmap="gray_r")
        axis.plot(2.0, 1.0, "r+")  # μ, in the coordinates of the picture
        axis.set(title=f"γ = {gamma:g}", xticks=[], yticks=[])
    figure.savefig(IMAGES / "pooling_weights.png", dpi=120, bbox_inches="tight")


def draw_there_and_back() -> None:
    """Digits pooled 4 × 4 and unpooled: by switches, by Gaussians, and spread evenly."""
    z = ww.data.load("digits", split="test")[[3, 8, 11, 23]]
    largest, switches = torch.nn.functional.max_pool2d(z, 4, return_indices=True)
    p, where = F.gaussian_pool2d(z, 4, return_where=True)
    mean = torch.nn.functional.avg_pool2d(z, 4)
    rows = {
        "image": z,
        "max pooling\nand its switches": torch.nn.functional.max_unpool2d(largest, switches, 4),
        "Gaussian pooling\nand its Gaussians": F.gaussian_unpool2d(p, where, 4),
        "average,\nspread evenly": torch.nn.functional.interpolate(mean, scale_factor=4),
    }
    figure, axes = plt.subplots(len(rows), len(z), figsize=(6.4, 6))
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture[0], cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        error = (pictures - z).square().mean().sqrt()
        line[-1].text(29, 14, f"rms error {error:.2f}" if error else "", va="center")
    figure.savefig(IMAGES / "pooling_there_and_back.png", dpi=120, bbox_inches="tight")


def learned(rows: list[Row], layer: int, key: str) -> tuple[list[float], list[float]]:
    """Since the layer began: seconds or images, and the cost."""
    before = max((row[key] for row in rows if row["layer"] < layer), default=0)
    return [row[key] - before for row in rows if row["layer"] == layer], [
        row["cost"] for row in rows if row["layer"] == layer
    ]


@ww.figures.styled
def learning_curves(curves: dict[str, list[Row]], title: str) -> Figure:
    figure, panels = plt.subplots(2, 2, figsize=(6, 3.8), sharey="row", layout="constrained")
    for layer, line in enumerate(panels, start=1):
        for axis, key in zip(line, ("seconds", "images"), strict=True):
            for way, rows in curves.items():
                text, colour, marker = WAYS[way]
                axis.semilogx(*learned(rows, layer, key), color=colour, marker=marker, label=text)
            label_axis(axis, key, layer)
    panels[0, 0].legend()
    figure.suptitle(title)
    return figure


def label_axis(axis: Axes, label: str, layer: int) -> None:
    axis.grid(which="both")
    axis.set_xlabel(f"{label} of layer {layer}")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if label == "seconds" else (1, 3)))
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,g}" if value < 1000 else f"{value:,.0f}")
    )
    axis.xaxis.set_minor_formatter(NullFormatter())
    if label == "seconds":
        axis.set_ylabel(f"layer {layer}: cost")


def draw_learning() -> None:
    """Of results/trials.md, from benchmarks/learning/results."""
    gpu = json.loads((BENCHMARKS / "learning" / "results" / "streaming_gpu.json").read_text())[
        "curves"
    ]
    title = "One H200, 55,000 digits: cost on 5,000 held-out training digits"
    ww.figures.save(learning_curves(gpu, title), IMAGES / "learning-gpu.png")
    cpu = json.loads((BENCHMARKS / "learning" / "results" / "streaming_cpu.json").read_text())
    title = (
        f"Two CPU cores, {cpu['images']:,} digits: cost on {cpu['held_out']:,} held-out training"
        " digits"
    )
    ww.figures.save(learning_curves(cpu["curves"], title), IMAGES / "learning-cpu.png")


def draw_pooling() -> None:
    """Of howto/pooling.md."""
    draw_weights()
    draw_there_and_back()


def draw_labelling() -> None:
    """The curves of results/labelling.md, from benchmarks/labels/results."""
    errors = json.loads((BENCHMARKS / "labels" / "results" / "labelling.json").read_text())[
        "errors"
    ]
    figure, panels = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
    for axis, (name, title) in zip(panels, LABELLED.items(), strict=True):
        for kind, colour, marker in (("suggested", "#D55E00", "o"), ("random", "#0072B2", "s")):
            seeds = [errors[f"{name} {kind} {seed}"] for seed in range(3)]
            counts = [int(count) for count in seeds[0]]
            values = 100 * np.array([list(seed.values()) for seed in seeds])
            axis.plot(counts, values.mean(0), color=colour, marker=marker, ms=4, label=kind)
            axis.fill_between(counts, values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
        axis.set(title=title, xlabel="labels", ylim=(0, None), xlim=(0, 62))
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    panels[0].set_ylabel("errors on all pictures in %")
    panels[0].legend(frameon=False)
    figure.savefig(IMAGES.parent / "results" / "labelling-curves.png", dpi=110)


def draw_signals() -> None:
    """Of howto/signals.md: the figure of the example with spikes."""
    example = IMAGES.parents[1] / "examples" / "gallery" / "17_spikes.py"
    runpy.run_path(str(example))["figure"].savefig(IMAGES / "signals.png", dpi=130)


if __name__ == "__main__":
    drawings = {"generation": draw_generation, "pooling": draw_pooling, "learning": draw_learning}
    drawings |= {"labelling": draw_labelling, "signals": draw_signals}
    for name in sys.argv[1:] or drawings:
        drawings[name]()
