"""The runner: every cell of the tables that were asked for, the headline first, each measured once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whatwhere.errors import SpecError
from whatwhere.learning import TrainingStopped
from whatwhere.reproduction.baselines import BASELINES
from whatwhere.reproduction.measure import Laboratory
from whatwhere.reproduction.models import Models
from whatwhere.reproduction.results import Results, value_of
from whatwhere.reproduction.scales import Scale
from whatwhere.reproduction.subjects import Subject
from whatwhere.reproduction.tables import Cell, cells_of


@dataclass(frozen=True)
class Options:
    """How to run.

    results  folder of the result files, a folder in it for each scale
    cache    folder of trainings under way and of models that are not kept with the results
    minutes  stop cleanly after so long, to go on when run again; None runs to the end
    seeds    for every table; None takes the scale's number for headline tables and one for the others
    checkpoint_every  as in `train`: 0 writes a checkpoint only when time is up
    only     cells whose name, 'row / column', holds this
    """

    results: Path = Path("results")
    cache: Path = Path("runs/reproduce")
    device: str = "auto"
    engine: str = "auto"
    minutes: float | None = None
    seeds: int | None = None
    checkpoint_every: int | None = None
    only: str = ""


@dataclass(frozen=True)
class Outcome:
    """How many subjects were measured now, were known before, could not be measured here, and are left."""

    measured: int
    known: int
    elsewhere: int
    left: int


def reproduce(names: Sequence[str], scale: Scale, options: Options, say: Callable[[str], None] = print) -> Outcome:
    """Measure every cell of these tables that has no result file yet."""
    clock = Clock(options.minutes)
    laboratory = open_laboratory(scale, options, clock, say)
    todo = work(names, scale, options.seeds, options.only)
    unknown = [subject for subject in todo if laboratory.results.find(subject) is None]
    elsewhere = [subject for subject in unknown if measured_elsewhere(subject)]
    for subject in elsewhere:
        say(f"left out: {todo[subject].name} of {todo[subject].table} (benchmarks/scattering.py measures it)")
    left = [subject for subject in unknown if subject not in elsewhere]
    say(f"{scale.name}: {len(todo) - len(unknown)} results known, {len(left)} to measure")
    measured = 0
    for subject in left:
        if clock.over():
            break
        cell = todo[subject]
        say(f"[{measured + 1} of {len(left)}] {cell.table}: {cell.name}{seed_of(subject)}")
        try:
            found = laboratory.measure(subject, keep=cell.headline)
        except TrainingStopped:
            break
        measured += 1
        say(f"  {cell.measure} {shown(value_of(found, cell.measure), cell)} after {clock.seconds():.0f} s")
    if measured < len(left):
        say(f"out of time with {len(left) - measured} left; the same command goes on where this one stopped")
    return Outcome(measured, len(todo) - len(unknown), len(elsewhere), len(left) - measured)


class Clock:
    """How long it has taken, and whether time is up."""

    def __init__(self, minutes: float | None) -> None:
        self.began = time.monotonic()
        self.limit = math.inf if minutes is None else 60 * minutes

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def over(self) -> bool:
        return self.seconds() > self.limit


def open_laboratory(scale: Scale, options: Options, clock: Clock, say: Callable[[str], None]) -> Laboratory:
    """Where this scale's results and models lie, and how they are made."""
    folder = options.results / scale.name
    results = Results(folder)
    models = Models(
        results,
        kept=folder / "models",
        cache=options.cache / scale.name,
        device=options.device,
        engine=options.engine,
        checkpoint_every=options.checkpoint_every,
        stop=clock.over,
        say=say,
    )
    return Laboratory(results, models, say)


def work(names: Sequence[str], scale: Scale, seeds: int | None = None, only: str = "") -> dict[Subject, Cell]:
    """Subjects in the order of measuring, each with a cell that wants it: the headline tables come first."""
    cells: list[Cell] = []
    for name in names:
        found = cells_of(name, scale)
        count = seeds or (scale.seeds if found[0].headline else 1)
        cells += found if count == 1 else cells_of(name, scale, count)
    # Headline cells come first, seed after seed, so that whoever stops early has one seed of each before two of any.
    chosen = [cell for cell in cells if only in cell.name]
    if not chosen:
        example = cells[0].name
        raise SpecError(
            f"--only {only!r} was given; no cell of {', '.join(names)} has such a name ({example!r} is one)"
        )
    entries = [(cell, seed, subject) for cell in chosen for seed, subject in enumerate(cell.subjects)]
    entries.sort(key=lambda entry: (not entry[0].headline, entry[1] if entry[0].headline else 0))
    wanted: dict[Subject, Cell] = {}
    for cell, _, subject in entries:
        wanted.setdefault(subject, cell)
    return wanted


def measured_elsewhere(subject: Subject) -> bool:
    baseline = subject.settings.get("baseline")
    return baseline is not None and BASELINES[baseline["name"]].describe is None


def seed_of(subject: Subject) -> str:
    return f", seed {subject.recipe.seed}" if "recipe" in subject.settings else ""


def shown(value: float, cell: Cell) -> str:
    """A number as tables show it, with the paper's."""
    text = f"{value:.2%}" if cell.measure in ("error", "few labels") else f"{value:.4g}"
    return text if cell.paper is None else f"{text} (paper {cell.paper:g})"
