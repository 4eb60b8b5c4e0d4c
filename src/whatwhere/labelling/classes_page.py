"""The page of a labelling session without a server: the least sure pictures, and pictures of every
class."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from whatwhere.data import Images
from whatwhere.data.pictures import Pictures
from whatwhere.errors import plural
from whatwhere.html import data_url, png, report_style, static_page, thumbnail
from whatwhere.labelling.session import Labelling, Predictions


@dataclass(frozen=True)
class ClassesPageSettings:
    """How much the page of classes shows.

    shown  pictures in a row
    side   pixels of their longer side
    """

    shown: int = 24
    side: int = 96


def classes_page(
    session: Labelling,
    images: Images,
    settings: ClassesPageSettings | None = None,
    label_command: str = "",
) -> str:
    """Make a page with the counts of the classes and rows of pictures: the predictions that are
    least sure, then every class, from sure to unsure.

    label_command  the command that labels more of these pictures; '' names none
    """
    settings = settings or ClassesPageSettings()
    predictions = session.predict()
    order = np.argsort(predictions.probabilities, kind="stable")
    unsure = order[~predictions.said[order]]
    body = _counts(session, predictions)
    if len(unsure):
        shown = unsure[: settings.shown].tolist()
        count = _count_shown(len(shown), len(unsure), "prediction")
        note = f"{count}, the least sure first. Check these first."
        body += _section("Least sure", note, shown, session, images, predictions, settings)
    for number, name in enumerate(session.classes, start=1):
        members = np.flatnonzero(predictions.classes == name)
        members = members[np.argsort(-predictions.probabilities[members], kind="stable")]
        places = np.linspace(0, len(members) - 1, min(settings.shown, len(members))).astype(int)
        shown = members[places].tolist()
        count = _count_shown(len(shown), len(members), "picture")
        note = f"{count}, the surest first, the least sure last."
        title = f"{name} ({len(members):,})"
        body += _section(
            title, note, shown, session, images, predictions, settings, f"class-{number}"
        )
    known = plural(len(session.labelled), "label")
    lead = (
        f"{plural(len(session.names), 'picture')}, {known} (framed). {session.error_words()}"
        " predictions.csv lists all pictures; sort it by probability to see the least sure first."
    )
    back = ""
    if label_command:
        back = f"<p>Wrong classes? Label more: <code>{escape(label_command)}</code></p>\n"
    return static_page(
        "Classes",
        report_style(),
        f"<main>\n<h1>{escape(images.name)}</h1>\n<p>{escape(lead)}</p>\n{back}{body}</main>\n",
    )


def _counts(session: Labelling, predictions: Predictions) -> str:
    """Make a table with the number of pictures and labels of every class."""
    rows = "".join(
        f'<tr><td><a href="#class-{number}">{escape(name)}</a></td>'
        f"<td>{int((predictions.classes == name).sum()):,}</td>"
        f"<td>{int((predictions.classes[session.labelled] == name).sum()):,}</td></tr>\n"
        for number, name in enumerate(session.classes, start=1)
    )
    heading = "<tr><th>class</th><th>pictures</th><th>your labels</th></tr>"
    return f'<table class="counts">\n{heading}\n{rows}</table>\n'


def _count_shown(shown: int, total: int, noun: str) -> str:
    """How many pictures a row shows: '24 of 69 pictures', or '20 pictures' if it shows all."""
    cut = f"{shown:,} of " if shown < total else ""
    return f"{cut}{plural(total, noun)}"


def _section(
    title: str,
    note: str,
    rows: Sequence[int],
    session: Labelling,
    images: Images,
    predictions: Predictions,
    settings: ClassesPageSettings,
    anchor: str = "least-sure",
) -> str:
    """Make a heading, a line about what follows, and a row of pictures."""
    figures = "".join(_figure(row, session, images, predictions, settings) for row in rows)
    return (
        f'<section class="row-of-pictures" id="{anchor}">\n<h2>{escape(title)}</h2>\n'
        f"<p>{escape(note)}</p>\n"
        f'<div class="row">{figures}</div>\n</section>\n'
    )


def _file_url(images: Images, row: int) -> str:
    """Return the address of the file of a picture; '' if it has none."""
    if not isinstance(images.pixels, Pictures):
        return ""
    return images.pixels.pictures[row].file.resolve().as_uri()


def _figure(
    row: int,
    session: Labelling,
    images: Images,
    predictions: Predictions,
    settings: ClassesPageSettings,
) -> str:
    """A picture with its class and its name, without its folder if no other picture has this name;
    a tooltip has all of it."""
    name = session.names[row]
    said = f"{predictions.classes[row]}, {predictions.probabilities[row]:.0%}"
    words = escape(f"{name}: {said}")
    file = name.rpartition("/")[2]
    is_unique = session.labels.other_names.get(file) == name
    short = escape(file if is_unique else name).replace("/", "/<wbr>")
    picture = data_url(png(thumbnail(images[int(row)], settings.side)), "png")
    file_url = _file_url(images, row)
    opening = f'<a href="{escape(file_url)}">' if file_url else ""
    closing = "</a>" if file_url else ""
    kind = ' class="given"' if predictions.said[row] else ""
    return (
        f'<figure{kind} title="{words}">{opening}<img src="{picture}" alt="{words}">{closing}'
        f"<figcaption><span>{escape(said)}</span> <span>{short}</span></figcaption></figure>"
    )
