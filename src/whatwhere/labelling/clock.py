"""One clock for several stages of work: which stage it is, and how long all of them still take."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from whatwhere.progress import Stage, no_stage


@dataclass(frozen=True)
class ClockSettings:
    """How a time that is left is estimated.

    Parameters
    ----------
    window
        seconds of the recent rate: the first pieces include compiling, and the rate of an hour ago
        says little
    enough
        seconds of a stage before its rate is known
    """

    window: float = 20.0
    enough: float = 3.0


@dataclass(frozen=True)
class Progress:
    """How far work is.

    Parameters
    ----------
    number, total
        the stage and the number of stages, from 1
    title
        what is done
    share
        share of the stage that is done, from 0 to 1
    seconds
        that all stages still take; None if it is not known yet
    """

    number: int
    total: int
    title: str
    share: float
    seconds: float | None

    @property
    def words(self) -> str:
        """The progress in words, such as '2 of 4 · learning · about 3 min left'."""
        words = [f"{self.number} of {self.total}", self.title]
        if self.seconds is not None:
            words.append(f"about {_time_words(self.seconds)} left")
        return " · ".join(words)


@dataclass
class Clock:
    """Follows stages that come one after the other.

    Parameters
    ----------
    weights
        how long each stage usually takes, in any unit: it tells how long stages take that have not
        begun
    shown
        also shows each stage, such as on a terminal
    now
        the time in seconds
    """

    weights: Sequence[float]
    shown: Stage = no_stage
    settings: ClockSettings = field(default_factory=ClockSettings)
    now: Callable[[], float] = time.monotonic
    progress: Progress | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _end: float | None = field(default=None, init=False)  # of all stages, as estimated last

    @contextmanager
    def stage(self, title: str, total: int, short: str = "") -> Iterator[Callable[[int], None]]:
        """Follow the next stage; a `Stage`.

        Parameters
        ----------
        short
            what `progress` calls it; '' for its title
        """
        self._number += 1
        number = self._number
        start = self.now()
        done = 0
        recent = deque([(start, 0)])

        def note() -> None:
            share = min(1.0, done / max(total, 1))
            seconds = self._seconds_left(number, share, recent, total)
            stages = max(len(self.weights), number)
            self.progress = Progress(number, stages, short or title, share, seconds)

        with self.shown(title, total) as show:

            def advance(pieces: int) -> None:
                nonlocal done
                done += pieces
                show(pieces)
                now = self.now()
                recent.append((now, done))
                while len(recent) > 2 and now - recent[0][0] > self.settings.window:
                    recent.popleft()
                note()

            note()
            yield advance

    def _seconds_left(
        self, number: int, share: float, recent: "deque[tuple[float, int]]", total: int
    ) -> float | None:
        """Seconds that this stage and all later ones take, from the recent rate; before it is
        known, from what was estimated in the stage before."""
        (first, before), (last, done) = recent[0], recent[-1]
        if last - first < self.settings.enough or done == before:
            return None if self._end is None else max(0.0, self._end - self.now())
        rate = (done - before) / (last - first)
        here = max(total - done, 0) / rate
        whole = total / rate
        weight = self.weights[number - 1] if number <= len(self.weights) else 1.0
        later = sum(self.weights[number:]) / weight
        seconds = here + later * whole
        self._end = last + seconds
        return seconds


def _time_words(seconds: float) -> str:
    """Say a time in words that does not promise too much: '10 s', '3 min'."""
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{max(10, 10 * round(seconds / 10))} s"
