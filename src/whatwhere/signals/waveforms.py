"""The waveforms that a recording shows: how far they reach around their peaks, and how many there
are.

    noise      of each channel, where it is quietest: waveforms may cover most of a recording
    extent     the samples around the largest peaks that are alike from peak to peak. What follows
               every peak at the same distance, such as the T wave of a heart beat, belongs to its
               waveform; what comes at any distance is another event
    waveforms  pieces around peaks, in clusters (`signals.clusters`). Clusters with few pieces are
               none, and neither is one whose peaks follow those of a larger waveform: it is a part
               of that waveform
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.signals.clusters import ClusterSettings, cluster_pieces

MEDIAN_OF_NORMAL = 0.6745  # of |x| for a normal x of standard deviation 1


@dataclass(frozen=True)
class PeakSettings:
    """How the noise, peaks and the extent of waveforms are measured.

    Parameters
    ----------
    window
        samples in each window that the noise is measured in
    quiet
        share of the windows with less noise than the recording
    quiet_of_normal
        noise of these windows of white noise, as a share of its deviation
    parts
        of a recording; in most of them a sensor is on
    fewest_windows
        in a part, that show its noise
    off
        share of the usual noise of a part; windows with less are those of a sensor that was off
    around
        windows around a place that show whether it is in a burst of noise
    burst
        times the usual fast noise; more is a burst
    peak
        standard deviations of the noise that a peak exceeds
    blocks
        blocks of a recording; the median of their largest values is the usual largest
    large
        share of the usual largest value; larger peaks show how long the waveforms are
    shortest
        samples to each side of a peak, to begin with
    growth
        times that the extent may grow
    common
        share of the peaks; rarer ones say nothing about the extent
    nearest
        share of the distances between peaks that may be shorter than a waveform
    coherent
        share of the power around peaks that their mean has within the waveform
    faint
        share of the power at the peak; less is not part of the waveform
    enough
        peaks to compare
    certain
        standard deviations of a mean
    room
        length of a filter, in extents of the waveforms
    mostly
        share of the energy, and of the peaks, from which waveforms cover a recording; slow noise
        reaches 0.61 and 0.63
    least
        pieces of a waveform
    """

    window: int = 64
    quiet: float = 0.25
    quiet_of_normal: float = 0.91
    parts: int = 8
    fewest_windows: int = 32
    off: float = 1 / 3
    around: int = 32
    burst: float = 3.0
    peak: float = 5.0
    blocks: int = 32
    large: float = 0.5
    shortest: int = 6
    growth: int = 8
    common: float = 0.1
    nearest: float = 0.1
    coherent: float = 0.25
    faint: float = 0.01
    enough: int = 500
    certain: float = 4.0
    room: float = 1.25
    mostly: float = 0.62
    least: int = 3


PEAKS = PeakSettings()


# Noise and peaks ----------------------------------------------------------------------------------


def deviations_of(v: Tensor, settings: PeakSettings = PEAKS) -> Tensor:
    """Return the standard deviation of the noise of each channel of signals [C, T], [C, 1].

    It is measured in the quietest windows, by the median of each: the median of a whole recording
    measures the noise only if waveforms cover less than half of it.
    """
    quiet = _quiet_level(_levels(v, settings), settings) / settings.quiet_of_normal
    return quiet.nan_to_num(1.0).clamp(min=torch.finfo(v.dtype).tiny)


def _quiet_level(levels: Tensor, settings: PeakSettings) -> Tensor:
    """Return the level in the quietest windows [C, n] in which a sensor is on, [C, 1]."""
    quiet = levels.nanquantile(settings.quiet, 1, keepdim=True)
    # an electrode that is off for a while has less noise than ever
    part = levels.shape[1] // settings.parts
    if part < settings.fewest_windows:
        return quiet
    parts = levels[:, : part * settings.parts].unflatten(1, (settings.parts, part))
    usual = parts.nanquantile(settings.quiet, 2).nanmedian(1, keepdim=True).values
    return torch.where(quiet < settings.off * usual, usual, quiet)


def _levels(v: Tensor, settings: PeakSettings) -> Tensor:
    """Return the deviation in windows of signals [C, T], each half a window after the one before;
    NaN where a sensor is off."""
    size = min(settings.window, v.shape[1])
    levels = v.abs().unfold(1, size, max(1, size // 2)).nanmedian(2).values / MEDIAN_OF_NORMAL
    return torch.where(levels > 0, levels, torch.nan)


def local_deviations(
    v: Tensor,
    deviations: Tensor,
    settings: PeakSettings = PEAKS,
    usual: Tensor | None = None,
) -> Tensor:
    """Return the standard deviation of the noise at each sample of signals [C, T], at least that of
    the recording: in a burst of noise, such as that of a muscle, peaks are no events.

    A burst has more of the fast noise, that of differences, all around than the recording has;
    events that follow each other closely do not, unless they are as fast as the noise.

    Parameters
    ----------
    usual
        fast noise of the recording (`fast_noise`), where v is only a part of it, [C, 1]
    """
    levels = _levels(v, settings)
    if levels.shape[1] < settings.around:
        return deviations.expand_as(v)
    fast = _fast_levels(v, settings)
    if usual is None:
        usual = fast.nanquantile(settings.quiet, 1, keepdim=True)
    louder = _around(fast, settings) / usual
    local = torch.minimum(deviations * louder, _around(levels, settings))
    burst = (louder > settings.burst) & (local > deviations)
    if not burst.any():
        return deviations.expand_as(v)
    local = torch.where(burst, local, deviations)
    step = max(1, min(settings.window, v.shape[1]) // 2)
    at = (torch.arange(v.shape[1]) // step).clamp(max=local.shape[1] - 1)
    return local[:, at]


def fast_noise(v: Tensor, settings: PeakSettings = PEAKS) -> Tensor:
    """Return the level of the fast noise of signals [C, T] where they are quiet, [C, 1]."""
    return _quiet_level(_fast_levels(v, settings), settings)


def usual_level(v: Tensor, settings: PeakSettings = PEAKS) -> Tensor:
    """Return the deviation that signals [C, T] usually have in a window, [C, 1]."""
    return _levels(v, settings).nanmedian(1, keepdim=True).values


def _fast_levels(v: Tensor, settings: PeakSettings) -> Tensor:
    """Return the deviation of second differences in windows of signals [C, T]."""
    return _levels(F.pad(v[:, :-2] - 2 * v[:, 1:-1] + v[:, 2:], (1, 1)), settings)


def _around(levels: Tensor, settings: PeakSettings) -> Tensor:
    """Return the quiet level of the windows around each one, [C, n]."""
    reach = settings.around // 2
    padded = F.pad(levels, (reach, reach), value=torch.nan)
    return padded.unfold(1, 2 * reach + 1, 1).nanquantile(settings.quiet, 2)


def strength_of(v: Tensor) -> Tensor:
    """Return how far each place of signals [C, T] is above the noise: the largest value over the
    channels."""
    return (v / local_deviations(v, deviations_of(v))).nan_to_num(0).abs().amax(0)


def white_noise(v: Tensor) -> float:
    """Return the standard deviation of white noise in signals [C, T], by the median of |a - 2 b +
    c| over neighbours a b c, in the channels that change."""
    detail = (v[:, :-2] - 2 * v[:, 1:-1] + v[:, 2:]).abs()
    detail = detail[(detail > 0).any(1)]
    return float(detail.nanmedian().nan_to_num(0)) / 6**0.5 / MEDIAN_OF_NORMAL


def usual_largest(strength: Tensor, settings: PeakSettings = PEAKS) -> float:
    """Return the largest value that a part of a recording usually has."""
    size = max(1, len(strength) // settings.blocks)
    return float(strength.unfold(0, size, size).amax(1).median())


def peaks_of_noise(values: int, settings: PeakSettings = PEAKS) -> int:
    """Return the number of peaks that this many values of white noise hardly exceed: the values
    beyond settings.peak that are expected, and three deviations of their number more."""
    expected = values * math.erfc(settings.peak / 2**0.5)
    return int(expected + 3 * expected**0.5)


class Extent(NamedTuple):
    """Samples of a waveform before and after its peak."""

    before: int
    after: int

    @property
    def length(self) -> int:
        return self.before + 1 + self.after

    def with_length(self, length: int) -> "Extent":
        """Longer or shorter by the same number of samples before and after."""
        before = min(max(0, self.before + (length - self.length) // 2), length - 1)
        return Extent(before, length - 1 - before)


def find_peaks(strength: Tensor, extent: Extent, least: float = PEAKS.peak) -> Tensor:
    """Return the places of peaks that no waveform of a larger peak covers."""
    # a larger peak covers a place if it is at most `after` before it, or `before` after it
    padded = F.pad(strength[None, None], (extent.after, extent.before), value=-torch.inf)
    largest = F.max_pool1d(padded, extent.length, 1)[0, 0]
    return ((strength == largest) & (strength > least)).nonzero()[:, 0]


@dataclass(frozen=True)
class WeakSettings:
    """How events are searched whose peaks are in the noise.

    Parameters
    ----------
    filters
        waveforms whose course over time is a filter, at most
    fewest
        samples far from larger events that show the noise
    tail
        deviation of the noise by its 95th percentile, as a multiple of that by its median, up to
        which it is normal: drifts that a baseline leaves reach 1.6 to 1.9, and the ends of larger
        events 1.2
    """

    filters: int = 8
    fewest: int = 4096
    tail: float = 1.4


@dataclass(frozen=True, eq=False)
class WeakPeaks:
    """A search for events whose peaks are below the noise's: a filter collects the energy of an
    event over its length, and its channels add up.

    Parameters
    ----------
    filters
        courses of known waveforms over time, whatever their channels, [M, K], of unit length each
    levels
        standard deviation of what each finds in the noise of each channel, [C, M, 1]
    extent
        of the waveforms
    least
        the smallest strength over all channels: as rare in noise as a peak
    """

    filters: Tensor
    levels: Tensor
    extent: Extent
    least: float

    @classmethod
    def of(
        cls,
        shapes: Tensor,
        v: Tensor,
        extent: Extent,
        loud: float,
        settings: "WeakSettings | None" = None,
    ) -> "WeakPeaks | None":
        """Take filters from the most frequent waveforms [n, C, K], and their levels from signals
        [C, T] without baseline, far from places of at least `loud` deviations.

        None if no filter finds normal noise there: what is left of a drift comes and goes, and
        looks like weak events.
        """
        settings = settings or WeakSettings()
        scaled = v / deviations_of(v)
        quiet = ~_near(scaled.nan_to_num(0).abs().amax(0) > loud, extent)
        quiet &= ~_near(scaled.isnan().any(0), extent)
        if int(quiet.sum()) < settings.fewest:
            return None
        filters = torch.linalg.svd(shapes[: settings.filters], full_matrices=False).Vh[:, 0]
        found = _filtered(scaled.nan_to_num(0), filters, extent)[:, :, quiet].abs()
        found = found[:, :, :: max(1, found.shape[2] // settings.fewest)]
        levels = found.median(2, keepdim=True).values / MEDIAN_OF_NORMAL
        tails = found.quantile(0.95, 2, keepdim=True) / 1.96  # of a normal distribution
        normal = (tails < settings.tail * levels).all(0)[:, 0]
        if not normal.any():
            return None
        channels = len(v)
        # a quantile of the sum of squares, by Wilson and Hilferty
        spread = 2 / (9 * channels)
        least = (channels * (1 - spread + PEAKS.peak * spread**0.5) ** 3) ** 0.5
        return cls(filters[normal], levels[:, normal], extent, least)

    def find(self, scaled: Tensor, loud: Tensor) -> Tensor:
        """Return the places of weak events in signals [C, T], in deviations of the noise, at least
        a waveform away from the loud places [T]."""
        found = _filtered(scaled.nan_to_num(0), self.filters, self.extent) / self.levels
        strength = found.square().sum(0).sqrt().amax(0)
        quiet = torch.where(_near(loud, self.extent), 0, strength)
        return find_peaks(quiet, self.extent, self.least)


def _near(places: Tensor, extent: Extent) -> Tensor:
    """Tell which samples are within a waveform's length of some places [T]."""
    reach = extent.length
    return F.max_pool1d(places.float()[None], 2 * reach + 1, 1, reach)[0] > 0


def _filtered(x: Tensor, filters: Tensor, extent: Extent) -> Tensor:
    """Return what filters [M, K] find in signals [C, T], each at the peak of its waveform, [C, M,
    T]."""
    return F.conv1d(F.pad(x, (extent.before, extent.after))[:, None], filters[:, None])


# The length of the waveforms ----------------------------------------------------------------------


class Peaks(NamedTuple):
    """What the largest peaks of a recording show: how far their waveforms reach, and the strength
    that a peak has at least."""

    extent: Extent
    least: float


def find_extent(v: Tensor, longest: int, settings: PeakSettings = PEAKS) -> Peaks | None:
    """Return how far the waveforms of signals [C, T] reach around their peaks, at most `longest`
    samples in all; None without peaks.

    Where waveforms cover all of a recording, such as a pulse, nothing shows the noise alone. Then
    peaks are places at least half as strong as the largest, if the mean of their surroundings
    explains most of the recording.
    """
    strength = strength_of(v)
    large = settings.large * usual_largest(strength, settings)
    if large < settings.peak:
        extent = grow_extent(v, strength, large, longest, settings)
        if extent is not None and covers(v, strength, extent, large, settings):
            return Peaks(extent, large)
    extent = grow_extent(v, strength, max(settings.peak, large), longest, settings)
    return None if extent is None else Peaks(extent, settings.peak)


def grow_extent(
    v: Tensor, strength: Tensor, least: float, longest: int, settings: PeakSettings = PEAKS
) -> Extent | None:
    """Return the extent of waveforms around peaks of at least this strength; None with too few of
    them.

    Peaks inside of a waveform count as peaks until its extent is known, so that it grows in steps.
    """
    extent = Extent(settings.shortest, settings.shortest)
    fewest = settings.least + (peaks_of_noise(v.numel(), settings) if least >= settings.peak else 0)
    for _ in range(settings.growth):
        peaks = large_peaks(strength, extent, least)
        if len(peaks) < fewest:
            return None
        grown = coherent_extent(v, peaks, longest, settings)
        if grown == extent:
            break
        extent = grown
    return extent


def large_peaks(strength: Tensor, extent: Extent, least: float) -> Tensor:
    """Peaks of at least this strength, one for each stretch that is half as strong: noise makes
    several of a slow one."""
    peaks = find_peaks(strength, extent, least)
    strong = strength > least / 2
    begins = strong & ~F.pad(strong[:-1], (1, 0))
    stretch = begins.cumsum(0)[peaks]
    largest = torch.zeros(int(begins.sum()) + 1).scatter_reduce_(
        0, stretch, strength[peaks].float(), "amax"
    )
    return peaks[strength[peaks].float() >= largest[stretch]]


def coherent_extent(
    v: Tensor, peaks: Tensor, longest: int, settings: PeakSettings = PEAKS
) -> Extent:
    """Return the samples around peaks that are alike, among peaks of one channel and one sign."""
    kinds = kinds_of(v, peaks)
    fewest = max(settings.least, settings.common * len(peaks))
    extent = Extent(1, 1)
    for kind in kinds.unique():
        own = peaks[kinds == kind]
        if len(own) < fewest:
            continue
        # a waveform has no room for the next peak
        room = max(3, min(longest, int(own.diff().double().quantile(settings.nearest))))
        part = densest(coherent_power(v, own, room, settings), room)
        part = part.with_length(min(room, round(settings.room * part.length)))
        extent = Extent(max(extent.before, part.before), max(extent.after, part.after))
    return extent


def covers(
    v: Tensor, strength: Tensor, extent: Extent, least: float, settings: PeakSettings = PEAKS
) -> bool:
    """Tell whether waveforms cover a recording: most peaks are large, those of noise have all
    sizes, and what is around large ones explains most of it."""
    peaks = find_peaks(strength, extent, least)
    count = len(find_peaks(strength, extent, 0.0))
    return (
        len(peaks) > settings.mostly * count
        and explained_share(v, peaks, extent, settings) > settings.mostly
    )


def explained_share(
    v: Tensor, peaks: Tensor, extent: Extent, settings: PeakSettings = PEAKS
) -> float:
    """Return the share of the energy of signals that the mean around peaks explains."""
    kinds = kinds_of(v, peaks)
    reach = max(extent)
    inside = slice(reach - extent.before, reach + extent.after + 1)
    explained = 0.0
    for kind in kinds.unique():
        own = peaks[kinds == kind]
        power = coherent_power(v, own, reach, settings)
        explained += len(own) * float(power[inside].sum())
    return explained / max(float(v.square().nansum()), 1e-300)


def kinds_of(v: Tensor, peaks: Tensor) -> Tensor:
    """Return a number for the channel and the sign of each peak."""
    at = (v / deviations_of(v)).nan_to_num(0)[:, peaks]
    channel = at.abs().argmax(0)
    positive = at.gather(0, channel[None])[0] > 0
    return 2 * channel + positive


def coherent_power(v: Tensor, peaks: Tensor, reach: int, settings: PeakSettings = PEAKS) -> Tensor:
    """Return the power of the mean around peaks, [2 reach + 1]; 0 where pieces are not alike."""
    peaks = peaks[:: max(1, len(peaks) // settings.enough)]
    padded = F.pad(v, (reach, reach), value=torch.nan)
    pieces = padded.unfold(1, 2 * reach + 1, 1)[:, peaks]  # [C, n, 2 reach + 1]
    known = (~pieces.isnan()).sum(1)
    mean = pieces.nanmean(1).nan_to_num(0)
    square = pieces.square().nanmean(1).nan_to_num(0)
    power = mean.square().sum(0)

    # the mean of n values that have nothing in common has the power 1/n
    chance = 1 / known.clamp(min=2)
    common = (mean.square() - chance * square).sum(0)
    alike = common > settings.coherent * ((1 - chance) * square).sum(0)

    variance = (square - mean.square()).clamp(min=0)
    certain = power > settings.certain**2 * (variance * chance).sum(0)
    visible = power > settings.faint * power[reach]
    seen_twice = (known >= 2).any(0)
    return torch.where(alike & certain & visible & seen_twice, power, 0)


def densest(power: Tensor, room: int) -> Extent:
    """Return the part of at most `room` samples, with the peak, that has most of the power, without
    the places at its ends that have none."""
    reach = len(power) // 2
    # sums[b] - sums[a] is the power from a to b
    sums = F.pad(power.double().cumsum(0), (1, 0))
    firsts = torch.arange(max(0, reach - room + 1), reach + 1)
    lasts = (firsts + room).clamp(max=len(power))
    best = int(firsts[(sums[lasts] - sums[firsts]).argmax()])
    present = power[best : best + room].nonzero()[:, 0] + best
    if not len(present):
        return Extent(1, 1)
    return Extent(max(1, reach - int(present[0])), max(1, int(present[-1]) - reach))


# The waveforms -----------------------------------------------------------------------------------


def pieces_at(v: Tensor, peaks: Tensor, extent: Extent) -> Tensor:
    """Pieces of signals [C, T] around peaks, [n, C, length]; those that reach beyond an end or into
    a gap are left out."""
    inside = (peaks >= extent.before) & (peaks + extent.after < v.shape[1])
    pieces = v.unfold(1, extent.length, 1)[:, peaks[inside] - extent.before].transpose(0, 1)
    return pieces[~pieces.isnan().flatten(1).any(1)]


def unit(waveforms: Tensor) -> Tensor:
    """Return the same, each of unit length, [n, C, length]."""
    norm = waveforms.flatten(1).norm(dim=1).clamp(min=torch.finfo(waveforms.dtype).tiny)
    return waveforms / norm[:, None, None]


def likeness(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest correlation of waveforms [m, C, K] and [n, C, K] of unit length over
    shifts by at most half of it, [m, n]."""
    fine = 4  # shifts in a sample
    fine_a = unit(F.interpolate(a, scale_factor=fine, mode="linear"))
    fine_b = unit(F.interpolate(b, scale_factor=fine, mode="linear"))
    return F.conv1d(fine_a, fine_b, padding=fine_a.shape[2] // 2).amax(2)


@dataclass(frozen=True)
class WaveformSettings:
    """Which clusters of pieces become waveforms.

    Parameters
    ----------
    pieces
        pieces that are clustered, at most: 12,000 show ten kinds of events that are as rare as one
        in a hundred
    most
        waveforms, if no number is given
    rare
        share of all pieces that a waveform has at least; overlaps are rarer
    echoes
        share of a cluster's peaks at one distance from those of a larger one that make it a part of
        it
    sums
        share of a cluster's energy that the sum of two others may leave: then its events are
        overlaps of theirs
    often
        times as many pieces that each of the two others has
    clusters
        how pieces are clustered
    """

    pieces: int = 12_000
    most: int = 64
    rare: float = 0.002
    echoes: float = 0.5
    sums: float = 0.15
    often: int = 3
    clusters: ClusterSettings = field(default_factory=ClusterSettings)


class Pieces(NamedTuple):
    """Pieces of a recording around peaks.

    Parameters
    ----------
    values
        [n, C, margin + K + margin], in units of the recording
    at
        the samples of the peaks, [n], sorted
    deviations
        standard deviation of the noise of each channel, [C, 1]
    margin
        samples to each side by which a piece may be shifted
    seen
        values in which peaks were searched
    """

    values: Tensor
    at: Tensor
    deviations: Tensor
    margin: int
    seen: int = 0


class Waveforms(NamedTuple):
    """The waveforms of a recording.

    Parameters
    ----------
    shapes
        [n, C, K], of unit length each, the most frequent first
    sizes
        the usual length of each in units of the recording, [n]
    counts
        pieces of each
    copies
        clusters that were a part of another waveform
    rare
        clusters with too few pieces
    """

    shapes: Tensor
    sizes: Tensor
    counts: list[int]
    copies: int
    rare: int


@dataclass
class _Kind:
    """A cluster of pieces: its mean [C, K], the samples of its peaks, and its number of pieces."""

    mean: Tensor
    at: np.ndarray

    @property
    def count(self) -> int:
        return len(self.at)

    @property
    def size(self) -> float:
        return float(self.mean.norm())


def find_waveforms(
    pieces: Pieces,
    number: int | None = None,
    seed: int = 0,
    settings: WaveformSettings | None = None,
) -> Waveforms:
    """Find the waveforms that pieces of a recording show.

    Parameters
    ----------
    number
        the most frequent ones to return; None for as many as the pieces show
    """
    settings = settings or WaveformSettings()
    scaled = (pieces.values / pieces.deviations).numpy()
    clusters = cluster_pieces(scaled, pieces.margin, seed, settings.clusters)
    at = pieces.at.numpy()
    kinds = []
    for k in np.unique(clusters.number):
        own = np.flatnonzero(clusters.number == k)
        shift = clusters.shift[own]
        kinds.append(_Kind(_mean_of(pieces, own, shift), at[own] + shift))
    kinds.sort(key=lambda kind: -kind.count)

    # the more pieces there are, the more of them are alike by chance
    by_chance = math.ceil(math.log2(max(1, len(at))) / 2)
    fewest = max(PEAKS.least, round(settings.rare * len(at)), by_chance)
    common = [kind for kind in kinds if kind.count >= fewest] or kinds[:1]
    reach = pieces.values.shape[2] - 2 * pieces.margin
    whole = [kind for kind in common if not _is_echo(kind, common, reach, settings.echoes)]
    noise = float(pieces.deviations.square().sum()) * reach
    chosen = [kind for kind in whole if not _is_overlap(kind, whole, noise, settings)]
    rare = len(kinds) - len(common) + len(whole) - len(chosen)
    copies = len(common) - len(whole)
    chosen = chosen[: settings.most if number is None else number]
    shapes = unit(torch.stack([kind.mean for kind in chosen]))
    sizes = torch.tensor([kind.size for kind in chosen])
    return Waveforms(shapes, sizes, [kind.count for kind in chosen], copies, rare)


def _mean_of(pieces: Pieces, own: np.ndarray, shift: np.ndarray) -> Tensor:
    """Return the mean of some pieces without their margins, each cut some samples later, [C, K]."""
    length = pieces.values.shape[2] - 2 * pieces.margin
    total = torch.zeros(pieces.values.shape[1], length)
    for each in np.unique(shift):
        first = min(max(0, pieces.margin + int(each)), 2 * pieces.margin)
        total += pieces.values[own[shift == each], :, first : first + length].sum(0)
    return total / len(own)


def _is_echo(kind: _Kind, kinds: list[_Kind], reach: int, share: float) -> bool:
    """Tell whether most peaks of a kind are at one distance, less than `reach`, from those of a
    larger kind."""
    for other in kinds:
        if other is kind or other.size <= kind.size:
            continue
        first = np.searchsorted(other.at, kind.at - reach)
        stop = np.searchsorted(other.at, kind.at + reach)
        counts = np.zeros(2 * reach + 1)
        for begin, end, at in zip(first, stop, kind.at, strict=True):
            distance = np.unique(other.at[begin:end] - at) + reach
            counts[distance[(distance >= 0) & (distance <= 2 * reach)]] += 1
        if np.convolve(counts, np.ones(3), "same").max() > share * kind.count:
            return True
    return False


def _is_overlap(kind: _Kind, kinds: list[_Kind], noise: float, settings: WaveformSettings) -> bool:
    """Tell whether the mean of a kind is the sum of two more frequent ones at some shifts.

    Parameters
    ----------
    noise
        the energy of the noise in a piece
    """
    often = [other.mean for other in kinds if other.count >= settings.often * kind.count][:12]
    if not often:
        return False
    length = kind.mean.shape[1]
    step = max(1, len(often) * length // 1000)
    shifted = F.pad(torch.stack(often), (length, length)).unfold(2, length, step)
    rows = shifted.transpose(1, 2).flatten(2).flatten(0, 1)  # [kinds · shifts, C K]
    mean = kind.mean.flatten()
    # |m - a - b|² for all pairs of rows a, b
    cost = rows.square().sum(1) - 2 * (rows @ mean)
    left = mean @ mean + cost + cost[:, None] + 2 * (rows @ rows.T)
    return float(left.min()) < settings.sums * float(mean @ mean) + noise / kind.count
