"""The report: valid HTML without external files, alternative text for every figure, legible on a phone."""

import base64
import re

import html5lib
import pytest
from matplotlib.figure import Figure

from whatwhere.figures.report import Section, report

SECTIONS = [
    Section("First <heading>", "One.\n\nTwo <b>three</b> & four.", Figure(figsize=(2, 1))),
    Section("Facts", facts={"λ": "5", "a <b>": "c & d"}),
]


def parse(page: str):
    """The tree of a page; anything that violates the HTML standard is an error."""
    return html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False).parse(page)


def test_the_page_is_valid_and_contains_the_sections():
    tree = parse(report("A run", SECTIONS, lead="Lead.", facts={"seed": "0"}))
    assert tree.find("head/title").text == "A run"
    assert [h.text for h in tree.iter("h2")] == ["First <heading>", "Facts"]
    assert [p.text for p in tree.iter("p")] == ["Lead.", "One.", "Two <b>three</b> & four."]
    assert [dd.text for dd in tree.iter("dd")] == ["0", "5", "c & d"]


def test_the_parser_rejects_an_invalid_page():
    with pytest.raises(html5lib.html5parser.ParseError):
        parse(report("A run", SECTIONS).replace("</section>", "</sectio>", 1))


def test_every_figure_has_alternative_text():
    tree = parse(report("A run", SECTIONS))
    pictures = list(tree.iter("img"))
    assert [picture.get("alt") for picture in pictures] == ["First <heading>"]


def test_the_page_needs_no_other_file():
    """Figures are embedded; there are no scripts, links or imports."""
    page = report("A run", SECTIONS)
    tree = parse(page)
    sources = [e.get("src") for e in tree.iter() if e.get("src")]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert base64.b64decode(sources[0].split(",")[1]).startswith(b"\x89PNG")
    assert not [e for e in tree.iter() if e.get("href") or e.tag in ("script", "link", "iframe")]
    assert not re.search(r"@import|url\(|https?:", page)


def test_the_page_fits_a_phone():
    page = report("A run", SECTIONS)
    viewport = next(m for m in parse(page).iter("meta") if m.get("name") == "viewport")
    assert "width=device-width" in viewport.get("content")
    assert re.search(r"img \{[^}]*max-width: 100%", page)


def test_a_gif_is_a_gif(tiny):
    from whatwhere.figures.animation import animation, trace
    from whatwhere.spec import InferenceSpec

    snapshots = trace(tiny.model, tiny.images[0], InferenceSpec(steps=1))
    page = report("A run", [Section("Moving", figure=animation(tiny.model, tiny.images[0], snapshots))])
    assert "data:image/gif;base64,R0lGOD" in page
