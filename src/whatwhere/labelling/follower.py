"""Let all pictures follow the labels in a thread, so that a label is answered at once.

What a person waits for comes first: the classes, which spread over the graph with the weights that
its views have. What may come later follows, in this order: other weights of the views, suggestions,
the table of predictions, the election between descriptions, and labels that look wrong. All of it
takes seconds among many pictures; it pauses often, and classes that follow newer labels are
computed in such a pause.
"""

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from whatwhere.errors import WhatwhereError
from whatwhere.labelling.choice import Candidate, candidates, elect
from whatwhere.labelling.descriptions import Description, own_features
from whatwhere.labelling.neighbourhood import Spread
from whatwhere.labelling.session import Labelling
from whatwhere.progress import Stage, no_stage


@dataclass(frozen=True)
class TraySettings:
    """How pictures are suggested.

    Parameters
    ----------
    count
        suggestions: a person who is fast labels twelve in the time of an update of many pictures
    fewest
        suggestions that are left when newer labels no longer interrupt the search for others
    """

    count: int = 12
    fewest: int = 6


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


@dataclass
class _Counts:
    """How often labels changed, and up to which change the classes followed; how often work was
    asked for, and up to which time all of it is done."""

    labelled: int = 0
    followed: int = 0
    asked: int = 0
    done: int = 0


@dataclass(frozen=True)
class _Followed:
    """What a change is counted from: labels, the classes that followed, and their error."""

    said: dict[int, str]
    spread: Spread
    error: float | None


class Follower:
    """Computes what follows from the labels of a session, each time they change.

    Parameters
    ----------
    session
        the session; only this object spreads its labels from now on
    lock
        held while values of the session are read or replaced, never while they are computed
    on_news
        called, with the lock held, when the page has something new to show
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
        self.trouble = ""
        self.suspects = session.suspects()
        self._lock = lock
        self._on_news = on_news
        self._wake = threading.Condition(lock)
        self._counts = _Counts()
        self._tray = session.suggested_rows(self.tray_settings.count)
        self._plain = Candidate(session.description, session.graph)
        self._candidates: list[Candidate] = []
        self._now = _Followed(dict(session.said), session.spread, None)
        self._before = self._now
        self._written: _Followed | None = None
        threading.Thread(target=self._run, name="follower", daemon=True).start()

    @property
    def is_behind(self) -> bool:
        """Whether labels were given that the classes do not follow yet."""
        return self._counts.labelled != self._counts.followed

    @property
    def is_settled(self) -> bool:
        """Whether all has followed that may come later, too."""
        return self._counts.asked == self._counts.done

    def labels_changed(self) -> None:
        """Ask for all pictures to follow; call it with the lock held."""
        self._counts.labelled += 1
        self._ask()

    def offer(self, description: Description, stage: Stage = no_stage) -> None:
        """Offer another description of the pictures, which is used if it is better: views of all
        pictures replace views of a share; learned features stand for election, alone and next to
        the views. Their graphs are made in the caller's thread, so that labels do not wait.

        Parameters
        ----------
        stage
            shows how far the graphs are
        """
        is_plain = own_features(description) is None
        with stage("comparing the pictures", 1 if is_plain else 2) as advance:
            if is_plain:
                self._plain = Candidate.of(description)
                offered = [self._plain]
                advance(1)
            else:
                offered = candidates(self._plain, description, advance)
        with self._lock:
            self._candidates = offered
            self._ask()

    def _ask(self) -> None:
        self._counts.asked += 1
        self._wake.notify_all()

    def wait(self, patience: float = 30.0) -> None:
        """Wait until the classes follow the labels; call it with the lock held."""
        self._wake.wait_for(lambda: not self.is_behind, timeout=patience)

    def settle(self, patience: float = 30.0) -> None:
        """Wait until all has followed; call it with the lock held."""
        self._wake.wait_for(lambda: self.is_settled, timeout=patience)

    def tray(self) -> list[int]:
        """Return the suggestions; call it with the lock held."""
        return [row for row in self._tray if row not in self.session.said]

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(1)  # small work, while a model may learn on all cores
        while True:
            with self._lock:
                while self.is_settled:
                    self._wake.wait()
                asked = self._counts.asked
            trouble = ""
            try:
                self._pause()
                self._catch_up()
            except (WhatwhereError, OSError) as error:  # the page shows it
                trouble = str(error)
            except Exception:
                trouble = "The program failed; the terminal shows where. Labels are saved."
                traceback.print_exc()
            with self._lock:
                self.trouble = trouble
                self._counts.done = asked  # what fails once is not tried again and again
                self._news()

    def _news(self) -> None:
        self._on_news()
        self._wake.notify_all()

    def _pause(self) -> None:
        """Let the classes follow newer labels, if there are any; suggestions only if few are
        left."""
        while self.is_behind:
            self._follow()
            if len(self.tray()) < self.tray_settings.fewest:
                self._suggest()

    def _follow(self) -> None:
        """Let the classes follow the labels that are there now."""
        with self._lock:
            labelled = self._counts.labelled
            said = dict(self.session.said)
        try:
            spread = self.session.follow(said, quick=True)
            with self._lock:
                self._publish(spread, said)
        finally:  # what fails once is not tried again and again
            with self._lock:
                self._counts.followed = labelled
                self._news()

    def _suggest(self) -> None:
        """Suggest pictures; newer labels interrupt it while enough suggestions are left."""
        how = self.tray_settings
        rows = self.session.suggested_rows(
            how.count, lambda: not self.is_behind or len(self.tray()) < how.fewest
        )
        with self._lock:
            earlier = [row for row in self.tray() if row not in rows]
            self._tray = [*rows, *earlier][: how.count]
            self._on_news()

    def _catch_up(self) -> None:
        """Do what may be late."""
        said = self._now.said
        self.session.weigh(said, self._pause)
        self._refine()
        self._write()
        self._elect(said)
        self._write()
        self.suspects = self.session.suspects()

    def _write(self) -> None:
        """Write the table of predictions, unless newer labels wait, or it was written."""
        now = self._now
        if not self.is_behind and self._written is not now:
            self.session.write_predictions(now.said)
            self._written = now

    def _refine(self, cause: str = "") -> None:
        """Let classes and suggestions follow all that the labels say.

        Parameters
        ----------
        cause
            what else changed the classes
        """
        said = self._now.said
        spread = self.session.follow(said)
        with self._lock:
            self._publish(spread, said, cause)
        self._suggest()

    def _publish(self, spread: Spread, said: dict[int, str], cause: str = "") -> None:
        """Replace the classes, and tell what labels changed: also what they change later."""
        session = self.session
        if said != self._now.said or cause:
            self._before = self._now
        before = self._before
        session.spread = spread
        self._now = _Followed(said, spread, session.error())
        given = {row for row in {*said, *before.said} if said.get(row) != before.said.get(row)}
        changed = _changed_rows(before.spread, spread) - given
        self.change = Change(len(given), len(changed), before.error, self._now.error, cause)

    # Descriptions ---------------------------------------------------------------------------------

    def _elect(self, said: dict[int, str]) -> None:
        """Use the description that explains held-out labels best."""
        if not self._candidates:
            return
        elected = elect(self._candidates, said, self._pause)
        if elected.graph is self.session.graph:
            return
        elected.graph.weigh(said, self._pause)
        is_learned = len(self._candidates) > 1
        name = elected.description.name
        with self._lock:
            self.session.use(*elected)
        self._refine(
            f"pictures are described by {name} now"
            if is_learned
            else "all pictures are described now"
        )


def _changed_rows(before: Spread, after: Spread) -> set[int]:
    """Return the rows whose class differs; a picture without a class has none."""
    return set(np.flatnonzero(_best_names(before) != _best_names(after)).tolist())


def _best_names(spread: Spread) -> np.ndarray:
    classes, shares = spread
    if not classes:
        return np.full(len(shares), "")
    return np.where(shares.max(1) > 0, np.array(classes)[shares.argmax(1)], "")
