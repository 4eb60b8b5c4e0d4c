"""The page of a labelling session without a server: the least sure pictures, and pictures of every
class."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whatwhere.data import Images
from whatwhere.data.pictures import Pictures
from whatwhere.errors import plural
from whatwhere.html import data_url, png, render, thumbnail
from whatwhere.labelling.session import Labelling, Predictions


class _Shown(NamedTuple):
    """A picture of the page.

    Parameters
    ----------
    name
        with its folder
    short
        without its folder, if no other picture has this name
    said
        its class, and how sure it is
    is_given
        whether a person gave the class
    address
        the picture itself
    file
        the address of its file; '' if it has none
    """

    name: str
    short: str
    said: str
    is_given: bool
    address: str
    file: str


class _Row(NamedTuple):
    """A heading, a line about what follows, the number of the class (0: no class), and a row of
    pictures."""

    title: str
    note: str
    number: int
    pictures: list[_Shown]


class _Count(NamedTuple):
    """A class, and the numbers of its pictures and labels."""

    name: str
    pictures: int
    labels: int


def classes_page(
    session: Labelling, images: Images, most: int = 24, label_command: str = ""
) -> str:
    """Show the counts of the classes and rows of pictures: the predictions that are least sure,
    then every class, from sure to unsure.

    Parameters
    ----------
    most
        pictures in a row
    label_command
        the command that labels more of these pictures; '' names none
    """
    predictions = session.predict()
    order = np.argsort(predictions.probabilities, kind="stable")
    unsure = order[~predictions.said[order]]
    rows = []

    def add(
        title: str, chosen: Sequence[int], total: int, noun: str, words: str, number: int = 0
    ) -> None:
        pictures = [_show(row, session, images, predictions) for row in chosen]
        note = f"{_count_shown(len(chosen), total, noun)}, {words}"
        rows.append(_Row(title, note, number, pictures))

    if len(unsure):
        shown = unsure[:most].tolist()
        words = "the least sure first. Check these first."
        add("Least sure", shown, len(unsure), "prediction", words)
    for number, name in enumerate(session.classes, start=1):
        members = np.flatnonzero(predictions.classes == name)
        members = members[np.argsort(-predictions.probabilities[members], kind="stable")]
        places = np.linspace(0, len(members) - 1, min(most, len(members))).astype(int)
        words = "the surest first, the least sure last."
        title = f"{name} ({len(members):,})"
        add(title, members[places].tolist(), len(members), "picture", words, number)
    known = plural(len(session.labelled), "label")
    lead = (
        f"{plural(len(session.names), 'picture')}, {known} (framed). {session.error_words()}"
        " predictions.csv lists all pictures; sort it by probability to see the least sure first."
    )
    counts = [
        _Count(
            name,
            int((predictions.classes == name).sum()),
            int((predictions.classes[session.labelled] == name).sum()),
        )
        for name in session.classes
    ]
    return render(
        "classes.html",
        "Classes",
        name=images.name,
        lead=lead,
        counts=counts,
        label_command=label_command,
        rows=rows,
    )


def _count_shown(shown: int, total: int, noun: str) -> str:
    """Say how many pictures a row shows: '24 of 69 pictures', or '20 pictures' if it shows all."""
    cut = f"{shown:,} of " if shown < total else ""
    return f"{cut}{plural(total, noun)}"


def _show(row: int, session: Labelling, images: Images, predictions: Predictions) -> _Shown:
    """Return a picture with its class and its name."""
    name = session.names[row]
    file = name.rpartition("/")[2]
    is_unique = session.labels.other_names.get(file) == name
    said = f"{predictions.classes[row]}, {predictions.probabilities[row]:.0%}"
    side = 96  # pixels of the longer side
    address = data_url(png(thumbnail(images[int(row)], side)), "png")
    place = ""
    if isinstance(images.pixels, Pictures):
        place = images.pixels.pictures[row].file.resolve().as_uri()
    short = file if is_unique else name
    return _Shown(name, short, said, bool(predictions.said[row]), address, place)
