"""What `classify` writes about pictures: a page with pictures of every class; descriptors for another program."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.classification.labelling import Labelling
from whatwhere.classification.picture_rows import Progress, describe_pictures
from whatwhere.cli.outputs import write
from whatwhere.cli.settings import Settings
from whatwhere.data import Images
from whatwhere.data.pictures import picture_names
from whatwhere.explorer.thumbnails import png, thumbnail
from whatwhere.learning import TrainedRun
from whatwhere.spec.distortions import Distortions
from whatwhere.spec.training import TrainingOptions

SHOWN, SIDE = 24, 96  # pictures in a row of the page, and their largest side
STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
div { display: flex; flex-wrap: wrap; gap: .5rem } figure { margin: 0; width: 6.5rem; font-size: .75rem }
img { height: 5rem; max-width: 100%; object-fit: contain; image-rendering: pixelated }
figcaption { overflow-wrap: anywhere } .given img { outline: 2px solid #36c }"""


def page(session: Labelling, images: Images) -> str:
    """Rows of pictures: those worth labelling next, then those of every class, from sure to unsure."""
    found = session.predict()

    def figure(row: int) -> str:
        words = f"{session.names[row]}: {found.classes[row]}, {found.probabilities[row]:.0%}"
        picture = base64.b64encode(png(thumbnail(images[int(row)], SIDE))).decode()
        kind = ' class="given"' if found.said[row] else ""
        return (
            f'<figure{kind}><img src="data:image/png;base64,{picture}" alt="{escape(words)}">'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )

    rows = [("Worth labelling next", np.array(session.suggested_rows(SHOWN), int))]
    for name in session.classes:
        members = np.flatnonzero(found.classes == name)
        members = members[np.argsort(-found.probabilities[members], kind="stable")]
        shown = np.linspace(0, len(members) - 1, min(SHOWN, len(members))).astype(int)
        rows.append((f"{name} ({len(members):,})", members[shown]))
    body = "".join(f"<h2>{escape(title)}</h2>\n<div>{''.join(map(figure, shown))}</div>\n" for title, shown in rows)
    count = len(session.labelled)
    lead = f"{count:,} of {len(session.names):,} pictures had a label (framed). All are in predictions.csv."
    head = f'<meta charset="utf-8"><title>Classes</title>\n<style>{STYLE}</style>'
    text = f"<h1>{escape(images.name)}</h1>\n<p>{lead}</p>\n{body}"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{text}</body>\n</html>\n'


def write_descriptors(out: Path, run: TrainedRun, images: Images, settings: Settings, progress: Progress) -> list[int]:
    """Write the descriptors of images, in the metric that the run keeps, with names and labels; returns their shape."""
    how, options = settings.of(Distortions), settings.of(TrainingOptions)
    rows = describe_pictures(images, run, how, options, None, progress)[1].cpu().numpy()
    found = {"descriptors": rows, "names": picture_names(images.pixels), "labels": images.labels}
    arrays: Any = {name: np.asarray(value) for name, value in found.items() if value is not None}
    file = io.BytesIO()
    np.savez(file, **arrays)
    write(out, file.getvalue())
    return list(rows.shape)
