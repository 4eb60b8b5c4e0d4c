"""A blind check measures the error: a person names pictures drawn at random without seeing their
predicted class."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from whatwhere.classification.protocol import wilson
from whatwhere.labelling.label_tables import NOT_SURE
from whatwhere.labelling.neighbourhood import Spread


@dataclass(frozen=True)
class CheckSettings:
    """How a blind check is drawn.

    Parameters
    ----------
    pictures
        pictures to name: with 30, an error of 4 % is known to about ± 6 %
    good
        share of wrong classes up to which the page says that the work is done
    """

    pictures: int = 30
    good: float = 0.05


@dataclass(frozen=True)
class MeasuredError:
    """An error that a blind check measured.

    Parameters
    ----------
    wrong
        pictures whose predicted class was wrong
    pictures
        pictures that were checked
    labels
        labels that the predictions followed from
    left
        pictures without a label that the check stands for
    """

    wrong: int
    pictures: int
    labels: int
    left: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the error among the pictures without a label. The pictures that were
        checked are known, so that only the others are uncertain."""
        low, high = wilson(self.wrong, self.pictures)
        others = max(0, self.left - self.pictures)
        shrink = math.sqrt(others / max(1, self.left - 1))
        rate = self.wrong / self.pictures
        return rate - shrink * (rate - low), rate + shrink * (high - rate)

    @property
    def words(self) -> str:
        """The result as a sentence."""
        low, high = self.interval
        share = self.wrong / self.pictures
        result = (
            f"{100 * share:.0f} % wrong, between {100 * low:.0f} and {100 * high:.0f} %"
            f" ({self.wrong} of {self.pictures} pictures drawn at random)."
        )
        if share <= CheckSettings().good:
            return f"Done: {result} Save the classifier, or export the classes."
        return f"Measured: {result} Label more pictures, and check again."


@dataclass
class BlindCheck:
    """A check that is under way.

    Parameters
    ----------
    rows
        the pictures that are drawn
    spread
        the predictions when it began, which it measures
    labels
        labels that they followed from
    left
        pictures without a label when it began
    answers
        what the person said, by row
    """

    rows: list[int]
    spread: Spread
    labels: int
    left: int
    answers: dict[int, str] = field(default_factory=dict)

    @classmethod
    def draw(
        cls,
        spread: Spread,
        said: Mapping[int, str],
        seed: int,
        settings: CheckSettings | None = None,
    ) -> "BlindCheck":
        """Draw pictures at random among those without a label.

        Parameters
        ----------
        seed
            of the draw; another one for each check
        """
        settings = settings or CheckSettings()
        has_class = spread.probabilities.max(1) > 0
        open_rows = [row for row in np.flatnonzero(has_class).tolist() if row not in said]
        count = min(settings.pictures, len(open_rows))
        drawn = np.random.default_rng(seed).choice(open_rows, count, replace=False).tolist()
        return cls(drawn, spread, len(said), len(open_rows))

    def answer(self, row: int, name: str | None) -> None:
        """Take an answer; None takes it back."""
        if row not in self.rows:
            return
        if name is None:
            self.answers.pop(row, None)
        else:
            self.answers[row] = name

    @property
    def is_done(self) -> bool:
        """Whether every picture has an answer."""
        return len(self.answers) == len(self.rows)

    def result(self) -> MeasuredError | None:
        """Return the error among the answered pictures; None without an answer. Pictures that a
        person is not sure about do not count."""
        rows = [row for row, name in self.answers.items() if name != NOT_SURE]
        if not rows:
            return None
        best = [self.spread.classes[one] for one in self.spread.probabilities[rows].argmax(1)]
        wrong = sum(
            predicted != self.answers[row] for predicted, row in zip(best, rows, strict=True)
        )
        return MeasuredError(wrong, len(rows), self.labels, self.left)

    def as_json(self) -> dict[str, object]:
        """Return what the page shows: no predictions."""
        return {"rows": self.rows, "answers": self.answers}
