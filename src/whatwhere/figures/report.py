"""A report: sections of text, facts and figures as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from whatwhere.figures.style import RC

CSS_PIXELS_PER_INCH = 128  # so that 7 point text is 12 pixels high
NARROW = "40rem"  # screens up to this width get the narrow figures

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
.enlarge { position: absolute; opacity: 0; }
.enlarge:focus-visible + label img { outline: 3px solid #0072b2; }
.hint { display: none; color: #595959; font-size: .9rem; }
@media (max-width: NARROW) {
  .hint { display: block; }
  .enlarge:checked + label img { max-width: none; width: 56rem; }
}
@media print { body { max-width: none; } h2, figure { break-inside: avoid; } }
""".replace("NARROW", NARROW)


@dataclass(frozen=True)
class Section:
    """One section of a report: heading, paragraphs (separated by blank lines), facts, a figure with alternative text.

    heading  of the section
    text     its paragraphs
    figure   a matplotlib figure, or the bytes of a PNG or GIF
    alt      what the figure shows, for readers who cannot see it; required for every figure
    facts    name → value, shown as a table
    narrow   a version of the figure for narrow screens, where the other one would be too small to read
    links    the words of each link, and the file in the report's folder that it opens

    >>> Section("Filters", "The filters of layer 1.", facts={"maps": "16"}).heading
    'Filters'
    """

    heading: str
    text: str = ""
    figure: Figure | bytes | None = None
    alt: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    narrow: Figure | None = None
    links: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.figure is not None and not self.alt.strip():
            raise ValueError(f"the figure of {self.heading!r} has no alternative text; describe it in `alt`")


def report(title: str, sections: Sequence[Section], lead: str = "", facts: Mapping[str, str] | None = None) -> str:
    """The HTML page: title, lead and facts, then the sections. It needs no other file.

    title     of the page
    sections  from top to bottom
    lead      a paragraph under the title
    facts     name → value, shown as a table

    >>> report("My run", [Section("Filters", "The filters of layer 1.")])[:15]
    '<!DOCTYPE html>'
    """
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, start=1))
    has_figures = any(section.figure is not None for section in sections)
    hint = '<p class="hint">Tap a figure to enlarge it.</p>\n' if has_figures else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{_paragraphs(lead)}{_facts(facts or {})}{hint}{body}\n</main>\n</body>\n</html>\n"
    )


def _section(number: int, section: Section) -> str:
    figure = "" if section.figure is None else _figure(number, section.figure, section.narrow, section.alt)
    return (
        f"<section>\n<h2>{escape(section.heading)}</h2>\n{_paragraphs(section.text)}{_facts(section.facts)}"
        f"{_links(section.links)}{figure}</section>"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(paragraph.strip())}</p>\n" for paragraph in text.split("\n\n") if paragraph.strip())


def _links(links: Mapping[str, str]) -> str:
    return "".join(f'<p><a href="{escape(file)}">{escape(words)}</a></p>\n' for words, file in links.items())


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items())
    return f"<dl>\n{rows}</dl>\n" if rows else ""


def _figure(number: int, figure: Figure | bytes, narrow: Figure | None, alt: str) -> str:
    """The figure, embedded in the page; on a narrow screen a hidden checkbox makes a tap enlarge it."""
    image = f'<img src={_embedded(figure)} alt="{escape(alt)}">'
    if narrow is not None:
        source = f'<source media="(max-width: {NARROW})" srcset={_embedded(narrow)}>'
        image = f"<picture>{source}{image}</picture>"
    return (
        f'<figure>\n<input class="enlarge" type="checkbox" id="enlarge-{number}"'
        f' aria-label="Enlarge this figure">\n<label for="enlarge-{number}">{image}</label>\n</figure>\n'
    )


def _embedded(figure: Figure | bytes) -> str:
    """The content of a figure as a data URL, with its size in CSS pixels: '"data:…" width="…" height="…"'."""
    content = figure if isinstance(figure, bytes) else png(figure)
    kind = "gif" if content.startswith(b"GIF8") else "png"
    width, height = _shown_size(figure, content)
    data = base64.b64encode(content).decode("ascii")
    return f'"data:image/{kind};base64,{data}" width="{width}" height="{height}"'


def png(figure: Figure) -> bytes:
    """A figure as PNG, in print resolution."""
    file = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(file, format="png")
    return file.getvalue()


def _shown_size(figure: Figure | bytes, content: bytes) -> tuple[int, int]:
    """Width and height in CSS pixels."""
    if isinstance(figure, bytes):
        return Image.open(io.BytesIO(content)).size
    width, height = figure.get_size_inches()
    return round(width * CSS_PIXELS_PER_INCH), round(height * CSS_PIXELS_PER_INCH)
