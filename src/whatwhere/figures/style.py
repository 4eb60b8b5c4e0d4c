"""The style of every figure: sizes, colours, fonts, helpers that place panels and text, and arrays
as RGB pictures.

Figures are made for print: they are as wide as a column or a page of a two-column paper, with 7
point text. Colour is never the only sign: features also have a number, and curves have different
markers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ParamSpec

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.typing import ColorType
from torch import Tensor

# widths in inches
COLUMN = 3.3
PAGE = 7.0

GREY = "#6b6b6b"
RULE = "#d9d9d9"
# orange and purple: negative and positive residuals
MISSING = "#D55E00"
_EXCESS = "#5D3A9B"
# Okabe and Ito's colours, in an order whose neighbours also differ in lightness.
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

RC = matplotlib.rc_params_from_file(
    Path(__file__).with_name("print.mplstyle"), use_default_template=False
)

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure: it uses this style, whatever the caller's matplotlib
    settings are.

    Parameters
    ----------
    draw
        a function that returns a matplotlib figure

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure = ww.figures.styled(lambda: Figure(figsize=(3.3, 2)))()
    """

    @functools.wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return in_style


def save(figure: Figure, file: Path | IO[bytes], format: str | None = None) -> None:
    """Write a figure. The same figure gives the same bytes.

    Parameters
    ----------
    figure
        a matplotlib figure
    file
        a path, or a file that is open for writing bytes
    format
        'png', 'pdf', 'svg', …; None takes the path's suffix

    Examples
    --------
    >>> import pathlib
    >>> ww.figures.save(ww.figures.filters(ww.load("mnist")), pathlib.Path("filters.png"))
    """
    format = format or (file.suffix[1:] if isinstance(file, Path) else "png")
    no_date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format)
    with matplotlib.rc_context(RC):
        figure.savefig(file, format=format, metadata=no_date)


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes without frame or ticks; positions are in inches from the upper left corner of the
    figure."""
    page_width, page_height = figure.get_size_inches()
    box = (
        left / page_width,
        1 - (top + height) / page_height,
        width / page_width,
        height / page_height,
    )
    axes = figure.add_axes(box)
    axes.set_axis_off()
    return axes


def add_text(figure: Figure, left: float, top: float, text: str, **kwargs: Any) -> Text:
    """Write text with its upper left corner (or as `ha` and `va` say) at this position in
    inches."""
    page_width, page_height = figure.get_size_inches()
    settings: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": 7, **kwargs}
    return figure.text(left / page_width, 1 - top / page_height, text, **settings)


def add_heading(figure: Figure, left: float, top: float, text: str) -> Text:
    return add_text(figure, left, top, text, fontweight="bold")


def add_frame(axes: Axes, colour: ColorType, width: float = 1.2) -> None:
    axes.set_axis_on()
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(colour)
        spine.set_linewidth(width)


def add_picture(
    figure: Figure, left: float, top: float, side: float, rgb: np.ndarray, frame: ColorType = RULE
) -> Axes:
    axes = add_panel(figure, left, top, side, side)
    axes.imshow(rgb)
    add_frame(axes, frame, 0.8 if frame is RULE else 1.2)
    return axes


def curve_styles() -> Iterator[dict[str, Any]]:
    """Return a colour and a marker for each curve in turn, without end: keywords of matplotlib's
    `plot`.

    >>> next(ww.figures.curve_styles())
    {'color': '#0072B2', 'marker': 'o'}
    """
    return (
        {"color": c, "marker": m}
        for c, m in zip(itertools.cycle(CURVES), itertools.cycle(MARKERS), strict=False)
    )


GAP = np.array(to_rgb(RULE))
WHITE = np.ones(3)
_BLACK = np.full(3, 0.1)
_SIGNS = np.array([to_rgb(MISSING), to_rgb(_EXCESS)])


def shade(values: np.ndarray, limit: float | None = None, signed: bool | None = None) -> np.ndarray:
    """Return values as dark ink on white paper, [..., H, W] → [..., H, W, 3].

    limit    the value that is drawn black; default: the largest absolute value
    signed   draw negative values orange and positive ones purple; default: if there are negative
             values
    NaN means that there is no value and is drawn grey.
    """
    values = np.asarray(values, dtype=float)
    known = np.nan_to_num(values)
    limit = limit or float(np.abs(known).max(initial=0)) or 1.0
    if (known < 0).any() if signed is None else signed:
        colours = mix_colours(np.stack([-known, known]).clip(min=0), _SIGNS, limit)
    else:
        colours = mix_colours(known[None], _BLACK[None], limit)
    return np.where(np.isnan(values)[..., None], GAP, colours)


def is_ink(images: Tensor) -> bool:
    """Tell whether images are strokes on an empty ground, like digits: most of their pixels are
    almost 0."""
    size = images.abs()
    return bool((size <= 0.02 * size.max()).double().mean() > 0.5)


def image_to_rgb(image: Tensor, limit: float | None = None, *, ink: bool) -> np.ndarray:
    """Return an image [..., C, H, W] as RGB [..., H, W, 3]: three channels are colours, others are
    averaged.

    Parameters
    ----------
    limit
        the value that is drawn at full intensity; default: the largest, or 1 for colours
    ink
        draw an image of one channel as dark ink on white paper (`is_ink`), in place of its own
        shades of grey
    """
    values = image.detach().cpu().double().numpy()
    if values.shape[-3] == 3:
        return np.clip(np.moveaxis(values, -3, -1) / (limit or 1.0), 0, 1)
    if ink:
        return shade(values.mean(-3), limit)
    grey = values.mean(-3) / (limit or float(np.abs(values).max(initial=0)) or 1.0)
    return np.clip(grey, 0, 1)[..., None].repeat(3, -1)


def part_to_rgb(part: Tensor) -> np.ndarray:
    """Show filters, or what single features draw, [..., C, H, W] → [..., H, W, 3], each scaled by
    its largest value.

    Where colours are signed, 0 is grey.
    """
    largest = part.abs().amax((-3, -2, -1), keepdim=True)
    part = part / largest.where(largest > 0, torch.ones_like(largest))
    if part.shape[-3] == 3 and bool((part < 0).any()):
        part = (1 + part) / 2
    return image_to_rgb(part, 1.0, ink=True)


def mix_colours(amounts: np.ndarray, colours: np.ndarray, limit: float | None = None) -> np.ndarray:
    """Mix amounts of several colours like inks, [A, ..., H, W] and [A, 3] → [..., H, W, 3].

    An amount sets the saturation of its colour: 0 is white, `limit` (default: the largest sum) the
    full colour. Colours subtract light, so mixtures become darker and brownish.
    """
    amounts = np.abs(np.asarray(amounts, dtype=float))
    limit = limit or float(amounts.sum(0).max(initial=0)) or 1.0
    saturation = (amounts / limit).clip(max=1)
    return np.clip(1 - np.tensordot(np.moveaxis(saturation, 0, -1), 1 - colours, axes=1), 0, 1)


def tile(
    pictures: Sequence[np.ndarray] | np.ndarray,
    columns: int,
    gap: int = 1,
    between: np.ndarray = GAP,
) -> np.ndarray:
    """Return pictures [n, h, w, 3] row by row on one sheet, `gap` pixels of the colour `between`
    between and around them."""
    pictures = np.asarray(pictures)
    n, height, width, _ = pictures.shape
    rows = -(-n // columns)
    sheet = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3))
    sheet[:] = between
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        top = gap + row * (height + gap)
        left = gap + column * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def enlarge(pictures: np.ndarray, min_width: int = 10) -> np.ndarray:
    """Return pictures [..., h, w, 3] with every pixel repeated until they are about `min_width`
    wide.

    The gaps of `tile` stay one pixel wide, so they become thin lines.
    """
    times = max(1, round(min_width / pictures.shape[-2]))
    return pictures.repeat(times, axis=-3).repeat(times, axis=-2)


def columns_for(n: int) -> int:
    """Return the number of columns that makes a sheet of n pictures nearly square, without empty
    cells where possible."""
    root = max(1, round(n**0.5))
    divisors = [c for c in range(root, min(n, 2 * root) + 1) if n % c == 0]
    return divisors[0] if divisors else root


def feature_colours(features: int) -> np.ndarray:
    """Return a colour for each feature: [B, 3] in RGB, as saturated as a screen can show.

    Hues are evenly spaced around the perceptual colour circle and ordered so that consecutive
    features have very different hues. Neighbouring hues differ in lightness too, so that
    colour-blind people can tell them apart.
    """
    step = next(
        s for s in range(max(1, round(0.38 * features)), features + 1) if math.gcd(s, features) == 1
    )
    position = np.arange(features) * step % features
    lightness = np.array([0.58, 0.72, 0.46])[position % 3]
    hue = 2 * np.pi * position / features
    return np.array(
        [_most_saturated(light, angle) for light, angle in zip(lightness, hue, strict=True)]
    )


def _most_saturated(lightness: float, hue: float) -> np.ndarray:
    """Return the colour of this lightness and hue with the largest chroma that sRGB contains, up to
    a common limit."""
    chroma = np.linspace(0, 0.17, 60)
    colours = _oklch_to_rgb(np.full_like(chroma, lightness), chroma, np.full_like(chroma, hue))
    in_gamut = ((colours >= 0) & (colours <= 1)).all(1)
    return colours[np.flatnonzero(in_gamut)[-1]]


def _oklch_to_rgb(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """Convert Björn Ottosson's Oklab in polar form to sRGB: three arrays [n] → [n, 3]; outside [0,
    1] if not in sRGB."""
    a = chroma * np.cos(hue)
    b = chroma * np.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.stack(
        [
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        ],
        axis=-1,
    )
    gamma_encoded = 1.055 * np.maximum(linear, 0) ** (1 / 2.4) - 0.055
    return np.where(linear > 0.0031308, gamma_encoded, 12.92 * linear)
