"""Curves from result files: error against ISTA steps, error against λ for four priors (paper, Figs. ista, priors).

A result file is JSON:

    {"title": "Test error against λ",
     "x": {"label": "λ at inference", "scale": "log"},
     "y": {"label": "test error, %"},
     "curves": [{"label": "ℓ0.5 training, ℓ1 inference",
                 "x": [0.5, 5], "y": [0.9, 0.84], "std": [0.02, 0.03]}, …]}

`title`, `scale` ("linear" or "log") and `std` (drawn as a band of ± one standard deviation) are optional.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from whatwhere.errors import RunError
from whatwhere.figures.cost import cost
from whatwhere.figures.style import COLUMN, RULE, characters_per_line, curve_styles, new_figure, styled

T = TypeVar("T")


@dataclass(frozen=True)
class Curve:
    """One curve: x and y [n], and the standard deviation of y [n] if it was measured."""

    label: str
    x: np.ndarray
    y: np.ndarray
    std: np.ndarray | None = None


@dataclass(frozen=True)
class CurveSet:
    """The content of a result file."""

    title: str
    x_label: str
    y_label: str
    x_scale: str
    y_scale: str
    curves: tuple[Curve, ...]


def draw_file(path: Path) -> Figure:
    """The figure of a result file: its curves, or the cost over training if it contains `histories`.

    path  of the JSON file

    >>> import json, pathlib
    >>> content = {"x": {"label": "λ"}, "y": {"label": "error"}, "curves": [{"label": "a", "x": [1, 2], "y": [3, 2]}]}
    >>> _ = pathlib.Path("curves.json").write_text(json.dumps(content))
    >>> figure = ww.figures.draw_file(pathlib.Path("curves.json"))
    """
    return _read(path, draw_content)


def draw_content(content: Mapping[str, Any]) -> Figure:
    """The figure of a result file's content: its curves, or the cost over training if it contains `histories`.

    content  as a JSON file holds it

    >>> content = {"x": {"label": "λ"}, "y": {"label": "error"}, "curves": [{"label": "a", "x": [1, 2], "y": [3, 2]}]}
    >>> figure = ww.figures.draw_content(content)
    """
    return cost(content["histories"]) if "histories" in content else curves(curve_set(content))


def read_curves(path: Path) -> CurveSet:
    """Read a result file of curves.

    path  of the JSON file

    >>> import json, pathlib
    >>> content = {"x": {"label": "λ"}, "y": {"label": "error"}, "curves": [{"label": "a", "x": [1, 2], "y": [3, 2]}]}
    >>> _ = pathlib.Path("curves.json").write_text(json.dumps(content))
    >>> ww.figures.read_curves(pathlib.Path("curves.json")).curves[0].label
    'a'
    """
    return _read(path, curve_set)


def _read(path: Path, convert: Callable[[Any], T]) -> T:
    """Parse a file and convert its content; an invalid entry is named in the error."""
    if not path.is_file():
        raise RunError(f"{path} was given as a result file; there is no such file")
    try:
        return convert(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise RunError(
            f"{path} is not a valid result file: {reason} (docs/reference/file_formats.md describes the format)"
        ) from None


def curve_set(content: Mapping[str, Any]) -> CurveSet:
    """Curves from the parsed content of a result file."""
    x, y = content["x"], content["y"]
    x_scale, y_scale = x.get("scale", "linear"), y.get("scale", "linear")
    for scale in (x_scale, y_scale):
        if scale not in ("linear", "log"):
            raise ValueError(f"scale = {scale!r}; expected 'linear' or 'log'")
    curves = tuple(_curve(entry) for entry in content["curves"])
    if not curves:
        raise ValueError("'curves' is empty; expected at least one curve")
    return CurveSet(content.get("title", ""), x["label"], y["label"], x_scale, y_scale, curves)


def _curve(entry: dict[str, Any]) -> Curve:
    x, y = np.array(entry["x"], float), np.array(entry["y"], float)
    std = None if entry.get("std") is None else np.array(entry["std"], float)
    if x.ndim != 1 or x.shape != y.shape or (std is not None and std.shape != x.shape):
        raise ValueError(f"curve {entry['label']!r} has {x.size} x, {y.size} y; expected the same number of each")
    order = np.argsort(x, kind="stable")
    return Curve(entry["label"], x[order], y[order], None if std is None else std[order])


def lowest(curves: CurveSet) -> tuple[str, float, float]:
    """The lowest point of all curves: the label of its curve, x, y."""
    best = min(curves.curves, key=lambda curve: curve.y.min())
    i = int(best.y.argmin())
    return best.label, float(best.x[i]), float(best.y[i])


@styled
def curves(results: CurveSet, width: float = COLUMN) -> Figure:
    """Curves with a ring around the lowest point.

    results  the curves, from `read_curves`
    width    of the figure, in inches

    >>> import json, pathlib
    >>> content = {"x": {"label": "λ"}, "y": {"label": "error"}, "curves": [{"label": "a", "x": [1, 2], "y": [3, 2]}]}
    >>> _ = pathlib.Path("curves.json").write_text(json.dumps(content))
    >>> figure = ww.figures.curves(ww.figures.read_curves(pathlib.Path("curves.json")))
    """
    figure = new_figure(width, 0.74 * width + 0.12 * len(results.curves))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for curve, curve_style in zip(results.curves, curve_styles(), strict=False):
        axes.plot(curve.x, curve.y, label=curve.label, **curve_style)
        if curve.std is not None:
            axes.fill_between(
                curve.x, curve.y - curve.std, curve.y + curve.std, color=curve_style["color"], alpha=0.15, lw=0
            )
    _, x, y = lowest(results)
    axes.plot(x, y, "o", markersize=8, markerfacecolor="none", markeredgecolor="#222222", markeredgewidth=0.9)
    axes.set(xlabel=results.x_label, ylabel=results.y_label, xscale=results.x_scale, yscale=results.y_scale)
    axes.set_title(textwrap.fill(results.title, characters_per_line(width)))
    axes.grid(color=RULE)
    if results.y_scale == "log":
        axes.yaxis.set_major_formatter("{x:g}")  # the default formatter needs mathematical text, which is off
        axes.yaxis.set_minor_formatter(NullFormatter())
    if results.x_scale == "log":
        ticks = sorted({float(x) for curve in results.curves for x in curve.x})
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    if len(results.curves) > 1:
        figure.legend(loc="outside lower left", ncols=1 if width < 5 else 2)
    return figure
