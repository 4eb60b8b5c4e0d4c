"""Lengths of signals, given in samples or as a time."""

import re

from whatwhere.errors import InvalidSetting

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


def samples_of(length: str | int, rate: float | None, name: str = "length") -> int:
    """Return a length such as '12ms', '0.5s' or '64', in samples.

    Parameters
    ----------
    name
        what it is the length of, for errors

    Examples
    --------
    >>> samples_of("12ms", 2000), samples_of("64", None)
    (24, 64)
    """
    number, unit = read_length(length, name)
    if unit in _SECONDS:
        if rate is None:
            raise InvalidSetting(
                {name: length, "rate": None},
                "the samples per second (--rate), which the file does not give, or a length in"
                " samples",
            )
        number *= _SECONDS[unit] * rate
    if round(number) < 2 or (unit not in _SECONDS and number % 1):
        raise InvalidSetting({name: length}, "a whole number of at least 2 samples")
    return round(number)


def read_length(length: str | int, name: str = "length") -> tuple[float, str]:
    """Return the number and the unit of a length; raises an InvalidSetting for any other text."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(s|ms|us|µs|samples)?\s*", str(length))
    if match is None:
        raise InvalidSetting({name: length}, "samples, such as 64, or a time, such as 12ms or 0.5s")
    return float(match[1]), match[2] or "samples"


def seconds_of(time: str, name: str) -> float:
    """Return a time such as '90', '1:30', '0:01:30.250', '1500ms' or '2min', in seconds.

    Parameters
    ----------
    name
        what it is, for errors

    Examples
    --------
    >>> seconds_of("0:01:30.5", "start"), seconds_of("2min", "end")
    (90.5, 120.0)
    """
    clock = re.fullmatch(r"\s*(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*", time)
    if clock is not None:
        return 3600 * int(clock[1] or 0) + 60 * int(clock[2]) + float(clock[3])
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*(s|ms|min|h)?\s*", time)
    if match is None:
        raise InvalidSetting({name: time}, "a time such as 90, 1:30, 0:01:30.250 or 2min")
    return float(match[1]) * {"ms": 1e-3, "min": 60.0, "h": 3600.0}.get(match[2], 1.0)
