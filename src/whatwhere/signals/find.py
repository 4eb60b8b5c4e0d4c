"""Events of recordings of any length: tile by tile, in memory that does not grow with the
recording.

A threshold can be given, in units of the recording or in deviations. By default an event must
exceed some standard deviations of what its waveform finds in the recording's noise, and hold a
share of the recording's energy where it lies: an event with less is a correction of a larger one,
whose shape varies. `EventSettings` has the limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.errors import ImageError, plural
from whatwhere.inference.tiled import InferredTile, Picture, TileGrid, infer_latents
from whatwhere.model import DeconvNet
from whatwhere.model.events import OVERLAP as OVERLAPPING
from whatwhere.model.events import (
    Events,
    events_of,
    join_events,
    overlapping,
    set_onsets,
    set_peaks,
)
from whatwhere.model.sized import LayerPlaces, SizedModel
from whatwhere.signals.local import Part, parts_of, without_doubles
from whatwhere.signals.noise import NoiseSettings, QuietLevels, waveform_noise
from whatwhere.signals.onsets import change_of_power
from whatwhere.signals.overlaps import Limits, Stretch, explain_overlaps
from whatwhere.signals.recording import Signals
from whatwhere.signals.rhythm import Candidates, RhythmSettings, Usual, choose_in_rhythm, find_usual
from whatwhere.spec import AutoLam, InferenceSpec, InputSpec, LineSearch, ModelSpec, Phase
from whatwhere.spec.checks import require
from whatwhere.spec.model import RISES


@dataclass(frozen=True)
class EventSettings:
    """How events are inferred, and what an event must have.

    Parameters
    ----------
    tile
        samples of a tile
    overlap
        tiles share the samples of this many waveforms
    steps
        of inference, in each tile. Amplitudes are measured again and overlaps are explained again,
        so codes need not be converged: with 20 to 1,000 steps, the events of tetrodes are the same
        but for one in 300
    lam_deviations
        standard deviations of the noise, which sets λ
    deviations
        of the noise that an event exceeds: of a million places with nothing but white noise, 0.3 do
    share
        of the recording's energy where the event lies
    covered_deviations
        the same where waveforms cover a recording, as those of a pulse do: its noise is how far
        beats differ from each other
    covered_share
        the same where waveforms cover a recording
    visible
        share of a waveform's energy on known samples: with less, at an end or a gap, an event is a
        guess
    rhythm
        how a rhythm decides which events fit it; None for recordings in which it says nothing about
        events
    noise
        how the noise is measured
    rise_deviations
        of the noise that a rise exceeds: of the calcium of 39 cells, this finds about as much as
        the best value for each
    rise_decibels
        that a recording becomes louder at least: the noise of seismograms changes by up to 6
    least
        height of an event at its peak, in units after the input stage
    bursts
        whether events in a burst of noise, such as that of a muscle, must exceed the noise of the
        burst
    """

    tile: int = 4096
    overlap: int = 4
    steps: int = 50
    lam_deviations: float = 4.0
    deviations: float = 5.0
    share: float = 0.2
    covered_deviations: float = 3.0
    covered_share: float = 0.5
    visible: float = 0.5
    rhythm: RhythmSettings | None = field(default_factory=RhythmSettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    rise_deviations: float = 3.5
    rise_decibels: float = 8.0
    least: float = 0.0
    bursts: bool = True

    def for_stage(self, stage: InputSpec) -> EventSettings:
        """Return the settings for what an input stage keeps.

        Rises are found by their size alone: their noise is as smooth as they are, so an event
        explains much of the energy at its place wherever it is, and the residual has little noise.
        """
        if stage.kind not in RISES:
            return self
        return replace(
            self,
            deviations=self.rise_deviations,
            share=0.0,
            least=self.rise_decibels if stage.kind == "louder" else self.least,
            noise=replace(self.noise, far_less=0.0, mostly=1.0),
            rhythm=None,
            bursts=False,
        )

    def inference(self, spec: InferenceSpec) -> InferenceSpec:
        """Return the same inference with these steps, whether or not codes converge."""
        momentum = LineSearch(momentum=True)
        return replace(spec, step=momentum, steps=self.steps, tolerance=0.0, gap=0.0)


class Rhythm(NamedTuple):
    """A rhythm that decided which events of a recording there are.

    Parameters
    ----------
    period
        the usual interval between events, in samples
    left_out
        events that do not fit it
    added
        weak events that fit it
    """

    period: float
    left_out: int
    added: int

    def in_words(self, rate: float | None) -> str:
        """Describe the rhythm in a clause."""
        usual = f"{self.period:,.0f} samples" if rate is None else f"{self.period / rate:.3g} s"
        return (
            f"the rhythm, {usual} between events, left out {plural(self.left_out, 'event')} and"
            f" added {self.added:,} weak {'one' if self.added == 1 else 'ones'} (--no-rhythm"
            " decides without it)"
        )


_SETTINGS = EventSettings()


# Tile by tile -------------------------------------------------------------------------------------


def find_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float | str | None = None,
    tile: int = _SETTINGS.tile,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> Events:
    """Return the events of recordings of any length, which are read and inferred in overlapping
    tiles.

    Parameters
    ----------
    model
        model of signals
    recording
        signals that `whatwhere.data.load` returned, or floats [T], [C, T] or [N, C, T] as a tensor
        or an array. A file of any size, or an array that NumPy maps from a file, is read part by
        part. NaN marks unknown samples
    spec
        how to infer, with one λ for a recording; None means 50 steps with momentum and λ =
        `AutoLam(deviations=4)`, with which hardly any event is noise
    plan
        as in `infer`
    threshold
        the smallest amplitude of an event, in units of the recording, or in standard deviations of
        what its waveform finds in the noise ('4sd'). None: an event must exceed five standard
        deviations of what its waveform finds in the noise, and have a fifth of the recording's
        energy at its place. If waveforms cover the recording, as those of a pulse do, it must
        exceed three deviations of the residual and have half of the energy. In a recording with a
        rhythm, such as that of a heart, the rhythm then decides which of these and of weaker ones
        are events. 0 returns everything that inference found
    tile
        number of samples inferred together, with the overlap
    engine
        as in `infer`
    progress
        called after every tile with the number 1

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> recording = np.random.default_rng(0).normal(size=5000)
    >>> few = ww.InferenceSpec(lam=0.5)
    >>> events = ww.find_events(model, recording, few, threshold=0, tile=1024)
    >>> len(events) > 0, bool((np.diff(events["sample"]) >= 0).all())
    (True, True)
    >>> len(ww.find_events(model, recording, few, tile=1024))     # nothing but noise
    0
    """
    tables = iter_events(
        model,
        recording,
        spec,
        plan,
        threshold=threshold,
        tile=tile,
        engine=engine,
        progress=progress,
    )
    return join_events(list(tables))


def tile_count(model: DeconvNet, signals: Signals) -> int:
    """Return how many tiles `iter_events` reads, for progress."""
    overlap = _SETTINGS.overlap * LayerPlaces.of(model.spec, 1)[-1].reach
    grid = TileGrid.of(model.spec, 1, signals.shape[2], _SETTINGS.tile, overlap)
    return len(signals) * len(grid.tiles) * max(1, len(parts_of(model)))


def noise_of(model: DeconvNet, signals: Signals) -> np.ndarray:
    """Return the standard deviation of what each waveform finds in the noise of the first
    signal, [B].

    Parameters
    ----------
    model
        of signals
    signals
        as `find_events` takes them, loaded

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> noise = np.random.default_rng(0).normal(size=(1, 1, 5000))
    >>> ww.signals.noise_of(model, ww.data.load(noise, signals=True)).shape
    (2,)
    """
    picture = next(pictures_of(signals, model.spec))
    overlap = _SETTINGS.overlap * LayerPlaces.of(model.spec, 1)[-1].reach
    grid = TileGrid.of(model.spec, 1, picture.shape[2], _SETTINGS.tile, overlap)
    return waveform_noise(
        model, picture, grid, _SETTINGS.for_stage(model.spec.input).noise
    ).deviations


def iter_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float | str | None = None,
    tile: int = _SETTINGS.tile,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
    settings: EventSettings = _SETTINGS,
    on_rhythm: Callable[[Rhythm], None] | None = None,
) -> Iterator[Events]:
    """Yield the events of `find_events`, a table for each tile, in memory that does not grow with
    their number.

    With a model of one layer, the tables one after the other are the table of `find_events`; with
    two layers, `parent` is a row in the table of the same tile.
    """
    if not model.spec.for_signals:
        raise ImageError("Got a model of pictures; expected one of signals (ModelSpec.signals).")
    smallest = None if threshold is None else Threshold.of(threshold)
    settings = settings.for_stage(model.spec.input)
    if spec is None:
        spec = settings.inference(InferenceSpec(lam=AutoLam(deviations=settings.lam_deviations)))
    waveforms = model.filters[0][:, :, 0].transpose(0, 1).cpu().double().numpy()
    parts = parts_of(model)
    rate = recording.rate if isinstance(recording, Signals) else None
    for row, picture in enumerate(pictures_of(recording, model.spec)):
        _check_picture(picture, model)
        search = _Search(spec, tuple(plan), smallest, tile, engine, settings, progress, on_rhythm)
        whole = None if parts else search.tables(model, picture)
        for events in whole or [search.of_parts(model, parts, picture)]:
            events["signal"] = row
            if isinstance(recording, Signals) and rate is not None:
                events["seconds"] = recording.start + events["sample"] / rate
            if isinstance(recording, Signals) and model.spec.input.kind != "louder":  # decibels
                events["peak"] *= recording.full_scale
            set_onsets(events, waveforms, rate)
            if model.spec.input.kind in RISES:
                _set_rises(events, picture, model.spec.input)
                if isinstance(recording, Signals) and rate is not None:
                    events["onset_seconds"] = recording.start + events["onset"] / rate
            yield events


def _check_picture(picture: Picture, model: DeconvNet) -> None:
    channels, _, samples = picture.shape
    if channels != model.spec.channels or samples == 0:
        expected = plural(model.spec.channels, "channel")
        raise ImageError(
            f"Got a recording of {plural(channels, 'channel')}, {plural(samples, 'sample')}"
            f" long; expected {expected}, as the model has, and at least one sample."
        )


@dataclass(frozen=True)
class _Search:
    """How the events of a recording are found: the arguments of `iter_events`."""

    spec: InferenceSpec
    plan: tuple[Phase, ...]
    threshold: Threshold | None
    tile: int
    engine: str
    settings: EventSettings
    progress: Callable[[int], None] | None
    on_rhythm: Callable[[Rhythm], None] | None

    def tables(self, model: DeconvNet, picture: Picture) -> Iterator[Events]:
        """Yield the events of a recording, tile by tile."""
        samples = picture.shape[2]
        settings = self.settings
        overlap = settings.overlap * LayerPlaces.of(model.spec, 1)[-1].reach
        grid = TileGrid.of(model.spec, 1, samples, self.tile, overlap)
        limits = limits_of(model, picture, grid, self.spec, self.threshold, settings)
        inferred = infer_latents(model, picture, grid, self.spec, self.plan, engine=self.engine)
        found = map(partial(_candidates_of, model, samples, limits, settings), inferred)
        counted = _counted(found, self.progress)
        return _in_rhythm(counted, model, settings.rhythm, self.on_rhythm)

    def of_parts(self, model: DeconvNet, parts: list[Part], picture: Picture) -> Events:
        """Return the events of a model whose waveforms are local, group by group. Units fire at any
        time, so no rhythm decides."""
        search = replace(self, settings=replace(self.settings, rhythm=None))
        found = []
        for part in parts:
            events = join_events(list(search.tables(part.model, part.of(picture))))
            found.append(part.in_whole(events))
        return without_doubles(join_events(found), model)


def _set_rises(events: Events, picture: Picture, stage: InputSpec) -> None:
    """Set the onsets of rises, in place: where the recording rises most; of those of the loudness,
    where the power changes most nearby."""
    events["onset"] = events["sample"]
    if stage.kind == "louder":
        reach = stage.span // 2
        events["onset"] = [change_of_power(picture, at, reach) for at in events["sample"]]


def _counted(
    tables: Iterator[_TileEvents], progress: Callable[[int], None] | None
) -> Iterator[_TileEvents]:
    """Yield the same tables, and report each."""
    for table in tables:
        yield table
        if progress is not None:
            progress(1)


@dataclass(frozen=True)
class Threshold:
    """The smallest amplitude of an event.

    Parameters
    ----------
    value
        in units of the recording or in deviations
    in_deviations
        whether it is in standard deviations of what its waveform finds in the noise
    """

    value: float
    in_deviations: bool = False

    @classmethod
    def of(cls, given: float | str) -> Threshold:
        """Read a threshold such as 0.8 or '4sd'.

        >>> Threshold.of("4sd"), Threshold.of("0.8")
        (Threshold(value=4.0, in_deviations=True), Threshold(value=0.8, in_deviations=False))
        """
        match = re.fullmatch(r"\s*(\d*\.?\d+(?:e-?\d+)?)\s*(sd)?\s*", str(given).lower())
        require(
            match is not None,
            f"threshold = {given}",
            "an amplitude ≥ 0, in units of the signals, such as 0.8, or in standard deviations of"
            " the noise, such as 4sd",
        )
        assert match is not None
        return cls(float(match[1]), match[2] is not None)


def pictures_of(recording: Any, spec: ModelSpec) -> Iterator[Picture]:
    """Yield each signal of a recording as a picture [C, 1, T]."""
    if hasattr(recording, "as_images"):  # whatwhere.data.Signals
        signals = recording.with_white(spec.input.white)
        yield from (signals.recording(row) for row in range(len(signals)))
        return
    kind = getattr(recording, "dtype", type(recording).__name__)
    shape = list(getattr(recording, "shape", ()))
    if "float" not in str(kind) or not 1 <= len(shape) <= 3:
        raise ImageError(
            f"Got a recording of {kind} and shape {shape}; expected floats [T], [C, T] or [N, C,"
            " T]. whatwhere.data.load(…, signals=True) reads a file and scales integers."
        )
    signals = recording.reshape((1,) * (3 - recording.ndim) + tuple(recording.shape))
    yield from (signal[:, None] for signal in signals)


# What an event must have --------------------------------------------------------------------------


class _BothLimits(NamedTuple):
    """What an event must have, and what a candidate must have that a rhythm may choose; None for
    everything that inference found, or for no candidates."""

    events: Limits | None
    candidates: Limits | None
    quiet: QuietLevels | None = None


def limits_of(
    model: DeconvNet,
    picture: Picture,
    grid: TileGrid,
    spec: InferenceSpec,
    threshold: Threshold | None,
    settings: EventSettings,
) -> _BothLimits:
    """Measure the noise of a recording and return the limits of its events."""
    if threshold is not None and threshold.value == 0:
        return _BothLimits(None, None)
    maps = model.spec.layers[0].maps
    signed = not model.spec.nonnegative
    if threshold is not None and not threshold.in_deviations:
        return _BothLimits(Limits(np.full(maps, threshold.value), 0.0, signed), None)
    noise = waveform_noise(model, picture, grid, settings.noise)
    heights = model.filters[0].abs().amax((0, 2, 3)).cpu().double().numpy()

    def limits(deviations: float, by_lam: float, share: float) -> Limits:
        """Return limits in deviations of the noise; λ is `lam_deviations` of them."""
        amplitude = deviations * noise.deviations
        if not isinstance(spec.lam, AutoLam):
            # λ leaves out what is smaller than 1/λ; training chose it by the size of the events
            amplitude = np.maximum(amplitude, by_lam / settings.lam_deviations / spec.lam)
        amplitude = np.maximum(amplitude, settings.least / heights)
        return Limits(amplitude, share, signed)

    deviations = settings.covered_deviations if noise.covers else settings.deviations
    share = settings.covered_share if noise.covers else settings.share
    if threshold is not None:
        return _BothLimits(Limits(threshold.value * noise.deviations, share, signed), None)
    rhythm = settings.rhythm
    weak = None
    if rhythm is not None and model.spec.depth == 1:
        weak = limits(rhythm.deviations, rhythm.deviations, rhythm.share)
    quiet = noise.quiet if settings.bursts and not noise.covers else None
    return _BothLimits(limits(deviations, settings.deviations, share), weak, quiet)


def chosen_rows(events: Events, taken: np.ndarray) -> Events:
    """Return some rows of a table; parents follow them."""
    # the new row of each old one; the last place is that of -1, which means no parent
    new_row = np.where(taken, np.cumsum(taken) - 1, -1)
    new_row = np.append(new_row, -1)
    events["parent"] = new_row[events["parent"]]
    return events[taken]


class _TileEvents(NamedTuple):
    """The events of a tile, and the candidates that a rhythm may choose; None for none."""

    events: Events
    candidates: Events | None


def _candidates_of(
    model: DeconvNet,
    samples: int,
    limits: _BothLimits,
    settings: EventSettings,
    inferred: InferredTile,
) -> _TileEvents:
    """Return the events that are taken from a tile.

    Parameters
    ----------
    samples
        of the recording
    """
    columns = inferred.window.columns
    sized = model.at(1, columns.stop - columns.start)
    stretch = stretch_of(sized, inferred)
    louder = None if limits.quiet is None else noise_in(stretch, limits.quiet)
    tables = []
    for least in limits[:2] if limits.candidates is not None else limits[:1]:
        events = _tile_events(events_of(sized, inferred.latents), model, stretch, least, settings)
        if louder is not None:
            events = chosen_rows(events, are_louder(events, stretch, least, louder))
        events["sample"] += columns.start
        tables.append(events_of_core(events, model, inferred, samples))
    return _TileEvents(tables[0], tables[1] if len(tables) > 1 else None)


def _tile_events(
    events: Events,
    model: DeconvNet,
    stretch: Stretch,
    least: Limits | None,
    settings: EventSettings,
) -> Events:
    """Return the events of a tile that are large enough, with their amplitudes and what they
    explain."""
    if len(events) == 0:
        return events
    # groups of a second layer need their parts as inference found them
    if least is not None and model.spec.depth == 1:
        events = explain_overlaps(events, stretch, least)
    measure(events, stretch)
    set_peaks(events, stretch.f)
    if least is not None:
        events = chosen_rows(events, are_large(events, stretch, least, settings.visible))
    return events


# Rhythm -------------------------------------------------------------------------------------------


def _in_rhythm(
    tables: Iterator[_TileEvents],
    model: DeconvNet,
    settings: RhythmSettings | None,
    on_rhythm: Callable[[Rhythm], None] | None,
) -> Iterator[Events]:
    """Yield the events of a recording: those that fit its rhythm, if it has one, at the end;
    otherwise tile by tile, once enough of them show that it has none."""
    waiting: list[_TileEvents] = []
    count = 0
    looked_at = 0
    may_have = settings is not None
    for table in tables:
        if not may_have or table.candidates is None or settings is None:
            yield table.events
            continue
        waiting.append(table)
        count += len(table.events)
        if count < max(settings.decided, 2 * looked_at):
            continue
        looked_at = count
        usual = join_events([each.events for each in waiting])
        if _find_usual(usual, model, settings).regular < settings.regular:
            may_have = False
            yield from (each.events for each in waiting)
            waiting = []
    if not waiting or settings is None:
        return
    usual = join_events([each.events for each in waiting])
    found = _find_usual(usual, model, settings)
    if found.regular < settings.regular:
        yield from (each.events for each in waiting)
        return
    chosen = _choose(usual[found.taken], waiting, found.least, model, settings)
    if on_rhythm is not None:
        on_rhythm(_rhythm_of(usual, chosen, model))
    yield chosen


def _find_usual(events: Events, model: DeconvNet, settings: RhythmSettings) -> Usual:
    """Return the events that show a rhythm best."""
    sizes = np.abs(events["amplitude"])
    length = model.spec.layers[0].filter_shape[1]
    return find_usual(events["sample"], events["waveform"], sizes, length, settings)


def _choose(
    usual: Events,
    waiting: list[_TileEvents],
    least: float,
    model: DeconvNet,
    settings: RhythmSettings,
) -> Events:
    """Return the candidates of at least this size that fit the rhythm of the usual events."""
    candidates = join_events([each.candidates for each in waiting if each.candidates is not None])
    candidates = chosen_rows(candidates, np.abs(candidates["amplitude"]) >= least)
    columns = Candidates(
        candidates["sample"], candidates["waveform"], candidates["explained"].clip(0, 1)
    )
    chosen = candidates[choose_in_rhythm(columns, usual["sample"], settings)]
    near = OVERLAPPING * model.spec.layers[0].filter_shape[1]
    chosen["doubtful"] = overlapping(chosen, near)
    return chosen


def _rhythm_of(usual: Events, chosen: Events, model: DeconvNet) -> Rhythm:
    """Count what a rhythm left out and added: events without one of the others near them."""
    near = OVERLAPPING * model.spec.layers[0].filter_shape[1] / 2

    def without(some: np.ndarray, others: np.ndarray) -> int:
        """Count times without one of the others near them."""
        after = np.searchsorted(others, some).clip(0, len(others) - 1)
        before = (after - 1).clip(0)
        distance = np.minimum(np.abs(others[after] - some), np.abs(others[before] - some))
        return int((distance > near).sum())

    times = chosen["sample"]
    left_out = without(usual["sample"], times)
    return Rhythm(float(np.median(np.diff(times))), left_out, without(times, usual["sample"]))


# What an event must have in its tile --------------------------------------------------------------


def are_large(events: Events, stretch: Stretch, least: Limits, visible: float) -> np.ndarray:
    """Tell which events reach the limits. The limits are for layer 1, so all groups do."""
    of_signal = events["layer"] == 1
    number = np.where(of_signal, events["waveform"], 0)
    large = np.abs(events["amplitude"]) >= least.amplitude[number]
    large &= events["explained"] >= least.share
    large &= visible_share(events, stretch) >= visible
    return large | ~of_signal


def noise_in(stretch: Stretch, quiet: QuietLevels) -> np.ndarray | None:
    """Return by how much the noise that each waveform finds around each sample of a tile exceeds
    that of the recording, [B, T]; None for a tile without a burst of noise."""
    v = torch.from_numpy(np.where(stretch.seen > 0, stretch.signal, np.nan)).float()
    louder = quiet.louder(v[:, stretch.frame : v.shape[1] - stretch.frame])
    if louder is None:
        return None
    power = (stretch.f**2).sum(2) * quiet.deviations[:, 0].double().numpy() ** 2  # [B, C]
    share = power / power.sum(1, keepdims=True).clip(1e-300)
    found: np.ndarray = (share @ louder.double().numpy() ** 2) ** 0.5
    return found


def are_louder(
    events: Events, stretch: Stretch, least: Limits | None, louder: np.ndarray
) -> np.ndarray:
    """Tell which events exceed the limits in the noise around them [B, T]."""
    of_signal = events["layer"] == 1
    if least is None:
        return np.ones(len(events), bool)
    number = np.where(of_signal, events["waveform"], 0)
    at = np.rint(events["sample"]).astype(int).clip(0, louder.shape[1] - 1)
    large = np.abs(events["amplitude"]) >= least.amplitude[number] * louder[number, at]
    return large | ~of_signal


def events_of_core(events: Events, model: DeconvNet, inferred: InferredTile, length: int) -> Events:
    """Return the events that are taken from a tile: those whose time is in its core. The first and
    the last tile have more. Overlaps are those of the events that a threshold left."""
    core = inferred.core.in_picture.columns
    near = OVERLAPPING * model.spec.layers[0].filter_shape[1]
    for layer in np.unique(events["layer"]):
        rows = events["layer"] == layer
        events["doubtful"][rows] = overlapping(events[rows], near) & (layer == 1)
    first = -np.inf if core.start == 0 else core.start
    last = np.inf if core.stop == length else core.stop
    return chosen_rows(events, (events["sample"] >= first) & (events["sample"] < last))


# Events on the samples of their tile --------------------------------------------------------------


def stretch_of(sized: SizedModel, inferred: InferredTile) -> Stretch:
    """Return the samples of a tile, and what inference left of them."""
    f = sized.filters[0][:, :, 0].transpose(0, 1).cpu().double().numpy()  # [B, C, K]
    v = inferred.target.v[0, :, 0].cpu().double()
    latents = inferred.latents
    weights = sized.weights(latents.pooling_params)
    fit = sized.descend(latents.features, weights)[0][0, :, 0].cpu().double()
    known = torch.ones_like(v)
    if inferred.target.mask is not None:
        known = (inferred.target.mask[0, :, 0] > 0).cpu().double().expand_as(v)
    frame = f.shape[2]  # waveforms reach beyond the ends
    signal = F.pad(v * known, (frame, frame)).numpy()
    left = F.pad((v - fit) * known, (frame, frame)).numpy()
    seen = F.pad(known, (frame, frame)).numpy()
    return Stretch(f, signal, left, seen, frame)


def places_of(events: Events, stretch: Stretch) -> np.ndarray:
    """Return the samples that the waveform of each event of layer 1 covers, [n, K]."""
    length = stretch.f.shape[2]
    peaks = stretch.peaks[events["waveform"]]
    first = np.rint(events["sample"]).astype(int) - peaks + stretch.frame
    return first.clip(0, stretch.signal.shape[1] - length)[:, None] + np.arange(length)


def visible_share(events: Events, stretch: Stretch) -> np.ndarray:
    """Return how much of the energy of each event's waveform lies on known samples; 1 for
    groups."""
    share = np.ones(len(events))
    waves = np.flatnonzero(events["layer"] == 1)
    seen = stretch.seen[:, places_of(events[waves], stretch)].transpose(1, 0, 2)
    share[waves] = (stretch.f[events["waveform"][waves]] ** 2 * seen).sum((1, 2))
    return share


def measure(events: Events, stretch: Stretch) -> None:
    """Correct the amplitudes of layer 1, which the penalty makes smaller, by what is left of each
    waveform in the residual, and measure the share of the energy that each explains; in place.

    Events that were explained again have both already.
    """
    waves = np.flatnonzero((events["layer"] == 1) & np.isnan(events["explained"]))
    number = events["waveform"][waves]
    place = places_of(events[waves], stretch)
    seen = stretch.seen[:, place].transpose(1, 0, 2)  # [n, C, K], as all that follow
    left = stretch.left[:, place].transpose(1, 0, 2)
    signal = stretch.signal[:, place].transpose(1, 0, 2)

    # what is left of a waveform has the sign of its event; another sign is another event's
    shape = stretch.f[number] * seen
    energy = (shape**2).sum((1, 2)).clip(1e-12)
    missing = (shape * left).sum((1, 2)) / energy
    amplitude = events["amplitude"][waves]
    corrected = amplitude + np.where(missing * amplitude > 0, missing, 0)
    events["amplitude"][waves] = corrected

    # only where the waveform is: what is beside it is no evidence against it
    around = (signal**2 * stretch.covered[number]).sum((1, 2))
    share = corrected**2 * energy / around.clip(1e-30)
    events["explained"][waves] = share.clip(0, 1)
