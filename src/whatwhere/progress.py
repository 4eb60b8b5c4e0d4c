"""How slow work shows its progress: functions that take long get a `Stage` from their caller, which
decides what is shown."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field


def no_op(*_: object) -> None:
    """Ignore every argument."""


Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows the progress of a slow part: called with its title and the number of its pieces; the
function that it yields is called with the number of pieces just done."""


def no_stage(title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return a `Stage` that shows nothing."""
    return nullcontext(no_op)


def time_left(seconds: float) -> str:
    """Return a time that is left, in words; work that is not done takes a second at least."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s left"
    return f"{seconds / 60:,.0f} min left"


@dataclass
class Pace:
    """How far a stage is, and how long the rest takes.

    The first pieces may include compiling and loading, so time counts from when they are done. The
    rate is known after a twentieth of all pieces or after ten seconds.

    Parameters
    ----------
    total
        number of pieces of the stage
    done
        number of pieces that are done
    now
        the time in seconds
    """

    total: int
    done: int = 0
    now: Callable[[], float] = time.monotonic
    _first_done: int = field(default=0, init=False)
    _first_time: float | None = field(default=None, init=False)

    def add(self, pieces: int) -> None:
        """Count pieces that were just done."""
        self.done += pieces
        if self._first_time is None and pieces > 0:
            self._first_time = self.now()
            self._first_done = self.done

    @property
    def per_second(self) -> float | None:
        """Pieces per second; None if it is not known yet."""
        if self._first_time is None:
            return None
        pieces = self.done - self._first_done
        seconds = self.now() - self._first_time
        is_enough = pieces >= self.total / 20 or seconds >= 10
        if pieces == 0 or not is_enough:
            return None
        return pieces / max(seconds, 1e-9)

    @property
    def rate(self) -> str:
        """The pieces per second in words; '' if they are not known yet."""
        per_second = self.per_second
        if per_second is None:
            return ""
        return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.3g}/s"

    @property
    def time_left(self) -> str:
        """The time that is left, in words; '' if it is not known yet, or all is done."""
        per_second = self.per_second
        if per_second is None or self.done >= self.total:
            return ""
        return time_left((self.total - self.done) / per_second)
