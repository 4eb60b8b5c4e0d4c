"""The labelling page: what it reads and sends, around one `Labelling` session that all its tabs
share."""

import base64
import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from whatwhere.classification.picture_classifier import is_classifier
from whatwhere.engines.threads import one_thread
from whatwhere.errors import RunError, WhatwhereError, printable
from whatwhere.html import ASSETS, assemble
from whatwhere.html.server import Content, is_number
from whatwhere.labelling.blind_check import BlindCheck, MeasuredError
from whatwhere.labelling.clock import Clock
from whatwhere.labelling.descriptions import Behind
from whatwhere.labelling.exchange import label_studio_tasks, read_foreign_labels
from whatwhere.labelling.follower import Follower
from whatwhere.labelling.label_tables import (
    NONE_OF_THESE,
    NOT_SURE,
    check_class,
    predictions_text,
)
from whatwhere.labelling.session import Labelling
from whatwhere.labelling.thumbnails import PictureSizes, SessionPictures
from whatwhere.labelling.trial import try_picture
from whatwhere.labelling.why import Near, WhySettings, choose_others, explain
from whatwhere.progress import Stage, no_stage


@dataclass(frozen=True)
class PageSettings:
    """How the page waits, and how much it shows at once.

    Parameters
    ----------
    patience
        seconds that small pictures, and the work behind the page, wait for labels
    news
        seconds that a request for news waits for some, before the page asks again
    alike
        pictures that light up after a label, because they are most like it: a person sees in a
        second whether ten small pictures show the same
    """

    patience: float = 10.0
    news: float = 4.0
    alike: int = 10


ACTIONS = ("label", "undo", "save", "import", "folders", "check", "answer", "try")


class LabelPage:
    """Answers the requests of the page.

    Parameters
    ----------
    make
        a function that makes the session; it runs in a thread, and the page shows its progress
    name
        name of the pictures on the page
    classifier
        the file that the button saves
    stage
        also shows the progress, such as on a terminal
    behind
        better descriptions of the pictures, which are made while a person labels
    """

    def __init__(
        self,
        make: Callable[[Stage], Labelling],
        name: str,
        classifier: Path,
        stage: Stage = no_stage,
        behind: Behind | None = None,
        settings: PageSettings | None = None,
    ) -> None:
        self.name = name
        self.classifier = classifier
        self.settings = settings or PageSettings()
        self.session: Labelling | None = None
        self.behind = behind
        self.behind_words = ""  # what fails, or how far the work behind the page is
        self.waiting: dict[str, object] = {"stage": "reading the pictures …", "share": 0.0}
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        self.revision = 0
        self.generation = 0  # changes with the places on the map
        self.labels_first = LabelsFirst(self.settings.patience)
        self.slots = ClassSlots()
        self.check: BlindCheck | None = None
        self.measured: MeasuredError | None = None
        self.clock = Clock([1.0], stage)
        self.why = WhySettings()
        self.threads = torch.get_num_threads()
        self.thread = threading.Thread(
            target=self._start, args=(make,), name="labelling", daemon=True
        )
        self.thread.start()

    @contextmanager
    def _stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Follow a stage before the page opens, with its progress on the page."""
        with self.clock.stage(title, total) as advance_clock:

            def advance(pieces: int) -> None:
                advance_clock(pieces)
                assert self.clock.progress is not None
                progress = self.clock.progress
                self.waiting = {"stage": progress.words, "share": progress.share}

            advance(0)
            yield advance

    def _start(self, make: Callable[[Stage], Labelling]) -> None:
        try:
            with one_thread():
                session = make(self._stage)
                assert session.images is not None, "descriptors alone"
                self.pictures = SessionPictures(session.images)
                self._draw_map(session)
            self.follower = Follower(session, self.lock, self._on_news)
            self.session = session
            self.clock.progress = None
        except (WhatwhereError, OSError) as error:  # shown in the page, which has no terminal
            self.waiting = {"failed": str(error)}
            return
        if self.behind is not None:
            threading.Thread(
                target=self._describe_better, args=(self.behind,), name="behind", daemon=True
            ).start()

    def _draw_map(self, session: Labelling) -> None:
        """Compute the places on the map; None for pictures that are not described yet."""
        places: list[list[float] | None] = [None] * len(session.names)
        for row, place in zip(session.at, session.graph.places.round(4).tolist(), strict=True):
            places[row] = place
        self.places = places
        self.map_of = session.graph
        self.generation += 1

    def _on_news(self) -> None:
        """Let pages that wait get the new state."""
        session = self.session
        if session is not None and session.graph is not self.map_of:
            self._draw_map(session)
        self.revision += 1
        self.news.notify_all()

    def _describe_better(self, behind: Behind) -> None:
        """Make better descriptions, and offer each."""
        self.clock = Clock(behind.weights(), self.clock.shown)
        torch.set_num_threads(self.threads)  # whatever the threads of the page have
        try:
            for description in behind(self._behind_stage):
                self.follower.offer(description, self._behind_stage)
        except (WhatwhereError, OSError) as error:
            self.behind_words = f"No model was learned, so colours and edges stay: {error}"
        else:
            self.behind_words = ""
        with self.lock:
            self.clock.progress = None
            self._on_news()

    @contextmanager
    def _behind_stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        # The line of the page has room for a word such as "learning"; the terminal says more.
        with self.clock.stage(title, total, short=title.partition(" ")[0]) as advance:

            def give_way(pieces: int) -> None:
                advance(pieces)
                with self.lock:  # labels come first: their classes follow before the work goes on
                    self.follower.wait(self.settings.patience)

            yield give_way

    # Requests -------------------------------------------------------------------------------------

    def answer(self, path: str) -> Content | None:
        """Answer a GET request."""
        kind, _, rest = path.partition("/")
        if path == "":
            return Content(page(self.name).encode())
        if kind == "state":
            return as_json(self._state(rest))
        if kind == "news":
            return as_json(self._wait_for_news(rest))
        session = self.session
        if session is None:
            return None
        if path == "error":
            return as_json(self._error(session))
        if kind == "export":
            return self._safely(lambda: self._export(session, rest))
        return self._row_answer(session, kind, rest)

    def _row_answer(self, session: Labelling, kind: str, rest: str) -> Content | None:
        """Return the content for the number of a picture or of a sheet."""
        if not is_number(rest):
            return None
        row = int(rest)
        if kind == "sheet" and row < self.pictures.sheet_count:
            self.labels_first.wait()
            return self._safely(lambda: Content(self.pictures.sheet(row), "image/png"))
        if row >= len(session.names):
            return None
        if kind == "picture":
            return self._safely(lambda: _picture_content(self.pictures.original(row)))
        if kind == "why":
            return self._safely(lambda: as_json(self._why(session, row)))
        if kind == "like":
            with self.lock:
                return as_json({"rows": session.similar(row, self.settings.alike)})
        return None

    def act(self, path: str, sent: object) -> Content | None:
        """Answer a POST request; returns the new state."""
        session = self.session
        if session is None or path not in ACTIONS or not isinstance(sent, dict):
            return None
        if path == "try":
            return self._safely(lambda: as_json(self._try(session, sent)))
        with self.labels_first.labelling():
            return self._safely(lambda: as_json(self._act(session, path, sent)))

    def _act(self, session: Labelling, path: str, sent: Mapping[str, object]) -> dict[str, object]:
        said: dict[str, object] = {}
        with self.lock:
            if path in ("save", "folders"):
                self.follower.settle()
            if path == "save":
                save_classifier(session, self.classifier)
                command = classify_command(self.classifier)
                return {"saved": str(self.classifier), "command": command}
            if path == "folders":
                return {"saved": str(self._write_folders(session, sent.get("links") is True))}
            if path == "check":
                said = self._check(session, sent)
            elif path == "answer":
                said = self._answer(session, sent)
            elif path == "import":
                said = self._import(session, sent)
            elif path == "undo":
                said = {
                    "undone": list(session.labels.history[-1]) if session.labels.history else []
                }
                session.labels.undo()
            else:
                said = self._label(session, sent)
            if "failed" in said:
                return said
            self.follower.labels_changed()
            self._on_news()
            return self._labels(session) | said

    def _try(self, session: Labelling, sent: Mapping[str, object]) -> dict[str, object]:
        """Classify a new picture."""
        with self.lock:
            self.follower.wait()
            classifier = session.classifier()
        return try_picture(classifier, sent)._asdict()

    def _label(self, session: Labelling, sent: Mapping[str, object]) -> dict[str, object]:
        rows = sent.get("rows")
        name = sent.get("name")
        # bool is a kind of int, but no number of a picture
        if not isinstance(rows, list) or not rows or any(type(row) is not int for row in rows):
            return {"failed": "Expected the numbers of pictures."}
        if not isinstance(name, str | None):
            return {"failed": "Expected the name of a class."}
        session.labels.say(dict.fromkeys(rows, name))
        return {}

    def _import(self, session: Labelling, sent: Mapping[str, object]) -> dict[str, object]:
        name = sent.get("name")
        text = sent.get("text")
        if not isinstance(name, str) or not isinstance(text, str):
            return {"failed": "Expected a file of labels: .csv, or the JSON of Label Studio."}
        foreign = read_foreign_labels(text.encode(errors="replace"), name, session.names)
        session.labels.say(foreign.labels)
        return {"imported": foreign.words}

    def _check(self, session: Labelling, sent: Mapping[str, object]) -> dict[str, object]:
        """Begin a blind check, or end it with the answers that are there."""
        if sent.get("begin") is True:
            self.follower.wait()
            if len(session.classes) < 2:
                return {"failed": "Label pictures of two classes first."}
            self.check = BlindCheck.draw(session.spread, session.said, self.revision)
            if not self.check.rows:
                self.check = None
                return {"failed": "Every picture has a label: there is nothing to check."}
        elif self.check is not None:
            self._end_check(session, self.check)
        return {}

    def _answer(self, session: Labelling, sent: Mapping[str, object]) -> dict[str, object]:
        row = sent.get("row")
        name = sent.get("name")
        if type(row) is not int or not isinstance(name, str | None) or self.check is None:
            return {"failed": "Expected a picture of the check, and the name of a class."}
        self.check.answer(row, None if name is None else check_class(name))
        if self.check.is_done:
            self._end_check(session, self.check)
        return {}

    def _end_check(self, session: Labelling, check: BlindCheck) -> None:
        """Keep the result; the answers become labels."""
        self.check = None
        self.measured = check.result() or self.measured
        if check.answers:
            session.labels.say(check.answers)

    def _write_folders(self, session: Labelling, links: bool) -> Path:
        beside = session.file or self.classifier
        return session.export(beside.with_name(f"{beside.stem}.classes"), links=links)

    def _export(self, session: Labelling, name: str) -> Content:
        """Files that the browser downloads."""
        with self.lock:
            self.follower.settle()
            table = session.table()
        if name == "predictions.csv":
            text = predictions_text(table.names, table.classes, table.probabilities, table.said)
            return Content(text.encode(), "text/csv; charset=utf-8")
        if name == "label-studio.json":
            return as_json(label_studio_tasks(table))
        return as_json({"failed": "Expected predictions.csv or label-studio.json."})

    def _safely(self, work: Callable[[], Content]) -> Content:
        """Let an error that a user can fix go to the page in words."""
        try:
            return work()
        except WhatwhereError as error:
            return as_json({"failed": str(error)})

    # What the page shows --------------------------------------------------------------------------

    def _wait_for_news(self, known: str) -> dict[str, object]:
        """Return the state once it differs from what the page has, or after a while; the progress
        of the work behind the page is always told."""
        end = time.monotonic() + self.settings.news
        with self.lock:
            while self._version == known and self.session is not None:
                left = end - time.monotonic()
                if left <= 0:
                    break
                # Nobody notifies of progress, which the page shows every second.
                self.news.wait(min(left, 1.0))
                if self.clock.progress is not None:
                    break
            return self._state(known)

    @property
    def _version(self) -> str:
        """What a page says that it has: a revision, and a generation of the map."""
        return f"{self.revision}.{self.generation}"

    def _state(self, known: str) -> dict[str, object]:
        """Return all that the page shows; only its revision and the progress if the page knows the
        rest.

        Parameters
        ----------
        known
            the version that the page has; '' for a page that has nothing, which gets names and
            places as well
        """
        session = self.session
        if session is None:
            return self.waiting
        with self.lock:
            state: dict[str, object] = {
                "revision": self.revision,
                "behind": self._behind_words(),
                "trouble": self.follower.trouble,
            }
            if known == self._version:
                return state
            if known and self.follower.is_behind:
                return state | self._labels(session)  # the classes follow in a moment
            predictions = session.predict()
            certainty = np.round(100 * predictions.probabilities).astype(int)
            state |= self._labels(session)
            index = {name: number for number, name in enumerate(self.slots.names)}
            change = self.follower.change
            state |= {
                "best": [index.get(str(name), -1) for name in predictions.classes],
                "certainty": certainty.tolist(),
                "tray": self.follower.tray(),
                "change": None if change is None else asdict(change),
                "generation": self.generation,
            }
            if known.partition(".")[2] != str(self.generation):
                state["places"] = self.places
            if not known:
                state |= {
                    "names": session.names,
                    "sizes": self.pictures.sizes(),
                    "source": self.name,
                }
            return state

    def _labels(self, session: Labelling) -> dict[str, object]:
        """Return what a person said, which is there at once; the classes of other pictures
        follow."""
        self.slots.update(session.labels.classes)
        names = self.slots.names
        index = {name: number for number, name in enumerate(names)}
        said = {
            row: NOT_SURE if name == NOT_SURE else index[name] for row, name in session.said.items()
        }
        return {
            "revision": self.revision,
            "classes": names,
            "slots": self.slots.numbers,
            "said": said,
            "undo": len(session.labels.history),
            "elsewhere": len(session.labels.elsewhere),
            "follows": not self.follower.is_behind,
            "check": None if self.check is None else self.check.as_json(),
            "measured": "" if self.measured is None else self.measured.words,
        }

    def _behind_words(self) -> str:
        """Return how far the work behind the page is, in words; '' if there is none."""
        progress = self.clock.progress
        return self.behind_words if self.session is None or progress is None else progress.words

    def _error(self, session: Labelling) -> dict[str, object]:
        """Return the estimate of the error, or what it still needs."""
        with self.lock:
            estimate = session.estimate()
            missing = session.missing_for_estimate()
            return {
                "error": None if estimate is None else asdict(estimate),
                "words": "" if estimate is None else estimate.words,
                "advice": "" if estimate is None else estimate.advice(),
                "curve": session.curve,
                "suspects": [one._asdict() for one in self.follower.suspects],
                "missing": missing,
                "revision": self.revision,
            }

    def _why(self, session: Labelling, row: int) -> dict[str, object]:
        """Explain the class of a picture by labelled pictures that are like it."""
        with self.lock:
            nearest = session.nearest_labelled(row, len(session.said))
            near = [Near(other, cosine, session.said[other]) for other, cosine in nearest]
            description = session.description
        shown, others = choose_others(near, self.why)
        facts = [
            {"row": one.row, "cosine": round(one.cosine, 3), "class": one.name} for one in shown
        ]
        if not shown or description.describe is None:
            return {"nearest": facts, "features": []}
        rows = [row, *(one.row for one in (*shown, *others))]
        images = torch.stack([self.pictures.images[each] for each in rows])
        why = explain(description, images, shown, self.why)
        height, width = images.shape[2:]
        return {
            "nearest": facts,
            "words": why.words,
            "drawn": base64.b64encode(why.drawn).decode(),
            "features": [one._asdict() for one in why.features],
            "maps": why.maps,
            "height": height,
            "width": width,
        }


class LabelsFirst:
    """Lets work that can wait, such as small pictures, wait until labels are answered."""

    def __init__(self, patience: float = 10.0) -> None:
        self._patience = patience  # seconds that such work waits at most
        self._changed = threading.Condition()
        self._labelling = 0  # requests that change something and are not answered yet

    @contextmanager
    def labelling(self) -> Iterator[None]:
        """Around the answer to a request that changes something."""
        with self._changed:
            self._labelling += 1
        try:
            yield
        finally:
            with self._changed:
                self._labelling -= 1
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no such request is left, at most for the patience."""
        with self._changed:
            self._changed.wait_for(lambda: self._labelling == 0, timeout=self._patience)


class ClassSlots:
    """The keys of classes: each has a number, and keeps it, with its colour, while it has a label.

    0 is always "none of these". A class that is called by a digit gets that digit if it is free.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {NONE_OF_THESE: 0}

    def update(self, classes: Sequence[str]) -> None:
        """Follow the classes that have a label."""
        present = set(classes)
        gone = [name for name in self._slots if name not in present and name != NONE_OF_THESE]
        new = [name for name in classes if name not in self._slots]
        if len(gone) == len(new) == 1:  # it was renamed
            self._slots[new[0]] = self._slots.pop(gone[0])
        self._slots = {
            name: slot
            for name, slot in self._slots.items()
            if name in present or name == NONE_OF_THESE
        }
        for name in classes:
            if name not in self._slots:
                self._slots[name] = self._free_slot(name)

    def _free_slot(self, name: str) -> int:
        used = set(self._slots.values())
        if len(name) == 1 and name in "123456789" and int(name) not in used:
            return int(name)
        return next(slot for slot in range(1, len(used) + 2) if slot not in used)

    @property
    def names(self) -> list[str]:
        """The names of the classes in the order of their numbers."""
        return sorted(self._slots, key=self._slots.__getitem__)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the classes in `names`."""
        return sorted(self._slots.values())


def save_classifier(session: Labelling, file: Path) -> None:
    """Save the classifier of a session, unless a file is there that the program did not write."""
    if os.path.lexists(file) and not is_classifier(file):
        raise RunError(
            f"{printable(file)} exists already and is not a classifier. Move it, or choose another"
            " folder for the labels."
        )
    session.save(file, overwrite=True)


def classify_command(file: Path) -> str:
    """Write the command that gives new pictures the classes of a saved classifier."""
    return shlex.join(["whatwhere", "classify", "new/", str(file), "--out", "new_sorted"])


def _picture_content(picture: bytes) -> Content:
    is_jpeg = picture.startswith(b"\xff\xd8")
    return Content(picture, "image/jpeg" if is_jpeg else "image/png")


def as_json(value: object) -> Content:
    """Return a value as an answer of the server."""
    return Content(json.dumps(value, allow_nan=False).encode(), "application/json")


def page(name: str) -> str:
    """Return the page. It loads everything else from its own server, and from no other."""
    sizes = PictureSizes()
    data = {
        "name": name,
        "side": sizes.side,
        "columns": sizes.columns,
        "perSheet": sizes.sheet,
        "notSure": NOT_SURE,
        "noneOfThese": NONE_OF_THESE,
    }
    files = ("style.css", "label.css")
    style = "".join((ASSETS / file).read_text(encoding="utf-8") for file in files)
    sources = "img-src 'self' data: blob:; connect-src 'self'"
    return assemble(ASSETS / "label.html", "label", style, sources, data)
