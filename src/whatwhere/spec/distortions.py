"""How much images are distorted to learn what does not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Within

Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True)
class Distortions(Checked):
    """How much images are distorted. Each amount is the largest one, to either side; 0 leaves a kind out.

    rotation    in degrees
    shear       columns per row, and rows per column
    scale       share by which an image becomes larger or smaller, along each axis by itself
    shift       share of the height and of the width
    elastic     share of the height and of the width by which control points of a 4×4 grid move, each by itself
    brightness  share by which all values of an image become larger or smaller
    colour      the same for each channel by itself
    copies      distorted copies of an image
    seed        of the draws

    >>> ww.Distortions(rotation=20, shift=0.0).copies
    4
    """

    rotation: Annotated[float, Within(0, 180)] = 15.0
    shear: Share = 0.2
    scale: Share = 0.15
    shift: Share = 0.03
    elastic: Share = 0.04
    brightness: Share = 0.0
    colour: Share = 0.0
    copies: Annotated[int, Within(2)] = 4  # they are compared with their mean
    seed: int = 0
