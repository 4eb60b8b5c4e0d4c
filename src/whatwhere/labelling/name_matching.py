"""Names of pictures in tables of other programs, matched with the pictures that are here.

A name is matched exactly first, then with its accents in the other of Unicode's two forms, which
depends on the system. A table may also have more or fewer folders in front of a name: the shorter
of both must be the end of the other, so that `test/a.png` never means `train/a.png`. What Label
Studio puts in front of a file that it received is removed; such a file has no folder.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from whatwhere.errors import ImageError, printable

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts in front of an uploaded file
_SEPARATOR = re.compile(r"[/\\]")


def quoted(text: str, longest: int = 100) -> str:
    """Quote a text of a table in a message, which has room for its beginning."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}…"


def match_labels(
    pairs: Iterable[tuple[str, str]], source: object, names: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the classes by the names of the pictures that are here, and the names of no picture
    here.

    Raises an ImageError for a name that could be several pictures, and for a picture with two
    classes.

    Parameters
    ----------
    pairs
        names and classes of a table
    source
        the name of the table, for messages
    names
        names of the pictures that are here
    """
    known = _KnownNames(names)
    labels: dict[str, str] = {}
    unknown: list[str] = []
    for given, label in pairs:
        candidates = known.find(given)
        if not candidates:
            unknown.append(given)
        elif len(candidates) > 1:
            raise ImageError(_ambiguous(source, given, candidates))
        elif labels.setdefault(candidates[0], label) != label:
            name = candidates[0]
            raise ImageError(
                f"{printable(source)} gives {name!r} two classes, {quoted(labels[name])} and"
                f" {quoted(label)}; expected one. Remove one of them."
            )
    return labels, unknown


def other_spellings(names: Sequence[str]) -> dict[str, str]:
    """Return the pictures by what a table may call them besides their names: without folders, and
    with accents in the other form of Unicode. What could be several pictures is left out."""
    taken = set(names)
    spellings: dict[str, str] = {}
    several: set[str] = set()
    for name in names:
        forms = {name, name.rpartition("/")[2]}
        forms |= {unicodedata.normalize(form, one) for form in ("NFC", "NFD") for one in forms}
        for spelling in forms - taken:
            if spellings.setdefault(spelling, name) != name:
                several.add(spelling)
    return {spelling: name for spelling, name in spellings.items() if spelling not in several}


class _KnownNames:
    """Finds the pictures that a name of another program may mean."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = set(names)
        self._by_form: dict[str, list[str]] = {}
        self._by_end: dict[str, list[str]] = {}
        for name in names:
            self._by_form.setdefault(_plain(name), []).append(name)
            self._by_end.setdefault(_plain(name).rpartition("/")[2], []).append(name)

    def find(self, given: str) -> list[str]:
        """Return the names of the pictures that a name may mean; none, one or several."""
        spellings = _spellings(given)
        for spelling in spellings:
            if spelling in self._names:
                return [spelling]
        for spelling in spellings:
            if found := self._by_form.get(_plain(spelling)):
                return found
        for spelling in spellings:
            if found := self._with_other_folders(spelling):
                return found
        return []

    def _with_other_folders(self, given: str) -> list[str]:
        """Return the pictures whose name is the longest end of a path, or that end with it."""
        parts = [part for part in _SEPARATOR.split(_plain(given)) if part]
        if not parts:
            return []
        for start in range(1, len(parts)):
            if found := self._by_form.get("/".join(parts[start:])):
                return found
        end = "/".join(parts)
        last = parts[-1]
        found = [
            name for name in self._by_end.get(last, ()) if f"/{_plain(name)}".endswith(f"/{end}")
        ]
        if found or not _UPLOADED.match(last):
            return found
        return self._by_end.get(_UPLOADED.sub("", last), [])


def _plain(name: str) -> str:
    """Make a name with accents in the composed form."""
    return unicodedata.normalize("NFC", name)


def _ambiguous(source: object, given: str, candidates: Sequence[str], most: int = 5) -> str:
    listed = ", ".join(map(repr, candidates[:most]))
    more = len(candidates) - most
    rest = f" and {more:,} more" if more > 0 else ""
    return (
        f"{printable(source)} labels {quoted(given)}, but {len(candidates):,} pictures have this"
        f" name: {listed}{rest}. Write the name with its folder."
    )


def _spellings(given: str) -> list[str]:
    """Return a name as it is, and without what an address has around it."""
    try:
        parts = urlsplit(given)
    except ValueError:
        return [given, given.strip()]
    local = parse_qs(parts.query).get("d", [])
    return [given, given.strip(), *local, unquote(parts.path)]
