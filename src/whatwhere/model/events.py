"""Events: which waveform occurs when in a signal, and how strongly; read off the latents.

A feature p(j) with the weights w of its region puts the coefficients p(j) w(i) on the samples i of
the map z. To first order, a waveform with these coefficients is one waveform of

    amplitude  a  = p Σ w(i)
    time       t  = Σ w(i) i / Σ w(i)
    width      s,   s² = Σ w(i) (i - t)² / Σ w(i)

so t has a fraction of a sample, by μ and γ together: μ alone is not the mean of i, since elements
have few places, and a large γ leaves one of them.

Regions next to each other share an event that lies between them. Features of one map and one sign
are one event if they are no farther apart than a region is long, or than 1.5 elements. Its a, t
and s belong to all its coefficients.
"""

import csv
import io
import math
import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from whatwhere.errors import InvalidImages, MissingExtra
from whatwhere.latents import Latents
from whatwhere.model.sized import LayerPlaces, SizedModel
from whatwhere.ops.pooling import Weights
from whatwhere.spec import ModelSpec
from whatwhere.spec.checks import require

if TYPE_CHECKING:
    import mne
    import pandas

OVERLAP = 0.5  # share of a waveform's length; events nearer to each other are doubtful

# The table ----------------------------------------------------------------------------------------

FIELDS = [
    ("signal", np.int64),
    ("layer", np.int64),
    ("waveform", np.int64),
    ("sample", np.float64),
    ("seconds", np.float64),
    ("amplitude", np.float64),
    ("peak", np.float64),
    ("channel", np.int64),
    ("explained", np.float64),
    ("doubtful", np.bool_),
    ("width", np.float64),
    ("parent", np.int64),
    ("onset", np.float64),
    ("onset_seconds", np.float64),
]
"""Columns by the names that they had before version 0.2, which `events[name]` still knows."""

# times in a long recording need more digits
FORMATS = {"sample": "%.4f", "seconds": "%.6f", "onset": "%.4f", "onset_seconds": "%.6f"}
_BEGIN = 0.1  # share of a waveform's largest value; smaller values before it do not belong to it


class Events(np.ndarray):
    """Events of signals, a structured array with a row for each, sorted by signal, layer (the top
    one first) and time.

    signal     number of the signal
    layer      1: a waveform of the signal; 2: a group of layer 1's features
    waveform   its number
    sample     position of the waveform's peak, its largest value, with a fraction; for a group, its
               centre
    seconds    the same in seconds; NaN if the rate is not known
    amplitude  factor of the waveform, which has unit length, in units of the signal after the
               model's input stage
    peak       value of the event at its peak, in units of the signal after the input stage; NaN for
               a group
    channel    the channel in which the waveform has its peak
    explained  energy of the event as a share of the recording's energy at its place; NaN if only
               the latents are known
    doubtful   whether it overlaps another event, nearer than half a waveform
    width      standard deviation of the event's coefficients, in samples: 0 for one that lies on
               one sample
    parent     number of the row of the event one layer up that contributes most; -1 if there is
               none
    onset      where the waveform begins, as `sample`: its first value of a tenth of its largest;
               NaN for a group
    onset_seconds
               the same in seconds; NaN if the rate is not known

    `Events.of` makes one; `shape`, `dtype`, `buffer`, `offset`, `strides` and `order` are as in
    any array.

    >>> row = (0, 1, 3, 120.25, 0.48, 2.0, -0.7, 0, 0.9, False, 0.4, -1, 117.25, 0.469)
    >>> events = Events.of([row])
    >>> events["sample"], events[events["amplitude"] > 1].shape
    (array([120.25]), (1,))
    """

    def __getitem__(self, rows: Any) -> Any:
        """Return some rows as a table, or a column, by its name, as an array."""
        if isinstance(rows, str):
            return super().__getitem__(rows).view(np.ndarray)
        return super().__getitem__(rows)

    @classmethod
    def of(cls, rows: ArrayLike) -> "Events":
        """Return a table of rows, tuples or another structured array."""
        return np.array(rows, FIELDS).view(cls)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table as a pandas.DataFrame."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas", "a DataFrame of events") from None
        return pandas.DataFrame({name: np.asarray(self[name]) for name, _ in FIELDS})

    def to_csv(
        self,
        file: str | os.PathLike[str] | IO[str] | IO[bytes],
        *,
        header: bool = True,
        channel_names: Sequence[str] | None = None,
        seconds: bool | None = None,
    ) -> None:
        """Write a line for each event, after one with the names of the columns, to a path or an
        open file.

        Parameters
        ----------
        header
            whether to write the line with the names; False continues a table
        channel_names
            names that are written in place of the numbers of channels
        seconds
            whether to write the column of seconds; None: unless all are unknown
        """
        columns = [name for name, _ in FIELDS]
        if seconds is None:
            seconds = not len(self) or not np.isnan(self["seconds"]).all()
        if not seconds:
            columns = [name for name in columns if not name.endswith("seconds")]
        kinds = dict(FIELDS)
        formats = []
        for name in columns:
            usual = "%.6g" if kinds[name] == np.float64 else "%d"
            formats.append(FORMATS.get(name, usual))
        table = np.asarray(self)[columns]
        if channel_names is not None:
            table = _with_channel_names(table, channel_names)
            formats[columns.index("channel")] = "%s"
        names = ",".join(columns) if header else ""
        np.savetxt(
            file, table, fmt=formats, delimiter=",", header=names, comments="", encoding="utf-8"
        )

    def to_mne(self) -> "mne.Annotations":
        """Return the events as `mne.Annotations`: onset, no duration, 'waveform 3' as the
        description.

        Their onsets are seconds since the first sample, if the recording starts at 0.
        """
        try:
            import mne
        except ImportError:
            raise MissingExtra("mne", "annotations of events") from None
        if len(self) and np.isnan(self["seconds"]).any():
            raise InvalidImages(
                "events without seconds",
                "events with times",
                "Give the rate of the recording: ww.data.load(…, rate=…).",
            )
        names = [f"waveform {number}" for number in self["waveform"]]
        return mne.Annotations(self["seconds"], np.zeros(len(self)), names)


def _with_channel_names(table: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return a table with the names of channels in place of their numbers, quoted as a .csv file
    needs."""
    quoted = np.array([_csv_field(name) for name in names])
    columns = table.dtype.names or ()
    kinds = [(name, quoted.dtype if name == "channel" else table.dtype[name]) for name in columns]
    named = np.empty(len(table), kinds)
    for name in columns:
        named[name] = quoted[table[name]] if name == "channel" else table[name]
    return named


def _csv_field(text: str) -> str:
    """Return a text as a field of a .csv file: quoted if it has a comma, a quote or a line
    break."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


# From latents to events ---------------------------------------------------------------------------


def events_of(sized: SizedModel, latents: Latents, threshold: float = 0.0) -> Events:
    """Return the events of signals from their latents; those with an amplitude below the threshold
    are left out.

    Parameters
    ----------
    sized
        the model at the signals' length
    latents
        latents as `infer` returned them
    threshold
        the smallest amplitude, in units of the signals, ≥ 0
    """
    require(
        math.isfinite(threshold) and threshold >= 0,
        {"threshold": threshold},
        "an amplitude ≥ 0, in units of the signals",
    )
    if not sized.spec.for_signals or sized.height != 1:
        raise InvalidImages("a model of pictures", "a model of signals (ModelSpec.signals)")
    weights = sized.weights(latents.pooling_params)
    stages = sized.descend(latents.features, weights, to=1)
    tables: list[Events] = []
    for k in range(len(weights), 0, -1):
        table = _layer_events(sized.spec, k, stages[k - 1], weights[k - 1], threshold)
        if tables:
            before = sum(map(len, tables[:-1]))
            table["parent"] = _parents(sized, k, table, tables[-1], before)
        tables.append(table)
    _centres_to_peaks(tables[-1], sized)
    return _sorted(tables)


def _centres_to_peaks(events: Events, sized: SizedModel) -> None:
    """Move the times of layer 1 from the centres of the filters to the peaks of the waveforms, and
    name their channels and overlaps, in place."""
    f = sized.filters[0][:, :, 0].cpu().double().numpy()  # [C, B, K]
    _, maps, length = f.shape
    size = np.abs(f).transpose(1, 0, 2).reshape(maps, -1)
    channel, peak = np.divmod(size.argmax(1), length)
    number = events["waveform"]
    centre = (length - 1) / 2
    events["sample"] += peak[number] - centre
    # an input stage such as 'onoff' makes several channels of each one of the signal
    events["channel"] = channel[number] % max(1, sized.spec.channels)
    set_peaks(events, f.transpose(1, 0, 2))
    set_onsets(events, f.transpose(1, 0, 2))
    events["doubtful"] = overlapping(events, OVERLAP * length)


def set_peaks(events: Events, f: np.ndarray) -> None:
    """Set the values of events of layer 1 at their peaks from their amplitudes, in place; the
    waveforms are f [B, C, K]."""
    waveforms = f.reshape(len(f), -1)
    largest = np.abs(waveforms).argmax(1)
    value = waveforms[np.arange(len(f)), largest]
    of_signal = events["layer"] == 1
    number = events["waveform"][of_signal]
    events["peak"][of_signal] = events["amplitude"][of_signal] * value[number]


def set_onsets(events: Events, f: np.ndarray, rate: float | None = None) -> None:
    """Set where the waveforms f [B, C, K] of events of layer 1 begin, in place.

    Parameters
    ----------
    rate
        samples per second, for the column of seconds
    """
    size = np.abs(f).max(1)  # [B, K]
    first = (size > _BEGIN * size.max(1, keepdims=True)).argmax(1)
    rise = size.argmax(1) - first
    waves = events["layer"] == 1
    rises = rise[events["waveform"][waves]]
    events["onset"][waves] = events["sample"][waves] - rises
    if rate is not None:
        events["onset_seconds"][waves] = events["seconds"][waves] - rises / rate


def overlapping(events: Events, distance: float) -> np.ndarray:
    """Return which events are nearer than this to another one of their signal."""
    order = np.lexsort((events["sample"], events["signal"]))
    near = np.diff(events["sample"][order]) < distance
    near &= np.diff(events["signal"][order]) == 0
    earlier = order[:-1][near]
    later = order[1:][near]
    doubtful = np.zeros(len(events), bool)
    doubtful[earlier] = True
    doubtful[later] = True
    return doubtful


# The events of one layer --------------------------------------------------------------------------


class _ActiveFeatures(NamedTuple):
    """The features that are not 0, by the coefficients that each puts on the elements of z; all
    columns are [n].

    Parameters
    ----------
    signal
        number of the signal
    feature
        number of the map
    sign
        sign of the coefficients
    amplitude
        sum of the coefficients
    time
        mean place of the coefficients
    variance
        variance of their places
    """

    signal: np.ndarray
    feature: np.ndarray
    sign: np.ndarray
    amplitude: np.ndarray
    time: np.ndarray
    variance: np.ndarray

    def sorted(self) -> "_ActiveFeatures":
        """Sort by signal, map, sign and time, so that the features of an event follow each
        other."""
        order = np.lexsort((self.time, self.sign, self.feature, self.signal))
        return _ActiveFeatures(*(column[order] for column in self))


def _layer_events(spec: ModelSpec, k: int, p: Tensor, weights: Weights, threshold: float) -> Events:
    """Find the events of layer k, by signal and feature, in the order of time; without parents."""
    features = _active_features(p, weights).sorted()
    # 1.5 elements of z: without pooling, coefficients next to each other are one event
    first = _first_of_events(features, max(1.5, weights.regions.size[2]))

    def total(column: np.ndarray) -> np.ndarray:
        """Return the sums over the features of each event."""
        return np.add.reduceat(column, first) if len(first) else column

    # an event has the sum of the coefficients, their mean place, and the variance around it
    amplitude = total(features.amplitude)
    time = total(features.amplitude * features.time) / amplitude
    counts = np.diff(np.append(first, len(features.time)))
    distance = np.repeat(time, counts) - features.time
    variance = total(features.amplitude * (features.variance + distance**2)) / amplitude

    below = LayerPlaces.of(spec, 1)[k - 1]
    stride, offset = below.unpooled(spec.layers[k - 1].filter_shape[1])
    events = np.zeros(len(first), FIELDS).view(Events)
    events["signal"] = features.signal[first]
    events["layer"] = k
    events["waveform"] = features.feature[first]
    events["sample"] = stride * time + offset
    events["seconds"] = np.nan
    events["amplitude"] = amplitude
    events["peak"] = np.nan
    events["explained"] = np.nan
    events["width"] = stride * np.sqrt(variance)
    events["onset"] = np.nan
    events["onset_seconds"] = np.nan
    events["parent"] = -1
    return events[np.abs(amplitude) >= threshold]


def _active_features(p: Tensor, weights: Weights) -> _ActiveFeatures:
    """Collect amplitude, time and variance of every feature that is not 0."""
    active = p.nonzero(as_tuple=True)
    signal, feature, _, j = (index.cpu().numpy() for index in active)
    n, b, row, column = active
    w = weights.factors[-1][n, b, 0, 0, :, row, column].cpu().double().numpy()  # [n, size]
    value = p[active].cpu().double().numpy()
    size = weights.regions.size[2]
    stride = weights.regions.stride[2]
    i = j[:, None] * stride + np.arange(size)
    mass = w.sum(1)
    time = (w * i).sum(1) / mass
    variance = (w * (i - time[:, None]) ** 2).sum(1) / mass
    return _ActiveFeatures(signal, feature, np.sign(value), value * mass, time, variance)


def _first_of_events(features: _ActiveFeatures, distance: float) -> np.ndarray:
    """Return the rows of sorted features that begin an event: another signal, map or sign than the
    row before, or farther away than this."""
    if not len(features.time):
        return np.empty(0, np.int64)
    apart = np.diff(features.time) > distance
    for column in (features.signal, features.feature, features.sign):
        apart |= np.diff(column) != 0
    return np.flatnonzero(np.append(True, apart))


# Layers and tiles together ------------------------------------------------------------------------


def _parents(sized: SizedModel, k: int, events: Events, above: Events, before: int) -> np.ndarray:
    """Find, for each event of layer k, the row of the event of layer k + 1 that contributes most at
    its time.

    Parameters
    ----------
    above
        the events of layer k + 1
    before
        rows of the table before them
    """
    f = sized.filters[k][:, :, 0].abs().cpu().double().numpy()
    stride = LayerPlaces.of(sized.spec, 1)[k].stride
    last = f.shape[2] - 1
    rows_of = {n: np.flatnonzero(above["signal"] == n) for n in np.unique(above["signal"])}
    none = np.empty(0, np.int64)
    parents = np.full(len(events), -1)
    for n, event in enumerate(events):
        rows = rows_of.get(event["signal"], none)
        # the element of each group's filter that lies on the event
        place = (event["sample"] - above["sample"][rows]) / stride + last / 2
        element = np.rint(place).astype(int)
        # both times are means, which may lie a little beyond
        inside = (element >= -1) & (element <= last + 1)
        rows = rows[inside]
        element = element[inside].clip(0, last)
        filters = f[event["waveform"], above["waveform"][rows], element]
        contribution = filters * np.abs(above["amplitude"][rows])
        if len(contribution) and contribution.max() > 0:
            parents[n] = before + rows[contribution.argmax()]
    return parents


def _sorted(tables: Sequence[Events]) -> Events:
    """Return all tables in one, sorted; parents follow their rows."""
    table = Events.of(np.concatenate(tables))
    order = np.lexsort((table["sample"], -table["layer"], table["signal"]))
    # the new row of each old one; the last place belongs to -1, which means no parent
    new_row = np.empty(len(order) + 1, np.int64)
    new_row[order] = np.arange(len(order))
    new_row[-1] = -1
    table["parent"] = new_row[table["parent"]]
    return table[order]


def join_events(parts: Sequence[Events]) -> Events:
    """Return the events of successive tiles, whose times and signals count in the whole
    recording already."""
    if not parts:
        return Events.of([])
    moved = []
    rows_before = 0
    for part in parts:
        own = part.copy()
        own["parent"][own["parent"] >= 0] += rows_before
        moved.append(own)
        rows_before += len(part)
    return _sorted(moved)
