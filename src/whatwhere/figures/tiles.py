"""From numbers to pictures: shades of ink on paper, mixtures of hues, and many small pictures on one sheet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from torch import Tensor

from whatwhere.figures import style

GAP, WHITE, INK = np.array(to_rgb(style.RULE)), np.ones(3), np.full(3, 0.1)
SIGNS = np.array([to_rgb(style.MISSING), to_rgb(style.EXCESS)])


def shade(values: np.ndarray, limit: float | None = None, signed: bool | None = None) -> np.ndarray:
    """Numbers as ink on paper, [..., H, W] → [..., H, W, 3]: 0 is white, `limit` (by default the largest) black.

    signed   negative numbers are orange and positive ones purple; by default where there are negative ones
    NaN is no picture at all: grey.
    """
    values = np.asarray(values, dtype=float)
    known = np.nan_to_num(values)
    limit = limit or float(np.abs(known).max(initial=0)) or 1.0
    if (known < 0).any() if signed is None else signed:
        colours = mix(np.stack([-known, known]).clip(min=0), SIGNS, limit)
    else:
        colours = mix(known[None], INK[None], limit)
    return np.where(np.isnan(values)[..., None], GAP, colours)


def picture(image: Tensor, limit: float | None = None) -> np.ndarray:
    """An image [..., C, H, W] as RGB [..., H, W, 3]: three channels as they are, any other number as ink."""
    values = image.detach().cpu().double().numpy()
    if values.shape[-3] == 3:
        return np.clip(np.moveaxis(values, -3, -1) / (limit or 1.0), 0, 1)
    return shade(values.mean(-3), limit)


def mix(parts: np.ndarray, colours: np.ndarray, limit: float | None = None) -> np.ndarray:
    """Every part in its own hue, [A, ..., H, W] and [A, 3] → [..., H, W, 3].

    A part's size sets the saturation of its hue, from white at 0 to the full colour at `limit` (by default the
    largest sum). Hues take light away, as inks do, so that mixtures come out brownish.
    """
    parts = np.abs(np.asarray(parts, dtype=float))
    limit = limit or float(parts.sum(0).max(initial=0)) or 1.0
    saturation = (parts / limit).clip(max=1)
    return np.clip(1 - np.tensordot(np.moveaxis(saturation, 0, -1), 1 - colours, axes=1), 0, 1)


def tile(
    pictures: Sequence[np.ndarray] | np.ndarray, columns: int, gap: int = 1, between: np.ndarray = GAP
) -> np.ndarray:
    """Pictures [n, h, w, 3] row by row on one sheet, `gap` pixels of the colour `between` between and around them."""
    pictures = np.asarray(pictures)
    n, height, width, _ = pictures.shape
    rows = -(-n // columns)
    sheet = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3))
    sheet[:] = between
    for i, one in enumerate(pictures):
        row, column = divmod(i, columns)
        top, left = gap + row * (height + gap), gap + column * (width + gap)
        sheet[top : top + height, left : left + width] = one
    return sheet


def enlarge(pictures: np.ndarray, least: int = 10) -> np.ndarray:
    """Pictures [..., h, w, 3] with every pixel repeated until they are some `least` wide, so that lines stay thin."""
    times = max(1, round(least / pictures.shape[-2]))
    return pictures.repeat(times, axis=-3).repeat(times, axis=-2)


def columns_for(n: int) -> int:
    """How many columns make a sheet of n pictures nearly square, without an empty place where that can be."""
    root = max(1, round(n**0.5))
    whole = [c for c in range(root, min(n, 2 * root) + 1) if n % c == 0]
    return whole[0] if whole else root
