"""Events of recordings of any length: tile by tile, in memory that does not grow with the
recording."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from whatwhere.errors import ImageError
from whatwhere.inference.tiled import Picture, SolvedTile, infer_tiles
from whatwhere.model import DeconvNet
from whatwhere.model.events import Events, events_of, join_events
from whatwhere.model.sized import LayerPlaces
from whatwhere.spec import AutoLam, InferenceSpec, ModelSpec, Phase

TILE = 4096  # samples
OVERLAP = 4  # tiles share as many samples as so many waveforms have
NOISE = 4.0  # standard deviations


def find_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float = 0.0,
    tile: int = TILE,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> Events:
    """The events of recordings of any length, which are read and inferred in overlapping tiles.

    model      of signals
    recording  what `whatwhere.data.load` read as signals; or floats [T], [C, T] or [N, C, T], an
               array (which may be mapped from a file) or a tensor. NaN marks unknown samples
    spec       how it is inferred, with one λ for a recording; None means
               `InferenceSpec.coding(lam=AutoLam(deviations=4))`, by which hardly an event is noise
    plan       as in `infer`
    threshold  the least amplitude of an event, in units of the recording
    tile       samples inferred together, overlap included
    engine     as in `infer`
    progress   called after every tile with the number 1

    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> recording = np.random.default_rng(0).normal(size=5000)
    >>> events = ww.find_events(model, recording, ww.InferenceSpec(lam=0.5), tile=1024)
    >>> len(events) > 0, bool((np.diff(events["time"]) >= 0).all())
    (True, True)
    """
    tables = iter_events(
        model,
        recording,
        spec,
        plan,
        threshold=threshold,
        tile=tile,
        engine=engine,
        progress=progress,
    )
    return join_events(list(tables))


def iter_events(
    model: DeconvNet,
    recording: Any,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    threshold: float = 0.0,
    tile: int = TILE,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> Iterator[Events]:
    """The events of `find_events`, a table for each tile, in memory that does not grow with their
    number.

    For a model of one layer the tables one after the other are that of `find_events`; with two,
    `parent` is a row of its own tile's table.
    """
    if not model.spec.for_signals:
        raise ImageError(
            "a model of pictures was given; expected one of signals (ModelSpec.signals)"
        )
    spec = spec or InferenceSpec.coding(lam=AutoLam(deviations=NOISE))
    overlap = OVERLAP * LayerPlaces.of(model.spec, 1)[-1].reach
    for row, picture in enumerate(pictures_of(recording, model.spec)):
        for solved in infer_tiles(
            model, picture, spec, plan, tile=tile, overlap=overlap, engine=engine
        ):
            yield events_in(model, solved, row, threshold, picture.shape[2])
            if progress is not None:
                progress(1)


def pictures_of(recording: Any, spec: ModelSpec) -> Iterator[Picture]:
    """Each signal of a recording as a picture [C, 1, T]."""
    if hasattr(recording, "as_images"):  # whatwhere.data.Signals
        signals = recording.with_white(spec.input.white)
        yield from (signals.recording(row) for row in range(len(signals)))
        return
    kind, shape = (
        getattr(recording, "dtype", type(recording).__name__),
        list(getattr(recording, "shape", ())),
    )
    if "float" not in str(kind) or not 1 <= len(shape) <= 3:
        raise ImageError(
            f"a recording of {kind} and shape {shape} was given; expected floats [T], [C, T] or [N,"
            " C, T], or what whatwhere.data.load(…, signals=True) reads, which scales integers"
        )
    signals = recording.reshape((1,) * (3 - recording.ndim) + tuple(recording.shape))
    yield from (signal[:, None] for signal in signals)


def events_in(
    model: DeconvNet, solved: SolvedTile, row: int, threshold: float, length: int
) -> Events:
    """The events that are taken from a tile: those whose time is in its core. The first and the
    last tile have more."""
    columns, core = solved.columns, solved.core[1]
    events = events_of(model.at(1, columns.stop - columns.start), solved.whole, threshold)
    events["signal"] = row
    events["time"] += columns.start
    first, last = (
        (-np.inf if core.start == 0 else core.start),
        (np.inf if core.stop == length else core.stop),
    )
    taken = (events["time"] >= first) & (events["time"] < last)
    number = np.append(np.where(taken, np.cumsum(taken) - 1, -1), -1)
    events["parent"] = number[events["parent"]]
    return events[taken]
