"""The rhythm of a recording, such as that of a heart: decide which events fit it.

Where events follow each other at a steady pace, their intervals are evidence. A movement of the
electrode between two beats looks like an event but comes too early; a beat that hides in noise is
weak but comes when one is expected.

    period     the usual interval near an event: the median of the intervals around it
    intervals  how often each multiple of the period occurs. They are learned from the events, so
               that early beats cost little in a recording that has many, and what never occurs is
               its refractory period
    evidence   of an event: the share of the energy that it explains, and how many events of its
               waveform fit the rhythm
    choice     the sequence of events with the largest sum of the evidence of events and of their
               intervals, by dynamic programming. Intervals and evidence are learned from it again

Weak events that accompany strong ones, as P and T waves do the beats of a heart, come at a few
distances from them. They are parts of the same thing, so the strong ones alone show the rhythm.
Where small events at any time hide a clear rhythm of large ones, such as movements of a sensor
among the beats of a pulse, the large ones show it, if their waveform is long enough to be a beat.

A recording whose events come at any time, such as the spikes of several neurons, has no rhythm, and
all events stay as they are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class RhythmSettings:
    """How a rhythm is found, chosen on MIT-BIH records.

    Parameters
    ----------
    fewest
        events that show a rhythm
    decided
        events that show that there is none, so that the others need not wait
    regular
        share of the intervals near their period from which events have a rhythm: events at random
        times have 0.17, those with a pause after each 0.37, and a heart with a ventricular beat
        after every other one 0.65
    near
        octaves between an interval and its period that are near
    around
        intervals before and after an event whose median is the period
    octaves
        intervals are told apart up to this far from the period; shorter ones than that are
        impossible
    bins
        in an octave, that intervals are counted in
    rare
        share of the intervals that one has at least, so that no interval is impossible
    back
        candidates that may lie between two events that follow each other
    rounds
        times that events are chosen and intervals learned
    evidence
        log odds of an event that explains half of the energy
    waveforms
        weight of the log odds of a waveform
    certain
        log odds of a share are at most those of this share
    deviations
        of the noise that a candidate exceeds
    share
        of the energy that a candidate explains
    weak
        size of the usual event of a waveform, as a share of that of all stronger ones, up to which
        its events may accompany theirs: P waves have 0.1, T waves 0.15
    phases
        of the period in which weak events are counted
    few
        phases that hold the most weak events
    accompany
        share of the weak events in the few phases from which they accompany the strong ones: events
        at random times have 0.2 to 0.35
    clear
        share of the intervals between large events near their period from which these show a rhythm
        that small ones disturb
    large
        size of a large event, as a share of the usual event of the waveform with the most energy;
        smaller ones are then no events
    duty
        share of the period that a waveform then has at least: a beat has 0.08 to 0.5, the spike of
        a neuron that fires 20 times a second 0.02
    """

    fewest: int = 30
    decided: int = 200
    regular: float = 0.5
    near: float = 0.35
    around: int = 12
    octaves: float = 2.0
    bins: int = 6
    rare: float = 1e-4
    back: int = 12
    rounds: int = 4
    evidence: float = 1.0
    waveforms: float = 1.0
    certain: float = 0.98
    deviations: float = 2.5
    share: float = 0.1
    weak: float = 1 / 3
    phases: int = 20
    few: int = 4
    accompany: float = 0.7
    clear: float = 0.65
    large: float = 0.5
    duty: float = 0.05


class Candidates(NamedTuple):
    """Events that may fit a rhythm, in the order of time; all columns are [n].

    Parameters
    ----------
    time
        in samples or seconds
    waveform
        number
    share
        of the energy that each explains
    """

    time: np.ndarray
    waveform: np.ndarray
    share: np.ndarray


_SETTINGS = RhythmSettings()
_IMPOSSIBLE = -1e3  # log of how often an interval occurs that is shorter than all


def regularity(times: np.ndarray, settings: RhythmSettings = _SETTINGS) -> float:
    """Return the share of the intervals between times that are near the period around them; 0 for
    too few times."""
    if len(times) < settings.fewest:
        return 0.0
    return float((np.abs(_octaves(times, settings)) < settings.near).mean())


class Usual(NamedTuple):
    """Events that show a rhythm.

    Parameters
    ----------
    taken
        whether each event is one of them: all but those that accompany others, [n]
    regular
        share of their intervals that are near the period
    least
        the smallest size of an event that may fit the rhythm
    """

    taken: np.ndarray
    regular: float
    least: float = 0.0


def find_usual(
    times: np.ndarray,
    waveforms: np.ndarray,
    sizes: np.ndarray,
    length: float = 0.0,
    settings: RhythmSettings = _SETTINGS,
) -> Usual:
    """Return the events that show the rhythm best: all, those of strong waveforms that the weak
    ones accompany, or the large ones.

    Parameters
    ----------
    times
        in order, [n]
    waveforms
        number of each
    sizes
        amplitude of each
    length
        of a waveform, in the unit of the times
    """
    usual = Usual(np.ones(len(times), bool), regularity(times, settings))
    size = {k: float(np.median(sizes[waveforms == k])) for k in np.unique(waveforms)}
    kinds = sorted(size, key=lambda k: -size[k])
    for count in range(1, len(kinds)):
        if size[kinds[count]] > settings.weak * size[kinds[count - 1]]:
            continue
        strong = np.isin(waveforms, kinds[:count])
        regular = regularity(times[strong], settings)
        if regular > max(usual.regular, settings.regular) and _accompany(times, strong, settings):
            usual = Usual(strong, regular)
    if usual.regular >= settings.regular or not size:
        return usual
    most = max(size, key=lambda k: size[k] ** 2 * np.sum(waveforms == k))
    least = settings.large * size[most]
    large = sizes > least
    regular = regularity(times[large], settings)
    if regular < settings.clear or length < settings.duty * np.median(np.diff(times[large])):
        return usual
    return Usual(large, regular, least)


def _accompany(times: np.ndarray, strong: np.ndarray, settings: RhythmSettings) -> bool:
    """Tell whether most weak events come at a few distances from the strong ones."""
    weak = times[~strong]
    if len(weak) < settings.fewest:
        return False
    leaders = times[strong]
    after = np.searchsorted(leaders, weak).clip(0, len(leaders) - 1)
    before = (after - 1).clip(0)
    since = weak - leaders[before]
    until = weak - leaders[after]
    distance = np.where(np.abs(since) < np.abs(until), since, until)
    phase = distance / _periods(leaders, weak, settings)
    counts = np.histogram(phase, np.linspace(-0.5, 0.5, settings.phases + 1))[0]
    most = int(np.sort(counts)[-settings.few :].sum())
    return most > settings.accompany * len(weak)


def choose_in_rhythm(
    candidates: Candidates, usual: np.ndarray, settings: RhythmSettings = _SETTINGS
) -> np.ndarray:
    """Return the numbers of the candidates that fit the rhythm best, in order.

    Parameters
    ----------
    usual
        times of the events that are found without a rhythm, which show it first
    """
    share = candidates.share.clip(1 - settings.certain, settings.certain)
    odds = np.log(share / (1 - share)) + settings.evidence
    evidence = odds
    times = usual
    chosen = np.zeros(0, int)
    count = int(candidates.waveform.max()) + 1
    for _ in range(settings.rounds):
        period = _periods(times, candidates.time, settings)
        costs = _interval_costs(times, settings)
        chosen = _best_sequence(candidates.time, evidence, period, costs, settings)
        times = candidates.time[chosen]
        # one event more on both sides: a waveform with few events is not sure
        fits = np.bincount(candidates.waveform[chosen], minlength=count) + 1
        others = np.bincount(candidates.waveform, minlength=count) + 2 - fits
        evidence = odds + settings.waveforms * np.log(fits / others)[candidates.waveform]
    return chosen


def _periods(times: np.ndarray, at: np.ndarray, settings: RhythmSettings) -> np.ndarray:
    """Return the median of the intervals around each place."""
    intervals = np.diff(times)
    middles = (times[1:] + times[:-1]) / 2
    size = 2 * settings.around + 1
    padded = np.pad(intervals, settings.around, mode="edge")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, size), axis=1)
    return np.interp(at, middles, medians).clip(1e-12)


def _octaves(times: np.ndarray, settings: RhythmSettings) -> np.ndarray:
    """Return how many octaves each interval is above its period."""
    middles = (times[1:] + times[:-1]) / 2
    intervals = np.diff(times).clip(1e-12)
    octaves: np.ndarray = np.log2(intervals / _periods(times, middles, settings))
    return octaves


def _interval_costs(times: np.ndarray, settings: RhythmSettings) -> np.ndarray:
    """Return the log of how often each interval occurs, 0 for the most frequent one, [bins]."""
    reach = settings.octaves
    edges = np.linspace(-reach, reach, round(2 * reach * settings.bins) + 1)
    inside = _octaves(times, settings).clip(-reach, reach)
    counts = np.histogram(inside, edges)[0]
    weights = np.array([1, 2, 3, 2, 1]) / 9
    smooth = np.convolve(np.pad(counts, 2, mode="edge"), weights, "valid")
    often: np.ndarray = np.maximum(smooth / smooth.sum(), settings.rare)
    return np.log(often / often.max())


def _best_sequence(
    time: np.ndarray,
    evidence: np.ndarray,
    period: np.ndarray,
    costs: np.ndarray,
    settings: RhythmSettings,
) -> np.ndarray:
    """Return the numbers of the candidates whose evidence and intervals have the largest sum."""
    count = len(time)
    best = evidence.copy()
    before = np.full(count, -1)
    for n in range(1, count):
        earlier = np.arange(max(0, n - settings.back), n)
        interval = (time[n] - time[earlier]).clip(1e-12)
        octaves = np.log2(interval / period[n]) + settings.octaves
        place = (octaves * settings.bins).astype(int).clip(0, len(costs) - 1)
        total = best[earlier] + np.where(octaves < 0, _IMPOSSIBLE, costs[place])
        largest = int(total.argmax())
        # only the first candidates may begin the sequence
        if n >= settings.back or total[largest] > 0:
            before[n] = earlier[largest]
            best[n] = total[largest] + evidence[n]
    first_of_last = max(0, count - settings.back)
    n = first_of_last + int(best[first_of_last:].argmax())
    chosen = []
    while n >= 0:
        chosen.append(n)
        n = int(before[n])
    return np.array(chosen[::-1])
