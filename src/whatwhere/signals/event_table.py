"""The table of events that `whatwhere events` writes, and reading it again."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from whatwhere.errors import ImageError, listed, printable
from whatwhere.files import disk_errors, open_atomic, open_regular, readable
from whatwhere.model import DeconvNet
from whatwhere.model.events import FIELDS, Events, join_events
from whatwhere.signals.find import EventSettings, Rhythm, iter_events
from whatwhere.signals.quality import Relabelling
from whatwhere.signals.recording import Signals
from whatwhere.spec import Recipe

_AS_FOUND = Relabelling()


def write_events(
    path: Path,
    recipe: Recipe,
    model: DeconvNet,
    signals: Signals,
    threshold: float | str | None = None,
    engine: str = "auto",
    advance: Callable[[int], None] | None = None,
    *,
    in_rhythm: bool = True,
    relabelling: Relabelling = _AS_FOUND,
    on_rhythm: Callable[[Rhythm], None] | None = None,
) -> int:
    """Write the events of signals as a table, and return their number. With a model of one layer,
    they are written tile by tile.

    threshold  the smallest amplitude of an event; None chooses it (`find_events`)
    advance    called with 1 after every tile
    in_rhythm  whether the rhythm of a recording that has one decides which events there are
    relabelling
               waveforms that are merged or left out
    on_rhythm  called with the rhythm of each signal that has one
    """
    settings = EventSettings()
    if not in_rhythm:
        settings = replace(settings, rhythm=None)
    found = iter_events(
        model,
        signals,
        recipe.inference,
        recipe.plan,
        threshold=threshold,
        engine=engine,
        progress=advance,
        settings=settings,
        on_rhythm=on_rhythm,
    )
    tables = found if model.spec.depth == 1 else [join_events(list(found))]
    count = 0
    with disk_errors(f"writing {path}", "free some disk space, or choose another path with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            for number, found_in_tile in enumerate(tables):
                table = relabelling.apply(found_in_tile, model.spec.layers[0].maps)
                table["sample"] += signals.first
                table["onset"] += signals.first
                table.to_csv(
                    file,
                    header=number == 0,
                    channel_names=signals.channel_names,
                    seconds=signals.rate is not None,
                )
                count += len(table)
    return count


# Reading a table ----------------------------------------------------------------------------------

_NEEDED = ("waveform", "sample", "amplitude")


class UnusableEventTable(ImageError):
    """A file that is not a table of the events of a recording.

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
            f"Cannot use {printable(path)} as a table of events: {reason}. Expected a table that"
            " whatwhere events wrote for this recording and this run."
        )


def read_events(path: Path, channel_names: Sequence[str] | None = None) -> Events:
    """Read a table of events; columns that it does not have are unknown, and rows may have been
    removed.

    Parameters
    ----------
    path
        a .csv file that `whatwhere events` or `Events.to_csv` wrote
    channel_names
        names that stand for the numbers of channels

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> noise = np.random.default_rng(0).normal(size=5000)
    >>> events = ww.find_events(model, noise, ww.InferenceSpec(lam=0.5), threshold=0, tile=1024)
    >>> events.to_csv("events.csv")
    >>> len(ww.signals.read_events("events.csv")) == len(events)
    True
    """
    with open_regular(path) as file, readable(path, "table", "write it again", ImageError):
        lines = list(csv.reader(file.read().decode("utf-8-sig").splitlines()))
    heading = lines[0] if lines else []
    missing = [name for name in _NEEDED if name not in heading]
    if missing:
        columns = "column" if len(missing) == 1 else "columns"
        raise UnusableEventTable(path, f"it has no {columns} {listed(missing)}")
    rows = [line for line in lines[1:] if line]
    events = np.zeros(len(rows), FIELDS).view(Events)
    events["layer"] = 1
    events["parent"] = -1
    for name in ("seconds", "peak", "explained", "onset", "onset_seconds"):
        events[name] = np.nan
    numbers = {str(name): str(number) for number, name in enumerate(channel_names or ())}
    for name, kind in FIELDS:
        if name not in heading:
            continue
        place = heading.index(name)
        try:
            cells = [row[place] for row in rows]
            if name == "channel":
                cells = [numbers.get(cell, cell) for cell in cells]
            values = np.array([float(cell) if cell else np.nan for cell in cells])
        except (ValueError, IndexError):
            raise UnusableEventTable(
                path, f"the column {name} has a cell without a number"
            ) from None
        events[name] = values.astype(kind)
    return events[np.argsort(events["sample"], kind="stable")]


def events_within(events: Events, signals: Signals) -> Events:
    """Return the events of a table, whose samples are those of the file, that are in a part of it;
    their samples are those of the part."""
    if not signals.first:
        return events
    samples = events["sample"] - signals.first
    inside = (samples >= 0) & (samples < signals.shape[2])
    own = events[inside].copy()
    own["sample"] -= signals.first
    own["onset"] -= signals.first
    return own


def check_events(path: Path, events: Events, waveforms: int, samples: int) -> None:
    """Raise an error if a table has waveforms or times that a model and a recording do not have."""
    first = events[(events["layer"] == 1)]
    if len(first) and not 0 <= first["waveform"].min() <= first["waveform"].max() < waveforms:
        raise UnusableEventTable(
            path, f"it has waveform {first['waveform'].max()}, and the run has {waveforms}"
        )
    if len(first) and first["sample"].max() > samples:
        raise UnusableEventTable(
            path,
            f"it has an event at sample {first['sample'].max():,.0f}, and the recording has"
            f" {samples:,}",
        )
