"""Tables of samples: .csv files with any usual separator, decimal mark and heading, read and
written alike."""

import codecs
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whatwhere.errors import ImageError, printable, warn
from whatwhere.files import open_regular, readable

LARGEST_TABLE = 1 << 30  # bytes of a .csv file
LOOKED_AT = 1000  # lines of a table that tell whether its first line is a heading
REMEDY = "save it as a UTF-8 text file, or as .npy"
DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)")
EVEN = 0.02  # half of the steps of time differ from their median by at most this share
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
"""Units of time, in seconds."""

TIME_NAMES = ("time", "t", "timer", "timestamp", "seconds", "sec", "datetime", "date", "zeit")
"""Headings of a column of times, without their units."""


@dataclass(frozen=True)
class Table:
    """The text of a .csv file, and what is needed to write a file like it.

    heading        the first line, if it holds names; otherwise None
    lines          lines with samples, without empty ones at the end
    separator      separator of columns
    decimal_comma  whether numbers are written 0,5
    encoding       encoding of the text
    line_end       the characters that end a line
    units          the line below the heading, if it holds units; otherwise None
    """

    heading: str | None
    lines: list[str]
    separator: str
    decimal_comma: bool
    encoding: str
    line_end: str
    units: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns, with their units as in 'ECG (mV)'; none without a heading."""
        if self.heading is None:
            return []
        names = self.heading.split(self.separator)
        if self.units is None:
            return names
        units = [field.strip(' "()[]') for field in self.units.split(self.separator)]
        return [f"{name} ({unit})" for name, unit in zip(names, units, strict=True)]


def read_table(path: Path) -> Table:
    """The lines of a .csv file; its separator, its decimal mark and its heading are detected."""
    text, encoding = _read_text(path)
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    separator = _separator(lines)
    heading = None
    units = None
    if lines and _is_heading(path, lines, separator):
        heading = lines.pop(0)
        if _are_units(heading, lines, separator):
            units = lines.pop(0)
            while not lines[0].strip():  # some programs write an empty line below them
                lines.pop(0)
    if separator != ",":
        decimal_comma = any("," in line for line in lines)
        return Table(heading, lines, separator, decimal_comma, encoding, line_end, units)
    if _one_column_of_decimal_commas(path, heading, lines):
        return Table(heading, lines, ";", True, encoding, line_end)
    return Table(heading, lines, separator, False, encoding, line_end, units)


def _read_text(path: Path) -> tuple[str, str]:
    """The text of a file, and its encoding."""
    with open_regular(path) as file, readable(path, "table", REMEDY, ImageError):
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_TABLE:
            raise ValueError(f"it has {size:,} bytes; expected at most {LARGEST_TABLE:,}")
        content = file.read()
        encoding = _encoding(content)
        text = content.decode(encoding)
        if "\0" in text:
            raise ValueError("it contains null bytes, so it is not text")
    return text, encoding


def _separator(lines: Sequence[str]) -> str:
    """What separates the columns: a semicolon, a tab or a comma, in this order."""
    # the second line has samples for certain; the first may hold names with any characters
    typical = next((line for line in lines[1:] if line.strip()), lines[0] if lines else "")
    return next((mark for mark in ";\t," if mark in typical), ",")


def _encoding(content: bytes) -> str:
    """The encoding by the byte-order mark; without a mark, UTF-8, or Latin-1 if the text is not
    UTF-8."""
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
    the samples below are not whole numbers; a warning says so."""
    fields = [field.strip() for field in lines[0].split(separator)]
    if not _are_numbers(fields, separator):
        return True
    if not _counts_up(fields) or _mostly_integers(lines[1:LOOKED_AT], separator):
        return False
    name = printable(path)
    if len(fields) == 1:
        warn(
            f"{name}: reading the first line, {fields[0]}, as a sample. If it is the name of the"
            " column, remove it."
        )
        return False
    warn(
        f"{name}: reading the first line, {lines[0]}, as the names of the columns. If it is a"
        " sample, write 0.0 instead of 0."
    )
    return True


def _are_units(heading: str, lines: Sequence[str], separator: str) -> bool:
    """Whether the line below a heading holds units: as many fields, no number in any of them, and
    numbers in the next line that is not empty."""
    if not lines:
        return False
    fields = lines[0].split(separator)
    sample = next((line for line in lines[1:] if line.strip()), None)
    if sample is None or len(fields) != heading.count(separator) + 1:
        return False
    has_number = any(_are_numbers([field], separator) for field in fields)
    return not has_number and _are_numbers(sample.split(separator), separator)


def _are_numbers(fields: Sequence[str], separator: str) -> bool:
    """Whether all fields of a line are numbers, or empty."""
    try:
        for field in fields:
            _number(_with_point(field, decimal_comma=separator != ","))
    except ValueError:
        return False
    return True


def _counts_up(fields: Sequence[str]) -> bool:
    """Whether fields are 0, 1, 2 … or 1, 2, 3 …"""
    return any(fields == [str(first + n) for n in range(len(fields))] for first in (0, 1))


def _mostly_integers(lines: Sequence[str], separator: str) -> bool:
    """Whether at least half of the fields are integers, or there are no fields."""
    fields = [field.strip() for line in lines for field in line.split(separator)]
    integers = sum(field.lstrip("+-").isdecimal() for field in fields)
    return 2 * integers >= len(fields)


def _one_column_of_decimal_commas(path: Path, heading: str | None, lines: Sequence[str]) -> bool:
    """Whether a comma in each line is a decimal comma: 0,05 is a number, and so is the only field
    below a single name. If that is not certain, a warning says what is assumed."""
    parts = _parts_of_numbers(lines)
    if not parts:
        return False
    one_name = heading is not None and "," not in heading
    if one_name or any(_must_be_decimal(whole, decimals) for whole, decimals in parts):
        return True
    digits = max(len(decimals) for _, decimals in parts)
    if digits >= 3 and digits > max(len(whole.lstrip("+-")) for whole, _ in parts):
        warn(
            f"{printable(path)}: reading two columns of whole numbers. If it has one column with"
            " decimal commas, replace them with decimal points."
        )
    return False


def _parts_of_numbers(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The digits before and after the comma in every line; empty if a line is not such a number."""
    numbers = [DECIMAL_COMMA.fullmatch(line.strip()) for line in lines if line.strip()]
    parts = [(number[1], number[2]) for number in numbers if number is not None]
    return parts if len(parts) == len(numbers) else []


def _must_be_decimal(whole: str, decimals: str) -> bool:
    """Whether two parts cannot be integers of two columns: nobody writes 05, -0 or +0."""
    padded = len(decimals) > 1 and decimals.startswith("0")
    return padded or whole in ("-0", "+0")


def table_values(path: Path, table: Table) -> np.ndarray:
    """Values [T, C]; an empty field is NaN, and so is every field of an empty line."""
    if not table.lines:
        raise ImageError(
            f"{path} has no samples; expected a line for each sample and a column for each channel."
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
        reason = _text_among(lines, table) or str(error).rstrip(".")
        raise ImageError(
            f"Cannot read {path}: {reason}. Expected numbers, with a line for each sample and a"
            " column for each channel."
        ) from None


def _text_among(lines: Sequence[str], table: Table) -> str:
    """The first field that is not a number, in words; empty if all fields are numbers."""
    above = sum(line is not None for line in (table.heading, table.units))
    for number, line in enumerate(lines, above + 1):
        for field in line.split(table.separator):
            if not _are_numbers([field.strip()], table.separator):
                return f"line {number:,} has the text {field.strip()[:40]!r}"
    return ""


def _number(field: str) -> float:
    return float(field) if field.strip() else math.nan


# The column of times ------------------------------------------------------------------------------


class TimeColumn(NamedTuple):
    """What a column of times shows: the samples per second, and the seconds at the first sample."""

    rate: float
    start: float


def split_unit(field: str) -> tuple[str, str]:
    """The name and the unit of a heading such as 'ECG (mV)' or 'ECG [mV]'."""
    field = field.strip().strip('"').strip()
    match = re.fullmatch(r"(.*?)\s*[\[(]([^\])]*)[\])]", field)
    return (match[1], match[2]) if match else (field, "")


def time_column(table: Table) -> TimeColumn | None:
    """What the first of several columns shows, if it holds evenly spaced times.

    Its heading is a name such as time, with a unit or without one (seconds, or milliseconds where
    the rate would be below 1 Hz); or there is no heading, and the column rises by the same small
    step from line to line.
    """
    cells = _first_cells(table)
    if len(cells) < 3:
        return None
    named = table.heading is not None
    name, unit = _time_heading(table.names[0] if named else "")
    if named and name not in (*TIME_NAMES, *SECONDS):
        return None
    times = _times(cells, table.decimal_comma)
    if times is None or not _are_even(times, strictly=not named):
        return None
    # the mean of all steps has more digits than one of them
    step = float(times[-1] - times[0]) / (len(times) - 1)
    seconds = SECONDS.get(unit or name, 1.0)
    if not unit and name not in SECONDS and step >= 1:
        seconds = 1e-3
    # no more digits than times have: 12500, not 12499.999999999998
    rate = float(f"{1 / (step * seconds):.10g}")
    return TimeColumn(rate, float(times[0]) * seconds)


def _first_cells(table: Table) -> list[str]:
    """The first cell of every line; empty if a line has no other cell."""
    lines = [line.split(table.separator, 1) for line in table.lines if line.strip()]
    if any(len(cells) < 2 for cells in lines):
        return []
    return [cells[0].strip() for cells in lines]


def _time_heading(field: str) -> tuple[str, str]:
    """The name and the unit of a heading such as 'Time (ms)' or 'time_ms', in lower case."""
    name, unit = split_unit(field)
    name, _, suffix = name.lower().replace(" ", "_").partition("_")
    if not unit and suffix in SECONDS:
        unit = suffix
    return name, unit


def _are_even(times: np.ndarray, *, strictly: bool) -> bool:
    """Whether times rise by steps that are mostly equal. Strictly: all steps are equal and below 1,
    because a column without a heading must show that it holds times."""
    if not np.isfinite(times).all():
        return False
    steps = np.diff(times)
    step = float(np.median(steps))
    rises = (steps > 0).all()
    if not (rises and np.median(np.abs(steps - step)) <= EVEN * step):
        return False
    return not strictly or bool(step < 1 and np.ptp(steps) <= EVEN * step)


def _times(fields: list[str], decimal_comma: bool) -> np.ndarray | None:
    """Numbers, or dates as seconds since the first; None for anything else."""
    try:
        return np.array([float(_with_point(field, decimal_comma)) for field in fields])
    except ValueError:
        pass
    try:
        dates = [datetime.fromisoformat(field.strip('"')) for field in fields]
        return np.array([(date - dates[0]).total_seconds() for date in dates])
    except (ValueError, TypeError):
        return None


def _with_point(field: str, decimal_comma: bool) -> str:
    return field.replace(",", ".") if decimal_comma else field


def without_first_column(table: Table) -> Table:
    """The same table without its times."""

    def rest(line: str) -> str:
        return line.partition(table.separator)[2]

    return replace(
        table,
        heading=None if table.heading is None else rest(table.heading),
        lines=[rest(line) for line in table.lines],
        units=None if table.units is None else rest(table.units),
    )


def encode_table(values: np.ndarray, table: Table) -> bytes:
    """The text of a table of values [T, C] in the form of another table, with its column of
    times."""
    text = io.StringIO()
    np.savetxt(text, values, fmt="%.9g", delimiter=table.separator)
    lines = text.getvalue()
    if table.decimal_comma:
        lines = lines.replace(".", ",")
    if time_column(table) is not None:
        times = [line.partition(table.separator)[0] for line in table.lines]
        rows = zip(times, lines.splitlines(), strict=True)
        lines = "".join(f"{time}{table.separator}{row}\n" for time, row in rows)
    if table.units is not None:
        lines = f"{table.units}\n{lines}"
    if table.heading is not None:
        lines = f"{table.heading}\n{lines}"
    return lines.replace("\n", table.line_end).encode(table.encoding)
