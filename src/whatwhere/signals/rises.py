"""Settings for events that begin suddenly: transients of calcium, which decay slowly and add up,
and bursts of any waveform, such as earthquakes.

The input stage keeps how much the recording rises (`ops.rise`). There, each beginning is a triangle
of twice the span, wherever the decay of earlier events is. So one waveform finds them all, and it
is known before training.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.ops.input_stage import InputStage
from whatwhere.signals.recording import Signals
from whatwhere.signals.settings import (
    NoEvents,
    RecordingSettings,
    sample_of,
    shown_length,
)
from whatwhere.signals.waveforms import MEDIAN_OF_NORMAL, unit
from whatwhere.spec import InputSpec
from whatwhere.spec.model import InputKind


@dataclass(frozen=True)
class RiseChoice:
    """How the settings of rises are chosen.

    clear     deviations of the noise that the largest rise exceeds in a recording with events
    faint     deviations of the noise that the penalty leaves out
    spans     of a rise that a recording has at least
    """

    clear: float = 5.0
    faint: float = 2.0
    spans: int = 4


_SETTINGS = RiseChoice()


def choose_rise(
    signals: Signals, kind: InputKind, span: int, settings: RiseChoice = _SETTINGS
) -> RecordingSettings:
    """Return the input stage and the waveform for the rises of signals.

    kind  'rise' or 'louder'
    span  samples within which the recording rises

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
    known = ~x.isnan()
    v, _ = InputStage(stage).forward(x.nan_to_num(0)[None, :, None], known[None, :, None].float())
    f = _triangle(span, x.shape[0])  # what a step becomes
    found = F.conv1d(v[:, :, 0], f)[0, 0]
    noise = float(found[found != 0].abs().median().nan_to_num(0)) / MEDIAN_OF_NORMAL
    if not float(found.max()) > settings.clear * noise:
        raise NoEvents(signals.name, 0)
    what = "rises" if kind == "rise" else "becomes louder"
    words = f"one waveform, where the recording {what} within {shown_length(span, signals.rate)}"
    lam = 1 / (settings.faint * max(noise, 1e-30))
    return RecordingSettings(stage, f, words, lam, final=True)


def _triangle(span: int, channels: int) -> Tensor:
    """Return the rises around a step, [1, C, 2 span - 1], of unit length."""
    place = torch.arange(2 * span - 1) - (span - 1)
    shape = 1 - place.abs() / span
    return unit(shape.expand(1, channels, len(place)).contiguous())
