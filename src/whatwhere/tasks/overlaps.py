"""Events that lie on each other: which of them are there?

The penalty may explain one event by two waveforms that look alike, or at two times next to each
other. Where events are nearer than half a waveform, their stretch of the recording is explained
again, by orthogonal matching pursuit: take the waveform and the time, near those of the events,
that explain most of what is left; fit the amplitudes of all that are taken; go on while what is
taken next is large enough.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from whatwhere.model.events import Events

NEAR = 2  # samples around an event's time at which waveforms are tried
FAINT = 0.1  # of a waveform's largest value: what is less covers nothing


class Stretch(NamedTuple):
    """A tile of a recording, with a frame of a waveform's length at both ends.

    f       the waveforms, [B, C, K]
    signal  [C, T], 0 where it is unknown
    left    what inference left of it, [C, T]
    seen    1 where it is known, [C, T]
    frame   samples before the first
    """

    f: np.ndarray
    signal: np.ndarray
    left: np.ndarray
    seen: np.ndarray
    frame: int

    @property
    def peaks(self) -> np.ndarray:
        """The element of each waveform that has its peak, [B]."""
        place: np.ndarray = np.abs(self.f).max(1).argmax(1)
        return place

    @property
    def covered(self) -> np.ndarray:
        """Where each waveform is, not where it has ended or has no part in a channel, [B, C, K]."""
        return significant(self.f)


def significant(shapes: np.ndarray) -> np.ndarray:
    """Where the values of waveforms [n, ...] are more than FAINT of their largest."""
    size = np.abs(shapes)
    largest = size.max(tuple(range(1, size.ndim)), keepdims=True)
    chosen: np.ndarray = size > FAINT * largest
    return chosen


class Limits(NamedTuple):
    """What an event must have at least: an amplitude, for each waveform, [B]; a share of the
    energy."""

    amplitude: np.ndarray
    share: float


def explain_overlaps(events: Events, stretch: Stretch, limits: Limits) -> Events:
    """The events of a tile, those that lie on each other explained again; in the order of time."""
    order = np.argsort(events["sample"], kind="stable")
    events = events[order]
    alone = np.ones(len(events), bool)
    tables = []
    for rows in groups(events["sample"], stretch.f.shape[2] / 2):
        alone[rows] = False
        tables.append(explain(events[rows], stretch, limits))
    kept = np.concatenate([events[alone], *tables]) if tables else events
    table = Events.of(kept)
    return table[np.argsort(table["sample"], kind="stable")]


def groups(samples: np.ndarray, distance: float) -> Iterator[slice]:
    """Rows, in the order of time, that are nearer to the next than this; only groups of several."""
    cuts = np.flatnonzero(np.diff(samples) >= distance) + 1
    for first, last in zip(np.append(0, cuts), np.append(cuts, len(samples)), strict=True):
        if last - first > 1:
            yield slice(int(first), int(last))


def explain(events: Events, stretch: Stretch, limits: Limits) -> Events:
    """The same stretch of a recording explained by as few events as are large enough."""
    # the samples that the events, or candidates next to them, can reach; zeros around them take
    # what waveforms have beyond
    margin = stretch.f.shape[2] + NEAR
    begin = int(events["sample"].min()) + stretch.frame - margin
    end = int(events["sample"].max()) + stretch.frame + margin + 1
    begin = max(0, begin)
    end = min(stretch.signal.shape[1], end)

    def cut(values: np.ndarray) -> np.ndarray:
        return np.pad(values[:, begin:end], ((0, 0), (margin, margin)))

    seen = cut(stretch.seen)
    around = cut(stretch.signal) ** 2

    # what these events explain, with what is left: other events have no part in it
    origin = begin - margin - stretch.frame
    times = events["sample"] - origin
    y = cut(stretch.left)
    placed(stretch, events["waveform"], times, seen).add_to(y, events["amplitude"])

    waveform, time = candidates(times, len(stretch.f))
    shapes = placed(stretch, waveform, time, seen)
    norm = np.sqrt((shapes.values**2).sum((1, 2))).clip(1e-9)
    energy = (significant(shapes.values) * shapes.windows_of(around)).sum((1, 2)).clip(1e-30)

    # matching pursuit, with the amplitudes of all that are taken fitted again
    taken: list[int] = []
    columns: list[np.ndarray] = []
    amplitudes = np.empty(0)
    left = y
    for _ in range(len(events)):
        score = (shapes.values * shapes.windows_of(left)).sum((1, 2)) / norm
        for k in taken:  # the same waveform at a time next to it is the same event
            score[(waveform == waveform[k]) & (np.abs(time - time[k]) <= 2 * NEAR)] = -np.inf
        best = int(score.argmax())
        amplitude = score[best] / norm[best]
        is_large = amplitude >= limits.amplitude[waveform[best]]
        explains_enough = score[best] ** 2 >= limits.share * energy[best]
        if not (is_large and explains_enough):
            break
        taken.append(best)
        columns.append(shapes.dense(best, y.shape).ravel())
        basis = np.stack(columns)
        amplitudes = np.linalg.lstsq(basis.T, y.ravel(), rcond=None)[0]
        left = y - (amplitudes @ basis).reshape(y.shape)

    # other columns are those of the nearest event
    found = np.zeros(len(taken), events.dtype).view(Events)
    for n, k in enumerate(taken):
        found[n] = events[int(np.abs(times - time[k]).argmin())]
    found["waveform"] = waveform[taken]
    found["sample"] = time[taken] + origin
    found["amplitude"] = amplitudes
    share = (amplitudes * norm[taken]) ** 2 / energy[taken]
    found["explained"] = share.clip(0, 1)
    return found[found["amplitude"] > 0]


class Candidates(NamedTuple):
    """Waveforms by their numbers, and the times at which they are tried; both [n]."""

    waveform: np.ndarray
    time: np.ndarray


def candidates(time: np.ndarray, waveforms: int) -> Candidates:
    """Every waveform at the time of every event, and at samples next to it."""
    offsets = np.arange(-NEAR, NEAR + 1)
    times = (time[:, None] + offsets).ravel()
    numbers = np.repeat(np.arange(waveforms), len(times))
    return Candidates(numbers, np.tile(times, waveforms))


class Placed(NamedTuple):
    """Waveforms at places of samples [C, T]: values [n, C, K + 1], and the sample at which each
    begins, [n]. What they are elsewhere is 0, and is not stored."""

    values: np.ndarray
    first: np.ndarray

    def windows_of(self, samples: np.ndarray) -> np.ndarray:
        """The samples on which each waveform lies, [n, C, K + 1]."""
        place = self.first[:, None] + np.arange(self.values.shape[2])
        return samples[:, place].transpose(1, 0, 2)

    def dense(self, n: int, shape: tuple[int, ...]) -> np.ndarray:
        """One of the waveforms on all samples."""
        samples = np.zeros(shape)
        samples[:, self.first[n] : self.first[n] + self.values.shape[2]] = self.values[n]
        return samples

    def add_to(self, samples: np.ndarray, amplitudes: np.ndarray) -> None:
        """Add all of them, each multiplied by its amplitude, in place."""
        length = self.values.shape[2]
        for values, first, amplitude in zip(self.values, self.first, amplitudes, strict=True):
            samples[:, first : first + length] += amplitude * values


def placed(stretch: Stretch, waveform: np.ndarray, time: np.ndarray, seen: np.ndarray) -> Placed:
    """Waveforms with their peaks at these times of samples [C, T]: between samples, the mean of the
    two shifts; 0 where samples are not seen."""
    length = stretch.f.shape[2]
    exact = time - stretch.peaks[waveform]
    first = np.floor(exact).astype(int)
    fraction = (exact - first)[:, None, None]
    first = first.clip(0, seen.shape[1] - length - 1)
    values = np.zeros((len(time), stretch.f.shape[1], length + 1))
    values[:, :, :-1] += (1 - fraction) * stretch.f[waveform]
    values[:, :, 1:] += fraction * stretch.f[waveform]
    shapes = Placed(values, first)
    return Placed(values * shapes.windows_of(seen), first)
