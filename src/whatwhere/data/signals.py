"""Signals: recordings of one or more channels. Outside they are [N, C, T]; the model sees images
of height 1."""

import codecs
import io
import math
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from whatwhere.data.arrays import read_array
from whatwhere.data.images import Images, LazyPixels, PictureWindows, Rows, check_finite
from whatwhere.errors import ImageError, MissingExtra, printable
from whatwhere.files import open_regular, readable

SUFFIXES = (".csv", ".wav")
"""Files that hold nothing but signals."""

WINDOW = 2048  # samples, for learning from longer signals
CHECKED = 1 << 20  # samples that are looked at together
LOOKED_AT = 1000  # lines of a table that tell whether its first line is a heading
DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)")
UNKNOWN_LENGTH = 2**32 - 1  # of the samples of a .wav file


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
    """Values [T, C]; an empty field is NaN, and so is every field of an empty line."""
    table = read_table(path)
    if not table.lines:
        raise ImageError(
            f"{path}: no samples; expected a line for each sample, a column for each channel"
        )
    columns = max(line.count(table.separator) for line in table.lines)
    unknown = table.separator.join(["nan"] * (columns + 1))
    lines = [line if line.strip() else unknown for line in table.lines]  # `loadtxt` skips them
    if table.decimal_comma:
        lines = [line.replace(",", ".") for line in lines]
    options: dict[str, Any] = {
        "delimiter": table.separator,
        "ndmin": 2,
        "comments": None,
        "dtype": np.float32,
    }
    try:
        return np.loadtxt(lines, **options)
    except ValueError:  # empty fields, perhaps, which only the slower way can read
        pass
    try:
        return np.loadtxt(lines, converters=_number, **options)
    except ValueError as error:
        raise ImageError(
            f"{path}: {error}; expected numbers: a line for each sample, a column for each channel"
        ) from None


@dataclass(frozen=True)
class Table:
    """The text of a .csv file, and what a file like it needs.

    heading        the first line, if it holds names; otherwise None
    lines          of samples, without empty ones at the end
    separator      of columns
    decimal_comma  whether numbers are written 0,5
    encoding       of the text
    line_end       the characters that end a line
    """

    heading: str | None
    lines: list[str]
    separator: str
    decimal_comma: bool
    encoding: str
    line_end: str


def read_table(path: Path) -> Table:
    """The lines of a .csv file; its separator, its decimal mark and its heading are detected."""
    with open_regular(path) as file:
        content = file.read()
    encoding = _encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ImageError(f"{path}: {error}; save it as UTF-8") from None
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    # the second line has samples for certain; the first may hold names with any characters
    typical = next((line for line in lines[1:] if line.strip()), lines[0] if lines else "")
    separator = next((mark for mark in ";\t," if mark in typical), ",")
    heading = None
    if lines and _is_heading(path, lines, separator):
        heading = lines.pop(0)
    if separator != ",":
        decimal_comma = any("," in line for line in lines)
        return Table(heading, lines, separator, decimal_comma, encoding, line_end)
    if _one_column_of_decimal_commas(path, heading, lines):
        return Table(heading, lines, ";", True, encoding, line_end)
    return Table(heading, lines, separator, False, encoding, line_end)


def _encoding(content: bytes) -> str:
    """By the byte-order mark; without one UTF-8, or Latin-1 where it is not UTF-8."""
    if content.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _is_heading(path: Path, lines: Sequence[str], separator: str) -> bool:
    """Whether the first line holds names. Columns that are only numbered, 0, 1, 2 …, are names if
    the samples below are no whole numbers; a warning says so."""
    fields = [field.strip() for field in lines[0].split(separator)]
    try:
        for field in fields:
            _number(field.replace(",", ".") if separator != "," else field)
    except ValueError:
        return True
    below = [field.strip() for line in lines[1:LOOKED_AT] for field in line.split(separator)]
    whole = sum(field.lstrip("+-").isdecimal() for field in below)
    numbered = fields in (
        [str(n) for n in range(len(fields))],
        [str(n + 1) for n, _ in enumerate(fields)],
    )
    if not numbered or not below or 2 * whole >= len(below):
        return False
    name = printable(path)
    if len(fields) == 1:
        warnings.warn(
            f"{name}: the first line, {fields[0]}, is taken for a sample; remove it if it is the"
            " name of the column",
            stacklevel=2,
        )
        return False
    warnings.warn(
        f"{name}: the first line, {lines[0]}, numbers the columns and is taken for their names;"
        " write 0.0 in place of 0 if it is a sample",
        stacklevel=2,
    )
    return True


def _one_column_of_decimal_commas(path: Path, heading: str | None, lines: Sequence[str]) -> bool:
    """Whether a comma in each line is a decimal comma: 0,05 is a number, and so is the only field
    below a single name. Where that is not certain, a warning says what is assumed."""
    numbers = [DECIMAL_COMMA.fullmatch(line.strip()) for line in lines if line.strip()]
    if not numbers or not all(numbers):
        return False
    parts = [number.groups() for number in numbers if number is not None]
    one_name = heading is not None and "," not in heading
    padded = any(len(decimals) > 1 and decimals.startswith("0") for _, decimals in parts)
    negative_zero = any(whole in ("-0", "+0") for whole, _ in parts)
    if one_name or padded or negative_zero:
        return True
    digits = max(len(decimals) for _, decimals in parts)
    if digits >= 3 and digits > max(len(whole.lstrip("+-")) for whole, _ in parts):
        warnings.warn(
            f"{printable(path)}: read as two columns of whole numbers; write decimal points in"
            " place of commas if it is one column",
            stacklevel=2,
        )
    return False


def _number(field: str) -> float:
    return float(field) if field.strip() else math.nan


def _read_wav(path: Path) -> np.ndarray:
    """Values [T, C], read in windows; samples of 24, 32 and 64 bits as floats from -1 to 1."""
    _, samples = _open_wav(path)
    values = samples.reshape(len(samples), -1)
    if values.dtype in (np.int32, np.int64):
        return np.asarray(values / np.float32(2.0 ** (8 * values.itemsize - 1)), np.float32)
    return (values ^ 128).view(np.int8) if values.dtype == np.uint8 else values


def _open_wav(path: Path) -> tuple[int, np.ndarray]:
    """Samples per second, and the samples [T] or [T, C], mapped from the file where they can be."""
    try:
        from scipy.io import wavfile
    except ImportError:
        raise MissingExtra("scipy", "sklearn", "reading .wav files") from None
    with open_regular(path) as file, readable(path, ".wav file", "save it again", ImageError):
        _check_wav_length(file)
    with readable(path, ".wav file", "save it again", ImageError), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # of chunks that hold no samples
        try:
            rate, samples = wavfile.read(path, mmap=True)
        except ValueError:  # samples of 24 bits cannot be mapped
            rate, samples = wavfile.read(path)
        if not samples.size:
            raise ValueError("it has no samples")
        return rate, np.asarray(samples)


def _check_wav_length(file: BufferedReader) -> None:
    """Raise a ValueError unless the file has all the samples that it announces.

    A size of 2³² - 1 is one that its writer did not know: the samples end with the file, or a
    `ds64` part gives the size.
    """
    size = os.fstat(file.fileno()).st_size
    order: Literal["big", "little"] = "big" if file.read(12)[:4] == b"RIFX" else "little"
    announced_64 = None
    while len(head := file.read(8)) == 8:
        length = int.from_bytes(head[4:], order)
        if head[:4] == b"ds64":
            announced_64 = int.from_bytes(file.read(16)[8:], order)
            file.seek(length - 16, os.SEEK_CUR)
            continue
        if head[:4] != b"data":
            file.seek(length + length % 2, os.SEEK_CUR)
            continue
        if length == UNKNOWN_LENGTH:
            length = announced_64 or 0
        rest = size - file.tell()
        if length > rest:
            raise ValueError(
                f"it announces {length:,} bytes of samples and has {rest:,}, so it ends early"
            )
        return


def encode_signals(values: np.ndarray, source: Path) -> bytes:
    """The content of a file of signals [N, C, T] like `source`, the .npy, .csv or .wav file that
    they are made of.

    Samples are of its type (24 bits become 32) and arrays of its shape; of a table, names of
    columns, separator, decimal mark and encoding are kept, of a .wav file the rate.
    """
    suffix = source.suffix.lower()
    if suffix == ".csv":
        return _encode_csv(values[0].T, read_table(source))
    file = io.BytesIO()
    if suffix == ".wav":
        from scipy.io import wavfile

        rate, given = _open_wav(source)
        is_bytes = given.dtype == np.uint8  # whose silence is 128
        samples = _as_samples(values[0].T, np.dtype(np.int8) if is_bytes else given.dtype)
        wavfile.write(file, rate, samples.view(np.uint8) ^ 128 if is_bytes else samples)
    else:
        array = read_array(source)
        np.save(file, _as_samples(values, array.dtype).reshape(array.shape))
    return file.getvalue()


def _encode_csv(values: np.ndarray, table: Table) -> bytes:
    """A table of values [T, C] that is written as another one."""
    text = io.StringIO()
    np.savetxt(text, values, fmt="%.9g", delimiter=table.separator)
    lines = text.getvalue()
    if table.decimal_comma:
        lines = lines.replace(".", ",")
    if table.heading is not None:
        lines = f"{table.heading}\n{lines}"
    return lines.replace("\n", table.line_end).encode(table.encoding)


def _as_samples(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values as samples of this type; whole numbers are scaled, and cut off at the largest."""
    if dtype.kind not in "iu":
        return values.astype(dtype if dtype.kind == "f" else np.float32)
    limits = np.iinfo(dtype)
    scaled = np.rint(values.astype(np.float64) * (limits.max + (dtype.kind == "i")))
    largest = float(limits.max)
    if largest > limits.max:  # 64 bits, more than a float has
        largest = np.nextafter(largest, 0)
    return scaled.clip(limits.min, largest).astype(dtype)
