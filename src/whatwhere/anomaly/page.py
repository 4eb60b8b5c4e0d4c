"""The page of a detector's findings: one HTML file without outside requests, in which a person
looks through the pictures, marks them, and sees what another threshold would do
(`html/assets/review.js`).

Every picture is there small, with its map as a red tint and a yellow line around what exceeds the
threshold of maps. The least normal ones are also there large, with a dashed box around the least
normal place and with the places most like it in normal pictures. The browser reads the pictures in
parts, when they are in sight.
"""

import heapq
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.detector import Detection
from whatwhere.anomaly.threshold import (
    Recall,
    Threshold,
    in_percent,
    interval_in_percent,
    rate_intervals,
    true_alarms,
)
from whatwhere.errors import MissingExtra, plural, printable
from whatwhere.html import ASSETS, assemble, data_url, report_style, thumbnail

_RED = (208, 0, 0)
_YELLOW = (255, 212, 0)
_KINDS = {
    "spots": "a mark that is stronger than usual",
    "curves": "a long dark line, such as a crack",
    "texture": "a place that is unlike the places of normal pictures",
    "neighbours": "a place that does not fit the places around it",
    "rows": "a change from one band of rows to the next",
    "columns": "a change from one band of columns to the next",
    "colour": "a colour that normal pictures do not have there",
    "places": "a place that is unlike the same place of normal pictures",
    "whole": "the picture as a whole",
}
"""The kinds of evidence in words (`anomaly.evidence`)."""


@dataclass(frozen=True, kw_only=True)
class PageSettings:
    """How much a page holds, and how it is drawn.

    Parameters
    ----------
    large
        pictures with a large view: the least normal ones
    large_side
        pixels of the longer side of a large view
    small_side
        the same for small ones: 10,000 of them make a page of about 60 MB
    per_part
        small pictures that the browser reads at once
    per_large_part
        the same for large ones
    faint, opaque
        opacity of the red at the threshold of maps, so that outlines have an inside, and where it
        is strongest: the surface is seen under it
    """

    large: int = 200
    large_side: int = 700
    small_side: int = 192
    per_part: int = 100
    per_large_part: int = 5
    faint: float = 0.12
    opaque: float = 0.45


@dataclass(frozen=True)
class MapScale:
    """The scale of red in maps.

    Parameters
    ----------
    outline
        threshold of maps, where red begins
    rarest
        largest value in normal pictures, where red is strongest
    pictures
        number of these normal pictures
    """

    outline: float
    rarest: float
    pictures: int

    @property
    def words(self) -> tuple[str, str]:
        """The meaning of both ends of the scale."""
        begin = f"1 in {float(f'{10**self.outline:.2g}'):,.0f}"
        return begin, f"rarer than any place of {plural(self.pictures, 'normal picture')}"

    def tint(self, values: Tensor, settings: PageSettings) -> Tensor:
        """Return the red tint of a map [H, W], as bytes [H, W, 4]; clear where nothing is above the
        threshold."""
        above = values.nan_to_num(-torch.inf) - self.outline
        strength = (above / max(self.rarest - self.outline, 1e-6)).clamp(0, 1)
        opacity = settings.faint + (settings.opaque - settings.faint) * strength
        alpha = (255 * opacity * (above > 0)).round()
        red = torch.tensor(_RED).expand(*values.shape, 3)
        return torch.cat([red, alpha[..., None]], 2).to(torch.uint8)


@dataclass(frozen=True)
class PageFacts:
    """What a page says besides its pictures.

    Parameters
    ----------
    threshold
        of scores
    normal
        scores of other pictures, which the detector learned from, [m]; None if it learned from
        these pictures
    learned
        which pictures the detector learned from: "learned from …"
    rates
        how often normal pictures raise an alarm (`alarm_rates`)
    folder
        the source of the pictures, for the table of marks
    score_command
        the line that scores these pictures; empty if no line does
    fit_command
        the line that fits again with marks
    """

    threshold: Threshold
    normal: np.ndarray | None
    learned: str
    rates: str
    folder: str = ""
    score_command: str = ""
    fit_command: str = ""


@dataclass
class Gallery:
    """The views of pictures, made one by one while pictures are scored, so that no map is kept."""

    scale: MapScale
    settings: PageSettings = field(default_factory=PageSettings)
    small: dict[int, tuple[str, str]] = field(default_factory=dict)
    large: list[tuple[float, int, dict[str, object]]] = field(default_factory=list)

    def add(
        self,
        number: int,
        found: Detection,
        picture: Tensor,
        compared: Callable[[], Sequence[Tensor]],
    ) -> None:
        """Draw a picture [C, H, W].

        Parameters
        ----------
        compared
            gives its least normal patch, and the normal patches like it
        """
        is_signal = picture.shape[1] == 1
        shown = _curve(picture) if is_signal else picture
        heat = found.anomaly_map.expand(shown.shape[1:])
        self.small[number] = self._small(shown, heat)
        worst = len(self.large) == self.settings.large
        if worst and (found.score, -number) <= self.large[0][:2]:
            return
        patches = compared()
        entry = self._large(
            found, shown, heat, [_curve(patch) for patch in patches] if is_signal else patches
        )
        push = heapq.heappushpop if worst else heapq.heappush
        push(self.large, (found.score, -number, entry))

    def _small(self, picture: Tensor, heat: Tensor) -> tuple[str, str]:
        """Return the addresses of a small view and of its map, which is empty if nothing is above
        the threshold of maps."""
        side = self.settings.small_side
        address = _jpeg(_as_seen(picture, side), quality=80)
        if not bool((heat > self.scale.outline).any()):
            return address, ""
        ratio = min(1.0, side / max(heat.shape))
        size = [max(1, round(extent * ratio)) for extent in heat.shape]
        # the largest value, so that a thin line does not vanish
        reduced = F.adaptive_max_pool2d(heat.nan_to_num(-torch.inf)[None], size)[0]
        pixels = self.scale.tint(reduced, self.settings)
        inside = (reduced > self.scale.outline).float()[None]
        ring = (F.max_pool2d(inside, 3, 1, 1) > inside)[0]
        pixels[ring] = torch.tensor([*_YELLOW, 255], dtype=torch.uint8)
        return address, _png(pixels)

    def _large(
        self, found: Detection, picture: Tensor, heat: Tensor, patches: Sequence[Tensor]
    ) -> dict[str, object]:
        height, width = picture.shape[1:]
        place = found.patch
        # the place in a curve is as high as the drawing
        place_height = height if found.anomaly_map.shape[0] == 1 else place.height
        return {
            "width": width,
            "height": height,
            "picture": _jpeg(_as_seen(picture, self.settings.large_side)),
            "map": _png(self.scale.tint(heat, self.settings)),
            "path": _outline_path(heat > self.scale.outline),
            "place": [place.left, place.top, place.width, place_height],
            "patches": [_jpeg(_as_seen(patch, self.settings.large_side)) for patch in patches],
        }

    def page(self, rows: Sequence["PageRow"], facts: PageFacts) -> str:
        """Return the page of these pictures, in this order, the least normal first."""
        settings = self.settings
        kinds = {kind: _KINDS[kind.rpartition(" ")[2]] for row in rows for kind in row.evidence}
        large = {-number: entry for _, number, entry in self.large}
        order = [row.number for row in rows if row.number in large]
        place = {number: at for at, number in enumerate(order)}
        low, high = self.scale.words
        normal = None if facts.normal is None else np.sort(facts.normal)[::-1]
        data = {
            "names": [printable(row.name) for row in rows],
            "scores": [round(row.score, 6) for row in rows],
            "areas": [round(row.share_above, 6) for row in rows],
            "evidence": [_evidence_words(row.evidence) for row in rows],
            "normal": None if normal is None else normal.round(6).tolist(),
            "intervals": []
            if normal is None
            else rate_intervals(len(normal), facts.threshold.alike),
            "threshold": round(facts.threshold.value, 6),
            "perPart": settings.per_part,
            "perLargePart": settings.per_large_part,
            "large": [place.get(row.number, -1) for row in rows],
            "kinds": {printable(kind): words for kind, words in kinds.items()},
            "rates": facts.rates,
            "learned": f"The detector {facts.learned}. Its threshold is"
            f" {facts.threshold.value:.2f}. The rate of false alarms holds for pictures from the"
            " same source.",
            "outline": low,
            "beyond": high,
            "folder": facts.folder,
            "scoreCommand": facts.score_command,
            "fitCommand": facts.fit_command,
        }
        parts = _in_parts("small", [self.small[row.number] for row in rows], settings.per_part)
        parts |= _in_parts("large", [large[n] for n in order], settings.per_large_part)
        style = report_style() + (ASSETS / "review.css").read_text(encoding="utf-8")
        return assemble(ASSETS / "review.html", "review", style, "img-src data:", data, **parts)


@dataclass(frozen=True)
class PageRow:
    """A picture on the page and in the table.

    Parameters
    ----------
    number
        in the order of the source
    evidence
        as in `Detection`
    x, y
        the pixel in the middle of its least normal patch
    share_above
        share of its known pixels that are inside outlines
    """

    score: float
    number: int
    name: str
    evidence: dict[str, float]
    x: int
    y: int
    share_above: float

    @classmethod
    def of(cls, found: Detection, number: int, outline: float) -> "PageRow":
        """Keep the findings in a picture without its map."""
        x, y = found.patch.centre
        above = found.share_above(outline)
        return cls(found.score, number, found.name, found.evidence, x, y, above)


def _in_parts(name: str, values: Sequence[object], size: int) -> dict[str, Sequence[object]]:
    """Return values in parts that the browser reads one at a time, by the ids of their elements."""
    return {f"{name}-{at // size}": values[at : at + size] for at in range(0, len(values), size)}


def _evidence_words(evidence: Mapping[str, float]) -> list[str]:
    return [f"{printable(kind)} {value:.1f}" for kind, value in evidence.items() if value > 1]


def count_above(anomalies: int, pictures: int) -> str:
    """Say how many pictures are above the threshold."""
    if pictures == 1:
        where = "above" if anomalies else "not above"
        return f"The picture is {where} the threshold"
    are = "is" if anomalies == 1 else "are"
    return f"{anomalies:,} of {plural(pictures, 'picture')} {are} above the threshold"


def alarm_rates(
    pictures: int, threshold: Threshold, expected: float | None, recall: Recall | None
) -> str:
    """Say how often normal pictures raise an alarm and, if the share of pictures with a defect is
    known, which share of alarms is true."""
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


def _curve(signal: Tensor) -> Tensor:
    """Draw a signal [C, 1, T] as a picture of its curves, black on white, one channel below the
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


def _as_seen(picture: Tensor, side: int) -> Tensor:
    """Return bytes of a picture [C, H, W], its sides at most `side`: 0 is black and 1 is white,
    unless there are values below or above."""
    known = picture[picture.isfinite()]
    ends = torch.cat([known, torch.tensor([0.0, 1.0])])
    low = ends.min()
    high = ends.max()
    return thumbnail((picture - low) / (high - low), side)


def _jpeg(pixels: Tensor, quality: int = 90) -> str:
    return _address(pixels, "JPEG", quality=quality, subsampling=0)


def _png(pixels: Tensor) -> str:
    return _address(pixels, "PNG")


def _address(pixels: Tensor, form: str, **settings: int) -> str:
    """Return bytes [H, W], [H, W, 3] or [H, W, 4] as the address of an image."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "the page of anomalies") from None

    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, form, **settings)
    return data_url(file.getvalue(), form.lower())


def _outline_path(inside: Tensor) -> str:
    """Draw the borders of a region [H, W] as a path of SVG: every edge between a pixel inside and
    one outside."""
    padded = F.pad(inside.int(), [1, 1, 1, 1])
    down = (padded.diff(dim=0)[:, 1:-1] != 0).nonzero().tolist()
    across = (padded.diff(dim=1)[1:-1] != 0).nonzero().tolist()
    return "".join([f"M{x} {y}h1" for y, x in down] + [f"M{x} {y}v1" for y, x in across])
