"""The figures of a run by name: what `whatwhere figures` draws and what the report of a run contains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.figures import sections
from whatwhere.figures.animation import animation
from whatwhere.figures.composite import composite
from whatwhere.figures.context import FigureContext
from whatwhere.figures.report import Section, report


def figure_names(context: FigureContext) -> list[str]:
    """The names of the figures that can be drawn from this context.

    context  what they are drawn from

    >>> run = ww.read_run("mnist")
    >>> context = ww.figures.FigureContext(run, ww.data.load("digits", split="test")[:2])
    >>> "decomposition-2" in ww.figures.figure_names(context)
    True
    """
    return [name for name, entry in FIGURES.items() if entry.available(context)]


def check_figure(context: FigureContext, name: str) -> None:
    """Raise an error if a figure does not exist, or cannot be drawn from this context.

    context  what it is drawn from
    name     of the figure

    >>> run = ww.read_run("mnist")
    >>> context = ww.figures.FigureContext(run, ww.data.load("digits", split="test")[:2])
    >>> ww.figures.check_figure(context, "decomposition-2")
    """
    if name not in FIGURES:
        raise SpecError(f"figure {name!r} was given; expected one of {', '.join(FIGURES)}")
    if not FIGURES[name].available(context):
        raise RunError(f"figure {name!r} cannot be drawn from {context.run.name}: it needs {FIGURES[name].needs}")


def draw(context: FigureContext, name: str) -> Section:
    """One figure by name, with its heading, explanation and alternative text.

    context  what it is drawn from
    name     one of `figure_names`

    >>> run = ww.read_run("mnist")
    >>> context = ww.figures.FigureContext(run, ww.data.load("digits", split="test")[:2])
    >>> ww.figures.draw(context, "filters").heading
    '...'
    """
    check_figure(context, name)
    with torch.no_grad():
        return FIGURES[name].draw(context)


def run_report(context: FigureContext, drawn: Mapping[str, Section]) -> str:
    """The HTML report of a run: its settings, then the figures by name.

    The composite is left out, because its panels are figures of their own.

    context  what the figures were drawn from
    drawn    name → section, from `draw`

    >>> run = ww.read_run("mnist")
    >>> context = ww.figures.FigureContext(run, ww.data.load("digits", split="test")[:2])
    >>> page = ww.figures.run_report(context, {"filters": ww.figures.draw(context, "filters")})
    >>> page[:15]
    '<!DOCTYPE html>'
    """
    recipe, model = context.run.recipe, context.run.model.spec
    facts = {}
    for k, (layer, learning) in enumerate(zip(model.layers, recipe.learning, strict=True), start=1):
        inference = learning.inference
        facts[f"layer {k}"] = (
            f"{layer.maps} maps, {layer.pooling_kind} pooling; trained for {learning.epochs} epochs with "
            f"λ {inference.lam:g}, α {inference.alpha:g} and {inference.steps} steps"
        )
    facts["figures"] = f"of {len(context.images)} images, inferred with the settings of the training"
    facts["seed"] = str(recipe.seed)
    lead = "What this run learned: which features explain an image, and where in the image they are."
    page = [section for name, section in drawn.items() if name != "composite"]
    return report(f"Run {context.run.name}", page, lead, facts)


@dataclass(frozen=True)
class FigureEntry:
    """How a figure is drawn, if it is available, and what it needs if not."""

    draw: Callable[[FigureContext], Section]
    available: Callable[[FigureContext], bool] = lambda context: True
    needs: str = ""


def _composite(context: FigureContext) -> Section:
    layers = [context.latents(k) for k in range(1, context.depth + 1)]
    return Section(
        "The model on one page",
        "Images with their reconstructions from the top layer, the filters, and 16 samples of every feature. A sample "
        "is one activation, drawn from all activations of the feature over the images and projected to the pixels "
        "with the pooling variables of its image.",
        composite(context.run.model, context.images, layers, seed=context.seed),
        f"Panels: 16 images and their reconstructions; the {context.run.model.spec.layers[0].maps} filters of layer 1; "
        "squares of 16 samples for each feature of layer 1"
        + "".join(f"; filter planes and squares of samples for layer {k}" for k in range(2, context.depth + 1))
        + ".",
    )


def _reconstructions(context: FigureContext) -> Section:
    return sections.reconstruction_section(context.run.model, context.images, context.latents(context.depth))


def _inference(context: FigureContext) -> Section:
    first, last = context.snapshots[0], context.snapshots[-1]
    return Section(
        "Inference step by step",
        "One image: its reconstruction, the residual (orange where the reconstruction is too small, purple where it is "
        "too large) and its features in their colours, while the cost decreases.",
        animation(context.run.model, context.images[context.image], context.snapshots),
        f"Animation of {last.step} steps of inference on one image: the cost decreases from {first.cost:.1f} to "
        f"{last.cost:.1f}, and {last.nonzeros} features remain active.",
    )


def _where(layer: int) -> Callable[[FigureContext], Section]:
    def section(context: FigureContext) -> Section:
        features = context.run.model.spec.layers[layer - 1].maps
        if context.feature is not None and not 0 <= context.feature < features:
            raise SpecError(f"feature {context.feature + 1} was given; layer {layer} has {features} features")
        return sections.where_section(context, layer)

    return section


def _has_layer(layer: int) -> Callable[[FigureContext], bool]:
    return lambda context: context.depth >= layer


def _has_history(layer: int) -> Callable[[FigureContext], bool]:
    return lambda context: any(epoch.layer == layer for epoch in context.run.history)


def _is_gaussian(layer: int) -> Callable[[FigureContext], bool]:
    return lambda context: (
        context.depth >= layer and context.run.model.spec.layers[layer - 1].pooling_kind == "gaussian"
    )


def _layer_entry(section: Callable[[FigureContext, int], Section], layer: int) -> FigureEntry:
    return FigureEntry(lambda context: section(context, layer), _has_layer(layer), f"a model with {layer} layers")


def _cost_entry(layer: int) -> FigureEntry:
    needs = f"a history.jsonl with epochs of layer {layer}"
    return FigureEntry(lambda context: sections.cost_section(context, layer), _has_history(layer), needs)


def _comparison_entry(section: Callable[[FigureContext], Section]) -> FigureEntry:
    return FigureEntry(section, lambda context: bool(context.others), "another run to compare with (--compare)")


FIGURES: Mapping[str, FigureEntry] = {
    "composite": FigureEntry(_composite),
    "reconstructions": FigureEntry(_reconstructions),
    "filters": FigureEntry(lambda context: sections.filter_section(context.run.model)),
    "planes": _layer_entry(lambda context, layer: sections.plane_section(context.run.model, layer), 2),
    "samples-1": _layer_entry(sections.sample_section, 1),
    "samples-2": _layer_entry(sections.sample_section, 2),
    "decomposition-1": _layer_entry(sections.decomposition_section, 1),
    "decomposition-2": _layer_entry(sections.decomposition_section, 2),
    "where-1": FigureEntry(_where(1), _is_gaussian(1), "Gaussian pooling in layer 1"),
    "where-2": FigureEntry(_where(2), _is_gaussian(2), "a second layer with Gaussian pooling"),
    "inference": FigureEntry(_inference),
    "cost-1": _cost_entry(1),
    "cost-2": _cost_entry(2),
    "comparison": _comparison_entry(sections.comparison_section),
    "reset": _comparison_entry(sections.reset_section),
}
