"""A report: sections of text, facts and figures as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from matplotlib.figure import Figure
from PIL import Image

from whatwhere.figures.style import save

CSS_PIXELS_PER_INCH = 128  # so that 7 point text is 12 pixels high

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: #fff; color: #222;
       font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.8rem 0 .4rem; padding-top: .9rem; border-top: 1px solid #d9d9d9; }
p { margin: .4rem 0; max-width: 42rem; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .15rem 1.2rem; margin: .8rem 0; }
dt { color: #595959; }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
figure { margin: .9rem 0 0; overflow-x: auto; }
img { display: block; max-width: 100%; height: auto; }
@media (max-width: 40rem) { img { max-width: none; } }
@media print { body { max-width: none; } h2, figure { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """One section of a report: heading, paragraphs (separated by blank lines), facts and a figure.

    heading  of the section; also the alternative text of its figure
    text     its paragraphs, which say what the figure shows, also to readers who cannot see it
    figure   a matplotlib figure, or the bytes of a PNG or GIF
    facts    name → value, shown as a table
    links    the words of each link, and the file in the report's folder that it opens

    >>> Section("Filters", "The filters of layer 1.", facts={"maps": "16"}).heading
    'Filters'
    """

    heading: str
    text: str = ""
    figure: Figure | bytes | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


def report(title: str, sections: Sequence[Section], lead: str = "", facts: Mapping[str, str] | None = None) -> str:
    """The HTML page: title, lead and facts, then the sections. It needs no other file.

    title     of the page
    sections  from top to bottom
    lead      a paragraph under the title
    facts     name → value, shown as a table

    >>> report("My run", [Section("Filters", "The filters of layer 1.")])[:15]
    '<!DOCTYPE html>'
    """
    body = "\n".join(map(_section, sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{_paragraphs(lead)}{_facts(facts or {})}{body}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    links = "".join(f'<p><a href="{escape(file)}">{escape(words)}</a></p>\n' for words, file in section.links.items())
    figure = ""
    if section.figure is not None:
        figure = f'<figure><img src={_embedded(section.figure)} alt="{escape(section.heading)}"></figure>\n'
    text = _paragraphs(section.text) + _facts(section.facts) + links
    return f"<section>\n<h2>{escape(section.heading)}</h2>\n{text}{figure}</section>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(paragraph.strip())}</p>\n" for paragraph in text.split("\n\n") if paragraph.strip())


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items())
    return f"<dl>\n{rows}</dl>\n" if rows else ""


def _embedded(figure: Figure | bytes) -> str:
    """The content of a figure as a data URL, with its size in CSS pixels: '"data:…" width="…" height="…"'."""
    if isinstance(figure, bytes):
        content, kind = figure, "gif" if figure.startswith(b"GIF8") else "png"
        width, height = Image.open(io.BytesIO(figure)).size
    else:
        file = io.BytesIO()
        save(figure, file, "png")
        content, kind = file.getvalue(), "png"
        width, height = (round(side * CSS_PIXELS_PER_INCH) for side in figure.get_size_inches())
    data = base64.b64encode(content).decode("ascii")
    return f'"data:image/{kind};base64,{data}" width="{width}" height="{height}"'
