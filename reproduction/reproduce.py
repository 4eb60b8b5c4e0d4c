"""The runner: every cell of the given tables, the headline first, each measured once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.baselines import Baseline
from reproduction.evaluation import Evaluator
from reproduction.jobs import Job, RecordedJob, TrainingJob, first_layers, seeds_of
from reproduction.models import ModelStore
from reproduction.naming import names_of
from reproduction.records import ResultStore
from reproduction.results import value_of
from reproduction.scale import Scale
from reproduction.table import Cell, cells_of
from whatwhere.errors import InvalidSetting
from whatwhere.learning import TrainingStopped

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class ReproduceOptions:
    """How to run.

    results  folder of the result files, with a folder for each scale
    cache    folder of trainings under way and of models that are not published with the results
    minutes  stop cleanly after so long; the next run continues. None runs to the end
    seeds    for every table; None takes the scale's number for headline tables and one for the
             others
    checkpoint_every  as in `train`: 0 writes a checkpoint only when time is up
    only     cells whose name, 'row / column', contains this
    """

    results: Path = RESULTS
    cache: Path = Path("runs/reproduce")
    device: str = "auto"
    engine: str = "auto"
    minutes: float | None = None
    seeds: int | None = None
    checkpoint_every: int | None = None
    only: str = ""


@dataclass(frozen=True)
class Outcome:
    """How many jobs were measured now, were known before, cannot run in this environment, and
    remain."""

    measured: int
    known: int
    unavailable: int
    remaining: int


def reproduce(
    names: Sequence[str],
    scale: Scale,
    options: ReproduceOptions,
    log: Callable[[str], None] = print,
) -> Outcome:
    """Measure every cell of these tables that has no result file yet."""
    limit = TimeLimit(options.minutes)
    evaluator = open_evaluator(scale, options, limit, log)
    cells = job_cells(names, scale, options.seeds, options.only)
    missing = [job for job in cells if evaluator.results.find(job) is None]
    unavailable = {
        job: reason for job in missing if (reason := unavailable_reason(job)) is not None
    }
    for job, reason in unavailable.items():
        log(f"left out: {cells[job].name} of {cells[job].table}: {reason}")
    todo = [job for job in missing if job not in unavailable]
    log(f"{scale.name}: {len(cells) - len(missing)} results known, {len(todo)} to measure")
    pace = Pace(todo, evaluator, open_store(RESULTS, scale))
    if pace.total:
        log(f"{duration(pace.total)} of work where it was measured before")
    measured = 0
    for job in todo:
        if limit.is_over():
            break
        cell = cells[job]
        log(f"[{measured + 1} of {len(todo)}] {cell.table}: {cell.name}{seed_text(job)}")
        try:
            record = evaluator.run(job, publish=cell.headline)
        except TrainingStopped:
            break
        measured += 1
        left = pace.left(measured, limit.elapsed())
        log(
            f"  {cell.measure} {value_text(value_of(record.result, cell.measure), cell)} after"
            f" {duration(limit.elapsed())}" + (f", about {duration(left)} left" if left else "")
        )
    if measured < len(todo):
        log(f"out of time with {len(todo) - measured} left; the same command continues from here")
    return Outcome(measured, len(cells) - len(missing), len(unavailable), len(todo) - measured)


class Pace:
    """How much work jobs are, by what they took when they were measured before.

    seconds  of every job, with the trainings that no job before it needs; 0 where nothing is known
    """

    def __init__(self, jobs: Sequence[Job], evaluator: Evaluator, before: ResultStore) -> None:
        self.seconds: list[float] = []
        done: set[Job] = set(evaluator.results.records)
        for job in jobs:
            needed = {job, *trainings_of(job, evaluator)} - done
            records = (before.find(each) for each in needed)
            self.seconds.append(sum(record.seconds for record in records if record is not None))
            done |= needed

    @property
    def total(self) -> float:
        return sum(self.seconds)

    def left(self, measured: int, elapsed: float) -> float:
        """The seconds that the other jobs will take, if this machine stays as fast; 0 if that is
        unknown."""
        past = sum(self.seconds[:measured])
        return elapsed * sum(self.seconds[measured:]) / past if past else 0.0


def trainings_of(job: Job, evaluator: Evaluator) -> set[Job]:
    """The trainings that a job needs, with those of the layers below."""
    if isinstance(job, RecordedJob):
        return set()
    top = [job] if isinstance(job, TrainingJob) else evaluator.trainings(job)
    return {
        TrainingJob(each.data, first_layers(each.recipe, depth))
        for each in top
        for depth in range(1, each.recipe.model.depth + 1)
    }


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


class TimeLimit:
    """How long it has taken, and whether time is up."""

    def __init__(self, minutes: float | None) -> None:
        self.began = time.monotonic()
        self.seconds = math.inf if minutes is None else 60 * minutes

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def is_over(self) -> bool:
        return self.elapsed() > self.seconds


def open_store(folder: Path, scale: Scale) -> ResultStore:
    """The results of a scale, under the folder of all results."""
    return ResultStore(folder / scale.name, names_of(scale))


def open_evaluator(
    scale: Scale, options: ReproduceOptions, limit: TimeLimit, log: Callable[[str], None]
) -> Evaluator:
    """Where the results and models of this scale are, and how they are made."""
    results = open_store(options.results, scale)
    models = ModelStore(
        results,
        cache=options.cache / scale.name,
        device=options.device,
        engine=options.engine,
        checkpoint_every=options.checkpoint_every,
        stop=limit.is_over,
        log=log,
    )
    return Evaluator(results, models, log)


def job_cells(
    names: Sequence[str], scale: Scale, seeds: int | None = None, only: str = ""
) -> dict[Job, Cell]:
    """Jobs in the order of measuring, each with a cell that asks for it: the headline tables come
    first."""
    cells: list[Cell] = []
    for name in names:
        single = cells_of(name, scale)
        count = seeds or (scale.seeds if single[0].headline else 1)
        cells += single if count == 1 else cells_of(name, scale, count)
    chosen = [cell for cell in cells if only in cell.name]
    if not chosen:
        example = cells[0].name
        expected = f"a part of the name of a cell of {', '.join(names)}, such as {example!r}"
        raise InvalidSetting({"--only": only}, expected)
    # Headline cells come first, seed after seed, so that whoever stops early has one seed of each
    # before two of any.
    entries = [(cell, seed, job) for cell in chosen for seed, job in enumerate(cell.jobs)]
    entries.sort(key=lambda entry: (not entry[0].headline, entry[1] if entry[0].headline else 0))
    wanted: dict[Job, Cell] = {}
    for cell, _, job in entries:
        wanted.setdefault(job, cell)
    return wanted


def unavailable_reason(job: Job) -> str | None:
    """Why a job cannot run in this environment; None where it can."""
    if isinstance(job, RecordedJob):
        return f"the project no longer has the program for {job.method}"
    if isinstance(job, TrainingJob) or not isinstance(job.features, Baseline):
        return None
    return job.features.unavailable_reason()


def seed_text(job: Job) -> str:
    seeds = seeds_of(job)
    return f", seed {seeds[0]}" if len(seeds) == 1 else ""


def value_text(value: float, cell: Cell) -> str:
    """A number as tables show it, with the paper's."""
    text = f"{value:.2%}" if cell.measure == "error" else f"{value:.4g}"
    return text if cell.paper is None else f"{text} (paper {cell.paper:g})"
