"""The page of a labelling session without a server: pictures of every class."""

from collections.abc import Sequence
from html import escape

import numpy as np

from whatwhere.data import Images
from whatwhere.html import data_url, png, report_style, static_page, thumbnail
from whatwhere.tasks.labelling.session import Labelling, Predictions

SHOWN = 24  # pictures in a row of the page
SHOWN_SIDE = 96  # pixels of their longer side


def classes_page(session: Labelling, images: Images) -> str:
    """Rows of pictures: those worth labelling next, then those of every class, from sure to
    unsure."""
    predictions = session.predict()
    body = section(
        "Worth labelling next", session.suggested_rows(SHOWN), session, images, predictions
    )
    for name in session.classes:
        members = np.flatnonzero(predictions.classes == name)
        members = members[np.argsort(-predictions.probabilities[members], kind="stable")]
        shown = np.linspace(0, len(members) - 1, min(SHOWN, len(members))).astype(int)
        title = f"{name} ({len(members):,})"
        body += section(title, members[shown].tolist(), session, images, predictions)
    lead = (
        f"{len(session.labelled):,} of {len(session.names):,} pictures had a label (framed). Each"
        " class starts with its surest pictures. predictions.csv lists all pictures."
    )
    return static_page(
        "Classes",
        report_style(),
        f"<main>\n<h1>{escape(images.name)}</h1>\n<p>{lead}</p>\n{body}</main>\n",
    )


def section(
    title: str, rows: Sequence[int], session: Labelling, images: Images, predictions: Predictions
) -> str:
    """A heading and a row of pictures."""
    figures = "".join(figure(row, session, images, predictions) for row in rows)
    return (
        f'<section class="row-of-pictures">\n<h2>{escape(title)}</h2>\n'
        f'<div class="row">{figures}</div>\n</section>\n'
    )


def figure(row: int, session: Labelling, images: Images, predictions: Predictions) -> str:
    """A picture with its name and its class."""
    share = f"{predictions.probabilities[row]:.0%}"
    words = f"{session.names[row]}: {predictions.classes[row]}, {share}"
    picture = data_url(png(thumbnail(images[int(row)], SHOWN_SIDE)), "png")
    kind = ' class="given"' if predictions.said[row] else ""
    return (
        f'<figure{kind}><img src="{picture}" alt="{escape(words)}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )
