"""How a model learns from a recording: its recipe and its first waveforms, chosen from the
recording, and windows without the slow part."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from whatwhere.data.images import Images
from whatwhere.learning.defaults import DEFAULT_RULES, Defaults, RecordingOptions
from whatwhere.model import DeconvNet
from whatwhere.ops.input_stage import InputStage
from whatwhere.signals.local import choose_on_probe
from whatwhere.signals.probe import read_probe
from whatwhere.signals.recording import WINDOW, Signals, cut_windows, training_windows
from whatwhere.signals.rises import choose_rise, sudden_decays
from whatwhere.signals.settings import RecordingSettings, choose_settings
from whatwhere.spec import InputSpec, ModelSpec
from whatwhere.spec.checks import require
from whatwhere.spec.duration import samples_of
from whatwhere.spec.model import RISES
from whatwhere.spec.toml import read_recipe

# windows of a recording that are learned from together: with few events, similar waveforms become
# one (sorted recall of short spikes: 0.98, with 1 window 0.82)
_BATCH = 64
_EPOCHS = 3  # the waveforms are nearly right at the start
_BLOCK = 1 << 16  # samples of a block whose baseline is computed together
_IN_MEMORY = 1 << 26  # values without a baseline that are kept in memory; more are in a file


def choose_defaults(signals: Signals, options: RecordingOptions) -> Defaults:
    """Return the recipe `signals` with the waveforms and the input stage that a recording shows, or
    that were asked for."""
    recipe = read_recipe("signals")
    chosen = _chosen(signals, options, recipe.seed)
    layer = recipe.model.layers[0]
    maps, _, samples = chosen.waveforms.shape
    layer = replace(layer, maps=maps, filter_size=(1, samples))
    count, channels, _, duration = signals.pixels.shape
    model = replace(recipe.model, layers=(layer,), channels=channels, input=chosen.input)
    size = _window_of(chosen.input)
    windows = count * max(1, duration // size)
    most = max(1, DEFAULT_RULES.values // (channels * min(duration, size)))
    epochs = 0 if chosen.final else min(_EPOCHS, max(1, most // windows))
    learning = tuple(replace(one, epochs=epochs) for one in recipe.learning)
    inference = replace(recipe.inference, lam=chosen.lam)
    learning = tuple(
        replace(one, inference=replace(one.inference, lam=chosen.lam)) for one in learning
    )
    batch_size = min(_BATCH, windows)
    recipe = replace(
        recipe, model=model, learning=learning, inference=inference, batch_size=batch_size
    )
    start = DeconvNet(model, seed=recipe.seed)
    filters = chosen.waveforms.transpose(0, 1)[:, :, None]
    start = start.with_filters(1, start.project(1, filters.double()).to(start.dtype))
    line = (
        f"Settings chosen from the recording ({(signals.recorded_as or signals).describe()}):"
        f" {chosen.words}. To change them, give"
        f" {'' if options.probe else '--waveforms, '}--length or --recipe signals."
    )
    return Defaults(recipe, most if most < windows else None, line, start)


def _chosen(signals: Signals, options: RecordingOptions, seed: int) -> RecordingSettings:
    """Return the settings of a recording."""
    length = None if options.length is None else samples_of(options.length, signals.rate)
    if options.probe is not None:
        places = read_probe(Path(options.probe), signals.shape[0], signals.channel_names)
        return choose_on_probe(signals, places, length, seed)
    for kind in ("rise", "louder"):
        time = getattr(options, kind)
        if time is not None:
            return choose_rise(signals, kind, samples_of(time, signals.rate, kind))
    if options.waveforms is None and options.length is None:
        span = sudden_decays(signals)
        if span is not None:
            found = choose_rise(signals, "rise", span)
            return replace(found, words=f"events that decay slowly, so {found.words}")
    return choose_settings(signals, options.waveforms, length, seed)


def _window_of(spec: InputSpec) -> int:
    """Return the samples of a window to learn from: the input stage must see most of it."""
    return max(WINDOW, 16 * spec.span) if spec.kind in RISES else WINDOW


def images_for_training(signals: Signals, spec: ModelSpec | None) -> Images:
    """Return signals as images of height 1 in a model's units; without a model, windows of them."""
    if spec is None:
        return training_windows(signals).as_images()
    require(
        spec.for_signals,
        "a model of pictures for signals",
        "filters and regions of height 1, such as layers = [{ maps = 2, filter_size = [1, 24],"
        " pool_size = [1, 2], pool_stride = [1, 1] }] (or --waveforms 2 --length 24)",
    )
    signals = replace(signals, white=spec.input.white)
    size = _window_of(spec.input)
    if spec.input.kind in RISES and signals.shape[2] >= 2 * size:
        return cut_windows(signals, size).as_images()
    return detrended(signals, InputStage(spec.input))


@dataclass(frozen=True, eq=False)
class _Detrended(Images):
    """Windows of a recording without its slow part; a run identifies them by the recording."""

    recorded_fingerprint: str = ""

    @property
    def fingerprint(self) -> str:
        return self.recorded_fingerprint


def detrended(signals: Signals, stage: InputStage) -> Images:
    """Windows of signals without their slow part: it needs more samples than a window has.

    The model's input stage finds next to nothing more to subtract from them.
    """
    if stage.spec.kind != "baseline" or signals.shape[2] < 2 * WINDOW:
        return training_windows(signals).as_images()
    count, channels, _, length = signals.pixels.shape
    values = _new_values((count, channels, 1, length))
    for row in range(count):
        recording = signals.recording(row)
        for first in range(0, length, _BLOCK):
            last = min(first + _BLOCK, length)
            # with the samples around it that influence its baseline
            begin = max(0, first - stage.reach)
            x = recording[:, :, begin : last + stage.reach][None]
            known = ~x.isnan()
            detail, _ = stage.forward(x.nan_to_num(0), known.float())
            block = torch.where(known, detail, torch.nan)[0, :, :, first - begin : last - begin]
            values[row, :, :, first:last] = block.numpy()
    clean = replace(signals, pixels=values, allow_nan=True)
    windows = cut_windows(clean, WINDOW).as_images()
    return _Detrended(**vars(windows), recorded_fingerprint=signals.fingerprint)


def _new_values(shape: tuple[int, ...]) -> np.ndarray:
    """Room for values, in memory or, for many, in a temporary file."""
    if np.prod(shape) <= _IN_MEMORY:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it
        return np.memmap(file, np.float32, "w+", shape=shape)
