"""Draw the pictures of Start, the tutorial, the model page and the README:

    PYTHONPATH=. python docs/tutorial_pictures.py

The model is the one that ships with the package, trained on all of MNIST at the scale of the paper.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figure_pictures import png
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import max_pool2d, max_unpool2d

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "reproduction" / "results"
TEN_LABELS = RESULTS.parents[1] / "benchmarks" / "labels" / "results" / "ten_labels.jsonl"
SPARSE = ww.InferenceSpec(lam=0.5, penalty=ww.Power(alpha=0.5), steps=200)


def each_alone(latents: ww.Latents) -> ww.Latents:
    """Latents with one feature each, from the latents of one image."""
    assert latents.p is not None
    b, y, x = latents.p[0].nonzero().T
    copies = latents[[0] * len(b)]
    alone = torch.zeros(len(b), *latents.p.shape[1:])
    alone[torch.arange(len(b)), b, y, x] = latents.p[0, b, y, x]
    return ww.Latents(alone, copies.pooling_params)


def pushed(latents: ww.Latents, columns: float) -> ww.Latents:
    """Every Gaussian moved to the right, in elements of its map."""
    push = torch.tensor([0.0, columns]).view(1, 2, 1, 1, 1)
    return ww.Latents(
        latents.p, tuple(replace(theta, mu=theta.mu + push) for theta in latents.pooling_params)
    )


def row_of(pictures: list[tuple[str, Tensor]], columns: int, width: float) -> Figure:
    """Pictures with titles, each of its own contrast, ink on paper."""
    rows = -(-len(pictures) // columns)
    side = width / columns
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, rows * (side + 0.16)), layout="constrained"
    )
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (title, picture) in zip(axes.flat, pictures, strict=False):
        axis.imshow(picture.squeeze(), cmap="gray_r", vmin=0)
        # legible on a telephone, where 5 inches become its width
        axis.set_title(title, fontsize=8, pad=2)
    return figure


def with_line(figure: Figure, column: int) -> Figure:
    """A line down every picture, to compare positions."""
    for axis in figure.axes:
        axis.axvline(column, color="#D55E00", lw=0.8)
    return figure


def strip(rows: dict[str, Tensor], titles: list[str] | None = None) -> Figure:
    """Rows of images, ink on paper, each with its label on the left; titles stand above the first.

    A row whose label is empty needs no place on its left.
    """
    columns = max(len(row) for row in rows.values())
    figure, axes = plt.subplots(
        len(rows), columns, figsize=(4.8, 0.85 * len(rows)), squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    for line, (label, row) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for axis, picture in zip(line, row.detach().squeeze(1), strict=True):
            axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
    for axis, title in zip(axes[0], titles or [], strict=False):
        axis.set_title(title, fontsize=9, pad=2)
    return figure


def uses(digits: ww.data.Images, parts: Tensor) -> dict[str, Figure]:
    """The small pictures of the README."""
    strongest = parts[parts.flatten(1).sum(1).argsort(descending=True)[[1, 0, 3, 5]]]
    shown = strongest / strongest.amax((1, 2, 3), keepdim=True)
    z = digits[[11, 16, 18, 20, 30]]
    switched = max_unpool2d(*max_pool2d(z, 4, return_indices=True), 4)
    unpooled = ww.nn.GaussianUnpool2d(4)(*ww.nn.GaussianPool2d(4, return_where=True)(z))
    features = ["digit", *(f"feature {number}" for number in range(1, 5))]
    return {
        "use-parts": strip({"": torch.cat([digits[:1], shown])}, features),
        "use-pooling": strip({"digits": z, "max": switched, "Gaussian": unpooled}),
    }


def sorted_folder(classes: tuple[str, ...] = ("1", "3", "5", "8")) -> Figure:
    """The folder, the labels and the sorted folders of the first lesson, whose code runs here."""
    page = (IMAGES.parent / "tutorial" / "sorted_folder.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for kind, code in re.findall(
            r"^```(python|sh)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
        ):
            if kind == "python":
                exec(code, names)
            else:
                subprocess.run([sys.executable, "-m", *shlex.split(code)], check=True)
        mixed = [plt.imread(path) for path in sorted(Path("mixed").iterdir())]
        table = list(csv.DictReader(Path("few.csv").read_text().splitlines()))
        labels = [
            [plt.imread(f"mixed/{r['file']}") for r in table if r["class"] == c] for c in classes
        ]
        folders = [
            [(p, plt.imread(p)) for p in sorted(Path("sorted", c).iterdir())] for c in classes
        ]
        os.chdir(here)
    wrong = set(names["wrong"])
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[12, 4.2, 20])
    left.set_title("mixed/", fontsize=9)
    left.imshow(grid([mixed[i : i + 12] for i in range(0, 96, 12)], 12), cmap="gray_r")
    middle.set_title("few.csv", fontsize=9)
    middle.imshow(grid(labels, 3), cmap="gray_r")
    right.set_title("sorted/", fontsize=9)
    right.imshow(grid([[picture for _, picture in row[:40]] for row in folders], 20), cmap="gray_r")
    begin, centres = 0, []
    for row in folders:
        lines = -(-min(len(row), 40) // 20)
        for place, (path, _) in enumerate(row[:40]):
            if path in wrong:
                corner = (30 * (place % 20), 30 * (begin + place // 20))
                right.add_patch(Rectangle(corner, 30, 30, fill=False, color="#D55E00", lw=2))
        centres.append(30 * (begin + lines / 2))
        begin += lines
    right.set_yticks(centres, [f"{c}/" for c in classes])
    middle.set_yticks(np.arange(4) * 30 + 15, classes)
    left.set_yticks([])
    for axes in (left, middle, right):
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_color("#cccccc")
    return figure


def grid(rows: list[list[np.ndarray]], columns: int) -> np.ndarray:
    """Pictures of 28 × 28 pixels, each row from the left and in as many lines as it needs."""
    lines = [row[i : i + columns] for row in rows for i in range(0, len(row), columns)]
    sheet = np.zeros((30 * len(lines), 30 * columns))
    for y, line in enumerate(lines):
        for x, picture in enumerate(line):
            sheet[30 * y + 1 : 30 * y + 29, 30 * x + 1 : 30 * x + 29] = picture
    return sheet


def main() -> None:
    model, digits = ww.load("mnist"), ww.data.load("digits", split="test")
    solution = ww.infer(model, digits[:2], SPARSE)
    seven, two = solution.latents[:1], solution.latents[1:]
    at = model.at(28, 28)
    parts, drawn = at.decode(each_alone(seven)), solution.reconstruction
    shown = [("image", digits[0]), ("all strokes", drawn[0])]
    shares = parts.flatten(1).sum(1) / parts.sum()
    shown += [
        (f"{100 * shares[i]:.0f} %", parts[i]) for i in shares.argsort(descending=True).tolist()
    ]
    exchanged = [
        ("seven", drawn[0]),
        ("two", drawn[1]),
        ("what of 7, where of 2", at.decode(ww.Latents(seven.p, two.pooling_params))),
        ("what of 2, where of 7", at.decode(ww.Latents(two.p, seven.pooling_params))),
    ]
    moved = [
        ("pushed to the left", at.decode(pushed(seven, -1.0))),
        ("as inferred", drawn[0]),
        ("pushed to the right", at.decode(pushed(seven, 1.0))),
    ]
    pictures = {
        "start": ww.figures.decomposition(model, digits[0], seven),
        "parts": row_of(shown, 6, 5.0),
        "moved": with_line(row_of(moved, 3, 5.0), column=14),
        "exchange": row_of(exchanged, 4, 5.0),
        "sorted": sorted_folder(),
    }
    for name, figure in (pictures | uses(digits, parts)).items():
        (IMAGES / f"{name}.png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
