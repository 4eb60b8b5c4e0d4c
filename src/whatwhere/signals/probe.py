"""The geometry of a probe with many channels: where they are, from a file, and which of them are
seen together.

    core   a few channels next to each other: the events that are largest on one of them are its own
    seen   the core and all channels near it, on which its events leave a trace. Groups overlap
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whatwhere.errors import ImageError, listed, plural, printable
from whatwhere.files import FileFields, read_regular, readable, untrusted


@dataclass(frozen=True)
class ProbeSettings:
    """How channels are put into groups.

    Parameters
    ----------
    core
        channels of a core, at most: as many as a tetrode has
    reach
        µm from a core to the channels that are seen with it: a spike has half of its height at 30
        to 50
    apart
        µm between two probes, so that no group has channels of both
    """

    core: int = 4
    reach: float = 40.0
    apart: float = 1e6


class Group(NamedTuple):
    """Channels that are seen together, in order, and those among them whose events count here."""

    seen: np.ndarray
    core: np.ndarray


class UnusableProbe(ImageError):
    """A file that does not give the place of each channel of a recording.

    Attributes
    ----------
    path
        the file
    reason
        what is wrong with it
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"Cannot use {printable(path)} as a probe: {reason}. Expected a file of probeinterface"
            " (.json), or a .csv file with the columns channel, x and y, in µm, and one row for"
            " each channel of the recording."
        )


def read_probe(
    path: Path, channels: int, names: tuple[str, ...] | None = None, apart: float | None = None
) -> np.ndarray:
    """Read the places of the channels of a recording, [C, 2], in µm.

    Parameters
    ----------
    channels
        their number
    names
        their names, which may stand for their numbers
    apart
        µm between two probes of a file
    """
    apart = ProbeSettings().apart if apart is None else apart
    with readable(path, "probe", "write it again", ImageError):
        text = read_regular(path, 1 << 26).decode("utf-8-sig")  # bytes
        if path.suffix.lower() == ".json":
            with untrusted():
                found = _places_in_json(json.loads(text), apart)
        else:
            found = _places_in_table(path, text, names)
    missing = [str(n) for n in range(channels) if n not in found]
    if missing:
        shown = listed(missing[:5]) + (" and others" if len(missing) > 5 else "")
        raise UnusableProbe(
            path,
            f"it has no place for {'channel' if len(missing) == 1 else 'channels'} {shown} of"
            f" {plural(channels, 'channel')}",
        )
    places = np.array([found[n] for n in range(channels)])
    if not np.isfinite(places).all():
        raise UnusableProbe(path, "a place is not a number")
    return places


def _places_in_json(content: FileFields, apart: float) -> dict[int, tuple[float, float]]:
    """Return the place of each channel in a file of probeinterface."""
    found: dict[int, tuple[float, float]] = {}
    for number, probe in enumerate(content["probes"]):
        contacts = probe["contact_positions"]
        scale = {"um": 1.0, "mm": 1000.0, "m": 1e6}[probe.get("si_units", "um")]
        wired = probe.get("device_channel_indices") or range(len(found), len(found) + len(contacts))
        for channel, place in zip(wired, contacts, strict=True):
            if int(channel) >= 0:  # -1: not connected
                x, y = (scale * float(value) for value in place[:2])
                found[int(channel)] = (x + number * apart, y)
    return found


def _places_in_table(
    path: Path, text: str, names: tuple[str, ...] | None
) -> dict[int, tuple[float, float]]:
    """Return the place of each channel in a table; a channel is a number from 0 or a name."""
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    columns = {str(name).strip().lower(): name for name in rows[0] if name} if rows else {}
    if not {"channel", "x", "y"} <= set(columns):
        raise UnusableProbe(path, "it has no columns channel, x and y")
    numbers = {name: number for number, name in enumerate(names or ())}
    found = {}
    for row in rows:
        channel = str(row[columns["channel"]]).strip()
        try:
            number = numbers[channel] if channel in numbers else int(channel)
            found[number] = (float(row[columns["x"]]), float(row[columns["y"]]))
        except (TypeError, ValueError):
            raise UnusableProbe(
                path, f"the row of channel {channel!r} has no number where one belongs"
            ) from None
    return found


def groups_of(places: np.ndarray, settings: ProbeSettings | None = None) -> list[Group]:
    """Return groups of the channels at some places [C, 2]; each channel is in one core.

    >>> groups_of(np.array([[0, 0], [0, 20], [0, 40], [0, 60], [0, 80], [0, 500]]))[0]
    Group(seen=array([0, 1, 2, 3, 4]), core=array([0, 1, 2, 3]))
    """
    settings = settings or ProbeSettings()
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    longest = places[:, np.argsort(-np.ptp(places, axis=0))]  # along the probe, then across it
    waiting = [int(n) for n in np.lexsort(longest.T[::-1])]
    groups = []
    while waiting:
        near = sorted(waiting, key=lambda n: (distance[waiting[0], n], waiting.index(n)))
        near = near[: settings.core]
        core = [n for n in near if distance[near[0], n] <= 2 * settings.reach]
        waiting = [n for n in waiting if n not in core]
        seen = np.flatnonzero(distance[core].min(0) <= settings.reach)
        groups.append(Group(seen, np.sort(core)))
    return groups
