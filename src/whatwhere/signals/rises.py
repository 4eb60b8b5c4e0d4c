"""Settings for events that begin suddenly: transients of calcium, which decay slowly and add up,
and bursts of any waveform, such as earthquakes.

The input stage keeps how much the recording rises (`ops.rise`). There, each beginning is a triangle
of twice the span, wherever the decay of earlier events is. So one waveform finds them all, and it
is known before training.

Without an option, `sudden_decays` recognises such a recording: larger rises than falls at the span
where they differ most, and a level that decays slowly after its rises. A waveform that rises and
falls alike, such as the spike of a neuron or the beat of a heart, is back within this span.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.ops.input_stage import InputStage
from whatwhere.signals.recording import Signals
from whatwhere.signals.rhythm import RhythmSettings, regularity
from whatwhere.signals.settings import (
    NoEvents,
    RecordingSettings,
    find_hum,
    sample_of,
    shown_length,
)
from whatwhere.signals.waveforms import MEDIAN_OF_NORMAL, Extent, find_peaks, unit
from whatwhere.spec import InputSpec
from whatwhere.spec.model import InputKind


@dataclass(frozen=True)
class RiseChoice:
    """How the settings of rises are chosen.

    Parameters
    ----------
    clear
        deviations of the noise that the largest rise exceeds in a recording with events
    faint
        deviations of the noise that the penalty leaves out
    spans
        of a rise that a recording has at least
    """

    clear: float = 5.0
    faint: float = 2.0
    spans: int = 4


_SETTINGS = RiseChoice()


def choose_rise(
    signals: Signals, kind: InputKind, span: int, settings: RiseChoice = _SETTINGS
) -> RecordingSettings:
    """Return the input stage and the waveform for the rises of signals.

    Parameters
    ----------
    kind
        'rise' or 'louder'
    span
        samples within which the recording rises

    Raises NoEvents if no rise stands out from the noise.
    """
    if signals.shape[2] < settings.spans * span:
        raise SpecError(
            f"Got {kind} = {shown_length(span, signals.rate)} for a recording of"
            f" {shown_length(signals.shape[2], signals.rate)}; expected at most a"
            f" {'quarter' if settings.spans == 4 else f'1/{settings.spans}'} of it."
        )
    stage = InputSpec(kind=kind, span=span)
    x = sample_of(signals.recorded_as or signals)
    f = _triangle(span, x.shape[0])
    found = _steps(x, stage, f)
    noise = _noise_of(found)
    if not float(found.max()) > settings.clear * noise:
        raise NoEvents(signals.name, 0)
    what = "rises" if kind == "rise" else "becomes louder"
    words = f"one waveform, where the recording {what} within {shown_length(span, signals.rate)}"
    lam = 1 / (settings.faint * max(noise, 1e-30))
    return RecordingSettings(stage, f, words, lam, final=True)


def _steps(x: Tensor, stage: InputSpec, f: Tensor) -> Tensor:
    """Return how well a step fits at each whole place of signals [C, T]: what the stage keeps,
    times what it keeps of a step."""
    known = ~x.isnan()
    v, _ = InputStage(stage).forward(x.nan_to_num(0)[None, :, None], known[None, :, None].float())
    return F.conv1d(v[:, :, 0], f)[0, 0]


def _noise_of(found: Tensor) -> float:
    return float(found[found != 0].abs().median().nan_to_num(0)) / MEDIAN_OF_NORMAL


def _triangle(span: int, channels: int) -> Tensor:
    """Return the rises around a step, [1, C, 2 span - 1], of unit length."""
    place = torch.arange(2 * span - 1) - (span - 1)
    shape = 1 - place.abs() / span
    return unit(shape.expand(1, channels, len(place)).contiguous())


# Recordings of such events, recognised ------------------------------------------------------------


@dataclass(frozen=True)
class DecaySettings:
    """How a recording of sudden rises and slow decays is recognised, chosen on calcium of 60
    traces, ten electrocardiograms, pulses, seismograms and simulated spikes, beats and waves.

    Parameters
    ----------
    spans
        samples of a rise that are tried, at most a `parts`th of the recording
    parts
        of a recording
    clear
        deviations of the noise that a rise or a fall exceeds
    fewest
        rises, at least
    larger
        times the sum of the falls that the sum of the rises is: calcium has 1.4 to 100, what rises
        and falls alike up to 1.4 where it decays slowly
    seen
        spans after a rise in which the level is looked at
    decay
        spans after a rise at which the level is still above half: calcium has 1.5 to 9, beats and
        spikes up to 1
    settled
        share of the largest level at the end: noise that drifts or hums goes on rising
    below
        share of the largest level that it may fall below the level before
    wider
        times the span where rises and falls differ most, which is that of the steepest part
    """

    spans: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    parts: int = 32
    clear: float = 4.0
    fewest: int = 5
    larger: float = 1.4
    seen: int = 10
    decay: float = 1.5
    settled: float = 0.8
    below: float = 0.25
    wider: float = 1.5


def sudden_decays(signals: Signals, settings: DecaySettings | None = None) -> int | None:
    """Return the samples within which the events of a recording of one channel rise, if they rise
    suddenly, decay slowly and have no rhythm; None for all other recordings, and with hum."""
    settings = settings or DecaySettings()
    signals = signals.recorded_as or signals
    if signals.shape[0] != 1:
        return None
    x = sample_of(signals)
    if find_hum(x, signals.rate):  # which rises and falls, and a rise does not subtract
        return None
    spans = [span for span in settings.spans if span * settings.parts <= x.shape[1]]
    seen = [_Steep.of(x, span, settings.clear) for span in spans]
    steepest = max(seen, key=lambda each: each.rises - each.falls, default=None)
    if steepest is None or len(steepest.at) < settings.fewest:
        return None
    if steepest.rises < settings.larger * steepest.falls:
        return None
    if regularity(steepest.at.double().numpy()) >= RhythmSettings().regular:
        return None
    if not _decays(x[0], steepest, settings):
        return None
    return round(settings.wider * steepest.span)


@dataclass(frozen=True, eq=False)
class _Steep:
    """Where a recording rises within a span.

    Parameters
    ----------
    span
        samples
    at
        the first sample after each rise
    rises
        the sum of the rises, in deviations of the noise
    falls
        the same of what falls as clearly
    """

    span: int
    at: Tensor
    rises: float
    falls: float

    @classmethod
    def of(cls, x: Tensor, span: int, clear: float) -> "_Steep":
        found = _steps(x, InputSpec(kind="rise", span=span), _triangle(span, 1))
        found = found / max(_noise_of(found), 1e-30)
        alone = Extent(span, span)
        up = find_peaks(found, alone, clear)
        down = find_peaks(-found, alone, clear)
        return cls(span, up + span - 1, float(found[up].sum()), -float(found[down].sum()))


def _decays(x: Tensor, steep: _Steep, settings: DecaySettings) -> bool:
    """Tell whether the usual level [T] after rises decays slowly and settles above the level before
    them."""
    span = steep.span
    length = settings.seen * span
    whole = steep.at[(steep.at >= 2 * span) & (steep.at + length <= len(x))]
    if len(whole) < settings.fewest:
        return False
    before = x.unfold(0, span, 1)[whole - 2 * span].nanmedian(1, keepdim=True).values
    level = (x.unfold(0, length, 1)[whole] - before).nanmedian(0).values
    halves = level.unfold(0, max(1, span // 2), max(1, span // 2)).mean(1)  # of a span
    each = max(1, span // 2) / span
    largest = halves[: round(2 / each)].amax()
    if not largest > 0:
        return False
    share = halves / largest
    high = bool((share[: round(settings.decay / each)] > 0.5).all())
    end = share[-len(share) // 4 :].mean()
    return high and float(end) < settings.settled and float(share.amin()) > -settings.below
