"""Pictures that are dropped on the labelling page, and the folder that they are kept in."""

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path, PurePosixPath

from whatwhere.errors import ImageError, WhatwhereError, plural
from whatwhere.files import disk_errors, write_atomic
from whatwhere.html.server import Content
from whatwhere.labelling.page import LabelPage, as_json, page
from whatwhere.labelling.trial import dropped_content


class UnsafeName(ImageError):
    """A dropped picture has a name that does not lead into the folder of dropped pictures.

    Attributes
    ----------
    name
        the name
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Cannot take a picture called {name!r}. Expected a name, or folders and a name, such"
            " as flowers/a.png. Rename it, and drop it again."
        )


def place_in(folder: Path, name: str) -> Path:
    """Return the place of a dropped picture in a folder; raise `UnsafeName` for a name that leads
    elsewhere."""
    parts = PurePosixPath(name).parts
    is_safe = all(part not in ("..", "/") and part.isprintable() for part in parts)
    if not parts or not is_safe or any(letter in name for letter in '\\:*?"<>|'):
        raise UnsafeName(name)
    return folder.joinpath(*parts)


def _own_place(place: Path, content: bytes) -> Path:
    """Return the place of a picture, with a number if another one is there: a page does not say
    from which folder a picture was dropped. The same picture has the same place."""
    numbered = (place if n == 1 else place.with_stem(f"{place.stem} ({n})") for n in count(1))
    return next(one for one in numbered if not one.exists() or one.read_bytes() == content)


class DropZone:
    """Answers the page until pictures are dropped on it; from then on, the page of a session on
    them answers.

    Parameters
    ----------
    folder
        a folder that does not exist yet, for the pictures
    open_page
        makes the page of a session on a folder of pictures
    """

    def __init__(self, folder: Path, open_page: Callable[[Path], LabelPage]) -> None:
        self.folder = folder
        self.page: LabelPage | None = None
        self._open_page = open_page
        self._count = 0
        self._lock = threading.Lock()

    def answer(self, path: str) -> Content | None:
        """Answer a GET request."""
        if self.page is not None:
            return self.page.answer(path)
        if path == "":
            return Content(page("").encode())
        if path.partition("/")[0] == "state":
            return as_json({"drop": str(self.folder), "count": self._count})
        return None

    def act(self, path: str, sent: object) -> Content | None:
        """Answer a POST request: keep a dropped picture, or begin the session."""
        if self.page is not None:
            return self.page.act(path, sent)
        if path not in ("drop", "begin"):
            return None
        try:
            with self._lock:
                if path == "drop":
                    self._keep(*dropped_content(sent))
                elif self.page is None:
                    self._begin()
        except (WhatwhereError, OSError) as error:
            return as_json({"failed": str(error)})
        return as_json({"count": self._count})

    def _keep(self, name: str, content: bytes) -> None:
        place = place_in(self.folder, name)
        with disk_errors(f"writing {place}", "free some disk space"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place = _own_place(place, content)
            if not place.exists():
                write_atomic(place, content)
                self._count += 1

    def _begin(self) -> None:
        if self._count < 2:
            raise ImageError(f"Got {plural(self._count, 'file')}; expected at least two pictures.")
        self.page = self._open_page(self.folder)
