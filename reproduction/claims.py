"""Whether a claim holds, from our own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import fmean

from reproduction.jobs import seeds_of
from reproduction.records import ResultStore
from reproduction.results import (
    EvaluationResult,
    FewLabelResult,
    Measure,
    RecordedResult,
    Result,
    TrainingResult,
    mean_and_deviation,
    value_of,
)
from reproduction.table import Cell, Claim
from whatwhere.classification import protocol
from whatwhere.errors import SpecError

HOLDS = "holds"
FAILS = "does not hold"
WITHIN_SEEDS = "no difference within the seeds"
OPEN = "not run"
ONE_SEED = "open, one seed"


@dataclass(frozen=True)
class VerdictRules:
    """When a difference decides.

    one_seed  a cell with one seed decides nothing within so many points of what it is compared
              with: about the largest standard deviation over seeds that the headline's tables have
    """

    one_seed: float = 0.04


RULES = VerdictRules()


@dataclass(frozen=True)
class MeasuredCell:
    """A cell with the results that were measured for it, one for each seed."""

    cell: Cell
    results: tuple[Result, ...]

    @property
    def values(self) -> list[float]:
        """One value for each seed; error rates in per cent."""
        scale = 100 if self.is_error else 1
        return [scale * value_of(result, self.cell.measure) for result in self.results]

    @property
    def mean(self) -> float:
        return mean_and_deviation(self.values)[0]

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the seeds; None for a single seed."""
        return mean_and_deviation(self.values)[1]

    def series(self, measure: Measure) -> list[float]:
        """A measure at every epoch of the training, the mean over the seeds."""
        histories = [
            result.series(measure) for result in self.results if isinstance(result, TrainingResult)
        ]
        return [fmean(values) for values in zip(*histories, strict=True)]

    @property
    def is_error(self) -> bool:
        return self.cell.measure == "error"

    @property
    def has_one_seed(self) -> bool:
        """Whether another seed could give another error: not where the method has no seeds."""
        seeded = any(seeds_of(job) for job in self.cell.jobs)
        return self.is_error and seeded and len(self.results) == 1

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean error rate in per cent; None for other measures.

        All seeds are evaluated on the same images, so more seeds do not make it narrower.
        """
        first = self.results[0] if self.results else None
        if isinstance(first, FewLabelResult):
            low, high = first.draws.interval
        elif isinstance(first, EvaluationResult | RecordedResult) and self.is_error:
            low, high = protocol.wilson(self.mean / 100 * first.score.images, first.score.images)
        else:
            return None
        return 100 * low, 100 * high


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and by which numbers."""

    text: str
    verdict: str
    numbers: str = ""


def measured_cells(cells: Sequence[Cell], store: ResultStore) -> dict[str, MeasuredCell]:
    """Every cell with the results that the store holds for it, by its name."""
    measured = {}
    for cell in cells:
        records = [store.find(job) for job in cell.jobs]
        measured[cell.name] = MeasuredCell(
            cell, tuple(record.result for record in records if record is not None)
        )
    return measured


def evaluate_claim(
    claim: Claim, cells: Mapping[str, MeasuredCell], rules: VerdictRules = RULES
) -> Verdict:
    """Does it hold? Means over seeds are compared. If all compared means differ by no more than
    their seeds do, the verdict says so; where a number is missing, or where one seed alone would
    decide by a small difference, it is open."""
    if claim.below:
        return _below(claim, cells, rules)
    if claim.lowest:
        return _lowest(claim, cells, rules)
    bounds = [
        (cell, bound) for names, bound in claim.at_most.items() for cell in matching(names, cells)
    ]
    for names, points in claim.within.items():
        bounds += [
            (cell, cell.cell.paper + points)
            for cell in matching(names, cells)
            if cell.cell.paper is not None
        ]
    if any(not cell.results for cell, _ in bounds):
        return Verdict(claim.text, OPEN)
    good = [cell.mean <= bound + 1e-9 for cell, bound in bounds]
    numbers = [f"{cell.cell.name}: {cell.mean:.2f}, limit {bound:.2f}" for cell, bound in bounds]
    close = [cell.has_one_seed and abs(cell.mean - at) <= rules.one_seed for cell, at in bounds]
    return verdict(claim, good, numbers, "cells", close)


def _below(claim: Claim, cells: Mapping[str, MeasuredCell], rules: VerdictRules) -> Verdict:
    pairs = [pair for low, high in claim.below for pair in expand(low, high, cells)]
    if any(not cell.results for pair in pairs for cell in pair):
        return Verdict(claim.text, OPEN)
    if claim.every_epoch:
        return _every_epoch(claim, pairs)
    good = [low.mean < high.mean for low, high in pairs]
    numbers = [compared(low, high) for low, high in pairs]
    close = [undecided(low, high, rules) for low, high in pairs]
    judged = verdict(claim, good, numbers, "comparisons", close)
    if all(within_seeds(low, high) for low, high in pairs):
        return replace(judged, verdict=WITHIN_SEEDS)
    return judged


def _every_epoch(claim: Claim, pairs: Sequence[tuple[MeasuredCell, MeasuredCell]]) -> Verdict:
    good: list[bool] = []
    for low, high in pairs:
        series = [side.series(side.cell.measure) for side in (low, high)]
        good += [a < b for a, b in zip(*series, strict=True)]
    return verdict(claim, good, [], "epochs")


def _lowest(claim: Claim, cells: Mapping[str, MeasuredCell], rules: VerdictRules) -> Verdict:
    if any(not cell.results for cell in cells.values()):
        return Verdict(claim.text, OPEN)
    inside = [cell for pattern in claim.lowest for cell in matching(pattern, cells)]
    best, other = (
        min(group, key=lambda cell: cell.mean)
        for group in (inside, [cell for cell in cells.values() if cell not in inside])
    )
    if best.mean < other.mean:
        judged = Verdict(claim.text, HOLDS, f"{compared(best, other)} at {other.cell.name}")
    else:
        numbers = f"the lowest is {other.cell.name}: {compared(other, best)}"
        judged = Verdict(claim.text, FAILS, numbers)
    if within_seeds(best, other):
        return replace(judged, verdict=WITHIN_SEEDS)
    if undecided(best, other, rules):
        return replace(judged, verdict=ONE_SEED)
    return judged


def verdict(
    claim: Claim,
    good: Sequence[bool],
    numbers: Sequence[str],
    unit: str,
    close: Sequence[bool] = (),
) -> Verdict:
    """It holds if all of these are good, and is open if only those that are `close` could change
    that. Up to four numbers are shown; of more, only how many are good."""
    shown = ", ".join(numbers) if 0 < len(numbers) <= 4 else f"{sum(good)} of {len(good)} {unit}"
    close = close or [False] * len(good)
    fails = any(not right and not near for right, near in zip(good, close, strict=True))
    judged = FAILS if fails else ONE_SEED if any(close) else HOLDS
    return Verdict(claim.text, judged, shown)


def expand(
    low: str, high: str, cells: Mapping[str, MeasuredCell]
) -> list[tuple[MeasuredCell, MeasuredCell]]:
    """The pairs that two names stand for; a * in both is each row or each column in turn."""
    if "*" not in low:
        return [(named(low, cells), named(high, cells))]
    rows = dict.fromkeys(cell.cell.row for cell in cells.values())
    columns = dict.fromkeys(cell.cell.column for cell in cells.values())
    each = rows if low.startswith("* / ") else columns
    return [
        (named(low.replace("*", one), cells), named(high.replace("*", one), cells)) for one in each
    ]


def matching(names: str, cells: Mapping[str, MeasuredCell]) -> list[MeasuredCell]:
    """The cells whose name matches; a * stands for anything."""
    matches = [cell for name, cell in cells.items() if fnmatchcase(name, names)]
    return matches or [named(names, cells)]


def named(name: str, cells: Mapping[str, MeasuredCell]) -> MeasuredCell:
    if name not in cells:
        raise SpecError(
            f"a claim names the cell {name!r}; the cells are {', '.join(map(repr, cells))}"
        )
    return cells[name]


def compared(low: MeasuredCell, high: MeasuredCell) -> str:
    digits = ".3f" if low.is_error else ".4g"
    return f"{low.mean:{digits}} against {high.mean:{digits}}{overlap(low, high)}"


def within_seeds(one: MeasuredCell, other: MeasuredCell) -> bool:
    """Whether two means differ by at most the larger of their standard deviations over the seeds.

    False if one of them has a single seed, whose deviation is unknown.
    """
    if one.deviation is None or other.deviation is None:
        return False
    return abs(one.mean - other.mean) <= max(one.deviation, other.deviation)


def undecided(one: MeasuredCell, other: MeasuredCell, rules: VerdictRules) -> bool:
    """Whether a single seed of either would decide, by a difference that another seed could
    reverse."""
    single = one.has_one_seed or other.has_one_seed
    return single and abs(one.mean - other.mean) <= rules.one_seed


def overlap(low: MeasuredCell, high: MeasuredCell) -> str:
    """A caution where the 95 % intervals of two error rates overlap."""
    first, second = low.interval(), high.interval()
    if first is None or second is None or first[1] < second[0] or second[1] < first[0]:
        return ""
    return " (95 % intervals overlap)"
