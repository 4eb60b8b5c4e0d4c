"""Signals: recordings of one or more channels. Outside they are [N, C, T]; the model sees images
of height 1."""

import io
import math
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import torch

from whatwhere.data.arrays import read_array
from whatwhere.data.images import Images, LazyPixels, PictureWindows, Rows, check_finite
from whatwhere.errors import ImageError, MissingExtra
from whatwhere.files import open_regular, readable

SUFFIXES = (".csv", ".wav")
"""Files that hold nothing but signals."""

WINDOW = 2048  # samples, for learning from longer signals
CHECKED = 1 << 20  # samples that are looked at together


class Signals(Images):
    """Signals as the model expects them: `signals[rows]` is a float32 tensor [n, C, T], read when
    it is asked for.

    The fields are those of `Images`: `pixels` [N, C, 1, T], `labels`, `name`, `classes`,
    `allow_nan`, `white`, `brightest` and `deep_white`.

    >>> ww.data.load(np.zeros((3, 2, 500)), signals=True)
    Signals('array', 3 of 2×500, unlabelled)
    """

    def __getitem__(self, rows: Rows) -> torch.Tensor:
        if isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        return super().__getitem__(rows).squeeze(2)

    def as_images(self) -> Images:
        """The same signals as images of height 1."""
        return Images(**{field.name: getattr(self, field.name) for field in fields(self)})

    def recording(self, row: int) -> PictureWindows:
        """One signal as a picture [C, 1, T] that is read window by window."""
        return PictureWindows(self, row)


def cut_windows(signals: Signals, size: int) -> Signals:
    """Windows of `size` samples, one after the other; the last one of a signal ends with it.

    An event at a cut is explained from both sides of it: a waveform may begin before a window and
    end after it.
    """
    count, _, _, length = signals.pixels.shape
    if size > length:
        raise ImageError(
            f"windows of {size:,} samples were asked for; {signals.name} has {length:,}"
        )
    each = np.append(np.arange(0, length - size, size), length - size)
    starts = np.stack([np.repeat(np.arange(count), len(each)), np.tile(each, count)], 1)
    name = f"{len(starts):,} windows of {size:,} samples of {signals.name}"

    def read(rows: np.ndarray) -> np.ndarray:
        return np.stack(
            [signals.pixels[row : row + 1][0, :, :, at : at + size] for row, at in starts[rows]]
        )

    pixels = LazyPixels((len(starts), signals.shape[0], 1, size), signals.pixels.dtype, read)
    return replace(signals, pixels=pixels, labels=None, name=name)


def training_windows(signals: Signals) -> Signals:
    """What to learn from: short signals as they are, others in windows."""
    is_long = signals.shape[2] >= 2 * WINDOW and isinstance(signals.pixels, np.ndarray)
    return cut_windows(signals, WINDOW) if is_long else signals


def as_signals(values: np.ndarray, name: str, allow_nan: bool = False) -> Signals:
    """Signals of values [T], [C, T] or [N, C, T]; floats are checked once, window by window."""
    shape = values.shape
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise ImageError(
            f"{name}: an array of shape {shape}; expected signals [T], [C, T] or [N, C, T]"
        )
    pixels = values.reshape((1,) * (3 - len(shape)) + shape)[:, :, None]
    signals = Signals(pixels, None, name, allow_nan=allow_nan)
    if signals.shape[0] > signals.shape[2]:
        warnings.warn(
            f"{name}: {signals.shape[0]:,} channels of {signals.shape[2]:,} samples; expected [C,"
            " T]: is it transposed?",
            stacklevel=4,
        )
    if values.dtype.kind == "f":
        for signal in pixels:
            for first in range(0, shape[-1], CHECKED):
                check_finite(signal[:, :, first : first + CHECKED], name, allow_nan)
    return signals


def read_signals(path: Path, name: str, allow_nan: bool) -> Signals:
    """The recording of a .csv file, a row for each sample and a column for each channel, or of a
    .wav file."""
    values = _read_csv(path) if path.suffix.lower() == ".csv" else _read_wav(path)
    return as_signals(values.T, name, allow_nan)


def _read_csv(path: Path) -> np.ndarray:
    """Values [T, C]; a first line of names is skipped, an empty field (of one channel: an empty
    line) is NaN."""
    _, comma, lines = _read_lines(path)
    if not any(line.strip() for line in lines):
        raise ImageError(
            f"{path}: no samples; expected a line for each sample, a column for each channel"
        )
    while not lines[-1].strip():
        lines.pop()
    if not any(comma in line for line in lines):
        lines = [line if line.strip() else "nan" for line in lines]  # which `loadtxt` would skip
    try:
        return np.loadtxt(
            lines, delimiter=comma, converters=_number, ndmin=2, comments=None, dtype=np.float32
        )
    except ValueError as error:
        raise ImageError(
            f"{path}: {error}; expected numbers: a line for each sample, a column for each channel"
        ) from None


def _read_lines(path: Path) -> tuple[str, str, list[str]]:
    """The line of names of a .csv file, if it has one, what separates its columns, and its other
    lines."""
    with open_regular(path) as file:
        lines = file.read().decode(errors="replace").splitlines() or [""]
    comma = next((mark for mark in ",;\t" if mark in lines[0]), ",")
    try:
        [_number(field) for field in lines[0].split(comma)]
    except ValueError:
        return lines[0], comma, lines[1:]
    return "", comma, lines


def _number(field: str) -> float:
    return float(field) if field.strip() else math.nan


def _read_wav(path: Path) -> np.ndarray:
    """Values [T, C], read in windows; samples of 24 and 32 bits as floats from -1 to 1."""
    _, samples = _open_wav(path)
    values = samples.reshape(len(samples), -1)
    if values.dtype == np.int32:
        return np.asarray(values / np.float32(2**31))
    return (values ^ 128).view(np.int8) if values.dtype == np.uint8 else values


def _open_wav(path: Path) -> tuple[int, np.ndarray]:
    """Samples per second, and the samples [T] or [T, C], mapped from the file where they can be."""
    try:
        from scipy.io import wavfile
    except ImportError:
        raise MissingExtra("scipy", "sklearn", "reading .wav files") from None
    open_regular(path).close()  # a pipe would be waited for
    with readable(path, ".wav file", "save it again", ImageError), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # of chunks that hold no samples
        try:
            rate, samples = wavfile.read(path, mmap=True)
        except ValueError:  # samples of 24 bits cannot be mapped
            rate, samples = wavfile.read(path)
        return rate, np.asarray(samples)


def encode_signals(values: np.ndarray, source: Path) -> bytes:
    """The content of a file of signals [N, C, T] like `source`, the .npy, .csv or .wav file that
    they are made of.

    Samples are of its type (24 bits become 32) and arrays of its shape; a rate and names of columns
    are kept.
    """
    file, suffix = io.BytesIO(), source.suffix.lower()
    if suffix == ".csv":
        names, comma, _ = _read_lines(source)
        np.savetxt(file, values[0].T, fmt="%.9g", delimiter=comma, header=names, comments="")
    elif suffix == ".wav":
        rate, given = _open_wav(source)
        from scipy.io import wavfile

        is_bytes = given.dtype == np.uint8  # whose silence is 128
        samples = _as_samples(values[0].T, np.dtype(np.int8) if is_bytes else given.dtype)
        wavfile.write(file, rate, samples.view(np.uint8) ^ 128 if is_bytes else samples)
    else:
        array = read_array(source)
        np.save(file, _as_samples(values, array.dtype).reshape(array.shape))
    return file.getvalue()


def _as_samples(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values as samples of this type; whole numbers are scaled, and cut off at the largest."""
    if dtype.kind not in "iu":
        return values.astype(dtype if dtype.kind == "f" else np.float32)
    limits = np.iinfo(dtype)
    scaled = np.rint(values.astype(np.float64) * (limits.max + (dtype.kind == "i")))
    return scaled.clip(limits.min, limits.max).astype(dtype)
