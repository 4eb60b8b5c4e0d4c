"""Draw the pictures of howto/figures.md, and those of two studies.

    PYTHONPATH=. python docs/figure_pictures.py [NAME ...]

The models are those of reproduction/results/paper, trained on all of MNIST at the scale of the
paper. The images are test images of the embedded digits. Pictures keep all their colours; a large
one gets a lower resolution instead.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from reproduction.models import read_model
from reproduction.records import read_records
from whatwhere import DeconvNet
from whatwhere import load as load_model
from whatwhere.commands.outputs import Stages
from whatwhere.data import load
from whatwhere.figures import RunFigures, cost, curve_styles, styled
from whatwhere.figures.activations import draw_activations, project
from whatwhere.figures.decomposition import decompose
from whatwhere.figures.run_figures import _training_settings as training_settings
from whatwhere.inference import infer
from whatwhere.learning import EpochReport, TrainedRun

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "reproduction" / "results" / "paper"
MAX_BYTES = 300_000
IMAGE = 61  # of the test digits: the one that is decomposed

ALONE = ("composite", "decomposition-1", "decomposition-2", "where-1", "inference")
COMPARED = ("comparison", "colours", "cost-2")
RESET, PRINTED = "reset", "printed-gradient"
STUDIES = DOCS.parent / "reproduction" / "studies" / "results"
KEPT = {"no reset": "no-reset", "no reset, rare maps split": "rare-maps-split"}  # models
BRANCHES = {  # of the study of the reset, and its colours
    "reset (the paper)": "#0072B2",
    "no reset, seed 0": "#D55E00",
    "reset of features and θ, seed 0": "#56B4E9",
    "reset, filters wait an epoch, seed 0": "#999999",
    "reset, twice λ for five epochs, seed 0": "#CC79A7",
    "reset, unused maps restart, seed 0": "#009E73",
    "reset, unused maps split, seed 0": "#F0E442",
    "no reset, rare maps split, seed 0": "#000000",
}


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
        axes.spines[:].set_visible(False)
    return figure


@styled
def colours(runs: list[TrainedRun], images: torch.Tensor) -> Figure:
    """The same images, and their reconstructions by several models in the colours of the features
    (paper, Fig. 5)."""
    figure = Figure(figsize=(7, 0.8 * (len(runs) + 1)), layout="constrained")
    panels = figure.subplots(len(runs) + 1, 1)
    panels[0].imshow(torch.cat(list(images[:, 0]), 1), cmap="gray_r", vmin=0, vmax=1)
    panels[0].set_ylabel("input")
    for axes, run in zip(panels[1:], runs, strict=True):
        spec = training_settings(run.recipe, run.model.spec.depth)
        latents = infer(run.model, images, spec).latents
        parts = [
            decompose(run.model, latents[i : i + 1], *images.shape[2:]).coloured(1.0)
            for i in range(len(images))
        ]
        axes.imshow(np.concatenate(parts, 1))
        axes.set_ylabel(run.name)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure


@styled
def reset(runs: list[TrainedRun], images: torch.Tensor) -> Figure:
    """Layer 2 with and without the reset: the filters of every map and its strongest sample among
    these images (paper, Fig. 8), and the maps that no training image uses, by epoch."""
    figure = Figure(figsize=(7, 6.6), layout="constrained")
    names = [run.name for run in runs]
    rows = [[f"{name}, filters" for name in names], names, ["unused"] * len(names)]
    axes = figure.subplot_mosaic(rows, height_ratios=[1, 1, 1.2])
    for run in runs:
        panels = (axes[f"{run.name}, filters"], axes[run.name])
        pictures = (planes_by_map(run.model), strongest(run, images))
        for panel, picture, text in zip(panels, pictures, ("filters", "pixels"), strict=True):
            panel.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
            if run is runs[0]:
                panel.set_ylabel(text)
        panels[0].set_title(run.name)
    histories = unused_maps()
    for branch, colour in BRANCHES.items():
        history = histories[branch]
        label = branch.removesuffix(", seed 0")
        axes["unused"].plot(range(1, len(history) + 1), history, color=colour, label=label)
    axes["unused"].axvline(25.5, color="#bbbbbb", lw=0.8, zorder=0)
    axes["unused"].set(xlabel="epoch of layer 2", ylabel="unused maps of 48", xlim=(1, 50))
    axes["unused"].legend(loc="upper left")
    return figure


@styled
def printed_gradient() -> Figure:
    """The cost while θ alone takes gradient steps, by our derivative and as printed."""
    measured = json.loads((STUDIES / "printed_gradient.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(4.6, 2.6), layout="constrained")
    axes = figure.subplots()
    for (name, costs), style in zip(measured["cost"].items(), curve_styles(), strict=False):
        axes.plot(costs, label=name, **style)
    axes.set(xlabel="steps of θ", ylabel="cost of an image", ylim=(0, None))
    axes.grid()
    axes.legend(loc="lower left")
    return figure


def unused_maps() -> dict[str, list[int]]:
    """How many maps no training image uses, by epoch, in every branch of the study."""
    branches = json.loads((STUDIES / "reset.json").read_text(encoding="utf-8"))["branches"]
    found = {name: [e["unused"] for e in each["history"]] for name, each in branches.items()}
    (record,) = (
        record
        for record in read_records(RESULTS / "results.jsonl")
        if record.name == "models/gaussian-2layers-seed0"
    )
    trained = [epoch.dead_maps for epoch in record.result.history if epoch.layer == 2]
    return {**found, "reset (the paper)": trained}


def planes_by_map(model: DeconvNet) -> np.ndarray:
    """The filters of every map of layer 2, a square of 4 × 4 planes for the maps of layer 1 below,
    in rows of 8; grey where maps are not connected."""
    f = model.filters[1].transpose(0, 1).numpy()
    connected = model.connectivity[1].T.numpy()[:, :, None, None]
    planes = np.where(connected, f / f.max((1, 2, 3), keepdims=True), 0.15)
    squares = [np.pad(each, ((0, 0), (0, 1), (0, 1)), constant_values=0.15) for each in planes]
    return sheet([sheet(list(each), 4) for each in squares], 8, gap=2)


def sheet(pictures: list[np.ndarray], columns: int, gap: int = 0) -> np.ndarray:
    """Pictures of one size in rows, with a white gap around them."""
    padded = [np.pad(each, gap) for each in pictures]
    rows = [padded[i : i + columns] for i in range(0, len(padded), columns)]
    return np.concatenate([np.concatenate(row, 1) for row in rows])


def strongest(run: TrainedRun, images: torch.Tensor) -> np.ndarray:
    """The strongest activation of every map of the top layer, projected to pixels, in rows of 8;
    flat grey where these images do not use a map."""
    latents = infer(run.model, images, training_settings(run.recipe, run.model.spec.depth)).latents
    tiles = []
    for feature in range(latents.features.shape[1]):
        drawn = draw_activations(latents.features, feature, latents.features.numel(), least=0.999)
        pixels = project(run.model, latents, drawn, *images.shape[2:])
        tile = pixels[0, 0].numpy() if len(pixels) else np.full(pixels.shape[2:], 0.3)
        tiles.append(tile / tile.max() if len(pixels) else tile)
    return sheet([np.pad(tile, 1, constant_values=0.15) for tile in tiles], 8)


def draw(name: str, runs: list[TrainedRun]) -> Figure | bytes | None:
    if name == "cost-2":
        return cost({run.name: [epoch.table() for epoch in run.history] for run in runs}, layer=2)
    digits = load("digits", split="test")
    images = digits[[IMAGE, *np.random.default_rng(0).permutation(len(digits))[:199].tolist()]]
    if name in ("comparison", "colours"):
        return {"comparison": comparison, "colours": colours}[name](runs, images[:9])
    if name == PRINTED:
        return printed_gradient()
    if name == RESET:
        shown = {"reset": runs[0].model} | {
            name: load_model(STUDIES / "reset_models" / f"{file}.safetensors")
            for name, file in KEPT.items()
        }
        recipe = runs[0].recipe
        return reset([TrainedRun(name, recipe, each, ()) for name, each in shown.items()], images)
    drawing = RunFigures(runs[0], images, stage=Stages().stage)
    drawing.shown = 0
    return drawing.draw(name).figure


def main(names: list[str]) -> None:
    runs = [
        published_run("Gaussian", "gaussian-2layers-seed0"),
        published_run("max", "max-2layers-seed0"),
    ]
    for name in names or [*ALONE, *COMPARED, RESET, PRINTED]:
        figure = draw(name, runs)
        path = DOCS / "images" / f"{name}.{'gif' if isinstance(figure, bytes) else 'png'}"
        assert figure is not None
        path.write_bytes(figure if isinstance(figure, bytes) else png(figure))
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
