"""Default settings, chosen from the images: the recipe `pictures` with a suitable input stage and
number of images.

    strokes, light on black   GROUND of all pixels are black           no input stage
    all others                                                         onoff: bright and dark
    details as channels

λ follows the contrast of the images after the input stage (`AutoLam.relative`), and is larger for
details. Each layer learns from about VALUES pixel values, in several epochs or from the first
images of a random order; this takes a minute on two cores. docs/explanation/defaults.md says how
each choice was made. Waveforms start as pieces of the signals.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images, load
from whatwhere.errors import listed, plural
from whatwhere.inference.auto_lam import sample_rows, sample_targets
from whatwhere.inference.target import ImageSource
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, InputSpec, ModelSpec, Recipe
from whatwhere.spec.toml import read_recipe

_GROUND = 0.7
"""The share of pixels around strokes: 0.81 of digits are black, 0.53 of clothes, 0.00 of
photographs."""

# width of the input stage; the factor of λ
_DETAIL_SIGMA = 2.0
_DETAIL_LAM = 2.0
# share of white: how far a background may be from black; a noisy one does not count as such
NEAR = 0.02
VALUES = 4_000_000  # pixels × channels of all images that each layer learns from
# for few images: 50 digits take less than 10 s on two cores (benchmarks/learning/few_images.py)
MOST_EPOCHS = 25


class Defaults(NamedTuple):
    """The settings chosen for images, and the reasons.

    recipe       the settings
    image_count  number of images that each layer learns from; None if it is all of them
    reasons      what was chosen, and why
    start        the model to begin with, for recordings
    passes       how long each layer is trained; empty for recordings
    remedy       how to change the settings
    """

    recipe: Recipe
    image_count: int | None
    reasons: str
    start: DeconvNet | None = None
    passes: str = ""
    remedy: str = ""

    @property
    def line(self) -> str:
        """The line that reports the settings."""
        return self.line_for(self.recipe)

    def line_for(self, recipe: Recipe) -> str:
        """Report the settings of a recipe that changes the epochs or the input stage of this
        one."""
        reasons = self.reasons
        stage = recipe.model.input.kind
        if stage != self.recipe.model.input.kind:
            reasons = f"Input stage {stage!r}, as you set"
        parts = (reasons, self._passes_for(recipe))
        return "; ".join(part for part in parts if part) + self.remedy

    def _passes_for(self, recipe: Recipe) -> str:
        """How long each layer is trained by a recipe."""
        epochs = [layer.epochs for layer in recipe.learning]
        if not self.passes or epochs == [layer.epochs for layer in self.recipe.learning]:
            return self.passes
        words = f"{epochs[0]:,}" if len(set(epochs)) == 1 else listed(epochs)
        layers = "each layer is" if len(set(epochs)) == 1 else "the layers are"
        noun = "epoch" if set(epochs) == {1} else "epochs"
        return f"as you set, {layers} trained for {words} {noun}"


@runtime_checkable
class OwnSettings(Protocol):
    """Images that bring their own settings to training, such as a recording."""

    def choose_defaults(self, waveforms: int | None, length: str | int | None) -> Defaults:
        """Choose the recipe and the model to begin with."""

    def for_training(self, spec: ModelSpec | None) -> Images:
        """Return what a model of this spec learns from; None: what settings are chosen from."""


def choose_defaults(
    images: ImageSource | OwnSettings,
    waveforms: int | None = None,
    length: str | int | None = None,
) -> Defaults:
    """Choose the recipe for images [N, C, H, W] or signals, and how many of them each layer learns
    from.

    waveforms, length  number of waveforms of signals, and their length in samples or as a time;
                       None chooses
    """
    if not isinstance(images, OwnSettings) and images[slice(0, 1)].shape[2] == 1:
        # signals as images of height 1
        values = images[slice(0, len(images))][:, :, 0].cpu().numpy()
        recording: Any = load(values, signals=True)
        return choose_defaults(recording, waveforms, length)
    if isinstance(images, OwnSettings):
        return images.choose_defaults(waveforms, length)
    sample = torch.cat([images[slice(row, row + 1)] for row in sample_rows(len(images))])
    recipe, words = _pictures_recipe(sample)
    most = max(1, VALUES // sample[0].numel())
    epochs = min(MOST_EPOCHS, max(1, most // len(images)))
    recipe = replace(
        recipe,
        model=replace(recipe.model, channels=sample.shape[1]),
        learning=tuple(replace(one, epochs=epochs) for one in recipe.learning),
    )
    passes = f"is trained for {plural(epochs, 'epoch')} on {plural(len(images), 'image')}"
    if most < len(images):
        passes = f"learns from {most:,} of {len(images):,} images"
    passes = f"by default, each layer {passes}"
    remedy = (
        ". To change them, set model.input.kind or learning.each.epochs, or use another recipe,"
        " such as 'paper'."
    )
    return Defaults(
        recipe,
        most if most < len(images) else None,
        f"Settings chosen from the images: {words}",
        passes=passes,
        remedy=remedy,
    )


def _pictures_recipe(sample: Tensor) -> tuple[Recipe, str]:
    """Return the recipe for pictures like these, and the reason for its input stage."""
    stage, words = _choose_input(sample)
    recipe = read_recipe("pictures")
    learning = tuple(
        replace(one, inference=_suited(one.inference, stage)) for one in recipe.learning
    )
    model = replace(recipe.model, input=stage)
    return (
        replace(recipe, model=model, learning=learning, inference=_suited(recipe.inference, stage)),
        words,
    )


def _choose_input(sample: Tensor) -> tuple[InputSpec, str]:
    """Return the input stage for images like these, and the reason."""
    values = sample.nan_to_num(0)
    white = max(1.0, float(values.max()))
    dark = float((values.abs() <= NEAR * white).all(1).float().mean())
    if dark >= _GROUND and values.min() >= 0:
        return (
            InputSpec(white=white),
            f"no input stage, for light strokes on black ({dark:.0%} of the pixels are black)",
        )
    return (
        InputSpec(kind="onoff", sigma=_DETAIL_SIGMA, white=white),
        "bright and dark details as separate channels (input stage 'onoff')",
    )


def _suited(spec: InferenceSpec, stage: InputSpec) -> InferenceSpec:
    """Return the same settings with the λ for this input stage."""
    lam = cast(AutoLam, spec.lam)
    return replace(
        spec, lam=replace(lam, relative=lam.relative * (1 if stage.kind == "none" else _DETAIL_LAM))
    )


def start_from_pieces(model: DeconvNet, images: ImageSource, seed: int) -> DeconvNet:
    """Return the same model with pieces of signals [N, C, 1, T] as its waveforms, each around a
    peak of energy.

    Random filters first become all alike, the mean of many events; pieces differ from the start.
    They are drawn in proportion to the energy that those before do not explain at any shift
    (k-means++).
    """
    layer = model.spec.layers[0]
    length = layer.filter_shape[1]
    generator = torch.Generator().manual_seed(seed)
    signals = [target.v[:, :, 0] for target in sample_targets(model, images)]
    v = torch.cat([v for v in signals if v.shape[2] >= length]).cpu()
    if not len(v) or not v.any():
        return model
    # the middle counts most
    window = torch.hann_window(length + 2, periodic=False, dtype=v.dtype)[1:-1]
    # [N, T - length + 1]
    energy = F.conv1d(v.square().sum(1, keepdim=True), window[None, None])[:, 0]
    peaks = energy == F.max_pool1d(energy[:, None], 2 * (length // 2) + 1, 1, length // 2)[:, 0]
    signal, start = (peaks & (energy > 0)).nonzero(as_tuple=True)
    pieces = v.unfold(2, length, 1)[signal, :, start]  # [n, C, length]
    pieces = pieces / pieces.flatten(1).norm(dim=1)[:, None, None]
    left = energy[signal, start].double()
    chosen = list[int]()
    for _ in range(layer.maps):
        chosen.append(
            int(
                torch.multinomial(
                    left if left.sum() > 0 else torch.ones_like(left), 1, generator=generator
                )
            )
        )
        alike = F.conv1d(pieces, pieces[chosen[-1:]], padding=length // 2).amax((1, 2)).double()
        left = left * (1 - alike.square()).clamp(min=0)
    filters = pieces[chosen].transpose(0, 1)[:, :, None].to(model.device)
    return model.with_filters(1, model.project(1, filters.double()).to(model.dtype))
