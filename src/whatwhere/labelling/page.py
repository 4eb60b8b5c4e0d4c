"""The labelling page: what it reads and sends, around one `Labelling` session that all its tabs
share."""

import base64
import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.classification.picture_classifier import is_classifier
from whatwhere.errors import RunError, WhatwhereError, printable
from whatwhere.html import ASSETS, assemble
from whatwhere.html.server import Content, is_number
from whatwhere.inference import infer
from whatwhere.labelling.exchange import label_studio_tasks, read_foreign_labels
from whatwhere.labelling.label_tables import NONE_OF_THESE, NOT_SURE, predictions_text
from whatwhere.labelling.session import Labelling
from whatwhere.labelling.thumbnails import COLUMNS, PER_SHEET, SIDE, SessionPictures
from whatwhere.progress import Pace, Stage, no_stage

TRAY = 12  # suggestions
FEWER = 6  # suggestions of more than MANY pictures, since each takes time
MANY = 10_000
NEAREST = 3  # labelled pictures in "Why?"
SHARED = 5  # features in "Why?"
PATIENCE = 10.0  # seconds that small pictures wait for labels

ACTIONS = ("label", "undo", "save", "import", "folders")


class LabelPage:
    """Answers the requests of the page.

    make        a function that makes the session; it runs in a thread, and the page shows its
                progress
    name        name of the pictures on the page
    classifier  the file that the button saves
    stage       also shows the progress, such as on a terminal
    """

    def __init__(
        self,
        make: Callable[[Stage], Labelling],
        name: str,
        classifier: Path,
        stage: Stage = no_stage,
    ) -> None:
        self.name = name
        self.stage = stage
        self.classifier = classifier
        self.session: Labelling | None = None
        self.waiting: dict[str, Any] = {"stage": "reading the pictures …", "share": 0.0}
        self.lock = threading.Lock()
        self.revision = 0
        self.labels_first = LabelsFirst()
        self.slots = ClassSlots()
        self.thread = threading.Thread(
            target=self._start, args=(make,), name="labelling", daemon=True
        )
        self.thread.start()

    @contextmanager
    def _stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        pace = Pace(total)
        with self.stage(title, total) as advance_stage:

            def advance(pieces: int) -> None:
                pace.add(pieces)
                advance_stage(pieces)
                share = min(1.0, pace.done / total)
                self.waiting = {"stage": stage_words(title, pace), "share": share}

            advance(0)
            yield advance

    def _start(self, make: Callable[[Stage], Labelling]) -> None:
        try:
            session = make(self._stage)
            assert session.images is not None, "descriptors alone"
            self.pictures = SessionPictures(session.images)
            with self._stage("drawing the map", 1):
                self.places = session.graph.places.round(4).tolist()
            self.session = session
        except (WhatwhereError, OSError) as error:  # shown in the page, which has no terminal
            self.waiting = {"failed": str(error)}

    # Requests -------------------------------------------------------------------------------------

    def answer(self, path: str) -> Content | None:
        """Answer a GET request."""
        kind, _, rest = path.partition("/")
        if path == "":
            return Content(page(self.name).encode())
        if kind == "state":
            return as_json(self._state(rest))
        session = self.session
        if session is None:
            return None
        if path == "error":
            return as_json(self._error(session))
        if kind == "export":
            return self._safely(lambda: self._export(session, rest))
        return self._row_answer(session, kind, rest)

    def _row_answer(self, session: Labelling, kind: str, rest: str) -> Content | None:
        """The content for the number of a picture or of a sheet."""
        if not is_number(rest):
            return None
        row = int(rest)
        if kind == "sheet" and row < self.pictures.sheet_count:
            self.labels_first.wait()
            return self._safely(lambda: Content(self.pictures.sheet(row), "image/png"))
        if row >= len(session.names):
            return None
        if kind == "picture":
            return self._safely(lambda: Content(self.pictures.original(row), "image/png"))
        if kind == "why":
            return self._safely(lambda: as_json(self._why(session, row)))
        return None

    def act(self, path: str, sent: Any) -> Content | None:
        """Answer a POST request; returns the new state."""
        session = self.session
        if session is None or path not in ACTIONS or not isinstance(sent, dict):
            return None
        with self.labels_first.labelling():
            return self._safely(lambda: as_json(self._act(session, path, sent)))

    def _act(self, session: Labelling, path: str, sent: Mapping[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        with self.lock:
            if path == "save":
                save_classifier(session, self.classifier)
                command = classify_command(self.classifier)
                return {"saved": str(self.classifier), "command": command}
            if path == "folders":
                return {"saved": str(self._write_folders(session, sent.get("links") is True))}
            if path == "import":
                said = self._import(session, sent)
            elif path == "undo":
                said = {
                    "undone": list(session.labels.history[-1]) if session.labels.history else []
                }
                session.undo()
            else:
                said = self._label(session, sent)
            if "failed" in said:
                return said
            self.revision += 1
        return self._state("known") | said

    def _label(self, session: Labelling, sent: Mapping[str, Any]) -> dict[str, Any]:
        rows = sent.get("rows")
        name = sent.get("name")
        # bool is a kind of int, but no number of a picture
        if not isinstance(rows, list) or not rows or any(type(row) is not int for row in rows):
            return {"failed": "Expected the numbers of pictures."}
        if not isinstance(name, str | None):
            return {"failed": "Expected the name of a class."}
        session.label(dict.fromkeys(rows, name))
        return {}

    def _import(self, session: Labelling, sent: Mapping[str, Any]) -> dict[str, Any]:
        name = sent.get("name")
        text = sent.get("text")
        if not isinstance(name, str) or not isinstance(text, str):
            return {"failed": "Expected a file of labels: .csv, or the JSON of Label Studio."}
        foreign = read_foreign_labels(text.encode(errors="replace"), name, session.names)
        session.label(foreign.labels)
        return {"imported": foreign.words}

    def _write_folders(self, session: Labelling, links: bool) -> Path:
        beside = session.file or self.classifier
        return session.export(beside.with_name(f"{beside.stem}.classes"), links=links)

    def _export(self, session: Labelling, name: str) -> Content:
        """Files that the browser downloads."""
        with self.lock:
            table = session.table()
        if name == "predictions.csv":
            text = predictions_text(table.names, table.classes, table.probabilities, table.said)
            return Content(text.encode(), "text/csv; charset=utf-8")
        if name == "label-studio.json":
            return as_json(label_studio_tasks(table))
        return as_json({"failed": "Expected predictions.csv or label-studio.json."})

    def _safely(self, work: Callable[[], Content]) -> Content:
        """An error that a user can fix goes to the page in words."""
        try:
            return work()
        except WhatwhereError as error:
            return as_json({"failed": str(error)})

    # What the page shows --------------------------------------------------------------------------

    def _state(self, known: str) -> dict[str, Any]:
        """All that the page shows; only its revision if the page knows it.

        known  the revision that the page has; '' for a page that has nothing, which gets names and
               places as well
        """
        session = self.session
        if session is None:
            return self.waiting
        with self.lock:
            if known == str(self.revision):
                return {"revision": self.revision}
            predictions = session.predict()
            self.slots.update(session.classes)
            names = self.slots.names
            index = {name: number for number, name in enumerate(names)}
            said = {
                row: NOT_SURE if name == NOT_SURE else index[name]
                for row, name in session.said.items()
            }
            certainty = np.round(100 * predictions.probabilities).astype(int)
            state: dict[str, Any] = {
                "revision": self.revision,
                "classes": names,
                "slots": self.slots.numbers,
                "best": [index.get(str(name), -1) for name in predictions.classes],
                "certainty": certainty.tolist(),
                "said": said,
                "tray": session.suggested_rows(TRAY if len(session.names) <= MANY else FEWER),
                "undo": len(session.labels.history),
                "elsewhere": len(session.labels.elsewhere),
            }
            if not known:
                sizes = self.pictures.sizes()
                state |= {"names": session.names, "places": self.places, "sizes": sizes}
            return state

    def _error(self, session: Labelling) -> dict[str, Any]:
        """The estimate of the error, or what it still needs."""
        with self.lock:
            error = session.error()
            missing = session.missing_for_estimate()
            return {
                "error": error,
                "curve": session.curve,
                "missing": missing,
                "revision": self.revision,
            }

    def _why(self, session: Labelling, row: int) -> dict[str, Any]:
        """The labelled pictures that are nearest, and what the features that they share draw in
        each of them."""
        with self.lock:
            nearest = session.nearest_labelled(row, NEAREST)
            classes = [session.said[other] for other, _ in nearest]
        facts = [
            {"row": other, "cosine": round(cosine, 3), "class": name}
            for (other, cosine), name in zip(nearest, classes, strict=True)
        ]
        why: dict[str, Any] = {"nearest": facts, "features": []}
        if session.describe is not None and nearest:
            why |= self._shared_features(session, [row, *(other for other, _ in nearest)])
        return why

    def _shared_features(self, session: Labelling, rows: Sequence[int]) -> dict[str, Any]:
        """The features that the first of some pictures shares most with the others, and what each
        feature draws in all of them."""
        assert session.describe is not None
        model = session.describe.model
        images = torch.stack([self.pictures.images[each] for each in rows])
        images = images.to(model.device, model.dtype)
        spec = session.describe.recipe.inference
        solution = infer(model, images, spec, engine=session.describe.engine)
        p = solution.features
        height, width = images.shape[2:]
        sized = model.at(height, width)
        weights = sized.weights(solution.latents.pooling_params)
        strength = p.abs().sum((2, 3))
        shared = torch.minimum(strength[:1], strength[1:].mean(0)).flatten()
        features = []
        for map_ in shared.argsort(descending=True)[:SHARED].tolist():
            if shared[map_] <= 0:
                break
            alone = torch.zeros_like(p)
            alone[:, map_] = p[:, map_]
            drawn = sized.reconstruct(alone, weights).abs().mean(1)
            shades = (255 * drawn / drawn.amax().clamp(min=1e-12)).to(torch.uint8).cpu().numpy()
            pictures = [base64.b64encode(each.tobytes()).decode() for each in shades]
            features.append({"map": map_, "drawn": pictures})
        return {"features": features, "maps": p.shape[1], "height": height, "width": width}


class LabelsFirst:
    """Lets work that can wait, such as small pictures, wait until labels are answered."""

    def __init__(self) -> None:
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
        """Wait until no such request is left, at most `PATIENCE` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._labelling == 0, timeout=PATIENCE)


class ClassSlots:
    """The keys of classes: each has a number, and keeps it, with its colour, while it has a label.

    0 is always "none of these". A class that is called by a digit gets that digit if it is free.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {NONE_OF_THESE: 0}

    def update(self, classes: Sequence[str]) -> None:
        """Follow the classes that have a label."""
        present = set(classes)
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


def stage_words(title: str, pace: Pace) -> str:
    """How far a slow part is, and, once it is known, how long the rest takes."""
    if pace.done <= 0 or pace.done >= pace.total:
        return f"{title} …"
    words = f"{title}: {pace.done:,} of {pace.total:,}"
    time_left = pace.time_left
    return f"{words}, about {time_left}" if time_left else words


def save_classifier(session: Labelling, file: Path) -> None:
    """Save the classifier of a session, unless a file is there that the program did not write."""
    if os.path.lexists(file) and not is_classifier(file):
        raise RunError(
            f"{printable(file)} exists already and is not a classifier. Move it, or choose another"
            " folder for the labels."
        )
    session.save(file, overwrite=True)


def classify_command(file: Path) -> str:
    """The command that gives new pictures the classes of a saved classifier."""
    return shlex.join(["whatwhere", "classify", str(file), "new/", "--out", "new_sorted"])


def as_json(value: Any) -> Content:
    """A value as an answer of the server."""
    return Content(json.dumps(value, allow_nan=False).encode(), "application/json")


def page(name: str) -> str:
    """The page. It loads everything else from its own server, and from no other."""
    data = {
        "name": name,
        "side": SIDE,
        "columns": COLUMNS,
        "perSheet": PER_SHEET,
        "notSure": NOT_SURE,
        "noneOfThese": NONE_OF_THESE,
    }
    files = ("style.css", "label.css")
    style = "".join((ASSETS / file).read_text(encoding="utf-8") for file in files)
    sources = "img-src 'self' data: blob:; connect-src 'self'"
    return assemble(ASSETS / "label.html", "label", style, sources, data)
