"""A report: sections of text, facts and pictures as one HTML page that needs nothing beside it."""

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

SCREEN = 112  # CSS pixels an inch of paper: type of 7 points is as large as small print on the screen

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 4rem; background: #fff; color: #222;
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
@media (max-width: 46rem) {
  .hint { display: block; }
  .enlarge:checked + label img { max-width: none; }
}
@media print { body { max-width: none; } h2, figure { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """One section: a heading, paragraphs (a blank line between them), facts, and a picture with its words.

    figure   a matplotlib figure, or the bytes of a PNG or GIF
    alt      what the picture shows, for those who do not see it; needed wherever there is a picture
    """

    heading: str
    text: str = ""
    figure: Figure | bytes | None = None
    alt: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.figure is not None and not self.alt.strip():
            raise ValueError(f"the picture of {self.heading!r} has no alternative text; say in `alt` what it shows")


def report(title: str, sections: Sequence[Section], lead: str = "", facts: Mapping[str, str] | None = None) -> str:
    """The page, as a string: title, lead and facts, then the sections."""
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, start=1))
    pictures = any(section.figure is not None for section in sections)
    hint = '<p class="hint">Tap a picture to enlarge it.</p>\n' if pictures else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{_paragraphs(lead)}{_facts(facts or {})}{hint}{body}\n</main>\n</body>\n</html>\n"
    )


def _section(number: int, section: Section) -> str:
    picture = "" if section.figure is None else _picture(number, section.figure, section.alt)
    return (
        f"<section>\n<h2>{escape(section.heading)}</h2>\n{_paragraphs(section.text)}{_facts(section.facts)}"
        f"{picture}</section>"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(paragraph.strip())}</p>\n" for paragraph in text.split("\n\n") if paragraph.strip())


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items())
    return f"<dl>\n{rows}</dl>\n" if rows else ""


def _picture(number: int, figure: Figure | bytes, alt: str) -> str:
    """The picture inside the page; on a narrow screen a hidden checkbox lets a tap show it at its full size."""
    content = figure if isinstance(figure, bytes) else png(figure)
    kind = "gif" if content.startswith(b"GIF8") else "png"
    width, height = _shown_size(figure, content)
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return (
        f'<figure>\n<input class="enlarge" type="checkbox" id="enlarge-{number}"'
        f' aria-label="Show this picture at its full size">\n<label for="enlarge-{number}">'
        f'<img src="{source}" width="{width}" height="{height}" alt="{escape(alt)}"></label>\n</figure>\n'
    )


def png(figure: Figure) -> bytes:
    """A figure as PNG, at print resolution."""
    file = io.BytesIO()
    with matplotlib.rc_context(RC):
        figure.savefig(file, format="png")
    return file.getvalue()


def _shown_size(figure: Figure | bytes, content: bytes) -> tuple[int, int]:
    """Width and height in CSS pixels."""
    if isinstance(figure, bytes):
        return Image.open(io.BytesIO(content)).size
    width, height = figure.get_size_inches()
    return round(width * SCREEN), round(height * SCREEN)
