"""The page of a detector's findings: one HTML file without outside requests, no scripts.

Pictures come least normal first, each as it is and, beside it, with the map: a red tint under which
the surface can be seen, a line around what exceeds the threshold, and a dashed box around the least
normal place. The page has a scale.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from torch import Tensor

from whatwhere.anomaly.detector import Detection
from whatwhere.anomaly.threshold import (
    Recall,
    Threshold,
    in_percent,
    interval_in_percent,
    true_alarms,
)
from whatwhere.errors import MissingExtra, plural, printable
from whatwhere.html import data_url, report_style, static_page, thumbnail

BINS = 40  # bins of the histogram
# of the histogram
WIDTH = 640
HEIGHT = 150
LARGEST = 700  # pixels of the longer side of a picture that are kept
SHOWN_RANGE = 4.0  # how far above the outline's threshold the red is strongest
RED = (208, 0, 0)
OPAQUE = 0.45  # of the tint, where it is strongest: the surface is seen under it
FAINT = 0.12  # of the tint at the threshold, so that outlines have an inside
STYLE = """
.head { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr));
        gap: .5rem 2rem; align-items: start; }
.head svg text { fill: var(--text); } .head svg line { stroke: var(--text); }
@media (max-width: 40rem) { .head svg text { font-size: 20px; } } /* the drawing is half as wide */
.scale { width: 16rem; height: .8rem;
         background: linear-gradient(to right, #d000001f, #d0000073), #999; }
.ends { width: 16rem; display: flex; justify-content: space-between; font-size: .85rem;
        color: var(--muted); }
h2 { margin: 2rem 0 .6rem; }
ol { list-style: none; padding: 0; margin: 0; display: grid; gap: 1.6rem 1.4rem;
     grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
/* The words and the patches stand beside narrow pictures and below wide ones. */
li { min-width: 0; border-top: 1px solid var(--rule); padding-top: .7rem;
     container-type: inline-size; display: flex; flex-wrap: wrap; gap: .4rem .9rem;
     align-items: start; align-content: start; }
.about { flex: 1 1 20rem; min-width: 0; }
.name { overflow-wrap: anywhere; font-size: .85rem; }
.score { font-variant-numeric: tabular-nums; font-size: .85rem; }
.score span { color: var(--muted); font-weight: 400; }
.anomaly .score { color: var(--alarm); font-weight: 600; }
.views { display: flex; gap: .6rem; }
.view { position: relative; line-height: 0; margin: 3px; /* --ratio: width / height */
        width: min(15rem * var(--ratio), 50cqw - .3rem - 6px); }
.view img, .view svg { width: 100%; height: 100%; }
.kinds { display: block; margin: .6rem 0; } .kinds dt { display: inline; font-weight: 600; }
.kinds dd { display: inline; margin: 0; } .kinds div { font-size: .85rem; }
.view svg { overflow: visible; } .over { position: absolute; inset: 0; }
.patches { display: flex; flex-wrap: wrap; gap: .3rem .7rem; margin-top: .3rem; }
.patches div { display: grid; grid-template-columns: repeat(4, minmax(0, 96px)); gap: 3px;
               flex: 1 1 393px; align-content: start; }
.patches div:first-child { grid-template-columns: 96px; flex: 0 0 96px; }
.patches img { width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated;
               outline: 1px solid var(--rule); outline-offset: -1px; }
.patches span { grid-column: 1 / -1; font-size: .75rem; color: var(--muted); }
"""


KINDS = {
    "spots": "a mark that is stronger than usual",
    "texture": "a place that is unlike the places of normal pictures",
    "neighbours": "a place that does not fit the places around it",
    "rows": "a change from one band of rows to the next",
    "columns": "a change from one band of columns to the next",
    "places": "a place that is unlike the same place of normal pictures",
    "whole": "the picture as a whole",
}
"""The kinds of evidence in words (`anomaly.evidence`)."""


@dataclass(frozen=True)
class Drawing:
    """The view of a picture [C, H, W] on the page: the findings, its least normal patch, and normal
    patches like it."""

    found: Detection
    picture: Tensor
    patches: Sequence[Tensor]


def write_page(
    drawings: Iterable[Drawing],
    scores: np.ndarray,
    normal: np.ndarray | None,
    threshold: Threshold,
    outline: float,
    learned: str,
    rates: str,
) -> str:
    """The page.

    drawings  the pictures to show, the least normal first
    scores    scores of all pictures, [n]
    normal    scores of other pictures, which the detector learned from, [m]; None if it learned
              from these pictures
    outline   the threshold of maps
    learned   which pictures the detector learned from: "learned from …"
    rates     how often normal pictures raise an alarm (`alarm_rates`)
    """
    above = list[str]()
    below = list[str]()
    kinds = dict[str, str]()
    for drawing in drawings:
        side = above if drawing.found.score > threshold.value else below
        side.append(item(drawing, threshold.value, outline))
        for kind in drawing.found.evidence:
            # the name of given features comes before the kind
            kinds[kind] = KINDS[kind.rpartition(" ")[2]]
    anomalies = int((scores > threshold.value).sum())
    rest = ""
    shown = len(above) + len(below)
    if shown < len(scores):
        rest = f"<p>This page shows the {shown:,} least normal pictures.</p>"
    body = f"""<main><h1>{count_above(anomalies, len(scores))}</h1>
<p>{escape(rates)}</p>
<div class="head"><div>
{histogram(scores, normal, threshold.value)}
{legend(kinds)}
</div><div>
<p>The detector {learned}. Its threshold is {threshold.value:.2f}. The rate of false alarms holds
if the pictures are independent.</p>
<p>The left side shows each picture as it is. On the right, a dashed box marks the least normal
place of every picture. A yellow line encloses places that are less normal than
{100 - 100 * 10**-outline:.4g}&nbsp;% of the area of normal pictures, and red shows how rare they
are there. The score adds up the evidence of the whole picture. A picture can therefore be
above the threshold without an outlined place, and a normal picture can have one. The small pictures
show the marked place and the places most like it among the pictures that the detector learned
from.</p>
<div class="scale"></div>
<div class="ends"><span>{words_of_area(outline)}</span>
<span>{words_of_area(outline + SHOWN_RANGE)}</span></div>
{rest}</div></div>
{section("Above the threshold", above)}
{section("Below the threshold", below)}</main>
"""
    return static_page("Anomalies", report_style() + STYLE, body)


def words_of_area(value: float) -> str:
    """How rare places with a value of a map are among normal pictures."""
    return f"1 in {float(f'{10**value:.2g}'):,.0f}"


def section(title: str, items: Sequence[str]) -> str:
    """A list of pictures under a heading; nothing without pictures."""
    if not items:
        return ""
    return f"<h2>{title}</h2>\n<ol>{''.join(items)}</ol>"


def count_above(anomalies: int, pictures: int) -> str:
    """How many pictures are above the threshold, in words."""
    if pictures == 1:
        where = "above" if anomalies else "not above"
        return f"The picture is {where} the threshold"
    are = "is" if anomalies == 1 else "are"
    return f"{anomalies:,} of {plural(pictures, 'picture')} {are} above the threshold"


def alarm_rates(
    pictures: int, threshold: Threshold, expected: float | None, recall: Recall | None
) -> str:
    """How often normal pictures raise an alarm and, if the share of pictures with a defect is
    known, which share of alarms is true, in words."""
    rate = threshold.false_alarms
    share = (
        f"About {in_percent(rate)} of normal pictures exceed the threshold"
        f" (95 % interval: {interval_in_percent(threshold.interval)})"
    )
    if pictures > 1:
        alarms = plural(round(rate * pictures), "false alarm")
        share += f": {pictures:,} normal pictures would raise about {alarms}"
    if expected is None:
        return (
            f"{share}. Which share of the alarms is true depends on how many pictures have a"
            " defect: give that share, for example --expected 1%."
        )
    if recall is None:
        most = in_percent(true_alarms(rate, expected))
        true = f"at most {most} of the alarms are true, even if every defect raises one"
    else:
        true = (
            f"about {in_percent(true_alarms(rate, expected, recall.value))} of the alarms are true"
        )
    return f"{share}. If {in_percent(expected)} of the pictures have a defect, {true}."


def legend(kinds: Mapping[str, str]) -> str:
    """What the kinds of evidence mean, by their names."""
    entries = "".join(
        f"<div><dt>{escape(printable(kind))}</dt>: <dd>{words}</dd></div>"
        for kind, words in kinds.items()
    )
    return f"""<p>The words beside a score name its kinds of evidence that are larger than 1, which
a tenth of normal pictures exceed:</p><dl class="kinds">{entries}</dl>"""


def item(drawing: Drawing, threshold: float, outline: float) -> str:
    """A picture with its map, its outline, its least normal place, its score and its patches;
    signals are drawn as curves."""
    found = drawing.found
    picture = drawing.picture
    patches = drawing.patches
    if picture.shape[1] == 1:
        picture = curve(picture)
        patches = [curve(patch) for patch in patches]
    height, width = picture.shape[1:]
    place = found.patch
    # the place in a curve is as high as the drawing
    place_height = height if found.anomaly_map.shape[0] == 1 else place.height
    box = f'x="{place.left}" y="{place.top}" width="{place.width}" height="{place_height}"'
    heat = found.anomaly_map.expand(height, width)
    kind = ' class="anomaly"' if found.score > threshold else ""
    name = escape(printable(found.name))
    words = ", ".join(f"{word} {value:.1f}" for word, value in found.evidence.items() if value > 1)
    patch, *normal = (image(patch, "patch") for patch in patches)
    shape = f"aspect-ratio:{width}/{height};--ratio:{width / height:.4g}"
    original = image(picture, name)
    drawn = 'fill="none" vector-effect="non-scaling-stroke"'
    line = f'd="{outline_path(heat > outline)}" {drawn}'
    return f"""<li{kind}><div class="views"><div class="view" style="{shape}">{original}</div>
<div class="view" style="{shape}">
{original}<div class="over">{map_image(heat, outline)}</div>
<svg class="over" viewBox="0 0 {width} {height}" aria-hidden="true">
<path {line} stroke="#000" stroke-width="3.5"/>
<path {line} stroke="#ffd400" stroke-width="1.5"/>
<rect {box} {drawn} stroke="#000" stroke-width="1.5"/>
<rect {box} {drawn} stroke="#fff" stroke-width="1.5" stroke-dasharray="4 4"/></svg></div></div>
<div class="about"><div class="name">{name}</div>
<div class="score">{found.score:.2f} <span>{escape(words)}</span></div>
<div class="patches"><div><span>marked place:</span>{patch}</div>
<div><span>nearest among the pictures learned from:</span>{"".join(normal)}</div></div></div></li>
"""


def curve(signal: Tensor) -> Tensor:
    """A signal [C, 1, T] as a picture of its curves, black on white, one channel below the
    other."""
    rows = max(8, signal.shape[2] // 8)
    lowest = signal.nan_to_num(torch.inf).amin(2, keepdim=True)
    highest = signal.nan_to_num(-torch.inf).amax(2, keepdim=True)
    at = ((rows - 1) * (highest - signal) / (highest - lowest).clamp_min(1e-30)).round()
    before = torch.cat([at[..., :1], at[..., :-1]], 2)
    before = torch.where(before.isnan(), at, before)
    row = torch.arange(rows)[:, None]
    inside = (row >= torch.minimum(at, before)) & (row <= torch.maximum(at, before))
    return 1 - inside.float().flatten(0, 1)[None]


def image(picture: Tensor, words: str) -> str:
    """A picture [C, H, W] in a tag, as it is: 0 is black and 1 is white, unless there are values
    below or above."""
    known = picture[picture.isfinite()]
    ends = torch.cat([known, torch.tensor([0.0, 1.0])])
    low = ends.min()
    high = ends.max()
    return tag(thumbnail((picture - low) / (high - low), LARGEST), "JPEG", words)


def map_image(values: Tensor, outline: float) -> str:
    """A map as a red picture that is clear where the map is below the outline's threshold."""
    above = values.nan_to_num(-torch.inf) - outline
    tint = FAINT + (OPAQUE - FAINT) * (above / SHOWN_RANGE).clamp(0, 1)
    alpha = (255 * tint * (above > 0)).round()
    red = torch.tensor(RED).expand(*values.shape, 3)
    return tag(torch.cat([red, alpha[..., None]], 2).to(torch.uint8), "PNG", "map")


def tag(pixels: Tensor, form: str, words: str) -> str:
    """Bytes [H, W, 3 or 4] as an image in a tag."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "the page of anomalies") from None

    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, form, quality=90, subsampling=0)
    return f'<img src="{data_url(file.getvalue(), form.lower())}" alt="{words}">'


def outline_path(inside: Tensor) -> str:
    """The borders of a region [H, W] as a path of SVG: every edge between a pixel inside and one
    outside."""
    padded = torch.nn.functional.pad(inside.int(), [1, 1, 1, 1])
    down = (padded.diff(dim=0)[:, 1:-1] != 0).nonzero().tolist()
    across = (padded.diff(dim=1)[1:-1] != 0).nonzero().tolist()
    return "".join([f"M{x} {y}h1" for y, x in down] + [f"M{x} {y}v1" for y, x in across])


def histogram(scores: np.ndarray, normal: np.ndarray | None, threshold: float) -> str:
    """The shares of pictures (red) and of normal ones (grey), if there are any, by score, and the
    threshold, as SVG."""
    drawn = {"#d00000": scores}
    words = "Scores of these pictures."
    if normal is not None:
        drawn = {"#8c8c8c": normal, "#d00000": scores}
        words = (
            "Red: scores of these pictures. Grey: scores of the normal pictures that the detector"
            " learned from."
        )
    together = np.concatenate([*drawn.values(), [threshold]])
    edges = np.linspace(together.min(), max(together.max(), together.min() + 1e-6), BINS + 1)
    shares = [np.histogram(values, edges)[0] / max(len(values), 1) for values in drawn.values()]
    tallest = max(share.max() for share in shares) or 1.0
    bars = ""
    for share, colour in zip(shares, drawn, strict=True):
        steps = "".join(f"V{HEIGHT * (1 - value / tallest):.1f}h{WIDTH / BINS}" for value in share)
        bars += f'<path d="M0 {HEIGHT}{steps}V{HEIGHT}" fill="{colour}" fill-opacity=".55"/>'
    at = WIDTH * (threshold - edges[0]) / (edges[-1] - edges[0])
    # The word stays inside the drawing if the threshold is at one of its ends.
    word_at = min(max(at, 32), WIDTH - 32)
    labels = "".join(
        f'<text x="{x}" y="{HEIGHT + 17}" text-anchor="{anchor}">{value:.1f}</text>'
        for x, anchor, value in ((0, "start", edges[0]), (WIDTH, "end", edges[-1]))
    )
    return f"""<svg viewBox="0 -22 {WIDTH} {HEIGHT + 44}" width="{WIDTH}"
style="max-width:100%" font-size="13"
role="img" aria-label="histogram of scores">{bars}
<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{HEIGHT}"
stroke-dasharray="4 3"/><text x="{word_at:.1f}" y="-4" text-anchor="middle">threshold</text>
<line x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>{labels}</svg>
<p>{words}</p>"""
