"""Events of recordings of any length: tile by tile, in memory that does not grow with the
recording.

A threshold can be given, in units of the recording or in deviations. By default an event must
exceed some standard deviations of what its waveform finds in the recording's noise, and hold a
share of the recording's energy where it lies: an event with less is a correction of a larger one,
whose shape varies. `EventSettings` has the limits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.errors import ImageError, plural
from whatwhere.inference.tiled import InferredTile, Picture, TileGrid, infer_latents
from whatwhere.model import DeconvNet
from whatwhere.model.events import OVERLAP as OVERLAPPING
from whatwhere.model.events import Events, events_of, join_events, overlapping, set_peaks
from whatwhere.model.sized import LayerPlaces, SizedModel
from whatwhere.signals.noise import waveform_noise
from whatwhere.signals.overlaps import Limits, Stretch, explain_overlaps
from whatwhere.signals.recording import Signals
from whatwhere.spec import AutoLam, InferenceSpec, LineSearch, ModelSpec, Phase
from whatwhere.spec.checks import require


@dataclass(frozen=True)
class EventSettings:
    """How events are inferred, and what an event must have.

    tile                samples of a tile
    overlap             tiles share the samples of this many waveforms
    steps               of inference, in each tile. Amplitudes are measured again and overlaps are
                        explained again, so codes need not be converged: with 20 to 1,000 steps, the
                        events of tetrodes are the same but for one in 300
    lam_deviations      standard deviations of the noise, which sets λ
    deviations          of the noise that an event exceeds: of a million places with nothing but
                        white noise, 0.3 do
    share               of the recording's energy where the event lies
    covered_deviations  the same where waveforms cover a recording, as those of a pulse do: its
                        noise is how far beats differ from each other
    covered_share       the same where waveforms cover a recording
    visible             share of a waveform's energy on known samples: with less, at an end or a
                        gap, an event is a guess
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

    def inference(self, spec: InferenceSpec) -> InferenceSpec:
        """The same inference with these steps, whether or not codes converge."""
        momentum = LineSearch(momentum=True)
        return replace(spec, step=momentum, steps=self.steps, tolerance=0.0, gap=0.0)


_SETTINGS = EventSettings()


# Tile by tile -------------------------------------------------------------------------------------


def find_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float | None = None,
    tile: int = _SETTINGS.tile,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> Events:
    """The events of recordings of any length, which are read and inferred in overlapping tiles.

    model      model of signals
    recording  signals that `whatwhere.data.load` returned, or floats [T], [C, T] or [N, C, T] as a
               tensor or an array. A file of any size, or an array that NumPy maps from a file, is
               read part by part. NaN marks unknown samples
    spec       how to infer, with one λ for a recording; None means 50 steps with momentum and
               λ = `AutoLam(deviations=4)`, with which hardly any event is noise
    plan       as in `infer`
    threshold  the smallest amplitude of an event, in units of the recording. None: an event must
               exceed five standard deviations of what its waveform finds in the noise, and have a
               fifth of the recording's energy at its place. If waveforms cover the recording, as
               those of a pulse do, it must exceed three deviations of the residual and have half of
               the energy. 0 returns everything that inference found
    tile       number of samples inferred together, with the overlap
    engine     as in `infer`
    progress   called after every tile with the number 1

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
    """How many tiles `iter_events` reads, for progress."""
    overlap = _SETTINGS.overlap * LayerPlaces.of(model.spec, 1)[-1].reach
    grid = TileGrid.of(model.spec, 1, signals.shape[2], _SETTINGS.tile, overlap)
    return len(signals) * len(grid.tiles)


def iter_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float | None = None,
    tile: int = _SETTINGS.tile,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
    settings: EventSettings = _SETTINGS,
) -> Iterator[Events]:
    """The events of `find_events`, a table for each tile, in memory that does not grow with their
    number.

    With a model of one layer, the tables one after the other are the table of `find_events`; with
    two layers, `parent` is a row in the table of the same tile.
    """
    if not model.spec.for_signals:
        raise ImageError("Got a model of pictures; expected one of signals (ModelSpec.signals).")
    require(
        threshold is None or threshold >= 0,
        f"threshold = {threshold}",
        "an amplitude ≥ 0, in units of the signals, or None",
    )
    if spec is None:
        spec = settings.inference(InferenceSpec(lam=AutoLam(deviations=settings.lam_deviations)))
    overlap = settings.overlap * LayerPlaces.of(model.spec, 1)[-1].reach
    for row, picture in enumerate(pictures_of(recording, model.spec)):
        channels, _, samples = picture.shape
        if channels != model.spec.channels or samples == 0:
            expected = plural(model.spec.channels, "channel")
            raise ImageError(
                f"Got a recording of {plural(channels, 'channel')}, {plural(samples, 'sample')}"
                f" long; expected {expected}, as the model has, and at least one sample."
            )
        grid = TileGrid.of(model.spec, 1, samples, tile, overlap)
        least = least_amplitudes(model, picture, grid, spec, threshold, settings)
        for inferred in infer_latents(model, picture, grid, spec, plan, engine=engine):
            events = tile_events(model, inferred, least, settings.visible)
            events = events_of_core(events, model, inferred, samples)
            events["signal"] = row
            if isinstance(recording, Signals) and recording.rate is not None:
                events["seconds"] = recording.start + events["sample"] / recording.rate
            yield events
            if progress is not None:
                progress(1)


def pictures_of(recording: Any, spec: ModelSpec) -> Iterator[Picture]:
    """Each signal of a recording as a picture [C, 1, T]."""
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


def least_amplitudes(
    model: DeconvNet,
    picture: Picture,
    grid: TileGrid,
    spec: InferenceSpec,
    threshold: float | None,
    settings: EventSettings,
) -> Limits | None:
    """The smallest amplitudes of events; None for everything that inference found."""
    if threshold == 0:
        return None
    maps = model.spec.layers[0].maps
    signed = not model.spec.nonnegative
    if threshold is not None:
        return Limits(np.full(maps, threshold), 0.0, signed)
    noise = waveform_noise(model, picture, grid)
    deviations = settings.deviations
    share = settings.share
    if noise.covers:
        deviations = settings.covered_deviations
        share = settings.covered_share
    amplitude = deviations * noise.deviations
    if not isinstance(spec.lam, AutoLam):
        # λ leaves out what is smaller than 1/λ; training chose it by the size of the events
        smallest = settings.deviations / settings.lam_deviations / spec.lam
        amplitude = np.maximum(amplitude, smallest)
    return Limits(amplitude, share, signed)


def chosen_rows(events: Events, taken: np.ndarray) -> Events:
    """Some rows of a table; parents follow them."""
    # the new row of each old one; the last place is that of -1, which means no parent
    new_row = np.where(taken, np.cumsum(taken) - 1, -1)
    new_row = np.append(new_row, -1)
    events["parent"] = new_row[events["parent"]]
    return events[taken]


def tile_events(
    model: DeconvNet, inferred: InferredTile, least: Limits | None, visible: float
) -> Events:
    """The events of a tile that are large enough, with their amplitudes and what they explain."""
    columns = inferred.window.columns
    sized = model.at(1, columns.stop - columns.start)
    events = events_of(sized, inferred.latents)
    if len(events) == 0:
        return events
    stretch = stretch_of(sized, inferred)
    # groups of a second layer need their parts as inference found them
    if least is not None and model.spec.depth == 1:
        events = explain_overlaps(events, stretch, least)
    measure(events, stretch)
    set_peaks(events, stretch.f)
    if least is not None:
        events = chosen_rows(events, are_large(events, stretch, least, visible))
    events["sample"] += columns.start
    return events


def are_large(events: Events, stretch: Stretch, least: Limits, visible: float) -> np.ndarray:
    """Tell which events reach the limits. The limits are for layer 1, so all groups do."""
    of_signal = events["layer"] == 1
    number = np.where(of_signal, events["waveform"], 0)
    large = np.abs(events["amplitude"]) >= least.amplitude[number]
    large &= events["explained"] >= least.share
    large &= visible_share(events, stretch) >= visible
    return large | ~of_signal


def events_of_core(events: Events, model: DeconvNet, inferred: InferredTile, length: int) -> Events:
    """The events that are taken from a tile: those whose time is in its core. The first and the
    last tile have more. Overlaps are those of the events that a threshold left."""
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
    """The samples of a tile, and what inference left of them."""
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
    """The samples that the waveform of each event of layer 1 covers, [n, K]."""
    length = stretch.f.shape[2]
    peaks = stretch.peaks[events["waveform"]]
    first = np.rint(events["sample"]).astype(int) - peaks + stretch.frame
    return first.clip(0, stretch.signal.shape[1] - length)[:, None] + np.arange(length)


def visible_share(events: Events, stretch: Stretch) -> np.ndarray:
    """How much of the energy of each event's waveform lies on known samples; 1 for groups."""
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
