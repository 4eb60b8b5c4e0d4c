"""The page of a labelling session without a server: the least sure pictures, and pictures of every
class."""

from collections.abc import Sequence
from html import escape

import numpy as np

from whatwhere.data import Images
from whatwhere.errors import plural
from whatwhere.html import data_url, png, report_style, static_page, thumbnail
from whatwhere.labelling.session import Labelling, Predictions

SHOWN = 24  # pictures in a row of the page
SHOWN_SIDE = 96  # pixels of their longer side


def classes_page(session: Labelling, images: Images) -> str:
    """Rows of pictures: the predictions that are least sure, then every class, from sure to
    unsure."""
    predictions = session.predict()
    order = np.argsort(predictions.probabilities, kind="stable")
    unsure = order[~predictions.said[order]]
    body = ""
    if len(unsure):
        shown = unsure[:SHOWN].tolist()
        count = count_shown(len(shown), len(unsure), "prediction")
        note = f"{count}, the least sure first. Check these first."
        body += section("Least sure", note, shown, session, images, predictions)
    for name in session.classes:
        members = np.flatnonzero(predictions.classes == name)
        members = members[np.argsort(-predictions.probabilities[members], kind="stable")]
        places = np.linspace(0, len(members) - 1, min(SHOWN, len(members))).astype(int)
        shown = members[places].tolist()
        count = count_shown(len(shown), len(members), "picture")
        note = f"{count}, the surest first, the least sure last."
        title = f"{name} ({len(members):,})"
        body += section(title, note, shown, session, images, predictions)
    known = plural(len(session.labelled), "label")
    lead = (
        f"{plural(len(session.names), 'picture')}, {known} (framed). {session.error_words()}"
        " predictions.csv lists all pictures; sort it by probability to see the least sure first."
    )
    return static_page(
        "Classes",
        report_style(),
        f"<main>\n<h1>{escape(images.name)}</h1>\n<p>{escape(lead)}</p>\n{body}</main>\n",
    )


def count_shown(shown: int, total: int, noun: str) -> str:
    """How many pictures a row shows: '24 of 69 pictures', or '20 pictures' if it shows all."""
    cut = f"{shown:,} of " if shown < total else ""
    return f"{cut}{plural(total, noun)}"


def section(
    title: str,
    note: str,
    rows: Sequence[int],
    session: Labelling,
    images: Images,
    predictions: Predictions,
) -> str:
    """A heading, a line about what follows, and a row of pictures."""
    figures = "".join(figure(row, session, images, predictions) for row in rows)
    return (
        f'<section class="row-of-pictures">\n<h2>{escape(title)}</h2>\n<p>{escape(note)}</p>\n'
        f'<div class="row">{figures}</div>\n</section>\n'
    )


def figure(row: int, session: Labelling, images: Images, predictions: Predictions) -> str:
    """A picture with its class and its name, without its folder if no other picture has this name;
    a tooltip has all of it."""
    name = session.names[row]
    said = f"{predictions.classes[row]}, {predictions.probabilities[row]:.0%}"
    words = escape(f"{name}: {said}")
    file = name.rpartition("/")[2]
    is_unique = session.labels.other_names.get(file) == name
    short = escape(file if is_unique else name).replace("/", "/<wbr>")
    picture = data_url(png(thumbnail(images[int(row)], SHOWN_SIDE)), "png")
    kind = ' class="given"' if predictions.said[row] else ""
    return (
        f'<figure{kind} title="{words}"><img src="{picture}" alt="{words}">'
        f"<figcaption><span>{escape(said)}</span> <span>{short}</span></figcaption></figure>"
    )
