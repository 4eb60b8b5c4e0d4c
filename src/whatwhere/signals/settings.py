"""Settings chosen from a recording: how many waveforms, how long they are, and what is subtracted
before they are learned.

    hum        a line in the spectrum at 50 or 60 Hz, where the rate is known
    baseline   the running median of four waveforms' length (`ops.baseline`)
    waveforms  how long they are, and how many (`signals.waveforms`)
    λ          leaves out what is small in comparison with the usual event

The settings were chosen on the simulated recordings of benchmarks/signals/simulated_recordings.py,
mostly with other seeds than the benchmark's, although its recordings were also used early on, and
on those real recordings that benchmarks/signals/real_recordings.py names.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, listed, plural, warn
from whatwhere.ops.baseline import baseline, baseline_reach
from whatwhere.signals.recording import Signals
from whatwhere.signals.rhythm import RhythmSettings, regularity
from whatwhere.signals.waveforms import (
    MEDIAN_OF_NORMAL,
    PEAKS,
    Extent,
    Peaks,
    Pieces,
    Waveforms,
    WaveformSettings,
    WeakPeaks,
    deviations_of,
    find_extent,
    find_peaks,
    find_waveforms,
    local_deviations,
    peaks_of_noise,
    usual_level,
    white_noise,
)
from whatwhere.spec import InputSpec


@dataclass(frozen=True)
class ChoiceSettings:
    """How the settings of a recording are chosen.

    Parameters
    ----------
    block
        samples of a block that pieces are read from
    sample
        samples that the baseline, the hum and the extent are chosen from: the middle of a
        recording, or
    stretches
        of all of it, if the usual level of the middle is not between 1 / typical and
    typical
        times that of the recording, both without a baseline of
    judged_span
        samples
    lengths
        lengths of waveforms that are tried
    longest_span
        samples of a baseline
    spans
        lengths of a waveform in the span of the baseline
    contrast
        a baseline that leaves this contrast is good enough, and so is
    nearly
        one that leaves this share of the best contrast
    poor
        a longer baseline that leaves less contrast leaves a drift that hides events
    part
        share of the events' length; shorter waveforms get a warning
    again
        times that the extent is found with its own baseline
    unequal
        times the deviation of another channel: the other one hardly counts
    mains
        Hz
    line
        the power of the mains is at least this many times the median power near it
    clear
        deviations of the noise: one or two such peaks are events
    noise
        an event's coefficients exceed this many deviations of the noise, and
    small
        this share of those of the smallest waveform; both choose λ
    """

    block: int = 1 << 16
    sample: int = 1 << 17
    stretches: int = 8
    typical: float = 3.0
    judged_span: int = 384
    lengths: tuple[int, ...] = (12, 24, 48, 96, 192, 384)
    longest_span: int = 4096
    spans: int = 4
    contrast: float = 10.0
    nearly: float = 0.93
    poor: float = 6.0
    part: float = 0.5
    again: int = 2
    unequal: float = 10.0
    mains: tuple[float, ...] = (50.0, 60.0)
    line: float = 100.0
    clear: float = 8.0
    noise: float = 4.0
    small: float = 0.35


_SETTINGS = ChoiceSettings()
_NO_PEAKS = Peaks(Extent(32, 31), PEAKS.peak)  # where no event shows the length of a waveform


class NoEvents(ImageError):
    """A recording in which no event stands out from the noise.

    Attributes
    ----------
    name
        the recording
    events
        how many peaks exceed the noise
    clear
        deviations of the noise from which one peak is an event
    """

    def __init__(self, name: str, events: int, clear: float = _SETTINGS.clear) -> None:
        self.name = name
        self.events = events
        super().__init__(
            f"{name} has no events to learn waveforms from: {plural(events, 'peak')} of it"
            f" {'exceeds' if events == 1 else 'exceed'} {PEAKS.peak:g} standard deviations of the"
            f" noise, as in noise alone; expected at least {PEAKS.least} more than noise has, or"
            f" one of {clear:g} deviations. Check the recording, or learn from it without events:"
            " --recipe signals."
        )


@dataclass(frozen=True)
class RecordingSettings:
    """The settings chosen from a recording.

    Parameters
    ----------
    input
        its input stage
    waveforms
        to begin with, [n, C, length], of unit length each
    words
        what was chosen
    lam
        λ that leaves out what is small in comparison with the events
    final
        whether the waveforms are known, so that training leaves them as they are
    """

    input: InputSpec
    waveforms: Tensor
    words: str
    lam: float
    final: bool = False


def choose_settings(
    signals: Signals,
    waveforms: int | None = None,
    length: int | None = None,
    seed: int = 0,
    settings: ChoiceSettings = _SETTINGS,
) -> RecordingSettings:
    """Return the input stage and the waveforms for signals.

    Parameters
    ----------
    waveforms
        their number; None: as many as the recording shows
    length
        length of each in samples; None takes the length of the events

    Raises NoEvents if no event stands out from the noise.
    """
    # windows show less of slow events and of the drift
    x = sample_of(signals.recorded_as or signals, settings)
    if not _varies(x):
        raise NoEvents(signals.name, 0)
    hum = find_hum(x, signals.rate, settings)
    seen, clean = choose_extent(x, hum, settings)
    extent = seen.extent
    if length is not None:
        warn_of_short(length, seen, signals.rate, settings)
        extent = extent.with_length(length)
    span = min(settings.spans * extent.length, settings.longest_span)
    if length is None:
        span = min(span, clean)
    stage = InputSpec(kind="baseline", span=span, hum=hum)
    v = remove_baseline(x, span, hum)
    warn_of_unequal_channels(v, signals.channel_names, settings)
    pieces = read_pieces(signals.recorded_as or signals, stage, extent, seen.least)
    clearest = (pieces.values / pieces.deviations).abs().amax() if len(pieces.at) else 0
    if len(pieces.at) < peaks_of_noise(pieces.seen) + PEAKS.least and clearest < settings.clear:
        raise NoEvents(signals.name, len(pieces.at), settings.clear)
    found = find_waveforms(pieces, waveforms, seed)
    if regularity(pieces.at.double().numpy()) < RhythmSettings().regular:
        weak = WeakPeaks.of(found.shapes, v, extent, seen.least)
        if weak is not None:
            pieces = read_pieces(signals.recorded_as or signals, stage, extent, seen.least, weak)
            found = find_waveforms(pieces, waveforms, seed)
    words = in_words(signals, found, waveforms, span, hum)
    return RecordingSettings(stage, found.shapes, words, choose_lam(v, found.sizes, settings))


def _varies(x: Tensor) -> bool:
    """Tell whether a channel of signals [C, T] has two different values."""
    usual = x.nanmedian(1, keepdim=True).values
    return bool(((x != usual) & ~x.isnan()).any())


def read_pieces(
    signals: Signals,
    stage: InputSpec,
    extent: Extent,
    least: float,
    weak: WeakPeaks | None = None,
    settings: WaveformSettings | None = None,
    choice: ChoiceSettings = _SETTINGS,
) -> Pieces:
    """Read pieces around peaks from the whole recording, block by block in an order that spreads
    over it, until there are enough.

    Parameters
    ----------
    least
        deviations of the noise that a peak has at least
    weak
        finds weak events far from peaks; None reads pieces around peaks alone
    """
    settings = settings or WaveformSettings()
    margin = (extent.length + 1) // 2
    wide = Extent(extent.before + margin, extent.after + margin)
    beyond = baseline_reach(stage.span, stage.hum) + wide.length
    blocks = _blocks_of(signals, choice.block)
    deviations = deviations_of(remove_baseline(sample_of(signals, choice), stage.span, stage.hum))
    values = []
    places = []
    count = 0
    seen = 0
    length = signals.shape[2]
    for row, first in blocks:
        begin = max(0, first - beyond)
        last = min(first + choice.block, length)
        x = signals.recording(row)[:, :, begin : min(last + beyond, length)][:, 0]
        # pieces may reach beyond the ends
        v = F.pad(remove_baseline(x, stage.span, stage.hum), (wide.before, wide.after))
        strength = (v / local_deviations(v, deviations)).nan_to_num(0).abs().amax(0)
        peaks = find_peaks(strength, extent, least)
        if weak is not None:
            peaks = torch.cat([peaks, weak.find(v / deviations, strength > least)])
        at = peaks - wide.before + begin
        inside = (at >= first) & (at < last)
        cut = v.unfold(1, wide.length, 1)[:, peaks[inside] - wide.before].transpose(0, 1)
        whole = ~cut.isnan().flatten(1).any(1)
        values.append(cut[whole].clone())
        places.append(at[inside][whole] + row * 2 * length)
        count += int(whole.sum())
        seen += signals.shape[0] * (last - first)
        if count >= settings.pieces:
            break
    at, order = torch.cat(places).sort()
    return Pieces(torch.cat(values)[order], at, deviations, margin, seen)


def _blocks_of(signals: Signals, size: int) -> list[tuple[int, int]]:
    """Return the signal and the first sample of each block of a recording, in an order that spreads
    over it: the golden section leaves no part out for long."""
    count, length = len(signals), signals.shape[2]
    blocks = [(row, first) for row in range(count) for first in range(0, length, size)]
    golden = (5**0.5 - 1) / 2
    return sorted(blocks, key=lambda block: blocks.index(block) * golden % 1)


def warn_of_short(
    length: int, seen: Peaks, rate: float | None, settings: ChoiceSettings = _SETTINGS
) -> None:
    """Warn about waveforms that hold only a part of the events of a recording: many events have the
    same part."""
    usual = seen.extent.length
    if seen is not _NO_PEAKS and length < settings.part * usual:
        warn(
            f"Waveforms of {shown_length(length, rate)} hold only a part of the events of this"
            f" recording, which last about {shown_length(usual, rate)}. Give a longer length"
            " (--length), or leave it out."
        )


def warn_of_unequal_channels(
    v: Tensor, names: tuple[str, ...] | None, settings: ChoiceSettings = _SETTINGS
) -> None:
    """Warn if channels of signals [C, T] differ so much, by their units for example, that some
    hardly count: one reconstruction error is that of all channels."""
    deviations = (v - v.nanmean(1, keepdim=True)).square().nanmean(1).sqrt().nan_to_num(0)
    largest = int(deviations.argmax())
    small = (deviations > 0) & (deviations * settings.unequal < deviations[largest])
    if not small.any():
        return
    shown = [f"channel {name}" for name in names or range(len(v))]
    others = [shown[channel] for channel in small.nonzero()[:, 0].tolist()]
    ratio = float(deviations[largest] / deviations[small].max())
    warn(
        f"In this recording, {shown[largest]} varies {ratio:.0f} times as much as"
        f" {listed(others)}, so training hardly sees {listed(others)}. Scale the channels to"
        " similar sizes, or leave some out."
    )


def choose_lam(v: Tensor, sizes: Tensor, settings: ChoiceSettings = _SETTINGS) -> float:
    """Return the λ whose penalty leaves out noise, and what is small in comparison with the
    smallest waveform: in a recording with little noise, the differences between events and their
    waveform.

    Parameters
    ----------
    v
        signals [C, T]
    sizes
        the usual amplitude of each waveform
    """
    return 1 / max(settings.noise * white_noise(v), settings.small * float(sizes.min()))


class _SeenExtent(NamedTuple):
    """The extent of waveforms, and the longest baseline that removes the drift, in samples."""

    peaks: Peaks
    clean: int


def choose_extent(x: Tensor, hum: float, settings: ChoiceSettings = _SETTINGS) -> _SeenExtent:
    """Return the extent of the waveforms of signals [C, T], and the longest baseline for them.

    It belongs to the longest baseline that leaves enough contrast; a longer one would leave the
    drift. If no baseline does, peaks of the drift may stand out as far as events, and the shortest
    baseline that is nearly the best is taken. It may remove parts of waveforms, so the extent is
    found again with the baseline that belongs to it, unless that would leave the drift.
    """
    longest = min(settings.lengths[-1], x.shape[1] // 4)
    lengths = [length for length in settings.lengths if length <= longest]
    clean = [remove_baseline(x, settings.spans * length, hum) for length in lengths]
    if not clean:
        return _SeenExtent(_NO_PEAKS, settings.longest_span)
    contrasts = [contrast_of(v) for v in clean]
    best = max(contrasts)
    enough = min(settings.contrast, settings.nearly * best)
    good = [v for v, contrast in zip(clean, contrasts, strict=True) if contrast >= enough]
    v = good[-1] if best > settings.contrast else good[0]
    # from here on, a baseline leaves so much of the drift that it hides the events
    drifts = [
        length
        for length, contrast in zip(lengths, contrasts, strict=True)
        if best > settings.contrast and contrast < settings.poor
    ]
    most = settings.longest_span
    if drifts:
        most = settings.spans * next(n for n, own in zip(lengths, clean, strict=True) if own is v)
    found = find_extent(v, longest)
    for _ in range(settings.again):
        if found is None:
            return _SeenExtent(_NO_PEAKS, most)
        near = min(settings.spans * min(2 * found.extent.length, longest), most)
        again = find_extent(remove_baseline(x, near, hum), longest)
        if again is None or again.extent == found.extent:
            break
        found = again
    return _SeenExtent(found or _NO_PEAKS, most)


def contrast_of(v: Tensor) -> float:
    """Return how far the strongest hundredth of the samples stands out from the noise."""
    level = v.abs().nanmedian(1, keepdim=True).values / MEDIAN_OF_NORMAL
    strength = (v / level.clamp(min=torch.finfo(v.dtype).tiny)).nan_to_num(0).abs().amax(0)
    return float(strength.topk(max(1, len(strength) // 100)).values.mean())


def in_words(signals: Signals, found: Waveforms, wanted: int | None, span: int, hum: float) -> str:
    """Return one line that says what was chosen."""
    count, _, length = found.shapes.shape
    fewer = ""
    if wanted is not None and count < wanted:
        fewer = f" (asked for {wanted}, found {count} that differ)"
    shifted = ""
    if found.copies:
        shifted = f", {plural(found.copies, 'cluster')} left out as a part of another waveform"
    rare = ""
    if found.rare:
        rare = f", {plural(found.rare, 'cluster')} left out as too rare"
    off = f"the input stage subtracts the running median of {shown_length(span, signals.rate)}"
    if hum and signals.rate:
        off += f" and the mains hum of {hum * signals.rate:.2f} Hz"
    return (
        f"{plural(count, 'waveform')}{fewer} of {shown_length(length, signals.rate)}, from"
        f" {plural(sum(found.counts), 'event')}{shifted}{rare}; {off}"
    )


def shown_length(samples: int, rate: float | None) -> str:
    """Describe a length in samples, and in milliseconds or seconds where the rate is known.

    >>> shown_length(24, 2000), shown_length(1112, 360)
    ('24 samples (12 ms)', '1,112 samples (3.09 s)')
    """
    if rate is None:
        return f"{samples:,} samples"
    seconds = samples / rate
    time = f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
    return f"{samples:,} samples ({time})"


def sample_of(signals: Signals, settings: ChoiceSettings = _SETTINGS) -> Tensor:
    """Return samples of signals that settings are chosen from, [C, T]: the middle of the first one,
    or as many signals as that, with gaps between them."""
    count, channels, _, length = signals.pixels.shape
    if length >= settings.sample:
        first = (length - settings.sample) // 2
        middle = signals.recording(0)[:, :, first : first + settings.sample][:, 0]
        return middle if _is_typical(middle, signals, settings) else _spread(signals, settings)
    rows = range(min(count, max(1, settings.sample // length)))
    gap = torch.full((channels, length // 2), torch.nan)
    parts = []
    for row in rows:
        if row:
            parts.append(gap)
        parts.append(signals[row])
    return torch.cat(parts, 1)


def _is_typical(middle: Tensor, signals: Signals, settings: ChoiceSettings) -> bool:
    """Tell whether each channel of the middle of a signal varies about as much as in the whole: a
    sensor may be off in the middle."""
    span = settings.judged_span
    usual = usual_level(remove_baseline(_spread(signals, settings), span, 0.0))
    ratio = (usual_level(remove_baseline(middle, span, 0.0)) / usual).nan_to_num(1)
    return bool((ratio < settings.typical).all() and (ratio * settings.typical > 1).all())


def _spread(signals: Signals, settings: ChoiceSettings) -> Tensor:
    """Return stretches of a signal that are spread over all of it, with gaps between them."""
    size = settings.sample // settings.stretches
    recording = signals.recording(0)
    gap = torch.full((signals.shape[0], size // 2), torch.nan)
    parts = []
    for number in range(settings.stretches):
        first = (signals.shape[2] - size) * number // (settings.stretches - 1)
        parts += [recording[:, :, first : first + size][:, 0], gap]
    return torch.cat(parts[:-1], 1)


# What is subtracted -------------------------------------------------------------------------------


def find_hum(x: Tensor, rate: float | None, settings: ChoiceSettings = _SETTINGS) -> float:
    """Return the frequency of the mains in signals [C, T], in cycles per sample; 0 where there is
    no line in the spectrum."""
    if rate is None or x.shape[1] < 64:
        return 0.0
    x = x.double()
    x = torch.where(x.isnan(), 0, x - x.nanmedian(1, keepdim=True).values)
    window = torch.hann_window(x.shape[1], periodic=False, dtype=x.dtype)
    power = torch.fft.rfft(x * window).abs().square().sum(0)
    width = rate / x.shape[1]  # Hz of a line of the spectrum
    best = 0.0
    strongest = settings.line
    for mains in settings.mains:
        near = round(max(0.6, 2 * width) / width)
        wide = round(max(6.0, 20 * width) / width)
        centre = round(mains / width)
        if centre - wide < 1 or centre + near + 1 >= len(power):
            continue
        around = power[centre - wide : centre + wide + 1]
        line = power[centre - near : centre + near + 1]
        at = centre - near + int(line.argmax())
        excess = float(power[at] / around.median().clamp(min=1e-300))
        if excess > strongest:
            strongest = excess
            best = (at + line_offset(power, at)) / x.shape[1]
    return best


def line_offset(power: Tensor, at: int) -> float:
    """Return where the peak of a line is between the samples of a spectrum, by a parabola through
    them."""
    left, top, right = (float(power[at + k].clamp(min=1e-300).log()) for k in (-1, 0, 1))
    curvature = left - 2 * top + right
    return 0.0 if curvature >= 0 else 0.5 * (left - right) / curvature


def remove_baseline(x: Tensor, span: int, hum: float) -> Tensor:
    """Return signals [C, T] without their slow part; NaN stays."""
    known = ~x.isnan()
    low = baseline(x.nan_to_num(0)[None, :, None], span, hum, known[None, :, None].float())
    return x - low[0, :, 0]
