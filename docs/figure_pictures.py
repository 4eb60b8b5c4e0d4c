"""Draw the pictures of howto/figures.md:  PYTHONPATH=. python docs/figure_pictures.py [NAME ...]

The models are those of reproduction/results/paper, trained on all of MNIST at the scale of the
paper. The images are test images of the embedded digits. Pictures keep all their colours; a large
one gets a lower resolution instead.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from reproduction.models import read_model
from reproduction.records import read_records
from whatwhere.commands.outputs import Stages
from whatwhere.data import load
from whatwhere.figures import RunFigures, cost, styled
from whatwhere.figures.run_figures import training_settings
from whatwhere.inference import infer
from whatwhere.learning import EpochReport, TrainedRun

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "reproduction" / "results" / "paper"
MAX_BYTES = 300_000
IMAGE = 61  # of the test digits: the one that is decomposed

ALONE = ("composite", "decomposition-1", "decomposition-2", "where-1", "inference")
COMPARED = ("comparison", "cost-2")


def published_run(name: str, file: str) -> TrainedRun:
    """A trained model of the results, with the recipe and the history of its record."""
    (record,) = (
        record
        for record in read_records(RESULTS / "results.jsonl")
        if record.name == f"models/{file}"
    )
    model = read_model(RESULTS / "models.zip", file)
    assert model is not None
    epochs = record.result.history
    history = tuple(
        EpochReport(e.layer, e.epoch, e.reconstruction, e.penalty, e.nonzeros) for e in epochs
    )
    return TrainedRun(name, record.job.recipe, model, history)


def png(figure: Figure) -> bytes:
    """A PNG of at most MAX_BYTES, without a palette; a picture without colours is stored as grey
    values."""
    for dpi in (200, 170, 140, 120, 100):
        drawn, compressed = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi)
        image = Image.open(drawn).convert("RGB")
        red, green, blue = (band.tobytes() for band in image.split())
        (image.convert("L") if red == green == blue else image).save(
            compressed, "PNG", optimize=True
        )
        if compressed.tell() <= MAX_BYTES:
            break
    return compressed.getvalue()


@styled
def comparison(runs: list[TrainedRun], images: torch.Tensor) -> Figure:
    """The same images by several models (paper, Fig. 5): the inputs, then a row of
    reconstructions for each."""
    rows = {"input": images} | {
        run.name: infer(
            run.model, images, training_settings(run.recipe, run.model.spec.depth)
        ).reconstruction
        for run in runs
    }
    figure = Figure(figsize=(7, 0.8 * len(rows)), layout="constrained")
    for axes, (name, row) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        axes.imshow(torch.cat(list(row[:, 0]), 1).clamp(0, 1), cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], ylabel=name)
    return figure


def draw(name: str, runs: list[TrainedRun]) -> Figure | bytes | None:
    if name == "cost-2":
        return cost({run.name: [epoch.table() for epoch in run.history] for run in runs}, layer=2)
    digits = load("digits", split="test")
    images = digits[[IMAGE, *np.random.default_rng(0).permutation(len(digits))[:199].tolist()]]
    if name == "comparison":
        return comparison(runs, images[:9])
    drawing = RunFigures(runs[0], images, stage=Stages().stage)
    drawing.shown = 0
    return drawing.draw(name).figure


def main(names: list[str]) -> None:
    runs = [
        published_run("Gaussian", "gaussian-2layers-seed0"),
        published_run("max", "max-2layers-seed0"),
    ]
    for name in names or [*ALONE, *COMPARED]:
        figure = draw(name, runs)
        path = DOCS / "images" / f"{name}.{'gif' if isinstance(figure, bytes) else 'png'}"
        assert figure is not None
        path.write_bytes(figure if isinstance(figure, bytes) else png(figure))
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
