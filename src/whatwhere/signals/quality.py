"""The quality of each waveform of a recording, and waveforms that are merged or left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.model.events import Events
from whatwhere.signals.waveforms import likeness, unit
from whatwhere.spec.checks import require


@dataclass(frozen=True)
class QualitySettings:
    """How the quality of waveforms is measured.

    Parameters
    ----------
    refractory
        seconds after a spike in which its neuron cannot fire again
    parts
        of a recording in which a waveform is looked for
    """

    refractory: float = 1.5e-3
    parts: int = 60


@dataclass(frozen=True)
class WaveformQuality:
    """The quality of a waveform.

    Parameters
    ----------
    waveform
        number
    events
        how many it has
    rate
        events per second; NaN if the rate is not known
    violations
        share of its intervals that are shorter than the refractory period; NaN if the rate is not
        known
    snr
        usual amplitude in deviations of what the waveform finds in the noise
    isolation
        the same unit: how far its usual event is from the usual event of the waveform most like it;
        infinite for a single waveform. Below 4, events of the two get mixed up
    presence
        share of the parts of the recording that have an event of it
    doubtful
        share of its events that overlap another one

    Examples
    --------
    >>> quality = ww.signals.WaveformQuality(0, 120, 4.0, 0.01, 9.5, 6.2, 0.98, 0.05)
    >>> quality.isolation > 4                         # its events are told from all others
    True
    """

    waveform: int
    events: int
    rate: float
    violations: float
    snr: float
    isolation: float
    presence: float
    doubtful: float


def waveform_quality(
    events: Events,
    model: DeconvNet,
    noise: np.ndarray,
    samples: int,
    rate: float | None = None,
    settings: QualitySettings | None = None,
) -> list[WaveformQuality]:
    """Measure the quality of each waveform that has events.

    Parameters
    ----------
    events
        as `find_events` or `read_events` returns them
    model
        of signals, whose filters of layer 1 are the waveforms
    noise
        standard deviation of what each waveform finds in the noise, [B] (`noise_of`)
    samples
        of the recording
    rate
        samples per second, if it is known
    settings
        how quality is measured

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> signals = ww.data.load(np.random.default_rng(0).normal(size=(1, 1, 5000)), signals=True)
    >>> events = ww.find_events(model, signals, ww.InferenceSpec(lam=0.5), threshold=0, tile=1024)
    >>> noise = ww.signals.noise_of(model, signals)
    >>> [row.waveform for row in ww.signals.waveform_quality(events, model, noise, 5000)]
    [0, 1]
    """
    settings = settings or QualitySettings()
    waves = events[events["layer"] == 1]
    numbers = np.unique(waves["waveform"])
    usual = {
        k: float(np.median(np.abs(waves["amplitude"][waves["waveform"] == k]))) for k in numbers
    }
    f = unit(model.filters[0][:, :, 0].transpose(0, 1).detach().cpu())
    edges = np.linspace(0, samples, settings.parts + 1)
    rows = []
    for k in numbers:
        own = waves[waves["waveform"] == k]
        at = np.sort(own["sample"])
        short = np.diff(at) / rate < settings.refractory if rate else np.empty(0)
        rows.append(
            WaveformQuality(
                waveform=int(k),
                events=len(own),
                rate=len(own) * rate / samples if rate else np.nan,
                violations=float(short.mean()) if len(short) else (0.0 if rate else np.nan),
                snr=usual[k] / max(float(noise[k]), 1e-30),
                isolation=_isolation(int(k), usual, f, max(float(noise[k]), 1e-30)),
                presence=float((np.histogram(at, edges)[0] > 0).mean()),
                doubtful=float(own["doubtful"].mean()),
            )
        )
    return rows


def _isolation(number: int, usual: dict[int, float], f: Tensor, noise: float) -> float:
    """Return the smallest distance between the usual event of a waveform and that of another."""
    distances = []
    for other, size in usual.items():
        if other == number:
            continue
        alike = float(likeness(f[[number]], f[[other]]).clamp(max=1))
        own = usual[number]
        distances.append(max(0.0, own**2 + size**2 - 2 * own * size * alike) ** 0.5)
    return min(distances, default=np.inf) / noise


# Waveforms that are merged or left out ------------------------------------------------------------


@dataclass(frozen=True)
class Relabelling:
    """Waveforms that count as another one, and waveforms whose events are left out.

    Parameters
    ----------
    merge
        groups of waveforms, such as '3,5' or '3,5 7,8': each group gets the number of its first
        waveform
    drop
        waveforms whose events are left out, such as '4' or '4,6'

    Examples
    --------
    >>> Relabelling(merge="3,5", drop="4").of_waveform(6)
    array([ 0,  1,  2,  3, -1,  3])
    """

    merge: str | None = None
    drop: str | None = None

    def of_waveform(self, waveforms: int) -> np.ndarray:
        """Return the new number of each waveform, -1 for one whose events are left out."""
        new = np.arange(waveforms)
        for group in (self.merge or "").split():
            members = _numbers(group, waveforms, "merge", least=2)
            new[members] = new[members[0]]
        if self.drop:
            new[_numbers(self.drop.replace(" ", ","), waveforms, "drop", least=1)] = -1
        return new

    def apply(self, events: Events, waveforms: int) -> Events:
        """Return the events with their new numbers, without those that are left out."""
        number = self.of_waveform(waveforms)[events["waveform"]]
        kept = (number >= 0) | (events["layer"] != 1)
        events = events.copy()
        events["waveform"] = np.where(events["layer"] == 1, number, events["waveform"])
        return events[kept]


def _numbers(group: str, waveforms: int, name: str, least: int) -> list[int]:
    """Read the numbers of a group of waveforms."""
    cells = [cell for cell in group.split(",") if cell]
    require(
        len(cells) >= least and all(cell.isdecimal() and int(cell) < waveforms for cell in cells),
        f"{name} = {group}",
        f"numbers of waveforms from 0 to {waveforms - 1}, such as {'3,5' if least > 1 else '4'}",
    )
    return [int(cell) for cell in cells]
