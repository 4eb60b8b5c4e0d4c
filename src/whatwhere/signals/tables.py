"""Tables of samples: text files with any usual separator, decimal mark and heading, read and
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

_LARGEST_TABLE = 1 << 30  # bytes of a .csv file
_LOOKED_AT = 1000  # lines of a table that tell whether its first line is a heading
_REMEDY = "save it as a UTF-8 text file, or as .npy"
_DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)")
_UNITS = {
    1.0: ("s", "sec", "secs", "second", "seconds", "sekunden"),
    1e-3: ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    1e-6: ("us", "µs", "μs", "usec", "usecs", "microsecond", "microseconds"),
    1e-9: ("ns", "nsec", "nanosecond", "nanoseconds"),
    60.0: ("min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
SECONDS = {name: seconds for seconds, names in _UNITS.items() for name in names}
"""Units of time, in seconds."""

TIME_NAMES = (
    "time",
    "t",
    "timer",
    "timestamp",
    "timestamps",
    "seconds",
    "sec",
    "datetime",
    "date",
    "zeit",
    "elapsed",
    "elapsed time",
    "time elapsed",
)
"""Headings of a column of times, without their units."""

_ROW_NAMES = ("", "unnamed: 0", "index", "row", "sample", "samples", "sample #", "sample number")
_UNKNOWN = ("", "na", "n/a", "nan", "null", "none", "-", "--", "?")  # cells without a value
_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d+)?)")  # 1:02:03.004


@dataclass(frozen=True)
class TimeSettings:
    """What a column of times must be like.

    Parameters
    ----------
    gap
        steps of time that a step has at least where samples are missing
    even
        half of the steps differ from their median by at most this share: times of another kind of
        column have no usual step
    strict
        the same for all steps of a column without a heading, which must show what it holds
    repeat
        share of repeated times from which the clock is too coarse for the samples
    most
        samples of a recording with its gaps, for each one that is known
    """

    gap: float = 1.5
    even: float = 0.2
    strict: float = 0.02
    repeat: float = 0.05
    most: int = 100


@dataclass(frozen=True)
class Table:
    """The text of a .csv file, and what is needed to write a file like it.

    Parameters
    ----------
    heading
        the first line, if it holds names; otherwise None
    lines
        lines with samples, without empty ones at the end
    separator
        separator of columns
    decimal_comma
        whether numbers are written 0,5
    encoding
        encoding of the text
    line_end
        the characters that end a line
    units
        the line below the heading, if it holds units; otherwise None
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
        units = [field.strip(" \"'()[]") for field in self.units.split(self.separator)]
        return [f"{name} ({unit})" for name, unit in zip(names, units, strict=True)]


def read_table(path: Path) -> Table:
    """Return the lines of a .csv file; its separator, its decimal mark and its heading are
    detected."""
    text, encoding = _read_text(path)
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    separator = _separator(lines)
    if separator == " ":  # often several, so that columns are below each other
        lines = [" ".join(line.split()) for line in lines]
    heading = None
    units = None
    if lines and _is_heading(path, lines, separator):
        heading = lines.pop(0)
        if _are_units(heading, lines, separator):
            units = lines.pop(0)
            while not lines[0].strip():  # some programs write an empty line below them
                lines.pop(0)
    if separator != ",":
        if _commas_are_thousands(lines, separator):
            lines = [line.replace(",", "") for line in lines]
        decimal_comma = any("," in line for line in lines)
        return Table(heading, lines, separator, decimal_comma, encoding, line_end, units)
    if _one_column_of_decimal_commas(path, heading, lines):
        return Table(heading, lines, ";", True, encoding, line_end)
    return Table(heading, lines, separator, False, encoding, line_end, units)


def _read_text(path: Path) -> tuple[str, str]:
    """Return the text of a file, and its encoding."""
    with open_regular(path) as file, readable(path, "table", _REMEDY, ImageError):
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST_TABLE:
            raise ValueError(f"it has {size:,} bytes; expected at most {_LARGEST_TABLE:,}")
        content = file.read()
        encoding = _encoding(content)
        text = content.decode(encoding)
        if "\0" in text:
            raise ValueError("it contains null bytes, so it is not text")
    return text, encoding


def _separator(lines: Sequence[str]) -> str:
    """Return what separates the columns: spaces, if only numbers are between them; otherwise a
    semicolon, a tab or a comma, in this order."""
    # the second line has samples for certain; the first may hold names with any characters
    typical = next((line for line in lines[1:] if line.strip()), lines[0] if lines else "")
    fields = typical.split()
    if len(fields) > 1 and "\t" not in typical and _are_numbers(fields, " "):
        return " "
    return next((mark for mark in ";\t," if mark in typical), ",")


def _encoding(content: bytes) -> str:
    """Return the encoding by the byte-order mark; without a mark, UTF-8, or Latin-1 if the text is
    not UTF-8."""
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
    """Tell whether the first line holds names. Columns that are only numbered, 0, 1, 2 …, are names
    if the samples below are not whole numbers; a warning says so."""
    fields = [field.strip() for field in lines[0].split(separator)]
    if not _are_numbers(fields, separator):
        return True
    if not _counts_up(fields) or _mostly_integers(lines[1:_LOOKED_AT], separator):
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
    """Tell whether the line below a heading holds units: as many fields, a text in one of them and
    no number in any, and numbers in the next line that is not empty."""
    if not lines:
        return False
    fields = lines[0].split(separator)
    sample = next((line for line in lines[1:] if line.strip()), None)
    if sample is None or len(fields) != heading.count(separator) + 1:
        return False
    known = [field for field in fields if field.strip().strip("\"'").lower() not in _UNKNOWN]
    has_number = any(_are_numbers([field], separator) or _clock(field) for field in known)
    first, *others = sample.split(separator)
    is_sample = _are_numbers(others, separator) and bool(others or _are_numbers([first], separator))
    return bool(known) and not has_number and is_sample


def _are_numbers(fields: Sequence[str], separator: str) -> bool:
    """Tell whether all fields of a line are numbers, or empty."""
    try:
        for field in fields:
            _number(_with_point(field, decimal_comma=separator != ","))
    except ValueError:
        return False
    return True


def _counts_up(fields: Sequence[str]) -> bool:
    """Tell whether fields are 0, 1, 2 … or 1, 2, 3 …"""
    return any(fields == [str(first + n) for n in range(len(fields))] for first in (0, 1))


def _mostly_integers(lines: Sequence[str], separator: str) -> bool:
    """Tell whether at least half of the fields are integers, or there are no fields."""
    fields = [field.strip() for line in lines for field in line.split(separator)]
    integers = sum(field.lstrip("+-").isdecimal() for field in fields)
    return 2 * integers >= len(fields)


def _commas_are_thousands(lines: Sequence[str], separator: str) -> bool:
    """Tell whether commas in numbers part their thousands, as in 1,234.5: every comma has three
    digits after it, and a number has two commas, or a point somewhere."""
    fields = [field.strip().strip("\"'") for line in lines for field in line.split(separator)]
    fields = [field for field in fields if "," in field or "." in field]
    commas = [field for field in fields if "," in field]
    usual = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
    if not commas or not all(usual.fullmatch(field) for field in commas):
        return False
    return any("." in field or field.count(",") > 1 for field in fields)


def _one_column_of_decimal_commas(path: Path, heading: str | None, lines: Sequence[str]) -> bool:
    """Tell whether a comma in each line is a decimal comma: 0,05 is a number, and so is the only
    field below a single name. If that is not certain, a warning says what is assumed."""
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
    """Return the digits before and after the comma in every line; empty if a line is not such a
    number."""
    numbers = [_DECIMAL_COMMA.fullmatch(line.strip()) for line in lines if line.strip()]
    parts = [(number[1], number[2]) for number in numbers if number is not None]
    return parts if len(parts) == len(numbers) else []


def _must_be_decimal(whole: str, decimals: str) -> bool:
    """Tell whether two parts cannot be integers of two columns: nobody writes 05, -0 or +0."""
    padded = len(decimals) > 1 and decimals.startswith("0")
    return padded or whole in ("-0", "+0")


def table_values(path: Path, table: Table) -> np.ndarray:
    """Return values [T, C]; an empty field is NaN, and so is every field of an empty line."""
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
    """Return the first field that is not a number, in words; empty if all fields are numbers."""
    above = sum(line is not None for line in (table.heading, table.units))
    for number, line in enumerate(lines, above + 1):
        for field in line.split(table.separator):
            if not _are_numbers([field.strip()], table.separator):
                return f"line {number:,} has the text {field.strip()[:40]!r}"
    return ""


def _number(field: str) -> float:
    field = field.strip().strip("\"'")
    return math.nan if field.lower() in _UNKNOWN else float(field)


# The column of times ------------------------------------------------------------------------------


class TimeColumn(NamedTuple):
    """What a column of times shows.

    Parameters
    ----------
    rate
        samples per second; None if the times are not even
    start
        seconds at the first sample
    rows
        the sample of each line of the table; samples between them are missing
    """

    rate: float | None
    start: float
    rows: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return values [T, C] with NaN where samples are missing."""
        length = int(self.rows[-1]) + 1
        if length == len(values):
            return values
        spread = np.full((length, values.shape[1]), np.nan, values.dtype)
        spread[self.rows] = values
        return spread


class UnknownTimeUnit(ImageError):
    """A column of times in a unit that is not known.

    Attributes
    ----------
    heading
        the heading of the column
    unit
        its unit
    """

    def __init__(self, heading: str, unit: str) -> None:
        self.heading = heading
        self.unit = unit
        super().__init__(
            f"The column {heading!r} has times in {unit!r}; expected s, ms, us, ns, min, h or d."
            " Correct the heading, or remove the column and give --rate."
        )


def split_unit(field: str) -> tuple[str, str]:
    """Return the name and the unit of a heading such as 'ECG (mV)' or 'ECG [mV]'."""
    field = field.strip().strip("\"'").strip()
    if not field.endswith(("]", ")")):
        return field, ""
    # the first bracket that opens after the last pair has closed
    begin = 1 + max(field.rfind(bracket, 0, -1) for bracket in "])")
    opens = re.compile(r"[\[(]").search(field, begin, len(field) - 1)
    if opens is None:
        return field, ""
    return field[: opens.start()].rstrip().strip(" \"'"), field[opens.end() : -1]


def holds_times(table: Table) -> bool:
    """Tell whether the first of several columns is named as one of times, so it is no channel."""
    return len(table.names) > 1 and _time_heading(table.names[0]) is not None


def counts_rows(table: Table) -> bool:
    """Tell whether the first of several columns only counts the rows."""
    if table.heading is not None and split_unit(table.names[0])[0].lower() not in _ROW_NAMES:
        return False
    cells = _first_cells(table)
    return len(cells) > 2 and _counts_up([cell.strip("\"'") for cell in cells])


def time_column(table: Table, settings: TimeSettings | None = None) -> TimeColumn | None:
    """Return what the first of several columns shows, if it holds times.

    Its heading is a name such as time, with a unit or without one (seconds, or milliseconds where
    the rate would be below 1 Hz); or there is no heading, and the column rises by the same small
    step from line to line. A step that is longer than usual is a gap.
    """
    settings = settings or TimeSettings()
    cells = _first_cells(table)
    if len(cells) < 3:
        return None
    seconds: float | None = None
    named = table.heading is not None
    if named:
        unit = _time_heading(table.names[0])
        if unit is None:
            return None
        seconds = _seconds_of(table.names[0], unit)
    times = _times(cells, table.decimal_comma)
    if times is None or not np.isfinite(times.values).all():
        return None
    steps = np.diff(times.values)
    step = float(np.median(steps))
    if step > 0 and np.mean(steps == 0) > settings.repeat:
        step = float(steps[steps > 0].mean())
    if step == 0 and steps.sum() > 0:
        step = float(steps.mean())
    if step <= 0 or (steps < 0).any() or not _are_even(steps, step, named, settings):
        return None
    usual = steps[steps < settings.gap * step]
    # the mean of the usual steps has more digits than one of them
    step = float(usual.mean()) if len(usual) else step
    rows = _samples_at(times.values, step, settings.gap)
    if rows[-1] > settings.most * len(rows):
        return None
    if times.in_seconds:
        seconds = 1.0
    if seconds is None:
        seconds = _usual_unit(times.values, step)
    # no more digits than times have: 12500, not 12499.999999999998
    rate = float(f"{1 / (step * seconds):.10g}")
    return TimeColumn(rate, float(times.values[0]) * seconds, rows)


def _samples_at(times: np.ndarray, step: float, gap: float) -> np.ndarray:
    """Return the sample of each time. Those after a long step count on, unless they are late: a
    time may have been repeated before it."""
    rows = np.arange(len(times))
    for place in np.flatnonzero(np.diff(times) >= gap * step) + 1:
        late = (times[place] - times[0]) / step - rows[place]
        rows[place:] += max(0, round(late - 0.25))
    return rows


def _first_cells(table: Table) -> list[str]:
    """Return the first cell of every line; empty if a line has no other cell."""
    lines = [line.split(table.separator, 1) for line in table.lines if line.strip()]
    if any(len(cells) < 2 for cells in lines) or len(lines) < len(table.lines):
        return []
    return [cells[0].strip().strip("\"'").strip() for cells in lines]


def _time_heading(field: str) -> str | None:
    """Return the unit of a heading of times such as 'Time (ms)' or 'time_ms', in lower case, ''
    without one; None for another heading."""
    name, unit = split_unit(field)
    name = name.lower().replace("_", " ").strip()
    unit = unit.strip().lower()
    if name in SECONDS:
        return unit or name
    words, _, last = name.rpartition(" ")
    if words in TIME_NAMES and name not in TIME_NAMES:
        return unit or (last if last in SECONDS else "")
    return unit if name in TIME_NAMES else None


def _seconds_of(heading: str, unit: str) -> float | None:
    """Return a unit of time in seconds; None if there is none, or it is the form of a clock or a
    date."""
    if not unit or ":" in unit or "yy" in unit or unit in ("utc", "gmt", "local"):
        return None
    if unit not in SECONDS:
        raise UnknownTimeUnit(heading, unit)
    return SECONDS[unit]


def _usual_unit(times: np.ndarray, step: float) -> float:
    """Return the seconds of a unit that no heading names: that of Unix times by their size; for
    others, milliseconds where the rate would be below 1 Hz."""
    for seconds, since in ((1e-9, 1e18), (1e-6, 1e15), (1e-3, 1e12), (1.0, 1e9)):
        if times[0] >= since:
            return seconds
    return 1e-3 if step > 1 else 1.0


def _are_even(steps: np.ndarray, step: float, named: bool, settings: TimeSettings) -> bool:
    """Tell whether steps are mostly equal, apart from gaps. All are, and below 1, in a column
    without a heading, because it must show that it holds times."""
    if not named:
        return bool(step < 1 and np.abs(steps - step).max() <= settings.strict * step)
    repeated = np.mean(steps == 0) > settings.repeat
    return bool(repeated or np.median(np.abs(steps - step)) <= settings.even * step)


class _Times(NamedTuple):
    """Times as numbers; `in_seconds` if they were dates or those of a clock."""

    values: np.ndarray
    in_seconds: bool


def _times(fields: list[str], decimal_comma: bool) -> _Times | None:
    """Numbers, times of a clock, or dates as seconds since the first; None for anything else."""
    try:
        values = np.array([float(_with_point(field, decimal_comma)) for field in fields])
        return _Times(values, in_seconds=False)
    except ValueError:
        pass
    clock = [_clock(field) for field in fields]
    if all(seconds is not None for seconds in clock):
        return _Times(np.array(clock, float), in_seconds=True)
    try:
        dates = [datetime.fromisoformat(field) for field in fields]
        seconds = [(date - dates[0]).total_seconds() for date in dates]
        return _Times(np.array(seconds), in_seconds=True)
    except (ValueError, TypeError):
        return None


def _clock(field: str) -> float | None:
    """Return the seconds of '1:02:03.004' or '2:03.004'; None for another text."""
    match = _CLOCK.fullmatch(field.strip().strip("[]\"'").strip())
    if match is None or match[2] is None:
        return None
    hours, minutes, seconds = match.groups()
    return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds.replace(",", "."))


def _with_point(field: str, decimal_comma: bool) -> str:
    return field.replace(",", ".") if decimal_comma else field


def without_first_column(table: Table) -> Table:
    """Return the same table without its times."""

    def rest(line: str) -> str:
        return line.partition(table.separator)[2]

    return replace(
        table,
        heading=None if table.heading is None else rest(table.heading),
        lines=[rest(line) for line in table.lines],
        units=None if table.units is None else rest(table.units),
    )


def channel_table(table: Table) -> tuple[Table, TimeColumn | None]:
    """Return the columns of a table that are channels, and what its times show.

    A column of times is no channel, even if its times are not even; neither is one that counts the
    rows.
    """
    if counts_rows(table):
        table = without_first_column(table)
    times = time_column(table)
    if times is not None or holds_times(table):
        table = without_first_column(table)
    return table, times


def encode_table(values: np.ndarray, table: Table) -> bytes:
    """Return the text of a table of values [T, C] in the form of another table, with its column of
    times."""
    channels, times_shown = channel_table(table)
    if times_shown is not None and len(values) > len(table.lines):
        values = values[times_shown.rows]
    text = io.StringIO()
    np.savetxt(text, values, fmt="%.9g", delimiter=table.separator)
    lines = text.getvalue()
    if table.decimal_comma:
        lines = lines.replace(".", ",")
    if channels is not table:  # its times, and what counts the rows
        rows = zip(table.lines, channels.lines, lines.splitlines(), strict=True)
        lines = "".join(f"{line[: len(line) - len(own)]}{row}\n" for line, own, row in rows)
    if table.units is not None:
        lines = f"{table.units}\n{lines}"
    if table.heading is not None:
        lines = f"{table.heading}\n{lines}"
    return lines.replace("\n", table.line_end).encode(table.encoding)
