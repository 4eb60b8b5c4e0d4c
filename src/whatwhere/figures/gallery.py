"""Every picture of a run, by name: what `whatwhere figures` draws and what a run's report holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.figures.animation import animation
from whatwhere.figures.composite import composite, filters, invariances, planes, reconstructions
from whatwhere.figures.cost import cost, cost_curves
from whatwhere.figures.decomposition import decomposition, take_apart
from whatwhere.figures.material import Material
from whatwhere.figures.pooling_comparison import pooling_comparison, render
from whatwhere.figures.report import Section, report
from whatwhere.figures.reset import reset
from whatwhere.figures.where_map import gaussians, where_map


def names(material: Material) -> list[str]:
    """The pictures that there is enough material for."""
    return [name for name, entry in PICTURES.items() if entry.possible(material)]


def draw(material: Material, name: str) -> Section:
    """One picture by its name, with heading, words and alternative text."""
    if name not in PICTURES:
        raise SpecError(f"picture {name!r} was given; expected one of {', '.join(PICTURES)}")
    entry = PICTURES[name]
    if not entry.possible(material):
        raise RunError(f"{material.run.name} cannot give the picture {name!r}: it needs {entry.needs}")
    with torch.no_grad():
        return entry.draw(material)


def run_report(material: Material, pictures: Mapping[str, Section]) -> str:
    """The page of a run: its settings, and its pictures by name; the composite is left out, its panels are there."""
    recipe, model = material.run.recipe, material.run.model.spec
    facts = {}
    for k, (layer, learning) in enumerate(zip(model.layers, recipe.learning, strict=True), start=1):
        i = learning.inference
        facts[f"layer {k}"] = (
            f"{layer.maps} maps, {layer.pooling_kind} pooling; trained for {learning.epochs} epochs with λ {i.lam:g}, "
            f"α {i.alpha:g} and {i.steps} steps"
        )
    facts["pictures"] = f"of {len(material.images)} images, inferred by the settings of the training"
    facts["seed"] = str(recipe.seed)
    lead = "What this run learned: which features explain an image, and where in it they are."
    sections = [section for name, section in pictures.items() if name != "composite"]
    return report(f"Run {material.run.name}", sections, lead, facts)


@dataclass(frozen=True)
class Entry:
    draw: Callable[[Material], Section]
    possible: Callable[[Material], bool] = lambda material: True
    needs: str = ""


def _composite(g: Material) -> Section:
    layers = [g.latents(k) for k in range(1, g.depth + 1)]
    return Section(
        "The model at a glance",
        "Inputs beside their reconstructions from the top layer, the filters, and for every feature samples of what "
        "it answers to. A sample is one activation drawn from all of the feature's activations over the images, "
        "projected down with the pooling variables of the image it came from.",
        composite(g.run.model, g.images, layers, seed=g.seed),
        f"Panels: 16 images and their reconstructions; the {g.run.model.spec.layers[0].maps} filters of layer 1; "
        "squares of 16 samples for each feature of layer 1"
        + "".join(f"; filter planes and squares of samples for layer {k}" for k in range(2, g.depth + 1))
        + ".",
    )


def _reconstructions(g: Material) -> Section:
    made = render(g.run.model, g.images, g.latents(g.depth))
    measured = f"mean squared error a pixel {made.error:.4f}, {made.nonzeros:.0f} non-zero features an image"
    return Section(
        "Reconstructions",
        f"Inputs, and to the right of each its reconstruction from layer {g.depth}. Over all {len(g.images)} images: "
        f"{measured}.",
        reconstructions(g.run.model, g.images[:24], g.latents(g.depth)[:24]),
        f"{min(24, len(g.images))} pairs of an input and its reconstruction from layer {g.depth}; {measured}.",
    )


def _filters(g: Material) -> Section:
    maps = g.run.model.spec.layers[0].maps
    return Section(
        "Filters of layer 1",
        "Each is scaled to its largest weight.",
        filters(g.run.model),
        f"The {maps} filters of layer 1, each a small square in shades of grey.",
    )


def _planes(g: Material) -> Section:
    below, maps = g.run.model.filters[1].shape[:2]
    return Section(
        "Filter planes of layer 2",
        "A group for each map of layer 1, in it a plane for each map of layer 2; grey where the two are not connected.",
        planes(g.run.model),
        f"{below} groups of {maps} filter planes of layer 2.",
    )


def _invariances(layer: int) -> Callable[[Material], Section]:
    def draw(g: Material) -> Section:
        latents = g.latents(layer)
        assert latents.p is not None
        features = latents.p.shape[1]
        return Section(
            f"What the features of layer {layer} answer to",
            "For every feature 16 samples, drawn from all of its activations over the images and projected down "
            "with the pooling variables of the image each came from.",
            invariances(g.run.model, g.images, latents, seed=g.seed),
            f"{features} squares, one for each feature of layer {layer}, of 16 sampled projections to the pixels.",
        )

    return draw


def _decomposition(layer: int) -> Callable[[Material], Section]:
    def draw(g: Material) -> Section:
        latents = g.latents(layer)[g.image : g.image + 1]
        image = g.images[g.image]
        parts = take_apart(g.run.model, latents, *image.shape[1:])
        return Section(
            f"One image taken apart by layer {layer}",
            "Every feature has its own hue, and what it adds to a pixel sets the saturation there; where features "
            "overlap the mixture comes out brownish.",
            decomposition(g.run.model, image, latents),
            f"From top to bottom the feature maps, unpooled maps and filters through which {len(parts.features)} "
            f"active features of layer {layer} reconstruct one image; below, the reconstruction coloured by feature, "
            f"the input, and the share of each feature, the largest {parts.shares.max(initial=0):.0%}.",
        )

    return draw


def _where(layer: int) -> Callable[[Material], Section]:
    def draw(g: Material) -> Section:
        latents = g.latents(layer)
        assert latents.p is not None
        busiest = int((latents.p != 0).sum((0, 2, 3)).argmax())
        feature = busiest if g.feature is None else g.feature
        if not 0 <= feature < latents.p.shape[1]:
            raise SpecError(f"feature {feature + 1} of layer {layer} was given; it has {latents.p.shape[1]} features")
        found = gaussians(g.run.model, g.images, latents, layer, feature, seed=g.seed)
        return Section(
            f"A map of where: feature {feature + 1} of layer {layer}",
            "Each ellipse is the Gaussian of one pooling region in one image: its mean is where in the region the "
            "feature is, its width how far it reaches.",
            where_map(g.run.model, g.images, latents, layer, feature, seed=g.seed),
            f"{len(found.x)} ellipses over the grid of pooling regions, and the same ellipses laid over one region.",
        )

    return draw


def _inference(g: Material) -> Section:
    first, last = g.steps[0], g.steps[-1]
    return Section(
        "Inference, step by step",
        "One image: its reconstruction, the residual (orange where ink is missing, purple where there is too much) and "
        "its features in their hues, while the cost falls.",
        animation(g.run.model, g.images[g.image], g.steps),
        f"Animation of {last.step} steps of inference on one image: the cost falls from {first.cost:.1f} to "
        f"{last.cost:.1f}, and {last.nonzeros} features stay in use.",
    )


def _cost(layer: int) -> Callable[[Material], Section]:
    def draw(g: Material) -> Section:
        histories = {run.name: run.history for run in g.runs if run.history}
        ends = {name: cost_curves(history, layer) for name, history in histories.items()}
        told = "; ".join(
            f"{name}: cost from {c['cost'][0]:.2f} to {c['cost'][-1]:.2f}, non-zeros {c['nonzeros'][-1]:.1f}"
            for name, c in ends.items()
            if len(c["cost"])
        )
        return Section(
            f"Cost over the training of layer {layer}",
            "Per image, at the end of every epoch's inference: the whole cost, its two parts, and the number of "
            "non-zero features. A jump is a reset of the features.",
            cost(histories, layer),
            f"Four panels of curves against the epoch. {told}.",
        )

    return draw


def _comparison(g: Material) -> Section:
    images, solved = g.images[:9], g.solved(9)
    made = {name: render(model, images, latents) for name, (model, latents) in solved.items()}
    told = "; ".join(
        f"{name}: mean squared error {m.error:.4f}, {m.nonzeros:.0f} non-zeros" for name, m in made.items()
    )
    return Section(
        "The same images, run by run",
        "Reconstructions in grey, and in the hues of their features. With max pooling a stroke can only sit on "
        "whole elements of the map, so that it breaks into steps; Gaussians place it in between.",
        pooling_comparison(images, solved),
        f"Rows of {len(images)} images: the inputs, then the reconstructions of each run. {told}.",
    )


def _reset(g: Material) -> Section:
    return Section(
        "Filters and features, run by run",
        "Filters of layer 1 and samples of the features of the top layer, a column for each run.",
        reset(g.solved(), *g.images.shape[2:], seed=g.seed),
        f"Filters and feature samples of {', '.join(run.name for run in g.runs)}, side by side.",
    )


def _has_layer(layer: int) -> Callable[[Material], bool]:
    return lambda g: g.depth >= layer


def _has_history(layer: int) -> Callable[[Material], bool]:
    return lambda g: any(epoch["layer"] == layer for epoch in g.run.history)


def _is_gaussian(layer: int) -> Callable[[Material], bool]:
    return lambda g: g.depth >= layer and g.run.model.spec.layers[layer - 1].pooling_kind == "gaussian"


_TWO = "a model of two layers"
_BESIDE = "another run beside it (--beside)"
PICTURES: Mapping[str, Entry] = {
    "composite": Entry(_composite),
    "reconstructions": Entry(_reconstructions),
    "filters": Entry(_filters),
    "planes": Entry(_planes, _has_layer(2), _TWO),
    "samples-1": Entry(_invariances(1)),
    "samples-2": Entry(_invariances(2), _has_layer(2), _TWO),
    "decomposition-1": Entry(_decomposition(1)),
    "decomposition-2": Entry(_decomposition(2), _has_layer(2), _TWO),
    "where-1": Entry(_where(1), _is_gaussian(1), "Gaussian pooling"),
    "where-2": Entry(_where(2), _is_gaussian(2), "a second layer with Gaussian pooling"),
    "inference": Entry(_inference),
    "cost-1": Entry(_cost(1), _has_history(1), "a history.jsonl with epochs of layer 1"),
    "cost-2": Entry(_cost(2), _has_history(2), "a history.jsonl with epochs of layer 2"),
    "comparison": Entry(_comparison, lambda g: bool(g.beside), _BESIDE),
    "reset": Entry(_reset, lambda g: bool(g.beside), _BESIDE),
}
