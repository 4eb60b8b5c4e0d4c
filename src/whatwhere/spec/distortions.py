"""How much images are distorted to learn what does not matter."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import check_fields, require, require_count


@dataclass(frozen=True)
class Distortions:
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

    rotation: float = 15.0
    shear: float = 0.2
    scale: float = 0.15
    shift: float = 0.03
    elastic: float = 0.04
    brightness: float = 0.0
    colour: float = 0.0
    copies: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("rotation", "shear", "scale", "shift", "elastic", "brightness", "colour"):
            value = getattr(self, name)
            most = 180.0 if name == "rotation" else 1.0
            require(0 <= value <= most, f"{name} = {value}", f"a number from 0 to {most:g}")
        require_count("copies", self.copies, least=2)  # copies are compared with their mean
