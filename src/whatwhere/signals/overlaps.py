"""Events that overlap: decide which of them are really there.

The penalty may explain one event by two waveforms that look alike, or at two times next to each
other. Where events are nearer than half a waveform, their stretch of the recording is explained
again, by orthogonal matching pursuit: take the waveform and the time, near those of the events,
that explain most of what is left; fit the amplitudes of all that are taken; continue while the next
one is large enough.

The groups of a tile are explained side by side: each has a segment of one line of samples, and in
each round every group takes one waveform.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from whatwhere.model.events import Events

NEAR = 2  # samples around an event's time at which waveforms are tried
FAINT = 0.1  # share of a waveform's largest value; smaller values cover nothing
_RIDGE = 1e-10  # of a waveform's energy, for the fit of amplitudes: two may have one shape


class Stretch(NamedTuple):
    """A tile of a recording, with a frame of a waveform's length at both ends.

    Parameters
    ----------
    f
        the waveforms, [B, C, K]
    signal
        [C, T], 0 where it is unknown
    left
        the residual of inference, [C, T]
    seen
        1 where it is known, [C, T]
    frame
        samples before the first
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
        size = np.abs(self.f)
        chosen: np.ndarray = size > FAINT * size.max((1, 2), keepdims=True)
        return chosen


class Limits(NamedTuple):
    """The smallest amplitude of an event, for each waveform, [B], its smallest share of the energy,
    and whether amplitudes may be negative."""

    amplitude: np.ndarray
    share: float
    signed: bool = False


def explain_overlaps(events: Events, stretch: Stretch, limits: Limits) -> Events:
    """Return the events of a tile, in the order of time; those that overlap are explained again."""
    events = events[np.argsort(events["sample"], kind="stable")]
    group = groups(events["sample"], stretch.f.shape[2] / 2)
    alone = group < 0
    if alone.all():
        return events
    explained = explain(events[~alone], group[~alone], stretch, limits)
    table = Events.of(np.concatenate([events[alone], explained]))
    return table[np.argsort(table["sample"], kind="stable")]


def groups(samples: np.ndarray, distance: float) -> np.ndarray:
    """Return the number of each event's group, by their times in order: a chain of events that are
    nearer to the next than this; -1 for an event alone."""
    is_far = np.diff(samples, prepend=samples[:1]) >= distance
    chain = np.cumsum(is_far)
    has_several = np.bincount(chain) > 1
    number = np.where(has_several, np.cumsum(has_several) - 1, -1)
    return number[chain]


def explain(events: Events, group: np.ndarray, stretch: Stretch, limits: Limits) -> Events:
    """Groups of events, each explained by as few as are large enough.

    Parameters
    ----------
    group
        the number of each event's group, [n], in order
    """
    line = Line.of(events["sample"], group, stretch)
    times = events["sample"] + line.offset[group]
    seen = line.samples(stretch.seen)

    # what these events explain, plus the residual: other events have no influence
    y = line.samples(stretch.left)
    y += seen * waveforms_at(times, events["waveform"], events["amplitude"], stretch, y.shape)

    trials = Trials.near(times, group, stretch, seen)
    norm = np.sqrt(trials.energies()).clip(1e-9)
    around = trials.energies_around(line.samples(stretch.signal)).clip(1e-30)
    least = np.maximum(limits.amplitude * norm, np.sqrt(limits.share * around))
    taken = Taken(y, line.begin, most=np.bincount(group))
    pursue(trials, norm, least, taken, signed=limits.signed)

    row, waveform, amplitude = taken.all()
    time = trials.time[row]
    nearest = np.abs(times - time[:, None]).argmin(1)
    found = events[nearest]  # with its other columns
    found["waveform"] = waveform
    found["sample"] = time - line.offset[trials.group[row]]
    found["amplitude"] = amplitude
    energy = (amplitude * norm[row, waveform]) ** 2
    found["explained"] = (energy / around[row, waveform]).clip(0, 1)
    return found[(amplitude != 0) if limits.signed else (amplitude > 0)]


# Segments of groups, side by side -----------------------------------------------------------------


class Line(NamedTuple):
    """The segments of all groups, one after the other. No waveform of one group reaches into
    another's segment.

    Parameters
    ----------
    place
        the sample of the stretch at each sample of the line, [L]; some are outside it
    begin
        where each group's segment begins, [G]
    offset
        what moves a time in the tile to its group's segment, [G]
    """

    place: np.ndarray
    begin: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, times: np.ndarray, group: np.ndarray, stretch: Stretch) -> "Line":
        """Segments that hold every waveform at the times of the group's events, or near them."""
        margin = stretch.f.shape[2] + NEAR + 1  # one more for times between samples
        is_first = np.diff(group, prepend=-1) > 0
        is_last = np.append(is_first[1:], True)
        first = np.floor(times[is_first]).astype(int) - margin
        stop = np.floor(times[is_last]).astype(int) + margin + 1
        size = stop - first
        begin = np.cumsum(size) - size
        offset = begin - first
        place = np.arange(size.sum()) - np.repeat(offset, size) + stretch.frame
        return cls(place, begin, offset)

    def samples(self, values: np.ndarray) -> np.ndarray:
        """Return the samples [C, T] of a stretch on the line, [C, L]; 0 outside the stretch."""
        length = values.shape[1]
        is_inside = (self.place >= 0) & (self.place < length)
        return values[:, self.place.clip(0, length - 1)] * is_inside


class Between(NamedTuple):
    """A time as the sample before it, and how far it is from there to the next."""

    sample: np.ndarray
    fraction: np.ndarray

    @classmethod
    def of(cls, time: np.ndarray) -> "Between":
        sample = np.floor(time).astype(int)
        return cls(sample, time - sample)


def waveforms_at(
    time: np.ndarray,
    waveform: np.ndarray,
    amplitude: np.ndarray,
    stretch: Stretch,
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return the sum of waveforms with their peaks at these times, times their amplitudes, on
    samples of this shape [C, L]; between samples, a waveform is the mean of its two shifts."""
    at = Between.of(time - stretch.peaks[waveform])
    f = amplitude[:, None, None] * stretch.f[waveform]
    place = at.sample[:, None] + np.arange(f.shape[2])
    fraction = at.fraction[:, None, None]
    samples = np.zeros(shape)
    np.add.at(samples.T, place, ((1 - fraction) * f).transpose(0, 2, 1))
    np.add.at(samples.T, place + 1, (fraction * f).transpose(0, 2, 1))
    return samples


# Matching pursuit ---------------------------------------------------------------------------------


def pursue(
    trials: "Trials", norm: np.ndarray, least: np.ndarray, taken: "Taken", *, signed: bool = False
) -> None:
    """Let every group take, round by round, the waveform that explains most of what is left.

    Parameters
    ----------
    norm
        the square root of the energy of each waveform at each time, [n, B]
    least
        the smallest score that counts: the correlation with what is left, divided by `norm`
    signed
        whether amplitudes may be negative
    """
    left = taken.y
    rows = np.arange(len(trials.time))  # the times at which a group may still take a waveform
    is_free = np.ones(norm.shape, bool)
    while len(rows):
        score = trials.correlations(left, rows) / norm[rows]
        if signed:
            score = np.abs(score)
        score[~is_free[rows]] = -np.inf
        best = best_of_groups(score, trials.group[rows])
        is_enough = best.score >= least[rows[best.row], best.waveform]
        row = rows[best.row[is_enough]]
        waveform = best.waveform[is_enough]
        group = trials.group[row]
        taken.add(row, waveform, group, trials.shapes(row, waveform))
        left = taken.left()

        # the same waveform at a time next to it is the same event
        near, which = np.nonzero(np.abs(trials.time[:, None] - trials.time[row]) <= 2 * NEAR)
        is_free[near, waveform[which]] = False
        # a group that took none now is done, and one that has taken as many as it had events
        goes_on = np.zeros(len(taken.most), bool)
        goes_on[group] = taken.most[group] > taken.rounds
        rows = rows[goes_on[trials.group[rows]]]


@dataclass(frozen=True, eq=False)
class Trials:
    """Every waveform at several times of the line, in groups.

    A waveform has its peak at each time, so all have the same samples: windows of them [n, C, K'],
    times waveforms [B, C, K'] whose peaks are at the same place.

    Parameters
    ----------
    time
        [n]
    group
        the number of each time's group, [n], in order
    stretch
        has the waveforms, [B, C, K]
    seen
        1 where the samples of the line are known, [C, L]
    f
        the waveforms, [B, C, K']
    covered
        where they are, [B, C, K']
    peak
        the element of the windows that has the peak
    """

    time: np.ndarray
    group: np.ndarray
    stretch: Stretch
    seen: np.ndarray
    f: np.ndarray
    covered: np.ndarray
    peak: int

    @classmethod
    def near(
        cls, times: np.ndarray, group: np.ndarray, stretch: Stretch, seen: np.ndarray
    ) -> "Trials":
        """Trials at the times of events, and at samples next to them."""
        peaks = stretch.peaks
        peak = int(peaks.max())
        maps, channels, length = stretch.f.shape
        f = np.zeros((maps, channels, length + peak - peaks.min()))
        covered = np.zeros_like(f)
        for number, first in enumerate(peak - peaks):
            f[number, :, first : first + length] = stretch.f[number]
            covered[number, :, first : first + length] = stretch.covered[number]
        offsets = np.arange(-NEAR, NEAR + 1)
        time = (times[:, None] + offsets).ravel()
        return cls(time, group.repeat(len(offsets)), stretch, seen, f, covered, peak)

    def shapes(self, row: np.ndarray, waveform: np.ndarray) -> np.ndarray:
        """Return the sum of waveforms at some of the times, on all samples, [C, L]; 0 where not
        seen."""
        one = np.ones(len(row))
        shape = self.seen.shape
        return self.seen * waveforms_at(self.time[row], waveform, one, self.stretch, shape)

    def correlations(self, samples: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the sum of each waveform times the samples [C, L] below it, at some of the times,
        [n, B]."""
        return self._between(samples, rows) @ _columns(self.f)

    def energies(self) -> np.ndarray:
        """Return the energy that each waveform has on the samples that are seen, at each time, [n,
        B]."""
        # a waveform between samples is (1 - a) f and a f, one sample later: the square of the sum
        every = np.arange(len(self.time))
        a = self.at.fraction[:, None]
        one_later = np.zeros_like(self.f)
        one_later[:, :, 1:] = self.f[:, :, :-1]
        here = self._windows(self.seen, every)
        squares = (1 - a) ** 2 * here + a**2 * self._windows(self.seen, every, 1)
        products = 2 * a * (1 - a) * here
        return squares @ _columns(self.f**2) + products @ _columns(self.f * one_later)

    def energies_around(self, signal: np.ndarray) -> np.ndarray:
        """Return the energy of the signal [C, L] where each waveform is, at each time, [n, B]."""
        every = np.arange(len(self.time))
        return self._between(signal**2, every) @ _columns(self.covered)

    @cached_property
    def at(self) -> Between:
        return Between.of(self.time)

    def _between(self, samples: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Windows at some of the times; between samples, the mean of the two next to it."""
        a = self.at.fraction[rows, None]
        here = self._windows(samples, rows)
        if not a.any():
            return here
        return (1 - a) * here + a * self._windows(samples, rows, 1)

    def _windows(self, samples: np.ndarray, rows: np.ndarray, later: int = 0) -> np.ndarray:
        """Return the samples [C, L] around some of the times, or as much later, a row for each, [n,
        C · K']."""
        first = self.at.sample[rows, None] - self.peak + later
        place = first + np.arange(self.f.shape[2])
        return samples[:, place].transpose(1, 0, 2).reshape(len(rows), -1)


def _columns(waveforms: np.ndarray) -> np.ndarray:
    """Waveforms [B, C, K'] as the columns of a matrix, [C · K', B]."""
    return waveforms.reshape(len(waveforms), -1).T


class Best(NamedTuple):
    """The best trial of each group: its row, its waveform and its score."""

    row: np.ndarray
    waveform: np.ndarray
    score: np.ndarray


def best_of_groups(score: np.ndarray, group: np.ndarray) -> Best:
    """Return the trials with the largest scores [n, B] of their groups, whose numbers [n] are in
    order."""
    waveform = score.argmax(1)
    best_of_row = score.max(1)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    largest = np.maximum.reduceat(best_of_row, first)
    rows_of_group = np.diff(first, append=len(group))
    has_largest = np.flatnonzero(best_of_row == largest.repeat(rows_of_group))
    is_first = np.diff(group[has_largest], prepend=-1) > 0  # two may be equal
    row = has_largest[is_first]
    return Best(row, waveform[row], largest)


class Choice(NamedTuple):
    """A waveform that a group has taken: the row of its time, its number, and its amplitude."""

    row: np.ndarray
    waveform: np.ndarray
    amplitude: np.ndarray


class Taken:
    """What the groups have taken, round by round, and the amplitudes that fit all of it best.

    Parameters
    ----------
    y
        the samples to be explained, [C, L]
    begin
        where each group's segment begins, [G]
    most
        how many waveforms each group may take, [G]
    """

    def __init__(self, y: np.ndarray, begin: np.ndarray, most: np.ndarray) -> None:
        self.y = y
        self.begin = begin
        self.most = most
        starts = np.zeros(y.shape[1], int)
        starts[begin[1:]] = 1
        self.segment = starts.cumsum()  # the group of each sample
        groups = len(begin)
        self.shapes: list[np.ndarray] = []  # the waveforms of each round, [C, L]
        self.row = np.zeros((groups, 0), int)
        self.waveform = np.zeros((groups, 0), int)  # -1 where a group has taken none
        self.amplitude = np.zeros((groups, 0))
        self.gram = np.zeros((groups, 0, 0))  # the products of a group's waveforms
        self.product = np.zeros((groups, 0))  # of each with y

    @property
    def rounds(self) -> int:
        return len(self.shapes)

    def add(
        self, row: np.ndarray, waveform: np.ndarray, group: np.ndarray, shape: np.ndarray
    ) -> None:
        """Add a round in which these groups take one waveform each, and fit all amplitudes.

        Parameters
        ----------
        shape
            the waveforms on all samples, [C, L]
        """
        self.shapes.append(shape)
        last = (group, -1)
        self.row = _with_column(self.row)
        self.row[last] = row
        self.waveform = _with_column(self.waveform, -1)
        self.waveform[last] = waveform
        self.amplitude = _with_column(self.amplitude)
        self.product = _with_column(self.product)
        self.product[:, -1] = self._sums(shape * self.y)
        products = np.stack([self._sums(shape * other) for other in self.shapes], 1)
        gram = np.zeros((len(self.begin), self.rounds, self.rounds))
        gram[:, :-1, :-1] = self.gram
        gram[:, -1, :] = products
        gram[:, :, -1] = products
        self.gram = gram
        # a group that takes one now has taken one in every round, so its gram is full
        equations = gram[group] + _RIDGE * np.eye(self.rounds)
        self.amplitude[group] = np.linalg.solve(equations, self.product[group, :, None])[:, :, 0]

    def left(self) -> np.ndarray:
        """Return what the waveforms leave, [C, L]."""
        left = self.y.copy()
        for shape, amplitude in zip(self.shapes, self.amplitude.T, strict=True):
            left -= amplitude[self.segment] * shape
        return left

    def all(self) -> Choice:
        """Return all that was taken."""
        is_taken = self.waveform >= 0
        return Choice(self.row[is_taken], self.waveform[is_taken], self.amplitude[is_taken])

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of samples [C, L] on each group's segment."""
        sums: np.ndarray = np.add.reduceat(values.sum(0), self.begin)
        return sums


def _with_column(values: np.ndarray, value: int = 0) -> np.ndarray:
    """Return the array [G, n] with one more column, of this value."""
    column = np.full((len(values), 1), value, values.dtype)
    return np.concatenate([values, column], 1)
