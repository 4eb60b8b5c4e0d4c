"""Recordings of one or more channels. Users see them as [N, C, T]; the model sees images of
height 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from whatwhere.data.gaps import long_gaps
from whatwhere.data.images import (
    Images,
    LazyPixels,
    PictureWindows,
    Pixels,
    Rows,
    check_finite,
    picture_of,
)
from whatwhere.data.stored_array import AnyArray, StoredArray, with_new_axis
from whatwhere.errors import ImageError, plural, printable, warn
from whatwhere.spec import ModelSpec

if TYPE_CHECKING:
    from whatwhere.learning.defaults import Defaults, RecordingOptions

WINDOW = 2048  # samples, for learning from longer signals
CHECKED = 1 << 20  # samples that are checked at a time


class UnusableRate(ImageError):
    """A rate with which no sample has a time, such as 0, NaN or infinity.

    Attributes
    ----------
    name
        of the recording
    rate
        samples per second, as a file or a caller gave it
    """

    def __init__(self, name: str, rate: float) -> None:
        self.name = name
        self.rate = rate
        super().__init__(
            f"{printable(name)} has a rate of {rate:g} Hz; expected a positive number of samples"
            " per second. Correct it where it was given."
        )


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return printable names of channels, with numbers at those that were there before: tables of
    events tell channels apart by their names.

    >>> _distinct(["a", "b", "a"])
    ('a', 'b', 'a (2)')
    """
    taken: list[str] = []
    for name in map(printable, names):
        free = (name if n == 1 else f"{name} ({n})" for n in itertools.count(1))
        taken.append(next(one for one in free if one not in taken))
    return tuple(taken)


@dataclass(frozen=True, eq=False, repr=False)
class Signals(Images):
    """Signals as the model expects them: `signals[rows]` is a float32 tensor [n, C, T], read when
    it is asked for.

    The other fields are those of `Images`: `pixels` [N, C, 1, T], `labels`, `name`, `classes`,
    `allow_nan`, `white`, `brightest`, `deep_white`, `all_pictures` and `source`.

    Parameters
    ----------
    rate
        samples per second; None if it is not known
    start
        seconds at the first sample
    rate_from
        heading of the column of times that gives the rate; '' for another source
    unit
        unit of the values, such as 'mV'; '' if it is not known
    channel_names
        names of the channels in the file, the second of a name with its number; None if it has none
    first
        samples of the file before the first one
    full_scale
        number in the file that stands for 1
    recorded_as
        the signals that these windows were cut from; None for signals as they were recorded

    Examples
    --------
    >>> ww.data.load(np.zeros((3, 2, 500)), signals=True)
    Signals('array', 3 of 2×500, unlabelled)
    >>> ww.data.load(np.zeros(500), signals=True, rate=250).rate
    250.0
    """

    rate: float | None = None
    start: float = 0.0
    rate_from: str = ""
    unit: str = ""
    channel_names: tuple[str, ...] | None = None
    first: int = 0
    full_scale: float = 1.0
    recorded_as: Signals | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise UnusableRate(self.name, self.rate)
        if self.channel_names is not None:
            object.__setattr__(self, "channel_names", _distinct(self.channel_names))

    def __getitem__(self, rows: Rows) -> torch.Tensor:
        if isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        return super().__getitem__(rows).squeeze(2)

    def as_images(self) -> Images:
        """Return the same signals as images of height 1."""
        return Images(**{field.name: getattr(self, field.name) for field in fields(Images)})

    def recording(self, row: int) -> PictureWindows:
        """Return one signal as a picture [C, 1, T] that is read window by window."""
        return PictureWindows(self, row)

    def with_rate(self, rate: float | None) -> Signals:
        """Return the same signals with this many samples per second, if a number is given."""
        return self if rate is None else replace(self, rate=float(rate))

    def counted(self) -> Signals:
        """Return the same signals, whose heights are reported as the whole numbers of the file."""
        dtype = self.pixels.dtype
        if dtype.kind not in "iu":
            return self
        return replace(self, full_scale=float(np.iinfo(dtype).max) + (dtype.kind == "i"))

    def between(self, start: float | None, end: float | None) -> Signals:
        """Return the part of the signals from a time to another one, in seconds as in a table of
        events; None: from the beginning, or to the end.

        >>> signals = ww.data.load(np.zeros((2, 7500)), signals=True, rate=250)
        >>> signals.between(10, 12).describe()
        '2 channels, 250 Hz, 2 s'
        """
        if start is None and end is None:
            return self
        if self.rate is None:
            raise ImageError(f"{self.name} has no rate, so no times. Give --rate.")
        length = self.shape[2]
        duration = length / self.rate
        first = 0 if start is None else max(0, round((start - self.start) * self.rate))
        last = length if end is None else min(length, round((end - self.start) * self.rate))
        if first >= last:
            given = (
                f"{'' if start is None else f'{start:g}'} to {'' if end is None else f'{end:g}'}"
            )
            raise ImageError(
                f"{self.name} has no sample from {given} s. It lasts from {self.start:g} to"
                f" {self.start + duration:g} s."
            )
        return replace(
            self,
            pixels=_columns_of(self.pixels, first, last),
            start=self.start + first / self.rate,
            first=self.first + first,
        )

    def describe(self) -> str:
        """Describe the recording in one line: channels, rate, duration and gaps.

        >>> ww.data.load(np.zeros((2, 7500)), signals=True, rate=250).describe()
        '2 channels, 250 Hz, 30 s'
        """
        count, channels, _, length = self.pixels.shape
        parts = [plural(channels, "channel") + (f" ({self.unit})" if self.unit else "")]
        if count > 1:
            parts.insert(0, plural(count, "signal"))
        if self.rate is None:
            parts.append(plural(length, "sample"))
        else:
            source = f" from column {self.rate_from!r}" if self.rate_from else ""
            parts.append(f"{self.rate:,.10g} Hz{source}")
            parts.append(f"{length / self.rate:,.6g} s")
        gaps = len(unknown_gaps(self, 0))
        if gaps:
            parts.append("one gap" if gaps == 1 else f"{gaps:,} gaps")
        return ", ".join(parts)

    def windows(self, size: int | None = None) -> Signals:
        """Cut the signals into windows of this many samples.

        Parameters
        ----------
        size
            None: windows to learn from, or short signals as they are
        """
        return training_windows(self) if size is None else cut_windows(self, size)

    # What training asks of a recording: `learning.defaults.OwnSettings`

    def choose_defaults(self, options: RecordingOptions) -> Defaults:
        """Choose the recipe and the waveforms to begin with from the recording."""
        from whatwhere.signals.training import choose_defaults

        return choose_defaults(self, options)

    def for_training(self, spec: ModelSpec | None) -> Images:
        """Return the windows that a model of this spec learns from, as images of height 1."""
        from whatwhere.signals.training import images_for_training

        return images_for_training(self, spec)


def _columns_of(pixels: Pixels, first: int, last: int) -> Pixels:
    """Return some samples of signals [N, C, 1, T], not read if they are in a file."""
    if isinstance(pixels, StoredArray):
        shape = (*pixels.shape[:-1], last - first)
        return replace(pixels, offset=pixels.offset + first * pixels.strides[-1], shape=shape)
    if isinstance(pixels, np.ndarray):
        return pixels[..., first:last]
    shape = (*pixels.shape[:-1], last - first)
    return LazyPixels(shape, pixels.dtype, lambda rows: pixels[rows][..., first:last])


def unknown_gaps(signals: Signals, longest: int) -> list[slice]:
    """Return the gaps of more than `longest` samples in all channels of the signals, signal by
    signal; read part by part."""
    if signals.pixels.dtype.kind != "f":
        return []
    gaps: list[slice] = []
    for row in range(len(signals)):
        gaps += long_gaps(known_samples(signals, row), longest)
    return gaps


def known_samples(signals: Signals, row: int) -> np.ndarray:
    """Return which samples of a signal are known in any channel that changes, [T]; read part by
    part. A trigger that was never used says nothing about the gaps of the others."""
    changes = _changing_channels(signals, row)
    parts = [
        (~part[changes].isnan()).any(0)[0].numpy() for part in _parts_of(signals.recording(row))
    ]
    return np.concatenate(parts)


def _changing_channels(signals: Signals, row: int) -> np.ndarray:
    """Tell which channels of a signal have two different values; all of them if none has."""
    channels = signals.shape[0]
    if channels == 1:
        return np.ones(1, bool)
    lowest = np.full(channels, np.inf)
    highest = np.full(channels, -np.inf)
    for part in _parts_of(signals.recording(row)):
        values = part[:, 0].numpy()
        lowest = np.fmin(lowest, np.fmin.reduce(values, 1))
        highest = np.fmax(highest, np.fmax.reduce(values, 1))
    changes: np.ndarray = lowest < highest
    return changes if changes.any() else ~changes


def _parts_of(recording: PictureWindows) -> Iterator[torch.Tensor]:
    """Yield a recording [C, 1, T] in parts."""
    for first in range(0, recording.shape[2], CHECKED):
        yield recording[:, :, first : first + CHECKED]


def cut_windows(signals: Signals, size: int) -> Signals:
    """Windows of `size` samples, one after the other; the last window of a signal ends where the
    signal ends.

    An event at a cut is explained from both sides of it: a waveform may begin before a window and
    end after it. Windows in a gap, without any known sample, are left out.
    """
    count, _, _, length = signals.pixels.shape
    if size > length:
        raise ImageError(
            f"Cannot cut windows of {size:,} samples: {signals.name} has {length:,}. Give a"
            " shorter length."
        )
    each = np.append(np.arange(0, length - size, size), length - size)
    starts = np.stack([np.repeat(np.arange(count), len(each)), np.tile(each, count)], 1)
    if signals.pixels.dtype.kind == "f":
        starts = starts[[_has_known_sample(signals.pixels, row, at, size) for row, at in starts]]
    if not len(starts):
        raise ImageError(f"{signals.name} has no known sample: all values are NaN.")
    name = f"{len(starts):,} windows of {size:,} samples of {signals.name}"

    def read(rows: np.ndarray) -> np.ndarray:
        return np.stack(
            [picture_of(signals.pixels, row)[:, :, at : at + size] for row, at in starts[rows]]
        )

    pixels = LazyPixels((len(starts), signals.shape[0], 1, size), signals.pixels.dtype, read)
    return replace(signals, pixels=pixels, labels=None, name=name, recorded_as=signals)


def _has_known_sample(pixels: Pixels, row: int, first: int, size: int) -> bool:
    window = picture_of(pixels, row)[:, :, first : first + size]
    return not bool(np.isnan(window).all())


def training_windows(signals: Signals) -> Signals:
    """Return what to learn from: short signals as they are, others in windows."""
    is_long = signals.shape[2] >= 2 * WINDOW and not isinstance(signals.pixels, LazyPixels)
    return cut_windows(signals, WINDOW) if is_long else signals


def as_signals(values: AnyArray, name: str) -> Signals:
    """Return signals of values [T], [C, T] or [N, C, T]; floats are checked once, window by window.
    NaN marks unknown samples.

    If the values are [T, C], with fewer channels than samples, the axes are swapped, and a warning
    says so.
    """
    shape = values.shape
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise ImageError(
            f"{name} has the shape {shape}; expected signals [T], [C, T] or [N, C, T]."
        )
    if is_transposed(shape):
        warn(
            f"{name} has {shape[0]:,} × {shape[1]:,} values. Reading"
            f" {plural(shape[1], 'channel')} of {shape[0]:,} samples."
        )
        values = values.T
        shape = values.shape
    for _ in range(3 - len(shape)):
        values = with_new_axis(values, 0)
    pixels = with_new_axis(values, 2)
    signals = Signals(pixels, None, name, allow_nan=True)
    if signals.shape[0] > signals.shape[2]:
        warn(
            f"{name} has {signals.shape[0]:,} channels of {plural(signals.shape[2], 'sample')};"
            " expected more samples than channels. If its axes are swapped, transpose it to [C, T]."
        )
    if values.dtype.kind == "f":
        for row in range(len(signals)):
            signal = picture_of(pixels, row)
            for first in range(0, shape[-1], CHECKED):
                check_finite(signal[:, :, first : first + CHECKED], name, allow_nan=True)
    return signals


def is_transposed(shape: tuple[int, ...]) -> bool:
    """Tell whether an array of two axes has more rows than columns, so that its rows are the
    samples."""
    return len(shape) == 2 and shape[0] > shape[1]
