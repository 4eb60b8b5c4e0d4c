"""The picture of a model that a notebook shows: the filters of every layer."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from whatwhere.pictures import figure, tiles

if TYPE_CHECKING:
    from whatwhere.model.deconvnet import DeconvNet

MOST = 64  # maps of a layer that are shown


def model_html(model: DeconvNet) -> str:
    """The model's summary and, for every layer, its filters: those of layer 1 over grey or RGB images as they look,
    others plane by plane, a column for each map and a row for each map below.
    """
    parts = [f"<p><code>{escape(repr(model))}</code></p>"]
    for k, f in enumerate(model.filters, start=1):
        shown = f[:MOST, :MOST]
        below, maps, size, _ = shown.shape
        as_images = k == 1 and below in (1, 3)
        planes = shown.transpose(0, 1) if as_images else shown.reshape(below * maps, 1, size, size)
        largest = float(shown.abs().max())
        lowest = 0.0 if model.spec.nonnegative else -largest
        sheet = tiles(planes, min(maps, 16) if as_images else maps, lowest, largest)
        rest = f", the first {maps} maps over {below}" if shown.shape != f.shape else ""
        parts.append(figure(sheet, f"Filters of layer {k}: {list(f.shape)}{rest}", zoom=6 if as_images else 2))
    return "".join(parts)
