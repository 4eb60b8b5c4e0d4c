"""Default settings, chosen from the images: the recipe `pictures` with a suitable input stage and
number of images.

    strokes, light on black   `ground` of all pixels are black           no input stage
    all others                                                         onoff: bright and dark
    details as channels

λ follows the contrast of the images after the input stage (`AutoLam.relative`), and is larger for
details. Each layer learns from about `values` pixel values, in several epochs or from the first
images of a random order; this takes a minute on two cores. docs/explanation/defaults.md says how
each choice was made. Waveforms start as pieces of the signals.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images, load
from whatwhere.errors import InvalidSetting, listed, plural
from whatwhere.inference.auto_lam import sample_rows, sample_targets
from whatwhere.inference.target import ImageSource
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, InputSpec, ModelSpec, Recipe
from whatwhere.spec.checks import require
from whatwhere.spec.toml import read_recipe


@dataclass(frozen=True)
class DefaultRules:
    """How settings follow from images.

    Parameters
    ----------
    near
        share of white: how far a background may be from black; a noisy one does not count as black
    ground
        the share of black pixels from which on images are strokes: 0.81 of digits are black, 0.53
        of clothes, 0.00 of photographs
    detail_sigma
        the width of the input stage for all other images, in pixels
    detail_lam
        the factor of λ with this input stage
    values
        pixels × channels of all images that each layer learns from, which takes a minute on two
        cores
    most_epochs
        for few images: 50 digits take less than 10 s on two cores
        (benchmarks/learning/few_images.py)
    """

    near: float = 0.02
    ground: float = 0.7
    detail_sigma: float = 2.0
    detail_lam: float = 2.0
    values: int = 4_000_000
    most_epochs: int = 25


DEFAULT_RULES = DefaultRules()


class Defaults(NamedTuple):
    """The settings chosen for images, and the reasons.

    Parameters
    ----------
    recipe
        the settings
    image_count
        number of images that each layer learns from; None if it is all of them
    reasons
        what was chosen, and why
    start
        the model to begin with, for recordings
    passes
        how long each layer is trained; empty for recordings
    remedy
        how to change the settings
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
        """Say how long a recipe trains each layer."""
        epochs = [layer.epochs for layer in recipe.learning]
        if not self.passes or epochs == [layer.epochs for layer in self.recipe.learning]:
            return self.passes
        words = f"{epochs[0]:,}" if len(set(epochs)) == 1 else listed(epochs)
        layers = "each layer is" if len(set(epochs)) == 1 else "the layers are"
        noun = "epoch" if set(epochs) == {1} else "epochs"
        return f"as you set, {layers} trained for {words} {noun}"


@dataclass(frozen=True)
class RecordingOptions:
    """What a person asks of the settings of a recording; None leaves each to the recording.

    Parameters
    ----------
    waveforms
        their number
    length
        their length, in samples or as a time such as '12ms'
    rise
        time within which the recording rises where an event begins
    louder
        time within which it becomes louder where an event begins
    probe
        file of the places of the channels of a probe
    """

    waveforms: int | None = None
    length: str | int | None = None
    rise: str | int | None = None
    louder: str | int | None = None
    probe: str | Path | None = None

    @property
    def asked(self) -> list[str]:
        """The names of what is asked."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def __post_init__(self) -> None:
        given = [name for name in ("length", "rise", "louder") if getattr(self, name) is not None]
        others = [name for name in ("waveforms", "rise", "louder") if getattr(self, name)]
        require(
            self.probe is None or not others,
            f"probe with {', '.join(others)}",
            "probe alone or with length: each part of a probe shows its own waveforms",
        )
        require(
            len(given) < 2 and not (self.waveforms and given not in ([], ["length"])),
            f"{' and '.join(given)} together" if len(given) > 1 else f"waveforms with {given}",
            "one of waveforms and length, rise, and louder: with rise or louder there is one"
            " waveform, as long as the rise",
        )


@runtime_checkable
class OwnSettings(Protocol):
    """Images that bring their own settings to training, such as a recording."""

    def choose_defaults(self, options: RecordingOptions) -> Defaults:
        """Choose the recipe and the model to begin with."""

    def for_training(self, spec: ModelSpec | None) -> Images:
        """Return what a model of this spec learns from; None: what settings are chosen from."""


_NOTHING_ASKED = RecordingOptions()


def choose_defaults(
    images: ImageSource | OwnSettings,
    options: RecordingOptions = _NOTHING_ASKED,
    rules: DefaultRules = DEFAULT_RULES,
) -> Defaults:
    """Choose the recipe for images [N, C, H, W] or signals, and how many of them each layer learns
    from.

    Parameters
    ----------
    options
        what is asked of the settings of signals
    rules
        how settings of pictures follow from them
    """
    if not isinstance(images, OwnSettings) and images[slice(0, 1)].shape[2] == 1:
        # signals as images of height 1
        values = images[slice(0, len(images))][:, :, 0].cpu().numpy()
        recording = load(values, signals=True)
        assert isinstance(recording, OwnSettings)
        images = recording
    if isinstance(images, OwnSettings):
        return images.choose_defaults(options)
    if options.asked:
        given = f"settings of recordings ({listed(options.asked)}) for pictures"
        raise InvalidSetting(given, "a recording, or none of these settings")
    sample = torch.cat([images[slice(row, row + 1)] for row in sample_rows(len(images))])
    recipe, words = _pictures_recipe(sample, rules)
    most = max(1, rules.values // sample[0].numel())
    epochs = min(rules.most_epochs, max(1, most // len(images)))
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


def _pictures_recipe(sample: Tensor, rules: DefaultRules) -> tuple[Recipe, str]:
    """Return the recipe for pictures like these, and the reason for its input stage."""
    stage, words = _choose_input(sample, rules)
    recipe = read_recipe("pictures")
    factor = 1 if stage.kind == "none" else rules.detail_lam
    learning = tuple(
        replace(one, inference=_scale_lam(one.inference, factor)) for one in recipe.learning
    )
    inference = _scale_lam(recipe.inference, factor)
    model = replace(recipe.model, input=stage)
    return replace(recipe, model=model, learning=learning, inference=inference), words


def _choose_input(sample: Tensor, rules: DefaultRules) -> tuple[InputSpec, str]:
    """Return the input stage for images like these, and the reason."""
    values = sample.nan_to_num(0)
    white = max(1.0, float(values.max()))
    dark = float((values.abs() <= rules.near * white).all(1).float().mean())
    if dark >= rules.ground and values.min() >= 0:
        return (
            InputSpec(white=white),
            f"no input stage, for light strokes on black ({dark:.0%} of the pixels are black)",
        )
    return (
        InputSpec(kind="onoff", sigma=rules.detail_sigma, white=white),
        "bright and dark details as separate channels (input stage 'onoff')",
    )


def _scale_lam(spec: InferenceSpec, factor: float) -> InferenceSpec:
    """Return the same settings with λ multiplied."""
    assert isinstance(spec.lam, AutoLam), "the recipe 'pictures' chooses λ from the images"
    return replace(spec, lam=replace(spec.lam, relative=spec.lam.relative * factor))


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
