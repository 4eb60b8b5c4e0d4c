"""How strongly images are distorted, for a metric that discounts distortions."""

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Within

Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True)
class Distortions(Checked):
    """How strongly images are distorted. Each amount is the largest change, in either direction; 0
    leaves a kind of distortion out.

    Parameters
    ----------
    rotation
        rotation of distorted copies, in degrees
    shear
        shear, in columns per row and rows per column
    scale
        change of size along each axis, as a share of the size
    shift
        shift, as a share of the height and of the width
    elastic
        shift of each control point of a 4×4 grid, as a share of the height and of the width
    brightness
        change of all values of an image, as a share of them
    colour
        change of the values of each channel, as a share of them
    copies
        number of distorted copies of an image
    seed
        seed of the random distortions

    Examples
    --------
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


DISTORTIONS = (Distortions, "rotation shear scale shift elastic brightness colour copies")
"""The settings of distortions that a command has."""
