"""Settings for the person who has a recording: how many waveforms, how long, and what is taken off
before they are learned.

    hum        a line in the spectrum at 50 or 60 Hz, where the rate is known
    baseline   the running median of four waveforms' length (`ops.baseline`)
    length     the part around peaks that holds nearly all of their energy
    waveforms  pieces around peaks, in clusters; clusters whose means are the same at a shift are
               one waveform, and those with few pieces none

Chosen on the simulated recordings of benchmarks/simulated_recordings.py, mostly with other seeds
than that of the benchmark, whose recordings were looked at early, too.
"""

import tempfile
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data.images import Images
from whatwhere.data.signals import WINDOW, Signals, cut_windows, training_windows
from whatwhere.errors import plural
from whatwhere.ops.baseline import baseline
from whatwhere.ops.input_stage import InputStage
from whatwhere.spec import InputSpec

SAMPLE = 1 << 17  # samples that settings are chosen from
BLOCK = 1 << 16  # samples of a block whose baseline is computed together
IN_MEMORY = 1 << 26  # values without a baseline that are kept in memory; more are in a file
LENGTHS = (12, 24, 48, 96, 192)  # of waveforms, that are tried
USUAL = 64  # samples of a waveform where no event shows its length
LONGEST_SPAN = 4096  # samples of a baseline
SPANS = 4  # lengths of a waveform in the span of the baseline
MAINS = (50.0, 60.0)  # Hz
LINE = 100.0  # times the median power near it that the power of the mains is at least
MEDIAN_OF_NORMAL = 0.6745  # of |x| for a normal x of standard deviation 1
PEAK = 5.0  # standard deviations of the noise that a peak exceeds
FAINT = 0.01  # of the power at the peak: what is less is not a part of the waveform
NEARLY = 0.93  # of the best contrast
ROOM = 1.25  # length of a filter, in extents of the waveforms
ROUNDS = 20  # of k-means
CLUSTERS = 12
PIECES = 4000  # that are clustered
SAME = 0.93  # correlation of two waveforms that are one
FINE = 4  # shifts in a sample
FEWEST = 0.02  # of all pieces that a cluster has at least, and
LEAST = 4  # pieces


@dataclass(frozen=True)
class RecordingSettings:
    """What was chosen from a recording.

    input      its input stage
    waveforms  to begin with, [n, C, length], of unit length each; None if there are too few events
    words      what was chosen
    """

    input: InputSpec
    waveforms: Tensor | None
    words: str


def choose_settings(
    signals: Signals, waveforms: int | None = None, length: int | None = None, seed: int = 0
) -> RecordingSettings:
    """The input stage and the waveforms for signals.

    waveforms  their number; None: as many as the recording shows
    length     of each, in samples; None: as long as the events are
    """
    x = sample_of(signals)
    hum = find_hum(x, signals.rate)
    extent = choose_extent(x, hum)
    if extent is None:
        extent = Extent(USUAL // 2, USUAL - USUAL // 2 - 1)
    whole = extent.with_length(length or min(round(ROOM * extent.length), x.shape[1] // 4))
    span = min(SPANS * whole.length, LONGEST_SPAN)
    stage = InputSpec(kind="baseline", span=span, hum=hum)
    v = remove_baseline(x, span, hum)
    peaks = find_peaks(strength_of(v), whole.length // 2)
    pieces = pieces_at(v, strongest(v, peaks), whole)
    if len(pieces) < LEAST:
        words = (
            f"{plural(len(pieces), 'event')} above {PEAK:g} deviations of the noise, too few to"
            " choose waveforms from; those of the recipe signals"
        )
        return RecordingSettings(stage, None, words)
    found = find_waveforms(pieces, waveforms, seed)
    return RecordingSettings(stage, found.shapes, in_words(signals, found, span, hum))


def in_words(signals: Signals, found: "Waveforms", span: int, hum: float) -> str:
    """One line that says what was chosen."""
    count, _, length = found.shapes.shape
    shifted = (
        f", {plural(found.copies, 'cluster')} merged as shifted copies" if found.copies else ""
    )
    rare = f", {plural(found.rare, 'cluster')} too rare" if found.rare else ""
    off = f"running median of {shown_length(span, signals.rate)} subtracted"
    if hum and signals.rate:
        off += f", hum of {hum * signals.rate:.2f} Hz subtracted"
    return (
        f"{plural(count, 'waveform')} of {shown_length(length, signals.rate)}, from"
        f" {plural(sum(found.counts), 'event')}{shifted}{rare}; {off}"
    )


def shown_length(samples: int, rate: float | None) -> str:
    """A length in samples, and in milliseconds where the rate is known."""
    return f"{samples} samples" + ("" if rate is None else f" ({1000 * samples / rate:.3g} ms)")


def sample_of(signals: Signals) -> Tensor:
    """At most SAMPLE samples of signals, [C, T]: the middle of the first one, or as many signals as
    that, with gaps between them."""
    count, channels, _, length = signals.pixels.shape
    if length >= SAMPLE:
        first = (length - SAMPLE) // 2
        return signals.recording(0)[:, :, first : first + SAMPLE][:, 0]
    rows = range(min(count, max(1, SAMPLE // length)))
    gap = torch.full((channels, length // 2), torch.nan)
    parts = []
    for row in rows:
        if row:
            parts.append(gap)
        parts.append(signals[row])
    return torch.cat(parts, 1)


# What is taken off --------------------------------------------------------------------------------


def find_hum(x: Tensor, rate: float | None) -> float:
    """The frequency of the mains in signals [C, T], in cycles per sample; 0 where there is no line
    in the spectrum."""
    if rate is None or x.shape[1] < 64:
        return 0.0
    x = x.double()
    x = torch.where(x.isnan(), 0, x - x.nanmedian(1, keepdim=True).values)
    window = torch.hann_window(x.shape[1], periodic=False, dtype=x.dtype)
    power = torch.fft.rfft(x * window).abs().square().sum(0)
    width = rate / x.shape[1]  # Hz of a line of the spectrum
    best = 0.0
    strongest = LINE
    for mains in MAINS:
        near = round(max(0.6, 2 * width) / width)
        wide = round(max(6.0, 20 * width) / width)
        centre = round(mains / width)
        if centre - wide < 1 or centre + near + 1 >= len(power):
            continue
        around = power[centre - wide : centre + wide + 1]
        at = centre - near + int(power[centre - near : centre + near + 1].argmax())
        excess = float(power[at] / around.median().clamp(min=1e-300))
        if excess > strongest:
            strongest = excess
            best = (at + line_offset(power, at)) / x.shape[1]
    return best


def line_offset(power: Tensor, at: int) -> float:
    """Where between samples of a spectrum the top of a line is: that of a parabola."""
    left, top, right = (float(power[at + k].clamp(min=1e-300).log()) for k in (-1, 0, 1))
    curvature = left - 2 * top + right
    return 0.0 if curvature >= 0 else 0.5 * (left - right) / curvature


def remove_baseline(x: Tensor, span: int, hum: float) -> Tensor:
    """Signals [C, T] without their slow part; NaN stays."""
    known = ~x.isnan()
    low = baseline(x.nan_to_num(0)[None, :, None], span, hum, known[None, :, None].float())
    return x - low[0, :, 0]


class Detrended(Images):
    """Windows of a recording whose slow part is taken off; a run knows it by the recording."""

    @property
    def fingerprint(self) -> str:
        return str(self.__dict__["recorded_fingerprint"])


def detrended(signals: Signals, stage: InputStage) -> Images:
    """Windows of signals without their slow part: it needs more samples than a window has.

    The model's input stage finds next to nothing more to subtract from them.
    """
    if stage.spec.kind != "baseline" or signals.shape[2] < 2 * WINDOW:
        return training_windows(signals).as_images()
    count, channels, _, length = signals.pixels.shape
    values = new_values((count, channels, 1, length))
    for row in range(count):
        recording = signals.recording(row)
        for first in range(0, length, BLOCK):
            last = min(first + BLOCK, length)
            begin = max(0, first - stage.reach)
            x = recording[:, :, begin : last + stage.reach][None]
            known = ~x.isnan()
            detail, _ = stage.forward(x.nan_to_num(0), known.float())
            block = torch.where(known, detail, torch.nan)[0, :, :, first - begin : last - begin]
            values[row, :, :, first:last] = block.numpy()
    clean = replace(signals, pixels=values, allow_nan=True)
    windows = Detrended(**vars(cut_windows(clean, WINDOW).as_images()))
    windows.__dict__["recorded_fingerprint"] = signals.fingerprint
    return windows


def new_values(shape: tuple[int, ...]) -> np.ndarray:
    """Room for values, in memory or, for many, in a temporary file."""
    if np.prod(shape) <= IN_MEMORY:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it
        return np.memmap(file, np.float32, "w+", shape=shape)


# The length of the waveforms ----------------------------------------------------------------------


def deviations_of(v: Tensor) -> Tensor:
    """The standard deviation of the noise of each channel of signals [C, T], by the median."""
    level = v.abs().nanmedian(1, keepdim=True).values / MEDIAN_OF_NORMAL
    return level.clamp(min=torch.finfo(v.dtype).tiny)


def strength_of(v: Tensor) -> Tensor:
    """How far each place of signals [C, T] is above the noise of its channels: the largest."""
    return (v / deviations_of(v)).nan_to_num(0).abs().amax(0)


def contrast_of(v: Tensor) -> float:
    """How far the strongest hundredth of the samples stands out from the noise."""
    strength = strength_of(v)
    return float(strength.topk(max(1, len(strength) // 100)).values.mean())


def find_peaks(strength: Tensor, distance: int, least: float = PEAK) -> Tensor:
    """The places of the largest values within `distance` samples to both sides."""
    largest = F.max_pool1d(strength[None, None], 2 * distance + 1, 1, distance)[0, 0]
    return ((strength == largest) & (strength > least)).nonzero()[:, 0]


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


def find_extent(v: Tensor, longest: int) -> Extent | None:
    """The samples around peaks whose mean power is above that of the noise; None without peaks."""
    peaks = find_peaks(strength_of(v), longest)
    peaks = peaks[(peaks >= longest) & (peaks < v.shape[1] - longest)]
    if len(peaks) < LEAST:
        return None
    power = (v / deviations_of(v)).square().nan_to_num(1).sum(0)
    around = power.unfold(0, 2 * longest + 1, 1)[peaks - longest].mean(0)
    excess = around - around.median()
    # a mean of n squares of normal values has the deviation √(2 / n)
    least = max(FAINT * float(excess[longest]), 3 * (2 * len(v) / len(peaks)) ** 0.5)
    present = excess > least
    before = last_present(present[: longest + 1].flip(0))
    after = last_present(present[longest:])
    return Extent(max(1, before), max(1, after))


def last_present(present: Tensor) -> int:
    """The end of what begins at 0: after it, nothing for half as long as it is."""
    last = 0
    for place in present.nonzero()[:, 0].tolist():
        if place - last > max(3, last // 2):
            break
        last = place
    return last


def choose_extent(x: Tensor, hum: float) -> Extent | None:
    """The extent of the waveforms of signals [C, T], by the longest baseline that leaves nearly the
    best contrast: a shorter one takes parts of waveforms off, a longer one leaves the drift."""
    clean = [(length, remove_baseline(x, SPANS * length, hum)) for length in LENGTHS]
    contrasts = [contrast_of(v) for _, v in clean]
    best = max(contrasts)
    good = [
        one for one, contrast in zip(clean, contrasts, strict=True) if contrast >= NEARLY * best
    ]
    length, v = good[-1]
    first = find_extent(v, length)
    if first is None:
        return None
    # once more, as far as the first one suggests: more peaks are alone
    near = 3 * first.length // 2 + 16
    return find_extent(remove_baseline(x, SPANS * max(near, length // 2), hum), near) or first


# The waveforms ------------------------------------------------------------------------------------


def pieces_at(v: Tensor, peaks: Tensor, extent: Extent) -> Tensor:
    """Pieces of signals [C, T] around peaks, [n, C, length], of unit length; those that reach
    beyond an end or into a gap are left out."""
    inside = (peaks >= extent.before) & (peaks + extent.after < v.shape[1])
    pieces = v.unfold(1, extent.length, 1)[:, peaks[inside] - extent.before].transpose(0, 1)
    pieces = pieces[~pieces.isnan().flatten(1).any(1)]
    return unit(pieces)


def strongest(v: Tensor, peaks: Tensor) -> Tensor:
    """At most PIECES peaks, those of the largest values, in order."""
    strength = strength_of(v)[peaks]
    chosen = strength.argsort(descending=True)[:PIECES]
    return peaks[chosen.sort().values]


def unit(waveforms: Tensor) -> Tensor:
    """The same, each of unit length, [n, C, length]."""
    norm = waveforms.flatten(1).norm(dim=1).clamp(min=torch.finfo(waveforms.dtype).tiny)
    return waveforms / norm[:, None, None]


def cluster(pieces: Tensor, clusters: int, seed: int) -> Tensor:
    """The number of the cluster of each piece: k-means, begun by k-means++."""
    generator = torch.Generator().manual_seed(seed)
    rows = pieces.flatten(1)
    centres = rows[torch.randint(len(rows), (1,), generator=generator)]
    while len(centres) < min(clusters, len(rows)):
        distance = torch.cdist(rows, centres).amin(1).square()
        if not distance.any():
            break
        chosen = torch.multinomial(distance, 1, generator=generator)
        centres = torch.cat([centres, rows[chosen]])
    for _ in range(ROUNDS):
        number = torch.cdist(rows, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, number, rows)
        counts = torch.bincount(number, minlength=len(centres)).clamp(min=1)
        centres = sums / counts[:, None]
    return torch.cdist(rows, centres).argmin(1)


def likeness(a: Tensor, b: Tensor) -> Tensor:
    """The largest correlation of waveforms [m, C, K] and [n, C, K] of unit length over shifts by at
    most half of it, [m, n]."""
    fine_a = unit(F.interpolate(a, scale_factor=FINE, mode="linear"))
    fine_b = unit(F.interpolate(b, scale_factor=FINE, mode="linear"))
    return F.conv1d(fine_a, fine_b, padding=fine_a.shape[2] // 2).amax(2)


class Waveforms(NamedTuple):
    """Waveforms [n, C, K] of unit length, the strongest first; the pieces of each; clusters that
    were copies of another at a shift; and clusters with too few pieces."""

    shapes: Tensor
    counts: list[int]
    copies: int
    rare: int


def find_waveforms(pieces: Tensor, most: int | None, seed: int = 0) -> Waveforms:
    """The waveforms that pieces [n, C, K] show.

    most  of them; None: as many as there are
    """
    clusters = CLUSTERS if most is None else max(CLUSTERS, 2 * most)
    number = cluster(pieces, clusters, seed)
    counts = torch.bincount(number)
    order = [int(k) for k in counts.argsort(descending=True) if counts[k] > 0]
    fewest = max(LEAST, FEWEST * len(pieces))
    groups: list[list[int]] = []
    rare = 0
    for k in order:
        centre = unit(pieces[number == k].mean(0, keepdim=True))
        means = [group_mean(pieces, number, group) for group in groups]
        alike = [float(likeness(mean, centre)) for mean in means]
        if alike and max(alike) > SAME:
            groups[alike.index(max(alike))].append(k)
        elif counts[k] >= fewest:
            groups.append([k])
        else:
            rare += 1
    if not groups:
        groups = [[order[0]]]
    sizes = [int(sum(counts[k] for k in group)) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda n: -sizes[n])[:most]
    # the first cluster of a group is its largest, and is not blurred by shifts
    shapes = torch.cat([group_mean(pieces, number, groups[n]) for n in chosen])
    copies = sum(len(group) - 1 for group in groups)
    return Waveforms(shapes, [sizes[n] for n in chosen], copies, rare)


def group_mean(pieces: Tensor, number: Tensor, group: list[int]) -> Tensor:
    """The mean of the first cluster of a group, [1, C, K], of unit length."""
    return unit(pieces[number == group[0]].mean(0, keepdim=True))
