"""Which picture to label next: rules compared on pools that no result is reported of.

    python -m reproduction.studies.any_folder_rows DATA ROWS --half validation
    python -m reproduction.studies.any_folder_suggestions ROWS --out FILE.json [--seconds 300]

Each rule is a session of `ww.Labelling` with another way to choose; errors of all pictures in %
with 5 to 60 labels. With every number, the share of labels that are the only one of their class is
kept as well: from it follows how many pictures are of classes without a label (Good and Turing).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import whatwhere as ww
from reproduction.studies.any_folder import COUNTS, DRAWS, Log, read
from whatwhere.labelling.session import AROUND


class Trust(ww.Labelling):
    """The former rule: the least of what is known times the lead, for every suggestion."""

    def suggested_rows(self, count: int = 12) -> list[int]:
        lead = self._lead()
        chosen: list[int] = []
        while len(chosen) < min(count, len(self.rows) - len(self.said)):
            taken = [*self.said, *chosen]
            trust = self._known(taken) * lead
            for _ in range(AROUND):
                trust = self._mean(trust)
            trust[taken] = np.inf
            others = np.where(self.lonely, np.inf, trust)
            order = others if np.isfinite(others).any() else trust
            chosen.append(int(order.argmin()))
        return chosen


class Margins(Trust):
    """The lead of a class as its log ratio to the next, relative to the median of all pictures."""

    def _lead(self) -> np.ndarray:
        if len(self.classes) < 2:
            return np.ones(len(self.rows))
        two = np.sort(np.log(self.probabilities + 1e-12), axis=1)[:, -2:]
        margin = two[:, 1] - two[:, 0]
        return np.asarray(np.minimum(margin / max(float(np.median(margin)), 1e-12), 1))


class SquaredMargins(Margins):
    def _lead(self) -> np.ndarray:
        return np.asarray(super()._lead() ** 2)


class SquaredLead(Trust):
    def _lead(self) -> np.ndarray:
        return np.asarray(super()._lead() ** 4)


class Alternating(Trust):
    """Every other picture is the one with the least lead around it, known or not."""

    def _known(self, rows: Any) -> np.ndarray:
        if len(self.said) % 2 and len(self.classes) > 1:
            return np.ones(len(self.rows))
        return super()._known(rows)


class AlternatingMargins(Alternating, Margins):
    pass


class AlternatingLate(Trust):
    """The same from the tenth label on."""

    def _known(self, rows: Any) -> np.ndarray:
        if len(self.said) >= 10 and len(self.said) % 2:
            return np.ones(len(self.rows))
        return super()._known(rows)


class OneInThree(Trust):
    """From the tenth label on, two of three pictures are those with the least lead."""

    def _known(self, rows: Any) -> np.ndarray:
        if len(self.said) >= 10 and len(self.said) % 3:
            return np.ones(len(self.rows))
        return super()._known(rows)


class AtRandom(ww.Labelling):
    """Pictures at random, by the order that the simulation draws."""


RULES = {
    "shipped": ww.Labelling,
    "trust": Trust,
    "random": AtRandom,
    "margins": Margins,
    "margins, squared": SquaredMargins,
    "lead to the fourth": SquaredLead,
    "alternating": Alternating,
    "alternating, margins": AlternatingMargins,
    "alternating from 10": AlternatingLate,
    "one in three from 10": OneInThree,
}


class Trial(NamedTuple):
    """A simulated person who follows a rule."""

    file: str
    rule: str
    seed: int

    @property
    def key(self) -> str:
        return f"{Path(self.file).stem.removesuffix(', own')}, {self.rule}, {self.seed}"


def single_share(session: ww.Labelling) -> float:
    """The share of the labels that are the only one of their class."""
    names = [session.said[row] for row in session.labelled]
    _, counts = np.unique(names, return_counts=True)
    return float(np.sum(counts == 1) / len(names))


def simulate(job: Trial) -> tuple[str, dict[str, Any]]:
    kept = read(job.file)
    y = kept.y.astype(str)
    session = RULES[job.rule](kept.rows)
    order = np.random.default_rng(job.seed).permutation(len(y))
    found: dict[str, Any] = {"errors": {}, "doubt": {}, "single": {}}
    for count in range(1, COUNTS[-1] + 1):
        if job.rule != "random":
            row = order[0] if count == 1 else session.suggested_rows(1)[0]
            session.label({int(row): y[row]})
        elif count in COUNTS:
            session.label({int(row): y[row] for row in order[:count]})
        if count in COUNTS:
            found["errors"][count] = round(100 * float(np.mean(session.predict().classes != y)), 3)
            doubt = 1 - session.probabilities.max(1)
            found["doubt"][count] = round(100 * float(doubt.mean()), 3)
            found["single"][count] = round(single_share(session), 4)
    return job.key, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    files = sorted(options.rows.glob("*, own.npz"), key=lambda file: file.stat().st_size)
    small = [file for file in files if len(np.load(file)["y"]) <= 1000]
    # all rules of a draw before the next draw, so that a bound of time leaves a fair comparison
    order = [(seed, file) for seed in range(DRAWS) for file in small]
    order += [(seed, file) for seed in range(DRAWS) for file in files if file not in small]
    jobs = [Trial(str(file), rule, seed) for seed, file in order for rule in RULES]
    log = Log(options.out, options.seconds)
    log.run("trials", simulate, jobs, options.processes)


if __name__ == "__main__":
    main()
