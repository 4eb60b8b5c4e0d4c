"""The table of events that `whatwhere events` writes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from whatwhere.files import disk_errors, open_atomic
from whatwhere.model import DeconvNet
from whatwhere.model.events import join_events
from whatwhere.signals.find import EventSettings, Rhythm, iter_events
from whatwhere.signals.recording import Signals
from whatwhere.spec import Recipe


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
    on_rhythm: Callable[[Rhythm], None] | None = None,
) -> int:
    """Write the events of signals as a table, and return their number. With a model of one layer,
    they are written tile by tile.

    threshold  the smallest amplitude of an event; None chooses it (`find_events`)
    advance    called with 1 after every tile
    in_rhythm  whether the rhythm of a recording that has one decides which events there are
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
            for number, table in enumerate(tables):
                table.to_csv(
                    file,
                    header=number == 0,
                    channel_names=signals.channel_names,
                    seconds=signals.rate is not None,
                )
                count += len(table)
    return count
