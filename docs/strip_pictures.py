"""Draw the strip of the README: a folder, its map, three labels of each kind, a sorted folder.

    PYTHONPATH=. python docs/strip_pictures.py CELLS

CELLS has a sub-folder for each kind of blood cell (the BCCD data set, MIT licence). 60 of each
kind are mixed; three of each kind, drawn once, get a label.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from figure_pictures import png
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from PIL import Image

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
EACH, SIDE, SHOWN = 60, 32, 12
COLOURS = ("#0072B2", "#D55E00", "#009E73")


def mixed(folder: Path) -> tuple[list[Path], list[str]]:
    """Pictures of all kinds in random order, and their kinds."""
    draw = np.random.default_rng(0)
    found = [
        (path, kind.name)
        for kind in sorted(path for path in folder.iterdir() if path.is_dir())
        for path in draw.choice(sorted(kind.iterdir()), EACH, replace=False)
    ]
    order = draw.permutation(len(found))
    return [found[i][0] for i in order], [found[i][1] for i in order]


def show(axes: Axes, sheet: list[list[np.ndarray]]) -> None:
    """Thumbnails in rows."""
    rows = [
        np.concatenate([np.pad(t, ((1, 1), (1, 1), (0, 0)), constant_values=255) for t in row], 1)
        for row in sheet
    ]
    axes.imshow(np.concatenate(rows))


def strip(folder: Path) -> Figure:
    paths, truth = mixed(folder)
    small = [np.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE))) for path in paths]
    kinds = sorted(set(truth))
    colour = dict(zip(kinds, COLOURS, strict=True))
    session = ww.Labelling(np.stack(small).transpose(0, 3, 1, 2))
    draw = np.random.default_rng(0)
    few = [
        i
        for kind in kinds
        for i in draw.choice(np.flatnonzero(np.array(truth) == kind), 3, replace=False)
    ]
    session.label({int(i): truth[i] for i in few})
    found = session.predict().classes
    wrong = [i for i in range(len(small)) if found[i] != truth[i]]
    print(f"{len(wrong)} of {len(small)} wrong")

    figure = Figure(figsize=(10, 2.7), layout="constrained")
    panels = figure.subplots(1, 4, width_ratios=[3, 3, 1.3, 4])
    show(panels[0], [small[i : i + 9] for i in range(0, 81, 9)])
    places = session.graph.places
    for i in np.random.default_rng(1).permutation(len(small)):
        picture = OffsetImage(small[i], zoom=0.33)
        panels[1].add_artist(AnnotationBbox(picture, places[i], frameon=False))
    panels[1].set(
        xlim=(places[:, 0].min() - 0.05, places[:, 0].max() + 0.05),
        ylim=(places[:, 1].min() - 0.05, places[:, 1].max() + 0.05),
    )
    show(panels[2], [[small[i] for i in few[3 * k : 3 * k + 3]] for k in range(3)])
    rows = []
    for kind in kinds:
        inside = [i for i in range(len(small)) if found[i] == kind][: 3 * SHOWN]
        inside.sort(key=lambda i: i not in wrong)
        rows += [inside[j : j + SHOWN] for j in range(0, 3 * SHOWN, SHOWN)]
    show(panels[3], [[small[i] for i in row] for row in rows])
    for y, row in enumerate(rows):
        for x, i in enumerate(row):
            if i in wrong:
                corner = ((SIDE + 2) * x, (SIDE + 2) * y)
                panels[3].add_patch(Rectangle(corner, SIDE, SIDE, fill=False, color="red", lw=2))
    titles = ("a folder", "a map of it", "three labels of each", "a sorted folder")
    for axes, title in zip(panels, titles, strict=True):
        axes.set(title=title, xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for panel, lines in ((panels[2], 1), (panels[3], 3)):
        for k, kind in enumerate(kinds):
            y = (SIDE + 2) * lines * (k + 0.5)
            panel.text(
                -6, y, kind, rotation=90, ha="right", va="center", fontsize=7, color=colour[kind]
            )
    return figure


if __name__ == "__main__":
    with plt.rc_context({"font.size": 9}):
        (IMAGES / "strip.png").write_bytes(png(strip(Path(sys.argv[1]))))
