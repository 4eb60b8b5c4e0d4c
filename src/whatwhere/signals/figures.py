"""Figures of a recording: its waveforms as curves, the recording with its events and the residual,
a raster, amplitudes and intervals; all in the recording's units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from whatwhere.data.gaps import long_gaps
from whatwhere.errors import SpecError, plural
from whatwhere.figures import style
from whatwhere.figures.composite import cost
from whatwhere.figures.run_figures import Section, report
from whatwhere.learning import TrainedRun
from whatwhere.model import DeconvNet
from whatwhere.model.events import Events
from whatwhere.progress import Stage, no_stage
from whatwhere.signals.find import EventSettings, find_events
from whatwhere.signals.recording import Signals, known_samples


@dataclass(frozen=True)
class FigureSettings:
    """How much of a recording is drawn.

    Parameters
    ----------
    shown
        events in the stretch of a recording that is drawn
    longest
        the longest such stretch, in lengths of a waveform
    rates
        parts of a recording in which events are counted, at most
    counted
        events of a waveform in such a part, on average, at least
    channels
        that are drawn, at most
    bins
        of a histogram
    wide
        intervals of this many times the shortest one get a logarithmic axis
    decades
        intervals of this many times the shortest one get powers of ten alone
    lags
        reach of an autocorrelogram, in usual intervals between events
    """

    shown: int = 16
    longest: int = 60
    rates: int = 40
    counted: int = 10
    channels: int = 8
    bins: int = 30
    wide: float = 10.0
    decades: float = 200.0
    lags: float = 4.5


_SETTINGS = FigureSettings()


def colour_of(waveform: int) -> str:
    return style.CURVES[waveform % len(style.CURVES)]


def label_of(signals: Signals, name: str = "value") -> str:
    """Return the label of an axis, with the unit of the recording; files may write uV for µV."""
    if not signals.unit:
        return name
    unit = re.sub(r"^u(?=[VA])", "µ", signals.unit)
    return f"{name} ({unit})"


def times_of(samples: np.ndarray, signals: Signals) -> np.ndarray:
    """Seconds where the rate is known, samples otherwise."""
    if signals.rate is None:
        return samples
    seconds: np.ndarray = signals.start + samples / signals.rate
    return seconds


def marker_of(waveform: int) -> str:
    return style.MARKERS[waveform % len(style.MARKERS)]


def axis_of(signals: Signals) -> str:
    return "samples" if signals.rate is None else "seconds"


@style.styled
def waveforms(model: DeconvNet, signals: Signals, events: Events) -> Figure:
    """Draw every waveform as a curve in each channel, as large as its median event.

    Parameters
    ----------
    model
        model of the waveforms
    signals
        the recording, for its units
    events
        events of the recording
    """
    f = model.filters[0][:, :, 0].cpu().numpy()  # [C, B, K]
    channels = min(f.shape[0], _SETTINGS.channels)
    count = f.shape[1]
    height = 0.9 + 0.75 * channels
    figure = Figure(figsize=(min(style.PAGE, 1.2 + 1.5 * count), height), layout="constrained")
    panels = figure.subplots(channels, count, squeeze=False, sharey=True, sharex=True)
    unit = "samples"
    scale = 1.0
    if signals.rate is not None:
        unit = "ms"
        scale = 1000 / signals.rate
    for number in range(count):
        own = events[events["waveform"] == number]
        size = float(np.median(own["amplitude"])) if len(own) else 0.0
        peak = int(np.abs(f[:, number]).max(0).argmax())
        place = (np.arange(f.shape[2]) - peak) * scale
        for channel in range(channels):
            axes = panels[channel, number]
            axes.axvline(0, color=style.RULE, linewidth=0.6)
            axes.plot(place, size * f[channel, number], color=colour_of(number))
        title = f"waveform {number}\n{plural(len(own), 'event')}"
        if signals.rate is not None:
            title += f", {len(own) * signals.rate / signals.shape[2]:.3g}/s"
        panels[0, number].set_title(title)
        panels[-1, number].set_xlabel(unit)
    for channel in range(channels):
        name = label_of(signals)
        if signals.channel_names is not None:
            name = f"{signals.channel_names[channel]}\n{name}"
        elif f.shape[0] > 1:
            name = f"channel {channel}\n{name}"
        panels[channel, 0].set_ylabel(name)
    return figure


@style.styled
def recording(model: DeconvNet, signals: Signals, events: Events, stretch: slice) -> Figure:
    """Draw a stretch of a recording, each channel as it was recorded and, below, without the
    baseline, which may hide events; and the residual. Events are marked at their peaks, in the
    channel that has it.

    Parameters
    ----------
    stretch
        the samples that are drawn
    """
    x = signals.recording(0)[:, :, stretch][: _SETTINGS.channels, 0].numpy()
    channels = len(x)
    flat = x - slow_part(model, signals, stretch)[:channels]
    residual = flat - fitted(model, signals, events, stretch)[:channels]
    has_baseline = model.spec.input.kind == "baseline"
    rows = channels * (1 + has_baseline) + 1
    figure = Figure(figsize=(style.PAGE, 1.0 + 0.8 * rows), layout="constrained")
    panels = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    at = times_of(np.arange(stretch.start, stretch.stop), signals)
    inside = events[(events["sample"] >= stretch.start) & (events["sample"] < stretch.stop)]

    for channel in range(channels):
        if has_baseline:
            recorded = panels[2 * channel]
            recorded.plot(at, x[channel], color=style.GREY, linewidth=0.7)
            mark_events(recorded, inside, channel, x, signals, stretch.start)
            recorded.set_ylabel("recorded")
        axes = panels[(1 + has_baseline) * channel + has_baseline]
        axes.plot(at, flat[channel], color=style.GREY, linewidth=0.7)
        mark_events(axes, inside, channel, flat, signals, stretch.start)
        axes.set_ylabel(channel_label(signals, channel, model.spec.channels))
        panels[-1].plot(at, residual[channel], color=style.GREY, linewidth=0.5)
    largest = np.nanmax(np.abs(flat))
    panels[-1].set_ylim(-largest, largest)
    panels[-1].set_ylabel(label_of(signals, "residual"))
    panels[-1].set_xlabel(axis_of(signals))
    add_legend(figure, np.unique(inside["waveform"]))
    return figure


def add_legend(figure: Figure, waveforms: np.ndarray) -> None:
    """Draw the marks of some waveforms above the panels."""
    marks = [
        Line2D(
            [],
            [],
            linestyle="none",
            markersize=4,
            color=colour_of(number),
            marker=marker_of(number),
        )
        for number in waveforms
    ]
    names = [f"waveform {number}" for number in waveforms]
    figure.legend(marks, names, loc="outside upper right", ncols=max(1, len(names)))


def channel_label(signals: Signals, channel: int, channels: int) -> str:
    if signals.channel_names is not None:
        return f"{signals.channel_names[channel]}\n{label_of(signals)}"
    return f"channel {channel}" if channels > 1 else label_of(signals)


def mark_events(
    axes: Axes, events: Events, channel: int, x: np.ndarray, signals: Signals, first: int
) -> None:
    """Draw a mark at the peak of each event, in the channel where it has its peak; doubtful ones
    are open."""
    for number in np.unique(events["waveform"]):
        own = events[(events["waveform"] == number) & (events["channel"] == channel)]
        place = np.rint(own["sample"]).astype(int) - first
        place = place.clip(0, x.shape[1] - 1)
        doubtful = own["doubtful"]
        for chosen, face in ((~doubtful, colour_of(number)), (doubtful, "none")):
            axes.scatter(
                times_of(own["sample"][chosen], signals),
                x[channel, place[chosen]],
                s=14,
                marker=marker_of(number),
                edgecolors=colour_of(number),
                facecolors=face,
                linewidths=0.8,
                zorder=3,
            )


def fitted(model: DeconvNet, signals: Signals, events: Events, stretch: slice) -> np.ndarray:
    """Return the sum of the events' waveforms in a stretch, [C, T]."""
    f = model.filters[0][:, :, 0].cpu().double().numpy()
    channels, _, length = f.shape
    total = np.zeros((channels, stretch.stop - stretch.start + 2 * length))
    peaks = np.abs(f).max(0).argmax(1)
    for event in events:
        first = event["sample"] - peaks[event["waveform"]] - stretch.start + length
        whole = int(np.floor(first))
        if not 0 <= whole < total.shape[1] - length - 1:
            continue
        shape = event["amplitude"] * f[:, event["waveform"]]
        part = first - whole
        total[:, whole : whole + length] += (1 - part) * shape
        total[:, whole + 1 : whole + 1 + length] += part * shape
    return total[:, length:-length]


def slow_part(model: DeconvNet, signals: Signals, stretch: slice) -> np.ndarray:
    """Return what the input stage subtracts from a stretch, [C, T]."""
    reach = model.input_stage.reach
    begin = max(0, stretch.start - reach)
    x = signals.recording(0)[:, :, begin : stretch.stop + reach][None]
    known = ~x.isnan()
    _, background = model.input_stage.forward(x.nan_to_num(0), known.float())
    if background.low is None:
        return np.zeros((x.shape[1], stretch.stop - stretch.start))
    first = stretch.start - begin
    low = background.low[0, :, 0, first : first + stretch.stop - stretch.start]
    return low.cpu().double().numpy()


@style.styled
def raster(model: DeconvNet, signals: Signals, events: Events) -> Figure:
    """Draw a line for every event, a row for every waveform, over all of the recording; gaps longer
    than a waveform are grey."""
    waveform_count = model.spec.layers[0].maps
    longest = model.spec.layers[0].filter_shape[1]
    height = 0.7 + 0.25 * waveform_count
    figure = Figure(figsize=(style.PAGE, height), layout="constrained")
    axes = figure.subplots()
    rows = [
        times_of(events["sample"][events["waveform"] == number], signals)
        for number in range(waveform_count)
    ]
    colours = [colour_of(number) for number in range(waveform_count)]
    places = list(range(waveform_count))
    axes.eventplot(rows, lineoffsets=places, colors=colours, linelengths=0.8, linewidths=0.5)
    for gap in long_gaps(known_samples(signals, 0), longest):
        first, last = times_of(np.array([gap.start, gap.stop]), signals)
        axes.axvspan(first, last, color=style.RULE, linewidth=0.5)  # a short one stays visible
    axes.set_ylim(-0.6, waveform_count - 0.4)
    axes.set_yticks(range(waveform_count))
    axes.set_ylabel("waveform")
    axes.set_xlabel(axis_of(signals))
    return figure


@style.styled
def distributions(model: DeconvNet, signals: Signals, events: Events) -> Figure:
    """Draw, by waveform: the heights of the peaks over time and as a histogram, and the rates; the
    intervals between events, of all and of each waveform; and autocorrelograms."""
    figure = Figure(figsize=(style.PAGE, 4.4), layout="constrained")
    (sizes, heights, rates), (all_intervals, intervals, correlogram) = figure.subplots(2, 3)
    waveforms = model.spec.layers[0].maps
    parts = min(_SETTINGS.rates, max(1, len(events) // (_SETTINGS.counted * waveforms)))
    edges = times_of(np.linspace(0, signals.shape[2], parts + 1), signals)
    width = edges[1] - edges[0]
    peaks = np.abs(events["peak"])
    known = peaks[np.isfinite(peaks)]
    bins = np.linspace(0, known.max() if len(known) else 1.0, _SETTINGS.bins)
    times = []
    for number in range(waveforms):
        own = events["waveform"] == number
        at = times_of(events["sample"][own], signals)
        colour = colour_of(number)
        sizes.scatter(at, peaks[own], s=5, color=colour, marker=marker_of(number), linewidths=0)
        heights.hist(peaks[own], bins.tolist(), histtype="step", color=colour)
        counts, _ = np.histogram(at, edges)
        rates.stairs(counts / width, edges, baseline=None, color=colour)
        times.append(at)
    sizes.set_title("sizes")
    sizes.set_ylabel(label_of(signals, "peak"))
    heights.set_title("amplitudes")
    heights.set_xlabel(label_of(signals, "peak"))
    heights.set_ylabel("events")
    rates.set_title("rates")
    rates.set_ylabel("events per second" if signals.rate else "events per sample")
    for axes in (sizes, rates):
        axes.set_xlabel(axis_of(signals))
        axes.set_ylim(0, None)
    every = times_of(np.sort(events["sample"]), signals)
    draw_intervals(all_intervals, [np.diff(every)], ["all events"])
    draw_intervals(intervals, [np.diff(at) for at in times])
    all_intervals.set_title("intervals of all events")
    intervals.set_title("intervals by waveform")
    for axes in (all_intervals, intervals):
        axes.set_ylabel("events")
        axes.set_xlabel(axis_of(signals))
    draw_correlograms(correlogram, times)
    correlogram.set_xlabel(axis_of(signals))
    return figure


def draw_correlograms(axes: Axes, times: list[np.ndarray]) -> None:
    """Draw how often events of a waveform follow each other at each distance, by waveform."""
    axes.set_title("autocorrelograms")
    axes.set_ylabel("pairs")
    usual = [float(np.median(np.diff(at))) for at in times if len(at) > 2]
    if not usual or min(usual) <= 0:
        return
    reach = _SETTINGS.lags * min(usual)
    edges = np.linspace(0, reach, 2 * _SETTINGS.bins)
    for number, at in enumerate(times):
        lags = []
        for later in range(1, len(at)):
            distance = at[later:] - at[:-later]
            if not (distance < reach).any():
                break
            lags.append(distance[distance < reach])
        if lags:
            counts, _ = np.histogram(np.concatenate(lags), edges)
            axes.stairs(counts, edges, color=colour_of(number))
    axes.set_xlim(0, reach)


def draw_intervals(axes: Axes, intervals: list[np.ndarray], names: list[str] | None = None) -> None:
    """Draw a histogram of some intervals each; on a logarithmic axis if they differ much.

    Parameters
    ----------
    names
        of each; None for those of the waveforms
    """
    axes.set_title("intervals")
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    known = np.concatenate([np.empty(0), *intervals])
    known = known[known > 0]
    if len(known) < 2:
        return
    edges = np.linspace(known.min(), known.max() * 1.001, _SETTINGS.bins)
    if known.max() > _SETTINGS.wide * known.min():
        edges = np.geomspace(known.min(), known.max() * 1.001, _SETTINGS.bins)
        axes.set_xscale("log")
        # over few decades, powers of ten alone would give one or two labels
        few_decades = known.max() < _SETTINGS.decades * known.min()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    for number, own in enumerate(intervals):
        if len(own):
            axes.hist(
                own,
                edges.tolist(),
                histtype="step",
                color=colour_of(number),
                label=names[number] if names else f"waveform {number}",
            )
    if names is None:
        axes.legend()


@dataclass
class RecordingFigures:
    """Draw the figures of a run that learned from a recording. Without a table of its events, they
    are found when a figure first needs them.

    Parameters
    ----------
    run
        the run that is drawn
    signals
        the recording; if it has several signals, the first is drawn
    table
        its events, as `find_events` returned them or `whatwhere events` wrote them; None finds them
    engine
        engine of the inference
    stage
        shows the progress of a slow part, as in `RunFigures`

    Examples
    --------
    >>> recording = ww.data.load(np.random.default_rng(0).normal(size=3000), signals=True)
    >>> short = {"inference": {"steps": 2}, "learning": {"each": {"epochs": 1}}}
    >>> run = ww.train(recording, ww.override(ww.read_recipe("signals"), short))
    >>> "waveforms" in ww.signals.RecordingFigures(run, recording).names
    True
    """

    run: TrainedRun
    signals: Signals
    table: Events | None = None
    engine: str = "auto"
    stage: Stage = no_stage

    @cached_property
    def events(self) -> Events:
        """The events of the first signal."""
        if self.table is not None:
            return self.table[(self.table["layer"] == 1) & (self.table["signal"] == 0)]
        first = self.signals if len(self.signals) == 1 else self.signals.subset([0])
        spec = EventSettings().inference(self.run.recipe.inference)
        with self.stage(f"finding events of {self.signals.name}", 1) as advance:
            found = find_events(self.run.model, first, spec, engine=self.engine)
            advance(1)
        return found[found["layer"] == 1]

    @cached_property
    def _figures(self) -> dict[str, Callable[[], Section]]:
        drawn = {
            "waveforms": self._waveforms,
            "recording": self._recording,
            "raster": self._raster,
            "distributions": self._distributions,
        }
        if self.run.history:
            drawn["cost-1"] = self._cost
        return drawn

    @property
    def names(self) -> list[str]:
        """The names of the figures of this run."""
        return list(self._figures)

    def check(self, name: str) -> None:
        """Raise an error for a figure that this run does not have."""
        if name not in self._figures:
            raise SpecError(
                f"Unknown figure {name!r} of {self.run.name}. Expected one of"
                f" {', '.join(self.names)}."
            )

    def draw(self, name: str) -> Section:
        """Return one figure by name, with its heading and explanation."""
        self.check(name)
        with torch.no_grad():
            return self._figures[name]()

    def report(self, drawn: Mapping[str, Section]) -> str:
        """Return the HTML report of the run."""
        spec = self.run.model.spec
        stage = spec.input
        facts = {
            "recording": self.signals.name,
            "waveforms": f"{spec.layers[0].maps}, each of {spec.layers[0].filter_shape[1]} samples",
            "events": (
                f"{len(self.events):,} ({self.events['doubtful'].sum():,} overlap another event)"
            ),
        }
        length = self.signals.shape[2]
        facts["length"] = plural(length, "sample")
        if self.signals.rate is not None:
            facts["length"] += f", {length / self.signals.rate:.4g} s"
            facts["rate"] = f"{self.signals.rate:g} samples per second"
        gaps = long_gaps(known_samples(self.signals, 0), spec.layers[0].filter_shape[1])
        if gaps:
            facts["gaps"] = f"{len(gaps):,} longer than a waveform; events there are unknown"
        if stage.kind == "baseline":
            facts["subtracted"] = f"a running median of {stage.span} samples"
            if stage.hum and self.signals.rate is not None:
                facts["subtracted"] += f", and {stage.hum * self.signals.rate:.2f} Hz"
        lead = "Which waveforms occur in this recording, when, and how strongly."
        return report(f"Recording report: {self.run.name}", list(drawn.values()), lead, facts)

    def stretch(self) -> slice:
        """Return the samples that are drawn: some events, or as many as there are in a stretch of
        the longest length, as near to the middle of the recording as possible."""
        length = self.run.model.spec.layers[0].filter_shape[1]
        most = _SETTINGS.longest * length
        samples = self.events["sample"]
        # how many events begin within a stretch from each event on
        counts = np.searchsorted(samples, samples + most - 2 * length) - np.arange(len(samples))
        begin = 0
        end = most
        if len(samples):
            counts = counts.clip(max=_SETTINGS.shown)
            most_events = np.flatnonzero(counts == counts.max())
            middle = (len(samples) - _SETTINGS.shown) // 2
            first = int(most_events[np.abs(most_events - middle).argmin()])
            last = first + counts[first] - 1
            begin = max(0, int(samples[first]) - length)
            end = int(samples[last]) + length
        return slice(begin, min(self.signals.shape[2], end))

    def _waveforms(self) -> Section:
        return Section(
            "Waveforms",
            "Each waveform in each channel, scaled to the amplitude of its median event. The line"
            " marks its peak, which is the time of an event.",
            waveforms(self.run.model, self.signals, self.events),
        )

    def _recording(self) -> Section:
        return Section(
            "Recording and events",
            "A part of the recording with many events: each channel as recorded and without the"
            " baseline, and the residual without the events. Each mark is an event, at the peak of"
            " its waveform; its colour and shape show the waveform. Open marks are events that"
            " overlap another one.",
            recording(self.run.model, self.signals, self.events, self.stretch()),
        )

    def _raster(self) -> Section:
        return Section(
            "Raster",
            "All events over time, one row for each waveform. Grey: gaps longer than a waveform.",
            raster(self.run.model, self.signals, self.events),
        )

    def _distributions(self) -> Section:
        return Section(
            "Amplitudes, rates and intervals",
            "The size of every event at the peak of its waveform over time and as a histogram, and"
            " how often each waveform occurs. Below: the intervals between events, of all"
            " waveforms together and of each, and how often events of one waveform follow each"
            " other at each distance. A gap near 0 is the refractory period.",
            distributions(self.run.model, self.signals, self.events),
        )

    def _cost(self) -> Section:
        return Section(
            "Cost over the training",
            "Per window, after the inference of each epoch.",
            cost({self.run.name: [epoch.table() for epoch in self.run.history]}, 1),
        )
