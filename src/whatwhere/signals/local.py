"""Waveforms that are local in space: those of a probe with many channels, on which a spike leaves
a trace on a few channels only.

    training  each group of neighbouring channels (`signals.probe`) is a small recording. The events
              that are largest in its core show its waveforms, which are 0 on all other channels.
              A waveform that another group has as well is left out
    events    the channels on which a waveform is not 0 say which group it belongs to. Each group
              explains its channels by its own waveforms and by its neighbours'; only events of its
              own count. Where two groups explain the same thing, the larger event counts
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data.images import LazyPixels
from whatwhere.errors import plural
from whatwhere.inference.tiled import Picture
from whatwhere.model import DeconvNet
from whatwhere.model.events import Events
from whatwhere.signals.probe import Group, groups_of
from whatwhere.signals.recording import Signals
from whatwhere.signals.settings import (
    ChoiceSettings,
    NoEvents,
    RecordingSettings,
    choose_extent,
    choose_lam,
    contrast_of,
    find_hum,
    read_pieces,
    remove_baseline,
    sample_of,
    shown_length,
)
from whatwhere.signals.waveforms import (
    Waveforms,
    WaveformSettings,
    find_waveforms,
)
from whatwhere.spec import InputSpec


@dataclass(frozen=True)
class LocalSettings:
    """How waveforms of a probe are found, and their events.

    Parameters
    ----------
    pieces
        of a group, that are clustered, at most: a group has fewer units than a tetrode
    clear
        channels that show the length of the events: those where they stand out most
    alike
        correlation from which waveforms of two groups are one, if their sizes are alike
    size
        ratio of the sizes of two such waveforms, at most
    share
        of a waveform's energy on the channels of another group, from which that group explains its
        events
    same
        correlation of two waveforms from which their events at one time are one
    near
        samples between two such events, at most
    """

    pieces: int = 6000
    clear: int = 4
    alike: float = 0.9
    size: float = 1.5
    share: float = 0.5
    same: float = 0.5
    near: int = 12


_SETTINGS = LocalSettings()


# Training -----------------------------------------------------------------------------------------


def choose_on_probe(
    signals: Signals,
    places: np.ndarray,
    length: int | None = None,
    seed: int = 0,
    settings: LocalSettings = _SETTINGS,
) -> RecordingSettings:
    """Return the input stage and the waveforms for a probe whose channels are at some places
    [C, 2]; they are not trained any more.

    Raises NoEvents if no event stands out from the noise.
    """
    signals = signals.recorded_as or signals
    choice = ChoiceSettings()
    x = sample_of(signals, choice)
    hum = find_hum(x, signals.rate, choice)
    shortest = remove_baseline(x, choice.spans * choice.lengths[0], hum)
    contrast = [contrast_of(channel[None]) for channel in shortest]
    clear = np.argsort(contrast)[::-1][: settings.clear].copy()
    seen, clean = choose_extent(x[clear], hum, choice)
    extent = seen.extent if length is None else seen.extent.with_length(length)
    span = min(choice.spans * extent.length, choice.longest_span, clean)
    stage = InputSpec(kind="baseline", span=span, hum=hum)
    how = WaveformSettings(pieces=settings.pieces)
    found = []
    for group in groups_of(places):
        part = channels_of(signals, group.seen)
        pieces = read_pieces(part, stage, extent, seen.least, None, how, choice)
        if len(pieces.at) >= how.clusters.fewest:
            waveforms = find_waveforms(pieces, None, seed, how)
            found.append((group, _of_core(waveforms, pieces.deviations, group)))
    shapes, sizes, counts = _without_copies(found, len(places), settings)
    if not len(shapes):
        raise NoEvents(signals.name, 0)
    words = (
        f"{plural(len(shapes), 'waveform')} of {shown_length(extent.length, signals.rate)}, each on"
        f" the channels near its largest peak, from {plural(sum(counts), 'event')}; the input stage"
        f" subtracts the running median of {shown_length(span, signals.rate)}"
    )
    lam = choose_lam(remove_baseline(x[clear], span, hum), sizes, choice)
    return RecordingSettings(stage, shapes, words, lam, final=True)


def channels_of(signals: Signals, channels: np.ndarray) -> Signals:
    """Return some channels of signals; they are read when they are asked for."""
    pixels = signals.pixels
    names = signals.channel_names
    shape = (pixels.shape[0], len(channels), *pixels.shape[2:])
    own = LazyPixels(shape, pixels.dtype, lambda rows: np.asarray(pixels[rows])[:, channels])
    chosen = None if names is None else tuple(names[n] for n in channels)
    return replace(signals, pixels=own, channel_names=chosen)


def _of_core(found: Waveforms, deviations: Tensor, group: Group) -> Waveforms:
    """Return the waveforms whose largest value, in deviations of the noise, is on a channel of the
    core: the others are another group's."""
    strongest = (found.shapes / deviations).abs().amax(2).argmax(1)
    own = np.isin(group.seen, group.core)[strongest.numpy()]
    counts = [count for count, is_own in zip(found.counts, own, strict=True) if is_own]
    chosen = torch.from_numpy(own)
    return found._replace(shapes=found.shapes[chosen], sizes=found.sizes[chosen], counts=counts)


class _Kept(NamedTuple):
    """Waveforms of all groups, [n, C, K], their sizes, and how many events showed each."""

    shapes: Tensor
    sizes: Tensor
    counts: list[int]


def _without_copies(
    found: list[tuple[Group, Waveforms]], channels: int, settings: LocalSettings
) -> _Kept:
    """Return the waveforms of all groups on all channels; of those that two groups have, that of
    more events."""
    every = []
    for group, own in found:
        on_all = torch.zeros(len(own.shapes), channels, own.shapes.shape[2])
        on_all[:, group.seen] = own.shapes
        every += list(zip(on_all, own.sizes.tolist(), own.counts, strict=True))
    every.sort(key=lambda each: -each[2])
    kept: list[tuple[Tensor, float, int]] = []
    for shape, size, count in every:
        if not any(
            max(size, other) <= settings.size * min(size, other)
            and _correlation(shape, there, settings.near) > settings.alike
            for there, other, _ in kept
        ):
            kept.append((shape, size, count))
    if not kept:
        return _Kept(torch.zeros(0, channels, 1), torch.zeros(0), [])
    shapes = torch.stack([shape for shape, _, _ in kept])
    return _Kept(shapes, torch.tensor([size for _, size, _ in kept]), [n for _, _, n in kept])


def _correlation(a: Tensor, b: Tensor, reach: int) -> float:
    """Return the largest correlation of two waveforms [C, K] over shifts by some samples."""
    on_both = (a != 0).any(1) & (b != 0).any(1)
    if not on_both.any():
        return 0.0
    product = F.conv1d(a[None, on_both], b[None, on_both], padding=reach)
    return float(product.amax() / (a.norm() * b.norm()).clamp(min=1e-30))


# Events -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """A group of channels of a model whose waveforms are local.

    Parameters
    ----------
    channels
        seen together
    waveforms
        of the model that explain them, [B']
    own
        whether the events of each count here, [B']
    model
        of these waveforms on these channels
    """

    channels: np.ndarray
    waveforms: np.ndarray
    own: np.ndarray
    model: DeconvNet

    def of(self, picture: Picture) -> Picture:
        """Return the channels of a recording [C, 1, T]."""
        return _Channels(picture, self.channels)

    def in_whole(self, events: Events) -> Events:
        """Return the events of this group's own waveforms, with the numbers of the whole model."""
        own = events[self.own[events["waveform"]]].copy()
        own["waveform"] = self.waveforms[own["waveform"]]
        own["channel"] = self.channels[own["channel"]]
        return own


@dataclass(frozen=True, eq=False)
class _Channels:
    """Some channels of a recording [C, 1, T], read in windows."""

    picture: Picture
    channels: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.channels), *self.picture.shape[1:])

    def __getitem__(self, window: tuple[slice, slice, slice], /) -> Tensor | np.ndarray:
        own, rows, columns = window
        return self.picture[:, rows, columns][self.channels[own]]


def parts_of(model: DeconvNet, settings: LocalSettings = _SETTINGS) -> list[Part]:
    """Return the groups of channels of a model whose waveforms are local; none for others."""
    if model.spec.depth != 1 or model.spec.channels < 2:
        return []
    f = model.filters[0][:, :, 0].transpose(0, 1).detach().cpu()  # [B, C, K]
    is_on = (f != 0).any(2)
    groups, group_of = is_on.unique(dim=0, return_inverse=True)
    if len(groups) < 2:
        return []
    return [_part(model, f, groups[n], group_of == n, settings) for n in range(len(groups))]


def _part(
    model: DeconvNet, f: Tensor, is_seen: Tensor, is_own: Tensor, settings: LocalSettings
) -> Part:
    energy = f.square().sum(2)
    share = energy[:, is_seen].sum(1) / energy.sum(1).clamp(min=1e-30)
    chosen = is_own | (share >= settings.share)
    spec = model.spec
    layer = replace(spec.layers[0], maps=int(chosen.sum()))
    small = replace(spec, channels=int(is_seen.sum()), layers=(layer,))
    part = DeconvNet(small)
    filters = f[chosen][:, is_seen].transpose(0, 1)[:, :, None]
    part = part.with_filters(1, part.project(1, filters.double()).to(model.dtype))
    return Part(
        is_seen.nonzero()[:, 0].numpy(),
        chosen.nonzero()[:, 0].numpy(),
        is_own[chosen].numpy(),
        part,
    )


def without_doubles(
    events: Events, model: DeconvNet, settings: LocalSettings = _SETTINGS
) -> Events:
    """Return the events of all groups of a recording, sorted by time: of two at one time and place,
    the larger one."""
    events = events[np.argsort(events["sample"], kind="stable")]
    alike = _alike(model, settings)
    left = np.ones(len(events), bool)
    sample, waveform = events["sample"], events["waveform"]
    size = np.abs(events["amplitude"])
    for n, m in _near_pairs(sample, settings.near):
        if left[n] and left[m] and alike[waveform[n], waveform[m]]:
            left[n if size[n] < size[m] else m] = False
    return events[left]


def _near_pairs(sample: np.ndarray, near: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of sorted times that are at most this far apart."""
    for n, last in enumerate(np.searchsorted(sample, sample + near, "right")):
        for m in range(n + 1, last):
            yield n, m


def _alike(model: DeconvNet, settings: LocalSettings) -> np.ndarray:
    """Tell which waveforms of different groups explain the same thing, [B, B]."""
    f = model.filters[0][:, :, 0].transpose(0, 1).detach().cpu()
    on = (f != 0).any(2)
    alike = np.zeros((len(f), len(f)), bool)
    for n in range(len(f)):
        for m in range(n):
            if bool((on[n] != on[m]).any()) and bool((on[n] & on[m]).any()):
                same = _correlation(f[n], f[m], settings.near) > settings.same
                alike[n, m] = alike[m, n] = same
    return alike
