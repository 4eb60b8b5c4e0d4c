"""Names of pictures in tables of other programs, matched with the pictures that are here.

Names are matched exactly first. A file of another program may have a path in front of a name, or
what Label Studio puts there when it uploads a file; the last part of the name is compared then.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from whatwhere.errors import ImageError, printable

UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts in front of an uploaded file
MOST_CANDIDATES = 5  # names of pictures in a message
LONGEST_QUOTE = 100  # characters of a table in a message


def quoted(text: str) -> str:
    """A text of a table in a message, which has room for its beginning."""
    return repr(text) if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]!r}…"


def match_labels(
    pairs: Iterable[tuple[str, str]], source: object, names: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The classes by the names of the pictures that are here, and the names of no picture here.

    Raises an ImageError for a name that could be several pictures, and for a picture with two
    classes.

    pairs   names and classes of a table
    source  the name of the table, for messages
    names   names of the pictures that are here
    """
    find = _name_finder(source, names)
    labels: dict[str, str] = {}
    unknown: list[str] = []
    for given, label in pairs:
        name = find(given)
        if name is None:
            unknown.append(given)
        elif labels.setdefault(name, label) != label:
            raise ImageError(
                f"{printable(source)} gives {name!r} two classes, {quoted(labels[name])} and"
                f" {quoted(label)}; expected one. Remove one of them."
            )
    return labels, unknown


def bare_names(names: Sequence[str]) -> dict[str, str]:
    """The pictures by their names without folders; names of several pictures are left out."""
    known = set(names)
    by_last = _by_last_part(names)
    return {
        last: pictures[0]
        for last, pictures in by_last.items()
        if len(pictures) == 1 and last not in known
    }


def _by_last_part(names: Sequence[str]) -> dict[str, list[str]]:
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(name.rpartition("/")[2], []).append(name)
    return by_last


def _name_finder(source: object, names: Sequence[str]) -> Callable[[str], str | None]:
    """A function from a name of another program to the name of a picture here, or None."""
    known = set(names)
    by_last = _by_last_part(names)

    def find(given: str) -> str | None:
        for tried in _spellings(given):
            if tried in known:
                return tried
        for tried in _spellings(given):
            last = re.split(r"[/\\]", tried)[-1]
            for spelling in (last, UPLOADED.sub("", last)):
                candidates = by_last.get(spelling, [])
                if len(candidates) > 1:
                    raise ImageError(_ambiguous(source, given, candidates))
                if candidates:
                    return candidates[0]
        return None

    return find


def _ambiguous(source: object, given: str, candidates: Sequence[str]) -> str:
    listed = ", ".join(map(repr, candidates[:MOST_CANDIDATES]))
    more = len(candidates) - MOST_CANDIDATES
    rest = f" and {more:,} more" if more > 0 else ""
    return (
        f"{printable(source)} labels {quoted(given)}, but {len(candidates):,} pictures have this"
        f" name: {listed}{rest}. Write the name with its folder."
    )


def _spellings(given: str) -> list[str]:
    """A name as it is, and without what an address has around it."""
    try:
        parts = urlsplit(given)
    except ValueError:
        return [given, given.strip()]
    local = parse_qs(parts.query).get("d", [])
    return [given, given.strip(), *local, unquote(parts.path)]
