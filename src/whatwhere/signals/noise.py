"""What waveforms find where a recording has no event: the noise that an event must exceed.

quiet places   the correlation of a waveform with the recording, far from events, by its median; or
               with the residual without the events, if that is far less: in a recording with many
               events few places are far from all of them
covered        where waveforms cover nearly all of a recording, such as a pulse, no place is quiet;
               then the noise is what they find in the residual without the events
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.inference.tiled import Picture, TileGrid, read_tile
from whatwhere.model import DeconvNet
from whatwhere.signals.waveforms import deviations_of, fast_noise, local_deviations

_MEDIAN_OF_NORMAL = 0.6745  # of |x| for a normal x of standard deviation 1


@dataclass(frozen=True)
class NoiseSettings:
    """How the noise of a recording is measured.

    Parameters
    ----------
    sample
        tiles that it is measured in
    loud
        deviations from which a place is near an event
    rounds
        rounds in which quiet places are found
    near_events
        share of all places; if more are near an event, none is quiet
    with_events
        of blocks of two waveforms, the quantile that stands for one with an event
    large
        share of the usual largest value; larger events are removed
    passes
        passes in which events are removed
    far_less
        share of the noise with events; pure noise without its peaks is at least 0.65 of it
    mostly
        share of the samples and of the energy; waveforms with more cover a recording
    """

    sample: int = 16
    loud: float = 5.0
    rounds: int = 3
    near_events: float = 0.9
    with_events: float = 0.75
    large: float = 0.5
    passes: int = 3
    far_less: float = 0.6
    mostly: float = 0.5


_SETTINGS = NoiseSettings()


class WaveformNoise(NamedTuple):
    """What waveforms find where there is no event: the standard deviation of each, [B]; and whether
    they cover the recording, so that most of the noise is the difference between events and their
    waveform."""

    deviations: np.ndarray
    covers: bool
    quiet: "QuietLevels | None" = None


class QuietLevels(NamedTuple):
    """The noise of each channel of a recording where it is quiet: its standard deviation and that
    of its fast part, [C, 1]. Bursts of noise have more."""

    deviations: Tensor
    fast: Tensor

    @classmethod
    def of(cls, parts: list[Tensor]) -> "QuietLevels":
        """Measure the noise of parts of a recording, [C, n] each; NaN is unknown."""
        gap = torch.full_like(parts[0][:, :64], torch.nan)
        v = torch.cat([piece for part in parts for piece in (part, gap)], 1)
        return cls(deviations_of(v), fast_noise(v))

    def louder(self, v: Tensor) -> Tensor | None:
        """Return how many times the usual noise the noise around each sample of a part [C, T] is;
        None where it has no burst."""
        local = local_deviations(v, self.deviations, usual=self.fast) / self.deviations
        return local if bool((local > 1).any()) else None


def waveform_noise(
    model: DeconvNet, picture: Picture, grid: TileGrid, settings: NoiseSettings = _SETTINGS
) -> WaveformNoise:
    """Measure the noise of each waveform in a recording.

    It is the deviation of the correlation of the waveform with the recording, by the median, so
    that noise of any colour, and the rest of a drift, count as much as they matter.
    """
    f = model.filters[0][:, :, 0].transpose(0, 1).cpu()  # [B, C, K]
    maps, _, length = f.shape
    places = max(0, grid.columns.size - length + 1)  # of a waveform in a tile
    count = min(len(grid.tiles), settings.sample)
    chosen = [grid.tiles[len(grid.tiles) * n // count] for n in range(count)]
    # one piece of memory for all tiles: small ones would lie between those that a convolution takes
    found = f.new_empty(maps, count * places)
    left = torch.empty_like(found)
    filled = 0
    covered = []
    parts = []
    with torch.no_grad():
        for tile in chosen if places else []:
            target = read_tile(model, picture, None, *grid.window(tile))
            v = target.v[:, :, 0].cpu()
            rest, near = without_events(v, f, model.spec.nonnegative, settings)
            explained = 1 - float(rest.square().sum() / v.square().sum().clamp(min=1e-30))
            known = None if target.mask is None else (target.mask > 0).all(1).to(v).cpu()
            seen = torch.ones_like(v) if target.mask is None else target.mask[:, :, 0].cpu()
            parts.append(torch.where(seen > 0, v, torch.nan)[0])
            whole = whole_places(known, v.shape[2], length)
            own = slice(filled, filled + int(whole.sum()))
            found[:, own] = F.conv1d(v, f)[0][:, whole]
            left[:, own] = F.conv1d(rest, f)[0][:, whole]
            filled = own.stop
            covered.append(min(explained, near) > settings.mostly)
    if filled == 0:
        return WaveformNoise(np.zeros(maps), False)
    covers = float(np.mean(covered)) > settings.mostly
    deviations = _quiet_deviations(left[:, :filled], length, settings)
    if not covers:
        # Where few places are quiet, events count as noise until they are removed. Peaks of noise
        # are removed as well, so the residual says something only if it is far less.
        quiet = _quiet_deviations(found[:, :filled], length, settings)
        deviations = torch.where(deviations < settings.far_less * quiet, deviations, quiet)
    return WaveformNoise(deviations.double().numpy(), covers, QuietLevels.of(parts))


def whole_places(known: Tensor | None, samples: int, length: int) -> Tensor:
    """Find the places at which a waveform lies on known samples [1, 1, T] alone."""
    if known is None:
        return torch.ones(samples - length + 1, dtype=torch.bool)
    return F.avg_pool1d(known, length, 1)[0, 0] > 1 - 1e-6


class Rest(NamedTuple):
    """What is left of signals, [1, C, T], and the share of the samples on which events were."""

    signal: Tensor
    covered: float


def without_events(
    v: Tensor, f: Tensor, nonnegative: bool, settings: NoiseSettings = _SETTINGS
) -> Rest:
    """Return signals [1, C, T] without their large events: waveforms [B, C, K] at the peaks of
    their correlation, as strong as it is."""
    length = f.shape[2]
    covered = torch.zeros(v.shape[2], dtype=torch.bool)
    least = None
    for _ in range(settings.passes):
        correlation = F.conv1d(v, f)
        strength = correlation if nonnegative else correlation.abs()
        strongest = strength.amax(1, keepdim=True)
        if least is None:
            usual = _usual_largest(strongest[0, 0], 2 * length, settings.with_events)
            least = settings.large * usual
        near = 2 * (length // 2) + 1
        peaks = strongest == F.max_pool1d(strongest, near, 1, near // 2)
        taken = (strength == strongest) & peaks & (strength > least)
        v = v - F.conv_transpose1d(torch.where(taken, correlation, 0), f)
        starts = taken.any(1).to(v)
        covered |= F.max_pool1d(F.pad(starts, (length - 1, length - 1)), length, 1)[0] > 0
    return Rest(v, float(covered.float().mean()))


def _usual_largest(strength: Tensor, size: int, quantile: float) -> float:
    """Return the usual largest value of a block of `size` places that holds an event."""
    size = min(size, len(strength))
    return float(strength.unfold(0, size, size).amax(1).quantile(quantile))


def _quiet_deviations(values: Tensor, length: int, settings: NoiseSettings) -> Tensor:
    """Measure the deviation of correlations [B, n] by the median; places near an event are left
    out, then once more with what is known of the noise."""
    quiet = torch.ones(values.shape[1], dtype=torch.bool)
    for _ in range(settings.rounds):
        # waveform by waveform, in little memory
        level = torch.stack([row[quiet].abs().median() for row in values]) / _MEDIAN_OF_NORMAL
        loud = torch.zeros_like(quiet)
        for row, own in zip(values, level, strict=True):
            loud |= row.abs() > settings.loud * own
        near = F.max_pool1d(loud.float()[None], 2 * length + 1, 1, length)[0] > 0
        if near.float().mean() > settings.near_events:
            break
        quiet = ~near
    return level
