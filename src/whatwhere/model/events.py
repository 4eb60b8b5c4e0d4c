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
FIELDS = [
    ("signal", np.int64),
    ("layer", np.int64),
    ("feature", np.int64),
    ("time", np.float64),
    ("width", np.float64),
    ("amplitude", np.float64),
    ("parent", np.int64),
]


class Events(np.ndarray):
    """Events of signals, a structured array with a row for each, sorted by signal, layer (the top
    one first) and time.

    signal     number of the signal
    layer      1: a waveform of the signal; 2: a group of layer 1's features
    feature    number of the map: which waveform
    time       of the waveform's centre, in samples with their fraction: filter element k, of K,
               lies at sample time - (K - 1) / 2 + k
    width      standard deviation of the event's coefficients, in samples: 0 for one that lies on
               one sample
    amplitude  what the waveform is multiplied by, in units of the signal after the model's input
               stage
    parent     number of the row of the event one layer up that contributes most; -1 if there is
               none

    `Events.of` makes one; `shape`, `dtype`, `buffer`, `offset`, `strides` and `order` are those of
    any array.

    >>> events = Events.of([(0, 1, 3, 120.25, 0.4, 2.0, -1)])
    >>> events["time"], events[events["amplitude"] > 1].shape
    (array([120.25]), (1,))
    """

    def __getitem__(self, rows: Any) -> Any:
        """Some rows as a table, or a column, by its name, as an array."""
        chosen = super().__getitem__(rows)
        return chosen.view(np.ndarray) if isinstance(rows, str) else chosen

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
        formats = ["%.6g" if kind == np.float64 else "%d" for _, kind in FIELDS]
        formats[3] = "%.4f"  # the time of a long recording has more digits
        names = ",".join(name for name, _ in FIELDS) if header else ""
        np.savetxt(file, np.asarray(self), fmt=formats, delimiter=",", header=names, comments="")


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
            "events of a model of pictures were asked for; expected one of signals"
            " (ModelSpec.signals)"
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
    return _sorted(tables)


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
    found["signal"], found["layer"], found["feature"], found["parent"] = (
        signal[first],
        k,
        feature[first],
        -1,
    )
    found["time"], found["amplitude"] = stride * mean + offset, whole
    found["width"] = stride * np.sqrt(total(amplitude * (square + spread**2)) / whole)
    return found[np.abs(whole) >= threshold]


def _parents(sized: SizedModel, k: int, events: Events, above: Events, before: int) -> np.ndarray:
    """For each event of layer k, the row of the event of layer k + 1 that contributes most at its
    time."""
    f = sized.filters[k][:, :, 0].abs().cpu().double().numpy()
    stride, reach = LayerPlaces.of(sized.spec, 1)[k].stride, f.shape[2] - 1
    parents = np.full(len(events), -1)
    by_signal = {n: np.flatnonzero(above["signal"] == n) for n in np.unique(above["signal"])}
    for n, event in enumerate(events):
        near = by_signal.get(event["signal"], np.empty(0, np.int64))
        tap = np.rint((event["time"] - above["time"][near]) / stride + reach / 2).astype(int)
        # both times are means, which may lie a little beyond
        inside = (tap >= -1) & (tap <= reach + 1)
        near, tap = near[inside], tap[inside].clip(0, reach)
        part = f[event["feature"], above["feature"][near], tap] * np.abs(above["amplitude"][near])
        if len(part) and part.max() > 0:
            parents[n] = before + near[part.argmax()]
    return parents


def _sorted(tables: Sequence[Events]) -> Events:
    """All tables in one, sorted; parents follow their rows."""
    table = Events.of(np.concatenate(tables))
    order = np.lexsort((table["time"], -table["layer"], table["signal"]))
    place = np.empty(len(order) + 1, np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
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
