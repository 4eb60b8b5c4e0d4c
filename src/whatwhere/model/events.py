"""Events: which waveform occurs when in a signal, and how strongly; read off the latents.

A feature p(j) with the weights w of its region puts the coefficients p(j) w(i) on the samples i of
the map z. To first order, a waveform with these coefficients is one waveform of

    amplitude  a = p Σ w(i)        time  t = Σ w(i) i / Σ w(i)        width  s,  s² = Σ w(i) (i -
               t)² / Σ w(i)

so t has a fraction of a sample, by μ and γ together: μ alone is not the mean of i, since elements
have only so many places, and a large γ leaves one of them. Regions next to each other share an
event that lies between them: features of one map and sign that are no farther apart than a region
is long, and at least NEAREST elements, are one event, whose a, t and s are those of all
coefficients.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from whatwhere.errors import ImageError
from whatwhere.latents import Latents
from whatwhere.model.sized import LayerPlaces, SizedModel
from whatwhere.ops.pooling import Weights
from whatwhere.spec import ModelSpec
from whatwhere.spec.checks import require

NEAREST = 1.5  # elements of z: without pooling, coefficients next to each other
OVERLAP = 0.5  # of a waveform's length: events that are nearer to each other are doubtful
FIELDS = [
    ("signal", np.int64),
    ("layer", np.int64),
    ("waveform", np.int64),
    ("sample", np.float64),
    ("seconds", np.float64),
    ("amplitude", np.float64),
    ("channel", np.int64),
    ("explained", np.float64),
    ("doubtful", np.bool_),
    ("width", np.float64),
    ("parent", np.int64),
]
OLD_NAMES = {"feature": "waveform", "time": "sample"}
"""Columns by the names that they had before version 0.2, which `events[name]` still knows."""

FORMATS = {"sample": "%.4f", "seconds": "%.6f"}  # of a long recording they have more digits


class Events(np.ndarray):
    """Events of signals, a structured array with a row for each, sorted by signal, layer (the top
    one first) and time.

    signal     number of the signal
    layer      1: a waveform of the signal; 2: a group of layer 1's features
    waveform   its number
    sample     of the waveform's peak, its largest value, with a fraction; of a group, its centre
    seconds    the same in seconds; NaN where the rate is not known
    amplitude  what the waveform, of unit length, is multiplied by, in units of the signal after
               the model's input stage
    channel    in which the waveform has its peak
    explained  energy of the event as a share of the recording's energy where it lies; NaN where
               only the latents are known
    doubtful   whether another event is nearer than half a waveform: they overlap
    width      standard deviation of the event's coefficients, in samples: 0 for one that lies on
               one sample
    parent     number of the row of the event one layer up that contributes most; -1 if there is
               none

    `Events.of` makes one; `shape`, `dtype`, `buffer`, `offset`, `strides` and `order` are those of
    any array. `events["feature"]` and `events["time"]`, the names of columns before, give
    `waveform` and `sample`.

    >>> events = Events.of([(0, 1, 3, 120.25, 0.48, 2.0, 0, 0.9, False, 0.4, -1)])
    >>> events["sample"], events[events["amplitude"] > 1].shape
    (array([120.25]), (1,))
    """

    def __getitem__(self, rows: Any) -> Any:
        """Some rows as a table, or a column, by its name, as an array."""
        if isinstance(rows, str):
            return super().__getitem__(OLD_NAMES.get(rows, rows)).view(np.ndarray)
        return super().__getitem__(rows)

    @classmethod
    def of(cls, rows: Any) -> "Events":
        """A table of rows, tuples or another structured array."""
        return np.array(rows, FIELDS).view(cls)

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame({name: np.asarray(self[name]) for name, _ in FIELDS})

    def to_csv(self, file: Any, *, header: bool = True) -> None:
        """Write a line for each event, after one with the names of the columns, to a path or an
        open file.

        header  write the line with the names; without it, a table is continued
        """
        columns = [name for name, _ in FIELDS]
        if len(self) and np.isnan(self["seconds"]).all():
            columns.remove("seconds")
        kinds = dict(FIELDS)
        formats = []
        for name in columns:
            usual = "%.6g" if kinds[name] == np.float64 else "%d"
            formats.append(FORMATS.get(name, usual))
        names = ",".join(columns) if header else ""
        table = np.asarray(self)[columns]
        np.savetxt(file, table, fmt=formats, delimiter=",", header=names, comments="")

    def to_mne(self) -> Any:
        """The events as `mne.Annotations`: onset, no duration, 'waveform 3' as the description.

        Their onsets are seconds since the first sample, if the recording starts at 0.
        """
        import mne

        if len(self) and np.isnan(self["seconds"]).any():
            raise ImageError(
                "Annotations need times, but these events have no seconds. Give the rate of the"
                " recording: ww.data.load(…, rate=…)."
            )
        names = [f"waveform {number}" for number in self["waveform"]]
        return mne.Annotations(self["seconds"], np.zeros(len(self)), names)


def events_of(sized: SizedModel, latents: Latents, threshold: float = 0.0) -> Events:
    """The events of signals from their latents; those with an amplitude below the threshold are
    left out.

    sized      the model at the signals' length
    latents    as `infer` returned them
    threshold  in units of the signals, ≥ 0
    """
    require(
        math.isfinite(threshold) and threshold >= 0,
        f"threshold = {threshold}",
        "an amplitude ≥ 0, in units of the signals",
    )
    if not sized.spec.for_signals or sized.height != 1:
        raise ImageError(
            "A model of pictures has no events; expected a model of signals (ModelSpec.signals)."
        )
    weights = sized.weights(latents.pooling_params)
    stages = sized.descend(latents.features, weights, to=1)
    tables: list[Events] = []
    for k in range(len(weights), 0, -1):
        table = _layer_events(sized.spec, k, stages[k - 1], weights[k - 1], threshold)
        if tables:
            before = sum(map(len, tables[:-1]))
            table["parent"] = _parents(sized, k, table, tables[-1], before)
        tables.append(table)
    centres_to_peaks(tables[-1], sized)
    return _sorted(tables)


def centres_to_peaks(events: Events, sized: SizedModel) -> None:
    """Move the times of layer 1 from the centres of the filters to the peaks of the waveforms, and
    name their channels and overlaps, in place."""
    f = sized.filters[0][:, :, 0].cpu().double().numpy()  # [C, B, K]
    _, maps, length = f.shape
    largest = np.abs(f).transpose(1, 0, 2).reshape(maps, -1).argmax(1)
    channel, peak = np.divmod(largest, length)
    number = events["waveform"]
    events["sample"] += peak[number] - (length - 1) / 2
    events["channel"] = channel[number] % max(1, sized.spec.channels)
    events["doubtful"] = overlapping(events, OVERLAP * length)


def overlapping(events: Events, distance: float) -> np.ndarray:
    """Which events are nearer than this to another one of their signal."""
    order = np.lexsort((events["sample"], events["signal"]))
    near = np.diff(events["sample"][order]) < distance
    near &= np.diff(events["signal"][order]) == 0
    doubtful = np.zeros(len(events), bool)
    doubtful[order[:-1][near]] = True
    doubtful[order[1:][near]] = True
    return doubtful


def _layer_events(spec: ModelSpec, k: int, p: Tensor, weights: Weights, threshold: float) -> Events:
    """Events of layer k, by signal and feature, in the order of time; without parents."""
    used = p.nonzero(as_tuple=True)
    signal, feature, _, j = (index.cpu().numpy() for index in used)
    w = weights.factors[-1][used[0], used[1], 0, 0, :, used[2], used[3]].cpu().double().numpy()
    value = p[used].cpu().double().numpy()
    regions = weights.regions
    i = j[:, None] * regions.stride[2] + np.arange(regions.size[2])
    amplitude = value * w.sum(1)
    time = (w * i).sum(1) / w.sum(1)
    square = (w * (i - time[:, None]) ** 2).sum(1) / w.sum(1)
    sign = np.sign(value)
    order = np.lexsort((time, sign, feature, signal))
    signal, feature, sign, amplitude, time, square = (
        column[order] for column in (signal, feature, sign, amplitude, time, square)
    )
    apart = np.diff(time) > max(NEAREST, regions.size[2])
    for column in (signal, feature, sign):
        apart |= np.diff(column) != 0
    first = np.flatnonzero(np.append(True, apart))[: len(time)]

    def total(column: np.ndarray) -> np.ndarray:
        return np.add.reduceat(column, first) if len(first) else column

    whole = total(amplitude)
    mean = total(amplitude * time) / whole
    spread = np.repeat(mean, np.diff(np.append(first, len(time)))) - time
    stride, offset = LayerPlaces.of(spec, 1)[k - 1].unpooled(spec.layers[k - 1].filter_shape[1])
    found = np.zeros(len(first), FIELDS).view(Events)
    found["signal"] = signal[first]
    found["layer"] = k
    found["waveform"] = feature[first]
    found["sample"] = stride * mean + offset
    found["seconds"] = np.nan
    found["amplitude"] = whole
    found["explained"] = np.nan
    found["width"] = stride * np.sqrt(total(amplitude * (square + spread**2)) / whole)
    found["parent"] = -1
    return found[np.abs(whole) >= threshold]


def _parents(sized: SizedModel, k: int, events: Events, above: Events, before: int) -> np.ndarray:
    """For each event of layer k, the row of the event of layer k + 1 that contributes most at its
    time."""
    f = sized.filters[k][:, :, 0].abs().cpu().double().numpy()
    stride = LayerPlaces.of(sized.spec, 1)[k].stride
    reach = f.shape[2] - 1
    parents = np.full(len(events), -1)
    by_signal = {n: np.flatnonzero(above["signal"] == n) for n in np.unique(above["signal"])}
    for n, event in enumerate(events):
        near = by_signal.get(event["signal"], np.empty(0, np.int64))
        tap = np.rint((event["sample"] - above["sample"][near]) / stride + reach / 2).astype(int)
        # both times are means, which may lie a little beyond
        inside = (tap >= -1) & (tap <= reach + 1)
        near = near[inside]
        tap = tap[inside].clip(0, reach)
        part = f[event["waveform"], above["waveform"][near], tap] * np.abs(above["amplitude"][near])
        if len(part) and part.max() > 0:
            parents[n] = before + near[part.argmax()]
    return parents


def _sorted(tables: Sequence[Events]) -> Events:
    """All tables in one, sorted; parents follow their rows."""
    table = Events.of(np.concatenate(tables))
    order = np.lexsort((table["sample"], -table["layer"], table["signal"]))
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1
    table["parent"] = place[table["parent"]]
    return table[order]


def join_events(parts: Sequence[Events]) -> Events:
    """The events of successive tiles, whose times and signals are those of the whole recording
    already."""
    before = np.cumsum([0, *map(len, parts)])
    moved = [part.copy() for part in parts]
    for part, first in zip(moved, before, strict=False):
        part["parent"][part["parent"] >= 0] += first
    return _sorted(moved) if moved else Events.of([])
