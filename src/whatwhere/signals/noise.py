"""What waveforms find where a recording has no event: the noise that an event must exceed.

quiet places   the correlation of a waveform with the recording, far from events, by its median; or
               with the residual without the events, if that is far less: in a recording with many
               events few places are far from all of them
covered        where waveforms cover nearly all of a recording, such as a pulse, no place is quiet;
               then the noise is what they find in the residual without the events
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.inference.tiled import Picture, TileGrid, read_tile
from whatwhere.model import DeconvNet

DEVIATIONS = 5.0  # of the noise: of a million places with nothing but white noise, 0.3 exceed it
SAMPLE = 16  # tiles that the noise is measured in
MEDIAN_OF_NORMAL = 0.6745  # of |x| for a normal x of standard deviation 1
ROUNDS = 3  # rounds in which quiet places are found
LOUD = 0.9  # share of all places; if more are near an event, none is quiet
WITH_EVENTS = 0.75  # of blocks of two waveforms, the quantile that is that of one with an event
LARGE = 0.5  # share of the usual largest value; larger events are removed
PASSES = 3  # passes in which events are removed
FAR_LESS = 0.6  # of the noise with events; pure noise without its peaks is at least 0.65 of it
MOSTLY = 0.5  # share of the samples and of the energy; waveforms with more cover a recording


class WaveformNoise(NamedTuple):
    """What waveforms find where there is no event: the standard deviation of each, [B]; and whether
    they cover the recording, so that most of the noise is the difference between events and their
    waveform."""

    deviations: np.ndarray
    covers: bool


def waveform_noise(model: DeconvNet, picture: Picture, grid: TileGrid) -> WaveformNoise:
    """The noise of each waveform in a recording.

    It is the deviation of the correlation of the waveform with the recording, by the median, so
    that noise of any colour, and the rest of a drift, count as much as they matter.
    """
    f = model.filters[0][:, :, 0].transpose(0, 1).cpu()  # [B, C, K]
    maps, _, length = f.shape
    places = max(0, grid.columns.size - length + 1)  # of a waveform in a tile
    count = min(len(grid.tiles), SAMPLE)
    chosen = [grid.tiles[len(grid.tiles) * n // count] for n in range(count)]
    # one piece of memory for all tiles: small ones would lie between those that a convolution takes
    found = f.new_empty(maps, count * places)
    left = torch.empty_like(found)
    filled = 0
    covered = []
    with torch.no_grad():
        for tile in chosen if places else []:
            target = read_tile(model, picture, None, *grid.window(tile))
            v = target.v[:, :, 0].cpu()
            rest, near = without_events(v, f, model.spec.nonnegative)
            explained = 1 - float(rest.square().sum() / v.square().sum().clamp(min=1e-30))
            known = None if target.mask is None else (target.mask > 0).all(1).to(v).cpu()
            whole = whole_places(known, v.shape[2], length)
            own = slice(filled, filled + int(whole.sum()))
            found[:, own] = F.conv1d(v, f)[0][:, whole]
            left[:, own] = F.conv1d(rest, f)[0][:, whole]
            filled = own.stop
            covered.append(explained > MOSTLY and near > MOSTLY)
    if filled == 0:
        return WaveformNoise(np.zeros(maps), False)
    covers = float(np.mean(covered)) > MOSTLY
    deviations = quiet_deviations(left[:, :filled], length)
    if not covers:
        # Where few places are quiet, events count as noise until they are removed. Peaks of noise
        # are removed as well, so the residual says something only if it is far less.
        quiet = quiet_deviations(found[:, :filled], length)
        deviations = torch.where(deviations < FAR_LESS * quiet, deviations, quiet)
    return WaveformNoise(deviations.double().numpy(), covers)


def whole_places(known: Tensor | None, samples: int, length: int) -> Tensor:
    """The places at which a waveform lies on known samples [1, 1, T] alone."""
    if known is None:
        return torch.ones(samples - length + 1, dtype=torch.bool)
    return F.avg_pool1d(known, length, 1)[0, 0] > 1 - 1e-6


class Rest(NamedTuple):
    """What is left of signals, [1, C, T], and the share of the samples on which events were."""

    signal: Tensor
    covered: float


def without_events(v: Tensor, f: Tensor, nonnegative: bool) -> Rest:
    """Signals [1, C, T] without their large events: waveforms [B, C, K] at the peaks of their
    correlation, as strong as it is."""
    length = f.shape[2]
    covered = torch.zeros(v.shape[2], dtype=torch.bool)
    least = None
    for _ in range(PASSES):
        correlation = F.conv1d(v, f)
        strength = correlation if nonnegative else correlation.abs()
        strongest = strength.amax(1, keepdim=True)
        if least is None:
            least = LARGE * usual_largest(strongest[0, 0], 2 * length)
        near = 2 * (length // 2) + 1
        peaks = strongest == F.max_pool1d(strongest, near, 1, near // 2)
        taken = (strength == strongest) & peaks & (strength > least)
        v = v - F.conv_transpose1d(torch.where(taken, correlation, 0), f)
        starts = taken.any(1).to(v)
        covered |= F.max_pool1d(F.pad(starts, (length - 1, length - 1)), length, 1)[0] > 0
    return Rest(v, float(covered.float().mean()))


def usual_largest(strength: Tensor, size: int) -> float:
    """The usual largest value of a block of `size` places that holds an event."""
    size = min(size, len(strength))
    return float(strength.unfold(0, size, size).amax(1).quantile(WITH_EVENTS))


def quiet_deviations(values: Tensor, length: int) -> Tensor:
    """The deviation of correlations [B, n] by the median; places near an event are left out, then
    once more with what is known of the noise."""
    quiet = torch.ones(values.shape[1], dtype=torch.bool)
    for _ in range(ROUNDS):
        # waveform by waveform, in little memory
        level = torch.stack([row[quiet].abs().median() for row in values]) / MEDIAN_OF_NORMAL
        loud = torch.zeros_like(quiet)
        for row, own in zip(values, level, strict=True):
            loud |= row.abs() > DEVIATIONS * own
        near = F.max_pool1d(loud.float()[None], 2 * length + 1, 1, length)[0] > 0
        if near.float().mean() > LOUD:
            break
        quiet = ~near
    return level
