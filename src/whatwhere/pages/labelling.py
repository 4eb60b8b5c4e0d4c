"""The labelling page: what it reads and sends, around one `Labelling` session that all its tabs
share.

`classes_page` is the page of a session without a server: pictures of every class.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import Images
from whatwhere.errors import WhatwhereError
from whatwhere.html import assemble, data_url, png, report_style, sheet, static_page, thumbnail
from whatwhere.inference import infer
from whatwhere.pages import ASSETS
from whatwhere.pages.server import Content
from whatwhere.progress import Stage
from whatwhere.tasks.labelling.label_tables import NONE_OF_THESE, NOT_SURE
from whatwhere.tasks.labelling.session import Labelling, map_places

SIDE, COLUMNS, PER_SHEET = 48, 16, 256  # pixels of a small picture, and pictures of a sheet
LARGE = 512
SHOWN, SHOWN_SIDE = 24, 96  # pictures in a row of the page, and their largest side

TRAY, NEAREST, SHARED = 12, 3, 5  # suggestions; in "Why?": labelled pictures, and features


class LabelPage:
    """Answers the requests of the page.

    make        makes the session, whose progress the page shows meanwhile; it runs in a thread
    name        of the pictures, as the page shows it
    classifier  the file that the button saves
    """

    def __init__(self, make: Callable[[Stage], Labelling], name: str, classifier: Path) -> None:
        self.name, self.classifier = name, classifier
        self.session: Labelling | None = None
        self.waiting: dict[str, Any] = {"stage": "reading the pictures", "share": 0.0}
        self.lock, self.revision, self.acting, self.order = threading.Lock(), 0, 0, [NONE_OF_THESE]
        self.thread = threading.Thread(
            target=self._start, args=(make,), name="labelling", daemon=True
        )
        self.thread.start()

    @contextmanager
    def _stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        done = 0

        def advance(pieces: int) -> None:
            nonlocal done
            done += pieces
            self.waiting = {"stage": title, "share": min(1.0, done / total)}

        advance(0)
        yield advance

    def _start(self, make: Callable[[Stage], Labelling]) -> None:
        try:
            session = make(self._stage)
            assert session.images is not None, "descriptors alone"
            self.images = session.images
            small = [
                thumbnail(image, SIDE)
                for rows in self.images.batches(200)
                for image in self.images[rows]
            ]
            self.sheets = [
                png(sheet(small[k : k + PER_SHEET], SIDE, COLUMNS))
                for k in range(0, len(small), PER_SHEET)
            ]
            self.places = map_places(session.matrix).round(4).tolist()
            self.session = session
        except (WhatwhereError, OSError) as error:  # shown in the page, which has no terminal
            self.waiting = {"failed": str(error)}

    def answer(self, path: str) -> Content | None:
        """What GET gets."""
        kind, _, rest = path.partition("/")
        if path == "":
            return Content(page(self.name).encode())
        if kind == "state":
            return as_json(self._state(rest))
        session = self.session
        if session is None or (not rest.isdecimal() and kind != "error"):
            return None
        if kind == "error" and not rest:
            with self.lock:  # until somebody labels
                error = session.error(lambda: self.acting == 0)
                return as_json({"error": error, "curve": session.curve, "revision": self.revision})
        row = int(rest)
        if kind == "sheet" and row < len(self.sheets):
            return Content(self.sheets[row], "image/png")
        if kind == "picture" and row < len(session.names):
            return self._safely(
                lambda: Content(png(thumbnail(self.images[row], LARGE)), "image/png")
            )
        if kind == "why" and row < len(session.names):
            return self._safely(lambda: as_json(self._why(session, row)))
        return None

    def act(self, path: str, sent: Any) -> Content | None:
        """What POST does: label rows, undo, save a classifier; the new state comes back."""
        session = self.session
        if session is None or path not in ("label", "undo", "save") or not isinstance(sent, dict):
            return None
        self.acting += 1
        try:
            return self._safely(lambda: as_json(self._act(session, path, sent)))
        finally:
            self.acting -= 1

    def _act(self, session: Labelling, path: str, sent: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            if path == "save":
                session.save(self.classifier)
                return {"saved": str(self.classifier)}
            if path == "undo":
                session.undo()
            else:
                rows, name = sent.get("rows"), sent.get("name")
                if not isinstance(rows, list) or not rows or not isinstance(name, str | None):
                    return {"failed": "expected rows and the name of a class"}
                session.label(dict.fromkeys(rows, name))
            self.revision += 1
        return self._state("")

    def _safely(self, work: Callable[[], Content]) -> Content:
        """An error that a user can fix goes to the page in words."""
        try:
            return work()
        except WhatwhereError as error:
            return as_json({"failed": str(error)})

    def _state(self, known: str) -> dict[str, Any]:
        """All that the page shows; only its revision if the page knows it."""
        session = self.session
        if session is None:
            return self.waiting
        with self.lock:
            if known == str(self.revision):
                return {"revision": self.revision}
            found, names = session.predict(), session.classes
            self.order += [name for name in names if name not in self.order]
            index = {name: number for number, name in enumerate(self.order)}
            said = {
                row: NOT_SURE if name == NOT_SURE else index[name]
                for row, name in session.said.items()
            }
            return {
                "revision": self.revision,
                "names": session.names if not known else None,
                "places": self.places if not known else None,
                "classes": self.order,
                "best": [index.get(str(name), -1) for name in found.classes],
                "certainty": np.round(100 * found.probabilities).astype(int).tolist(),
                "said": said,
                "tray": session.suggested_rows(TRAY),
                "undo": len(session.before),
                "elsewhere": len(session.elsewhere),
            }

    def _why(self, session: Labelling, row: int) -> dict[str, Any]:
        """The labelled pictures that are nearest, and what the features that they share draw in
        each of them."""
        with self.lock:
            nearest = session.nearest_labelled(row, NEAREST)
            said = [session.said[other] for other, _ in nearest]
        rows = [row, *(other for other, _ in nearest)]
        facts = [
            {"row": other, "cosine": round(c, 3), "class": s}
            for (other, c), s in zip(nearest, said, strict=True)
        ]
        if session.describe is None or not nearest:
            return {"nearest": facts, "features": []}
        model, spec = session.describe.model, session.describe.recipe.inference
        images = torch.stack([self.images[each] for each in rows]).to(model.device, model.dtype)
        solution = infer(model, images, spec, engine=session.describe.engine)
        p, sized = solution.features, model.at(*images.shape[2:])
        strength = p.abs().sum((2, 3))
        shared = torch.minimum(strength[:1], strength[1:].mean(0)).flatten()
        weights = sized.weights(solution.latents.pooling_params)
        features = []
        for map_ in [int(b) for b in shared.argsort(descending=True)[:SHARED] if shared[b] > 0]:
            alone = torch.zeros_like(p)
            alone[:, map_] = p[:, map_]
            drawn = sized.reconstruct(alone, weights).abs().mean(1)
            shades = (255 * drawn / drawn.amax().clamp(min=1e-12)).to(torch.uint8).cpu().numpy()
            features.append(
                {
                    "map": map_,
                    "drawn": [base64.b64encode(each.tobytes()).decode() for each in shades],
                }
            )
        height, width = images.shape[2:]
        return {
            "nearest": facts,
            "features": features,
            "maps": p.shape[1],
            "height": height,
            "width": width,
        }


def as_json(value: Any) -> Content:
    return Content(json.dumps(value, allow_nan=False).encode(), "application/json")


def page(name: str) -> str:
    """The page, which asks its own server for everything else, and nobody else."""
    data = {
        "name": name,
        "side": SIDE,
        "columns": COLUMNS,
        "perSheet": PER_SHEET,
        "notSure": NOT_SURE,
    }
    style = "".join(
        (ASSETS / name).read_text(encoding="utf-8") for name in ("style.css", "label.css")
    )
    sources = "img-src 'self' data:; connect-src 'self'"
    return assemble(ASSETS / "label.html", "label", style, sources, data)


def classes_page(session: Labelling, images: Images) -> str:
    """Rows of pictures: those worth labelling next, then those of every class, from sure to
    unsure."""
    found = session.predict()

    def figure(row: int) -> str:
        words = f"{session.names[row]}: {found.classes[row]}, {found.probabilities[row]:.0%}"
        picture = data_url(png(thumbnail(images[int(row)], SHOWN_SIDE)), "png")
        kind = ' class="given"' if found.said[row] else ""
        return (
            f'<figure{kind}><img src="{picture}" alt="{escape(words)}">'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )

    rows = [("Worth labelling next", np.array(session.suggested_rows(SHOWN), int))]
    for name in session.classes:
        members = np.flatnonzero(found.classes == name)
        members = members[np.argsort(-found.probabilities[members], kind="stable")]
        shown = np.linspace(0, len(members) - 1, min(SHOWN, len(members))).astype(int)
        rows.append((f"{name} ({len(members):,})", members[shown]))
    body = ""
    for title, shown in rows:
        body += f'<h2>{escape(title)}</h2>\n<div class="row">{"".join(map(figure, shown))}</div>\n'
    count = len(session.labelled)
    lead = (
        f"{count:,} of {len(session.names):,} pictures had a label (framed). All are in"
        " predictions.csv."
    )
    return static_page(
        "Classes", report_style(), f"<h1>{escape(images.name)}</h1>\n<p>{lead}</p>\n{body}"
    )
