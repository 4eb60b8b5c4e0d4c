"""The figures of a run by name, each with its heading and explanation, and reports as one HTML
page."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from whatwhere.errors import UnknownChoice, plural
from whatwhere.figures.activations import where_map
from whatwhere.figures.animation import draw_steps, trace
from whatwhere.figures.composite import (
    composite,
    cost,
    filters,
    page,
    plane_panel,
    reconstruction_panel,
    sample_panel,
)
from whatwhere.figures.decomposition import decomposition
from whatwhere.figures.style import save
from whatwhere.html import data_url, render
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.learning import TrainedRun
from whatwhere.progress import Stage, no_stage
from whatwhere.spec import AutoLam, InferenceSpec, LineSearch, Phase, Recipe


@dataclass(frozen=True)
class Section:
    """One section of a report: heading, paragraphs (separated by blank lines), facts and a figure.

    Parameters
    ----------
    heading
        heading of the section; also the alternative text of its figure
    text
        its paragraphs, which say what the figure shows, also to readers who cannot see it
    figure
        a matplotlib figure, or the bytes of a GIF
    facts
        name → value, shown as a table
    bars
        name of a fact → its length, drawn as a bar below it; the longest fills the width
    links
        the words of each link, and the file in the report's folder that it opens

    Examples
    --------
    >>> Section("Filters", "The filters of layer 1.", facts={"maps": "16"}).heading
    'Filters'
    """

    heading: str
    text: str = ""
    figure: Figure | bytes | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    bars: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def image(self) -> _Embedded | None:
        """The figure in a page; made once, because a report is written after every figure."""
        return None if self.figure is None else _embed(self.figure)

    @cached_property
    def last_step(self) -> _Embedded | None:
        """The last picture of an animation, because paper shows no animation; None for others."""
        return _last_step(self.figure) if isinstance(self.figure, bytes) else None

    @property
    def widths(self) -> dict[str, float]:
        """The bars in % of the longest."""
        longest = max(self.bars.values(), default=0) or 1
        return {name: round(100 * length / longest, 1) for name, length in self.bars.items()}


def report(
    title: str,
    sections: Sequence[Section],
    lead: str = "",
    facts: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """Return the HTML page: title, lead, links and facts, then the sections. It needs no other
    file.

    Parameters
    ----------
    title
        title of the page
    sections
        sections of the page, from top to bottom
    lead
        a paragraph under the title
    facts
        name → value, shown as a table
    links
        the words of each button at the top, and the file that it opens

    Examples
    --------
    >>> report("My run", [Section("Filters", "The filters of layer 1.")])[:15]
    '<!DOCTYPE html>'
    """
    return render(
        "report.html", title, lead=lead, facts=facts or {}, links=links or {}, sections=sections
    )


class _Embedded(NamedTuple):
    """A figure as a data URL, with its size in CSS pixels."""

    address: str
    width: int
    height: int


def _embed(figure: Figure | bytes) -> _Embedded:
    """Make a figure a part of a page."""
    if isinstance(figure, bytes):
        return _Embedded(data_url(figure, "gif"), *Image.open(io.BytesIO(figure)).size)
    file = io.BytesIO()
    save(figure, file, "png")
    # 128 CSS pixels an inch make text of 7 points 12 pixels high
    width, height = (round(side * 128) for side in figure.get_size_inches())
    return _Embedded(data_url(file.getvalue(), "png"), width, height)


def _last_step(animation: bytes) -> _Embedded:
    """Return the last picture of a GIF."""
    pictures = Image.open(io.BytesIO(animation))
    pictures.seek(getattr(pictures, "n_frames", 1) - 1)
    file = io.BytesIO()
    pictures.convert("RGB").save(file, "PNG")
    return _Embedded(data_url(file.getvalue(), "png"), *pictures.size)


def _training_settings(recipe: Recipe, layer: int) -> InferenceSpec:
    """Return the settings of a layer's training, so that figures show features as sparse as they
    were learned.

    In training, the features of an image continue from epoch to epoch, so they receive the steps of
    all epochs since the last reset. Figures use the same number of steps, up to a limit, and a
    separate step size for each image, so that an image looks the same whatever other images are
    drawn.
    """
    learning = recipe.learning[layer - 1]
    since_reset = learning.epochs - max(
        (epoch for epoch in learning.reset_at if epoch < learning.epochs), default=0
    )
    own = learning.inference.steps
    steps = min(own * max(1, since_reset), max(200, own))
    return replace(
        learning.inference, steps=steps, step=LineSearch(momentum=learning.inference.momentum)
    )


@dataclass
class RunFigures:
    """The figures of a run. Latents are inferred when a figure first needs them.

    Parameters
    ----------
    run
        the run that is drawn
    images
        [N, C, H, W]
    inference
        settings of inference; None takes the settings of each layer's training
    engine
        engine of the inference
    stage
        shows the progress of a slow part: called with a title and the number of pieces

    Examples
    --------
    >>> digits = ww.data.load("digits", split="test")[:2]
    >>> drawn = ww.figures.RunFigures(ww.read_run("mnist"), digits)
    >>> "decomposition-2" in drawn.names
    True
    >>> drawn.draw("filters").heading
    'Filters of layer 1'
    """

    run: TrainedRun
    images: Tensor
    inference: InferenceSpec | None = None
    engine: str = "auto"
    stage: Stage = no_stage
    _latents: dict[int, Latents] = field(default_factory=dict, repr=False)

    @cached_property
    def _figures(self) -> dict[str, Callable[[], Section]]:
        model = self.run.model.spec
        history = {epoch.layer for epoch in self.run.history}
        layers = range(1, model.depth + 1)
        where = [k for k in layers if model.layers[k - 1].pooling.moves]
        kinds = {
            "decomposition": (layers, self._decomposition),
            "where": (where, self._where),
            "planes": (layers[1:], self._planes),
            "samples": (layers, self._samples),
            "cost": ([k for k in layers if k in history], self._cost),
        }
        named = {
            f"{kind}-{k}": partial(draw, k) for kind, (drawn, draw) in kinds.items() for k in drawn
        }
        return {
            "composite": self._composite,
            "reconstructions": self._reconstructions,
            "filters": self._filters,
            **named,
            "inference": self._inference,  # the slowest of them comes last
        }

    @property
    def names(self) -> list[str]:
        """The names of the figures of this run."""
        return list(self._figures)

    def draw(self, name: str) -> Section:
        """Return one figure by name, with its heading and explanation."""
        self.check(name)
        with torch.no_grad():
            return self._figures[name]()

    def check(self, name: str) -> None:
        """Raise an error for a figure that this run does not have."""
        if name not in self._figures:
            raise UnknownChoice(f"figure of {self.run.name}", name, self.names)

    def report(self, drawn: Mapping[str, Section]) -> str:
        """Return the HTML report of the run: its settings, then the figures by name, which `draw`
        made.

        The composite is left out, because its panels are figures of their own, and so are curves of
        fewer than three epochs, which show nothing.
        """
        recipe = self.run.recipe
        model = self.run.model.spec
        facts = {}
        for k, (layer, learning) in enumerate(
            zip(model.layers, recipe.learning, strict=True), start=1
        ):
            spec = learning.inference
            lam = "λ chosen from the images"
            if not isinstance(spec.lam, AutoLam):
                lam = f"λ {spec.lam:.4g}"
            epochs = "1 epoch" if learning.epochs == 1 else f"{learning.epochs} epochs"
            facts[f"layer {k}"] = (
                f"{layer.maps} maps, {layer.pooling.kind} pooling; trained for {epochs}"
                f" with {lam}, {spec.penalty} and {spec.steps} steps"
            )
        facts["figures"] = f"of {len(self.images)} images, inferred with the training settings"
        facts["seed"] = str(recipe.seed)
        lead = (
            "What this run learned: which features explain an image, and where in the image they"
            " are."
        )
        counts = Counter(epoch.layer for epoch in self.run.history)
        left_out = {"composite", *(f"cost-{k}" for k, count in counts.items() if count < 3)}
        return report(
            f"Training report: {self.run.name}",
            [drawn[name] for name in drawn if name not in left_out],
            lead,
            facts,
        )

    def latents(self, layer: int) -> Latents:
        """Return the latents of all images inferred from this layer, updating the pooling of all
        layers up to it."""
        if layer not in self._latents:
            plan = (Phase(layer=layer, update_pooling=tuple(range(1, layer + 1))),)
            settings = self.inference or _training_settings(self.run.recipe, layer)
            images = plural(len(self.images), "image")
            title = f"inferring {images} with {self.run.name}, layer {layer}"
            with self.stage(title, len(self.images)) as advance:
                self._latents[layer] = infer(
                    self.run.model,
                    self.images,
                    settings,
                    plan,
                    engine=self.engine,
                    batch_size=8,
                    progress=advance,
                ).latents
        return self._latents[layer]

    @cached_property
    def shown(self) -> int:
        """The index of the image to decompose: the first with at least the median number of
        features."""
        active = (self.latents(self.run.model.spec.depth).features != 0).flatten(1).sum(1)
        return int((active >= active.median().clamp(min=1)).int().argmax())

    # One method for each kind of figure -----------------------------------------------------------

    def _composite(self) -> Section:
        layers = [self.latents(k) for k in range(1, self.run.model.spec.depth + 1)]
        return Section(
            "The model on one page",
            "Images with their reconstructions from the top layer, the filters, and samples of"
            " the features of every map. A grey place means that the map has fewer activations; a"
            " map without any is grey as a whole.",
            composite(self.run.model, self.images, layers),
        )

    def _reconstructions(self) -> Section:
        model = self.run.model
        latents = self.latents(self.run.model.spec.depth)
        error = float(
            (model.at(*self.images.shape[2:]).decode(latents) - self.images).square().mean()
        )
        nonzeros = float((latents.features != 0).flatten(1).sum(1).double().mean())
        shown = self.images[:24]
        quality = (
            f"over {len(self.images)} images, mean squared error per pixel {error:.4f},"
            f" {nonzeros:.0f} non-zero features per image"
        )
        _, pairs = reconstruction_panel(model, shown, latents[: len(shown)], columns=6)
        return Section(
            "Reconstructions",
            f"{len(shown)} images (left of each pair) and their reconstructions from layer"
            f" {model.spec.depth} (right): {quality}.",
            # the figure has the name and the numbers, so that it can lie next to another run's
            page([[(f"{self.run.name}, layer {model.spec.depth}: {quality}", pairs)]]),
        )

    def _filters(self) -> Section:
        text = "Learned without labels. Each filter is scaled by its largest weight."
        return Section("Filters of layer 1", text, filters(self.run.model))

    def _planes(self, layer: int) -> Section:
        return Section(
            f"Filter planes of layer {layer}",
            f"One group for each map of layer {layer - 1}, and in each group one plane for each map"
            f" of layer {layer}. A plane is grey if the two maps are not connected.",
            page([[plane_panel(self.run.model, layer, columns=4)]]),
        )

    def _samples(self, layer: int) -> Section:
        panel = sample_panel(self.run.model, self.latents(layer), self.images.shape[2:], columns=8)
        return Section(
            f"Samples of the features of layer {layer}",
            "A square of samples for every map. A sample is one activation, drawn from all"
            " activations of the map over the images and projected to the pixels with the"
            " pooling variables of its image. The differences between the samples of a map"
            " show its invariance. A grey place means that the map has fewer activations; a"
            " map without any is grey as a whole.",
            page([[panel]]),
        )

    def _decomposition(self, layer: int) -> Section:
        latents = self.latents(layer)[self.shown : self.shown + 1]
        parts = "What"
        ellipses = ""
        if self.run.model.spec.layers[layer - 1].pooling.moves:
            parts = "What and where"
            ellipses = " The ellipses are the Gaussians of the features."
        return Section(
            f"{parts}: one image taken apart by layer {layer}",
            "How the active maps reconstruct one image: from top to bottom, the feature maps,"
            " the unpooled maps and the filters. Every map has its own colour. The more it"
            " contributes to a pixel, the more saturated the pixel; where maps overlap, the"
            f" mixture is brownish.{ellipses}",
            decomposition(self.run.model, self.images[self.shown], latents),
        )

    def _where(self, layer: int) -> Section:
        latents = self.latents(layer)
        feature = int((latents.features != 0).sum((0, 2, 3)).argmax())
        return Section(
            f"Positions of the features of map {feature + 1} of layer {layer}",
            "Each ellipse is the Gaussian of one pooling region in one image, drawn over the grid"
            " of regions and the mean image. Its centre is the position of the feature in the"
            " region; its width is the extent, at most half a region.",
            where_map(self.run.model, self.images, latents, layer, feature),
        )

    def _inference(self) -> Section:
        model = self.run.model
        image = self.images[self.shown]
        settings = self.inference or _training_settings(self.run.recipe, model.spec.depth)
        with self.stage("following the inference of one image", settings.steps) as advance:
            steps = trace(model, image, settings, advance)
        return Section(
            "Inference step by step",
            "One image: its reconstruction, the residual (orange where the reconstruction is too"
            " small, purple where it is too large), its active maps in their colours, and the parts"
            f" of the cost, in {len(steps) - 1} steps.",
            draw_steps(model, image, steps),
        )

    def _cost(self, layer: int) -> Section:
        return Section(
            f"Cost over the training of layer {layer}",
            "Per image, after the inference of each epoch: the cost, its two parts, and the"
            " number of non-zero features. Jumps are resets of the features.",
            cost({self.run.name: self.run.history}, layer),
        )
