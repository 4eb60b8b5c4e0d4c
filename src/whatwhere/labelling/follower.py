"""Let all pictures follow the labels in a thread, so that a label is answered at once."""

import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from whatwhere.errors import WhatwhereError
from whatwhere.labelling.choice import Candidate, candidates, elect
from whatwhere.labelling.descriptions import Description, own_features
from whatwhere.labelling.neighbourhood import Spread
from whatwhere.labelling.session import Labelling


@dataclass(frozen=True)
class TraySettings:
    """How many pictures are suggested at a time.

    most   suggestions: a person who is fast labels twelve in the time of an update of many pictures
    fewer  suggestions of more than `many` pictures; each takes time
    """

    most: int = 12
    fewer: int = 12
    many: int = 10_000

    def count(self, pictures: int) -> int:
        """Return the number of suggestions among this many pictures."""
        return self.most if pictures <= self.many else self.fewer


@dataclass(frozen=True)
class Change:
    """What the last labels changed.

    labels    labels that were given or taken away
    pictures  pictures whose class changed, besides those
    before    the estimated error before, and after; None if it is not known
    after
    cause     what else changed the classes: the name of a new description; '' for labels alone
    """

    labels: int
    pictures: int
    before: float | None
    after: float | None
    cause: str = ""


class Follower:
    """Computes what follows from the labels of a session, each time they change.

    session   the session; only this object spreads its labels from now on
    lock      held while values of the session are read or replaced, never while they are computed
    on_news   called, with the lock held, when the page has something new to show
    """

    def __init__(
        self,
        session: Labelling,
        lock: threading.RLock,
        on_news: Callable[[], None],
        tray: TraySettings | None = None,
    ) -> None:
        self.session = session
        self.tray_settings = tray or TraySettings()
        self.change: Change | None = None
        self._lock = lock
        self._on_news = on_news
        self._wake = threading.Condition(lock)
        self._wanted = 0
        self._followed = 0
        self._tray: list[int] = []
        self._tray_of: Spread | None = None
        self._offers: deque[Description] = deque()
        self._plain = Candidate(session.description, session.graph)
        self._cause = ""
        self._candidates: list[Candidate] = []
        self._error: float | None = None
        self.trouble = ""
        self.suspects = session.suspects()
        self._said = dict(session.said)
        threading.Thread(target=self._run, name="follower", daemon=True).start()

    @property
    def is_behind(self) -> bool:
        """Whether labels were given that the classes do not follow yet."""
        return self._wanted != self._followed

    def labels_changed(self) -> None:
        """Ask for all pictures to follow; call it with the lock held."""
        self._wanted += 1
        self._wake.notify_all()

    def offer(self, description: Description) -> None:
        """Offer another description of the pictures, which is used if it is better."""
        with self._lock:
            self._offers.append(description)
            self._wanted += 1
            self._wake.notify_all()

    def wait(self, patience: float = 30.0) -> None:
        """Wait until the classes follow the labels; call it with the lock held."""
        self._wake.wait_for(lambda: not self.is_behind, timeout=patience)

    def tray(self) -> list[int]:
        """Return the suggestions; call it with the lock held."""
        if self._tray_of is not self.session.spread and not self.is_behind:
            self._suggest()
        return [row for row in self._tray if row not in self.session.said]

    def _suggest(self) -> None:
        session = self.session
        spread = session.spread
        rows = session.suggested_rows(self.tray_settings.count(len(session.names)))
        self._tray = rows
        self._tray_of = spread

    def _run(self) -> None:
        torch.set_num_threads(1)  # small work, while a model may learn on all cores
        while True:
            with self._lock:
                while not self.is_behind:
                    self._wake.wait()
            try:
                self._follow()
                self.trouble = ""
            except (WhatwhereError, OSError) as error:  # the page shows it
                self.trouble = str(error)
            except Exception:
                self.trouble = "The program failed; the terminal shows where. Labels are saved."
                traceback.print_exc()
            with self._lock:
                self._on_news()

    def _follow(self) -> None:
        """Follow the labels that are there now."""
        with self._lock:
            wanted = self._wanted
            said = dict(self.session.said)
            offers = list(self._offers)
            self._offers.clear()
        try:
            for description in offers:
                self._consider(description, said)
            spread = self.session.spread_of(said)
            with self._lock:
                self._publish(spread, said)
        finally:  # what fails once is not tried again and again
            with self._lock:
                self._followed = wanted
                self._on_news()
                self._wake.notify_all()
        self._catch_up(wanted, said)

    def _catch_up(self, wanted: int, said: dict[int, str]) -> None:
        """Do what may be late: suggestions, the election between descriptions, the table of
        predictions. It stops where newer labels wait."""
        if self._wanted != wanted:
            return
        self._suggest()
        with self._lock:
            self._on_news()
        for candidate in self._candidates:
            if self._wanted != wanted:
                return
            candidate.graph.spread(said)  # the graph keeps it for the election
        if self._elect(said):
            spread = self.session.spread_of(said)
            with self._lock:
                self._publish(spread, said)
                self._on_news()
            self._suggest()
        if self._wanted == wanted:
            self.session.write_predictions(said)

    def _publish(self, spread: Spread, said: dict[int, str]) -> None:
        session = self.session
        earlier = session.spread
        before = self._error
        session.spread = spread
        self._error = session.error()
        self.suspects = session.suspects()
        given = {row for row in {*said, *self._said} if said.get(row) != self._said.get(row)}
        changed = _changed_rows(earlier, spread) - given
        self.change = Change(len(given), len(changed), before, self._error, self._cause)
        self._cause = ""
        self._said = said

    # Descriptions ---------------------------------------------------------------------------------

    def _consider(self, description: Description, said: dict[int, str]) -> None:
        """Take a description into account: views of all pictures replace views of a share; learned
        features stand for election, alone and next to the views."""
        if own_features(description) is None:
            self._plain = Candidate.of(description)
            self._use(self._plain, "all pictures are described now")
            return
        self._candidates = candidates(self._plain, description)
        self._elect(said)

    def _elect(self, said: dict[int, str]) -> bool:
        """Use the description that explains held-out labels best; tell whether it is another."""
        if not self._candidates:
            return False
        elected = elect(self._candidates, said)
        if elected.graph is self.session.graph:
            return False
        name = elected.description.name
        self._use(elected, f"pictures are described by {name} now")
        return True

    def _use(self, candidate: Candidate, cause: str) -> None:
        with self._lock:
            self.session.use(*candidate)
            self._cause = cause


def _changed_rows(before: Spread, after: Spread) -> set[int]:
    """Return the rows whose class differs; a picture without a class has none."""
    return set(np.flatnonzero(_best_names(before) != _best_names(after)).tolist())


def _best_names(spread: Spread) -> np.ndarray:
    classes, shares = spread
    if not classes:
        return np.full(len(shares), "")
    return np.where(shares.max(1) > 0, np.array(classes)[shares.argmax(1)], "")
