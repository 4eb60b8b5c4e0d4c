"""Whether a claim holds, from our own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean

from whatwhere.classification.protocol import wilson
from whatwhere.errors import SpecError
from whatwhere.reproduction.results import Result, Results, series_of, spread, value_of
from whatwhere.reproduction.tables import Cell, Claim

SEEDS = 5  # how many seeds are looked for; the command line allows no more
HOLDS, FAILS, OPEN = "holds", "does not hold", "not run"


@dataclass(frozen=True)
class Measured:
    """A cell with the results that were found for it, one a seed."""

    cell: Cell
    found: tuple[Result, ...]

    @property
    def values(self) -> list[float]:
        """A value a seed; error rates in per cent."""
        scale = 100 if self.is_error else 1
        return [scale * value_of(result, self.cell.measure) for result in self.found]

    @property
    def mean(self) -> float:
        return spread(self.values)[0]

    def series(self, measure: str) -> list[float]:
        """A measure at every epoch of the training, the mean over the seeds."""
        return [fmean(values) for values in zip(*(series_of(result, measure) for result in self.found), strict=True)]

    @property
    def is_error(self) -> bool:
        return self.cell.measure in ("error", "few labels")

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean error rate in per cent; None for other measures.

        Seeds are judged by the same images, so more of them do not make it narrower.
        """
        if not self.is_error or not self.found:
            return None
        if self.cell.measure == "few labels":
            low, high = self.found[0]["found"]["interval"]
        else:
            low, high = wilson(self.mean / 100 * (images := self.found[0]["found"]["images"]), images)
        return 100 * low, 100 * high


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds, and by which numbers."""

    text: str
    verdict: str
    numbers: str = ""


def measured(cells: Sequence[Cell], results: Results) -> dict[str, Measured]:
    """Every cell with what was found for it, by its name."""
    found = {}
    for cell in cells:
        hits = [hit for hit in map(results.find, cell.subjects) if hit is not None]
        found[cell.name] = Measured(cell, tuple(hits))
    return found


def evaluate_claim(claim: Claim, cells: Mapping[str, Measured]) -> Verdict:
    """Does it hold? Means over seeds are compared; where a number is missing, nothing is said."""
    if claim.below:
        return _below(claim, cells)
    if claim.lowest:
        return _lowest(claim, cells)
    bounds = [(cell, bound) for names, bound in claim.at_most.items() for cell in matching(names, cells)]
    for names, points in claim.within.items():
        bounds += [(cell, cell.cell.paper + points) for cell in matching(names, cells) if cell.cell.paper is not None]
    if any(not cell.found for cell, _ in bounds):
        return Verdict(claim.text, OPEN)
    good = [cell.mean <= bound + 1e-9 for cell, bound in bounds]
    numbers = [f"{cell.cell.name}: {cell.mean:.2f} against {bound:.2f}" for cell, bound in bounds]
    return verdict(claim, good, numbers, "cells")


def _below(claim: Claim, cells: Mapping[str, Measured]) -> Verdict:
    pairs = [pair for low, high in claim.below for pair in expand(low, high, cells)]
    if any(not cell.found for pair in pairs for cell in pair):
        return Verdict(claim.text, OPEN)
    if claim.every_epoch:
        return _every_epoch(claim, pairs)
    good = [low.mean < high.mean for low, high in pairs]
    numbers = [compared(low, high) for low, high in pairs]
    return verdict(claim, good, numbers, "comparisons")


def _every_epoch(claim: Claim, pairs: Sequence[tuple[Measured, Measured]]) -> Verdict:
    good: list[bool] = []
    for low, high in pairs:
        series = [side.series(side.cell.measure) for side in (low, high)]
        good += [a < b for a, b in zip(*series, strict=True)]
    return verdict(claim, good, [], "epochs")


def _lowest(claim: Claim, cells: Mapping[str, Measured]) -> Verdict:
    if any(not cell.found for cell in cells.values()):
        return Verdict(claim.text, OPEN)
    inside = [cell for pattern in claim.lowest for cell in matching(pattern, cells)]
    best, other = (
        min(group, key=lambda cell: cell.mean)
        for group in (inside, [cell for cell in cells.values() if cell not in inside])
    )
    if best.mean < other.mean:
        return Verdict(claim.text, HOLDS, f"{compared(best, other)} at {other.cell.name}")
    return Verdict(claim.text, FAILS, f"the lowest is {other.cell.name}: {compared(other, best)}")


def verdict(claim: Claim, good: Sequence[bool], numbers: Sequence[str], unit: str) -> Verdict:
    """It holds where all of these are good. A few numbers are told, of many how many are good."""
    told = ", ".join(numbers) if 0 < len(numbers) <= 4 else f"{sum(good)} of {len(good)} {unit}"
    return Verdict(claim.text, HOLDS if all(good) else FAILS, told)


def expand(low: str, high: str, cells: Mapping[str, Measured]) -> list[tuple[Measured, Measured]]:
    """The pairs that two names stand for; a * in both is each row or each column in turn."""
    if "*" not in low:
        return [(named(low, cells), named(high, cells))]
    rows = dict.fromkeys(cell.cell.row for cell in cells.values())
    columns = dict.fromkeys(cell.cell.column for cell in cells.values())
    each = rows if low.startswith("* / ") else columns
    return [(named(low.replace("*", one), cells), named(high.replace("*", one), cells)) for one in each]


def matching(names: str, cells: Mapping[str, Measured]) -> list[Measured]:
    """The cells whose name is like this; a * stands for anything."""
    found = [cell for name, cell in cells.items() if fnmatchcase(name, names)]
    return found or [named(names, cells)]


def named(name: str, cells: Mapping[str, Measured]) -> Measured:
    if name not in cells:
        raise SpecError(f"a claim names the cell {name!r}; the cells are {', '.join(map(repr, cells))}")
    return cells[name]


def compared(low: Measured, high: Measured) -> str:
    digits = ".3f" if low.is_error else ".4g"
    return f"{low.mean:{digits}} against {high.mean:{digits}}{overlap(low, high)}"


def overlap(low: Measured, high: Measured) -> str:
    """A word of caution where the 95 % intervals of two error rates overlap."""
    first, second = low.interval(), high.interval()
    if first is None or second is None or first[1] < second[0] or second[1] < first[0]:
        return ""
    return " (95 % intervals overlap)"
