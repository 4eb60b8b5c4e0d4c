"""The figures of a run by name, each with its heading and explanation, and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.figures.animation import animation, trace
from whatwhere.figures.composite import composite, filters, page, plane_panel, reconstructions, sample_panel
from whatwhere.figures.cost import cost
from whatwhere.figures.decomposition import decomposition
from whatwhere.figures.report import Section, report
from whatwhere.figures.where_map import where_map
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.learning import TrainedRun
from whatwhere.spec import AutoLam, InferenceSpec, LineSearch, Phase, Recipe

MAX_STEPS = 200  # of inference for a figure
BATCH_SIZE = 8  # images inferred between two reports of progress
PAIRS = 24  # images that are shown with their reconstruction

Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def training_settings(recipe: Recipe, layer: int) -> InferenceSpec:
    """The settings of a layer's training, so that figures show features as sparse as they were learned.

    In training, the features of an image continue from epoch to epoch, so they receive the steps of all epochs since
    the last reset. Figures use the same number of steps, up to a limit, and a separate step size for each image, so
    that an image looks the same whatever other images are drawn.
    """
    learning = recipe.learning[layer - 1]
    since_reset = learning.epochs - max((epoch for epoch in learning.reset_at if epoch < learning.epochs), default=0)
    steps = min(learning.inference.steps * max(1, since_reset), max(MAX_STEPS, learning.inference.steps))
    return replace(learning.inference, steps=steps, step=LineSearch(momentum=learning.inference.momentum))


@dataclass
class RunFigures:
    """The figures of a run. Latents are inferred when a figure first needs them.

    run        the run that is drawn
    images     [N, C, H, W]
    image      index of the image that is decomposed; None selects the first that has as many features as most
    feature    index of the feature whose positions are drawn; None selects the one that is active most often
    inference  settings of inference; None takes those of each layer's training
    seed       of random choices
    engine     of the inference
    stage      makes the display of progress for a slow part: called with a title and the number of pieces

    >>> drawn = ww.figures.RunFigures(ww.read_run("mnist"), ww.data.load("digits", split="test")[:2])
    >>> "decomposition-2" in drawn.names
    True
    >>> drawn.draw("filters").heading
    'Filters of layer 1'
    """

    run: TrainedRun
    images: Tensor
    image: int | None = None
    feature: int | None = None
    inference: InferenceSpec | None = None
    seed: int = 0
    engine: str = "auto"
    stage: Stage = lambda title, total: nullcontext(lambda pieces: None)
    _latents: dict[int, Latents] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.image is not None and not 0 <= self.image < len(self.images):
            raise SpecError(f"image = {self.image} was given; expected a number from 0 to {len(self.images) - 1}")
        for layer in self.run.model.spec.layers:
            if self.feature is not None and not 0 <= self.feature < layer.maps:
                raise SpecError(f"feature {self.feature + 1} was given; a layer of the model has {layer.maps} features")

    @cached_property
    def _figures(self) -> dict[str, Callable[[], Section]]:
        """What can be drawn of this run, by name."""
        model, history = self.run.model.spec, {epoch.layer for epoch in self.run.history}
        layers = range(1, model.depth + 1)
        where = [k for k in layers if model.layers[k - 1].pooling_kind == "gaussian"]
        kinds = {
            "decomposition": (layers, self._decomposition),
            "where": (where, self._where),
            "planes": (layers[1:], self._planes),
            "samples": (layers, self._samples),
            "cost": ([k for k in layers if k in history], self._cost),
        }
        named = {f"{kind}-{k}": partial(draw, k) for kind, (drawn, draw) in kinds.items() for k in drawn}
        whole = {"inference": self._inference, "reconstructions": self._reconstructions, "filters": self._filters}
        return {"composite": self._composite, **whole, **named}

    @property
    def names(self) -> list[str]:
        """The names of the figures that can be drawn of this run."""
        return list(self._figures)

    def draw(self, name: str) -> Section:
        """One figure by name, with its heading and explanation."""
        self.check(name)
        with torch.no_grad():
            return self._figures[name]()

    def check(self, name: str) -> None:
        """Raise an error for a figure that this run does not have."""
        if name not in self._figures:
            raise SpecError(f"figure {name!r} was given; {self.run.name} has {', '.join(self.names)}")

    def report(self, drawn: Mapping[str, Section]) -> str:
        """The HTML report of the run: its settings, then the figures by name, which `draw` made.

        The composite is left out, because its panels are figures of their own.
        """
        recipe, model = self.run.recipe, self.run.model.spec
        facts = {}
        for k, (layer, learning) in enumerate(zip(model.layers, recipe.learning, strict=True), start=1):
            spec = learning.inference
            lam = "λ chosen from the images" if isinstance(spec.lam, AutoLam) else f"λ {spec.lam:g}"
            facts[f"layer {k}"] = (
                f"{layer.maps} maps, {layer.pooling_kind} pooling; trained for {learning.epochs} epochs with "
                f"{lam}, α {spec.alpha:g} and {spec.steps} steps"
            )
        facts["figures"] = f"of {len(self.images)} images, inferred with the settings of the training"
        facts["seed"] = str(recipe.seed)
        lead = "What this run learned: which features explain an image, and where in the image they are."
        return report(f"Run {self.run.name}", [drawn[name] for name in drawn if name != "composite"], lead, facts)

    def latents(self, layer: int) -> Latents:
        """The latents of all images inferred from this layer, updating the pooling of all layers up to it."""
        if layer not in self._latents:
            plan = (Phase(layer=layer, update_pooling=tuple(range(1, layer + 1))),)
            settings = self.inference or training_settings(self.run.recipe, layer)
            title = f"inferring {len(self.images)} images with {self.run.name}, layer {layer}"
            with self.stage(title, len(self.images)) as advance:
                self._latents[layer] = infer(
                    self.run.model,
                    self.images,
                    settings,
                    plan,
                    engine=self.engine,
                    batch_size=BATCH_SIZE,
                    progress=advance,
                ).latents
        return self._latents[layer]

    @cached_property
    def shown(self) -> int:
        """Index of the image that is decomposed: one that has features."""
        if self.image is not None:
            return self.image
        p = self.latents(self.run.model.spec.depth).p
        assert p is not None
        active = (p != 0).flatten(1).sum(1)
        return int((active >= active.median().clamp(min=1)).int().argmax())

    # One method for each kind of figure ---------------------------------------------------------------------------

    def _composite(self) -> Section:
        layers = [self.latents(k) for k in range(1, self.run.model.spec.depth + 1)]
        return Section(
            "The model on one page",
            "Images with their reconstructions from the top layer, the filters, and samples of every feature.",
            composite(self.run.model, self.images, layers, seed=self.seed),
        )

    def _reconstructions(self) -> Section:
        model, latents = self.run.model, self.latents(self.run.model.spec.depth)
        assert latents.p is not None
        error = float((model.at(*self.images.shape[2:]).decode(latents) - self.images).square().mean())
        nonzeros = float((latents.p != 0).flatten(1).sum(1).double().mean())
        return Section(
            "Reconstructions",
            f"{len(self.images[:PAIRS])} images (left of each pair) and their reconstructions from layer "
            f"{model.spec.depth} (right). Over {len(self.images)} images: mean squared error per pixel {error:.4f}, "
            f"{nonzeros:.0f} non-zero features per image.",
            reconstructions(model, self.images[:PAIRS], latents[:PAIRS]),
        )

    def _filters(self) -> Section:
        text = "Learned without labels. Each filter is scaled by its largest weight."
        return Section("Filters of layer 1", text, filters(self.run.model))

    def _planes(self, layer: int) -> Section:
        return Section(
            f"Filter planes of layer {layer}",
            f"One group for each map of layer {layer - 1}, and in each group one plane for each map of layer {layer}. "
            "A plane is grey if the two maps are not connected.",
            page([[plane_panel(self.run.model, layer, columns=4)]]),
        )

    def _samples(self, layer: int) -> Section:
        panel = sample_panel(self.run.model, self.latents(layer), self.images.shape[2:], columns=8, seed=self.seed)
        return Section(
            f"Samples of the features of layer {layer}",
            "A square of samples for every feature. A sample is one activation, drawn from all activations of the "
            "feature over the images and projected to the pixels with the pooling variables of its image. The "
            "differences between the samples of a feature are its invariance. Grey: there are fewer activations.",
            page([[panel]]),
        )

    def _decomposition(self, layer: int) -> Section:
        latents = self.latents(layer)[self.shown : self.shown + 1]
        return Section(
            f"What and where: one image taken apart by layer {layer}",
            "From top to bottom the feature maps, unpooled maps and filters through which the active features "
            "reconstruct one image. Every feature has its own colour. The contribution of a feature to a pixel sets "
            "the saturation there; where features overlap, the mixture is brownish. The ellipses are the Gaussians of "
            "the features.",
            decomposition(self.run.model, self.images[self.shown], latents),
        )

    def _where(self, layer: int) -> Section:
        latents, feature = self.latents(layer), self.feature
        assert latents.p is not None
        if feature is None:
            feature = int((latents.p != 0).sum((0, 2, 3)).argmax())
        return Section(
            f"Positions of feature {feature + 1} of layer {layer}",
            "Each ellipse is the Gaussian of one pooling region in one image, on the grid of regions and the mean "
            "image: the mean is the position of the feature in the region, the width its extent, at most half a "
            "region.",
            where_map(self.run.model, self.images, latents, layer, feature, seed=self.seed),
        )

    def _inference(self) -> Section:
        model, image = self.run.model, self.images[self.shown]
        settings = self.inference or training_settings(self.run.recipe, model.spec.depth)
        with self.stage("following the inference of one image", settings.steps) as advance:
            snapshots = trace(model, image, settings, progress=advance)
        first, last = snapshots[0], snapshots[-1]
        return Section(
            "Inference step by step",
            "One image: its reconstruction, the residual (orange where the reconstruction is too small, purple where "
            f"it is too large) and its features in their colours, while the cost decreases from {first.cost:.1f} to "
            f"{last.cost:.1f} in {last.step} steps.",
            animation(model, image, snapshots),
        )

    def _cost(self, layer: int) -> Section:
        return Section(
            f"Cost over the training of layer {layer}",
            "Per image, after the inference of each epoch: the cost, its two parts, and the number of non-zero "
            "features. A jump is a reset of the features.",
            cost({self.run.name: [epoch.table() for epoch in self.run.history]}, layer),
        )
