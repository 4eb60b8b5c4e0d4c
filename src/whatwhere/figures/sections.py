"""The sections of a report: each figure with its heading, explanation and alternative text.

A section also holds a narrow version of its figure where one is needed to be legible on a phone.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from whatwhere.figures.composite import filters, invariances, planes, reconstructions
from whatwhere.figures.context import FigureContext
from whatwhere.figures.cost import cost, cost_curves
from whatwhere.figures.decomposition import decompose, decomposition
from whatwhere.figures.error_chart import error_chart
from whatwhere.figures.pooling_comparison import pooling_comparison, render
from whatwhere.figures.report import Section
from whatwhere.figures.reset_comparison import reset_comparison
from whatwhere.figures.style import COLUMN
from whatwhere.figures.where_map import gaussians, where_map
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


def error_section(
    rates: Mapping[str, tuple[float, float, float]], text: str, facts: Mapping[str, str] | None = None
) -> Section:
    """Error rates with the ends of their intervals: name → (rate, low, high)."""
    listed = "; ".join(f"{name} {rate:.2%}" for name, (rate, _, _) in rates.items())
    return Section(
        "Errors of a linear SVM",
        text,
        error_chart(rates),
        f"A bar chart of error rates: {listed}.",
        facts or {},
        narrow=error_chart(rates, width=COLUMN),
    )


def reconstruction_section(model: DeconvNet, images: Tensor, latents: Latents, shown: int = 24) -> Section:
    """The first images with their reconstructions; error and non-zeros are measured on all of them."""
    layer, rendering = len(latents.pooling_params), render(model, images, latents)
    measured = (
        f"mean squared error per pixel {rendering.error:.4f}, {rendering.nonzeros:.0f} non-zero features per image"
    )
    first = model, images[:shown], latents[:shown]
    return Section(
        "Reconstructions",
        f"Images (left of each pair) and their reconstructions from layer {layer} (right). Over {len(images)} images: "
        f"{measured}.",
        reconstructions(*first),
        f"{min(shown, len(images))} pairs of an image and its reconstruction from layer {layer}; {measured}.",
        narrow=reconstructions(*first, columns=3, width=COLUMN),
    )


def filter_section(model: DeconvNet) -> Section:
    return Section(
        "Filters of layer 1",
        "Learned without labels. Each filter is scaled by its largest weight.",
        filters(model),
        f"The {model.spec.layers[0].maps} filters of layer 1, each a small square picture.",
    )


def plane_section(model: DeconvNet, layer: int = 2) -> Section:
    below, maps = model.filters[layer - 1].shape[:2]
    return Section(
        f"Filter planes of layer {layer}",
        f"One group for each map of layer {layer - 1}, and in each group one plane for each map of layer {layer}. A "
        "plane is grey if the two maps are not connected.",
        planes(model, layer),
        f"{below} groups of {maps} filter planes of layer {layer}.",
        narrow=planes(model, layer, columns=2, width=COLUMN),
    )


def sample_section(context: FigureContext, layer: int) -> Section:
    model, images, latents = context.run.model, context.images, context.latents(layer)
    assert latents.p is not None
    return Section(
        f"Samples of the features of layer {layer}",
        "16 samples of every feature. A sample is one activation, drawn from all activations of the feature over the "
        "images and projected to the pixels with the pooling variables of its image. The differences between the "
        "samples of a feature are its invariance.",
        invariances(model, images, latents, seed=context.seed),
        f"{latents.p.shape[1]} squares, one for each feature of layer {layer}, of 16 projections to the pixels.",
        narrow=invariances(model, images, latents, seed=context.seed, columns=4, width=COLUMN),
    )


def decomposition_section(context: FigureContext, layer: int) -> Section:
    latents = context.latents(layer)[context.image : context.image + 1]
    model, image = context.run.model, context.images[context.image]
    contributions = decompose(model, latents, *image.shape[1:])
    return Section(
        f"Decomposition of one image by layer {layer}",
        "Every feature has its own colour. The contribution of a feature to a pixel sets the saturation there; where "
        "features overlap, the mixture is brownish.",
        decomposition(model, image, latents),
        f"From top to bottom the feature maps, unpooled maps and filters through which {len(contributions.features)} "
        f"active features of layer {layer} reconstruct one image; below, the reconstruction coloured by feature, "
        f"the input, and the share of each feature, the largest {contributions.shares.max(initial=0):.0%}.",
    )


def where_section(context: FigureContext, layer: int) -> Section:
    latents = context.latents(layer)
    assert latents.p is not None
    most_active = int((latents.p != 0).sum((0, 2, 3)).argmax())
    feature = most_active if context.feature is None else context.feature
    drawn = context.run.model, context.images, latents, layer, feature
    count = len(gaussians(*drawn, seed=context.seed))
    return Section(
        f"Positions of feature {feature + 1} of layer {layer}",
        "Each ellipse is the Gaussian of one pooling region in one image: the mean is the position of the feature in "
        "the region, the width its extent.",
        where_map(*drawn, seed=context.seed),
        f"{count} ellipses on the grid of pooling regions, and some of them in a single region.",
    )


def cost_section(context: FigureContext, layer: int) -> Section:
    histories = {run.name: [epoch.table() for epoch in run.history] for run in context.runs if run.history}
    curves = {name: cost_curves(history, layer) for name, history in histories.items()}
    summary = "; ".join(
        f"{name}: cost from {c['cost'][0]:.2f} to {c['cost'][-1]:.2f}, non-zeros {c['nonzeros'][-1]:.1f}"
        for name, c in curves.items()
        if len(c["cost"])
    )
    return Section(
        f"Cost over the training of layer {layer}",
        "Per image, after the inference of each epoch: the cost, its two parts, and the number of non-zero features. "
        "A jump is a reset of the features.",
        cost(histories, layer),
        f"Four panels of curves against the epoch. {summary}.",
        narrow=cost(histories, layer, columns=2, width=COLUMN),
    )


def comparison_section(context: FigureContext) -> Section:
    images, solutions = context.images[:9], context.solutions(9)
    renderings = {name: render(model, images, latents) for name, (model, latents) in solutions.items()}
    summary = "; ".join(
        f"{name}: mean squared error {r.error:.4f}, {r.nonzeros:.0f} non-zeros" for name, r in renderings.items()
    )
    return Section(
        "Reconstructions by each run",
        "The same images by every run: reconstructions in grey, and coloured by feature. Max pooling can place a "
        "feature only on whole elements of the map, so strokes break into steps; Gaussian pooling avoids this.",
        pooling_comparison(images, solutions),
        f"Rows of {len(images)} images: the inputs, then the reconstructions by each run. {summary}.",
    )


def reset_section(context: FigureContext) -> Section:
    return Section(
        "Filters and features of each run",
        "Filters of layer 1 and samples of the features of the top layer, one column for each run.",
        reset_comparison(context.solutions(), *context.images.shape[2:], seed=context.seed),
        f"Filters and samples of features of {', '.join(run.name for run in context.runs)}, side by side.",
    )
