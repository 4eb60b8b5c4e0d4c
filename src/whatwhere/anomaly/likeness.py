"""Pictures that a detector cannot judge: of another size or colour than those it learned from, of
another kind, and normal pictures that do not show how normal pictures differ."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from whatwhere.errors import ImageError, plural
from whatwhere.spec.checks import Checked, Count, Within

Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class LikenessSpec(Checked):
    """Settings of comparisons with the pictures that a detector learned from.

    Parameters
    ----------
    scale
        how many times larger or smaller a picture may be than they are, along the geometric mean of
        its sides. Filters have a fixed size in pixels: at twice the size, every normal picture is
        an alarm
    few
        fewer different normal pictures than this do not show how they differ
    other_kind
        share of pictures above every normal one, beyond which they are of another kind
    fewest_judged
        pictures from which on that share is looked at
    """

    scale: Annotated[float, Within(1)] = 1.5
    few: Count = 3
    other_kind: Annotated[float, Within(0, 1)] = 0.9
    fewest_judged: Count = 5


USUAL = LikenessSpec()


class UnlikeLearned(ImageError):
    """A picture that cannot be compared with those that a detector learned from.

    Attributes
    ----------
    name
        of the picture
    given
        what it is
    expected
        what the others are
    remedy
        what to do, as a sentence
    """

    def __init__(self, name: str, given: str, expected: str, remedy: str) -> None:
        self.name = name
        self.given = given
        self.expected = expected
        self.remedy = remedy
        super().__init__(
            f"Picture {name} {given}, but the detector learned from {expected}. {remedy}"
        )


class TooAlike(UserWarning):
    """Normal pictures that do not show how normal pictures differ.

    Attributes
    ----------
    given
        number of normal pictures
    different
        number of different ones among them
    """

    def __init__(self, given: int, different: int) -> None:
        self.given = given
        self.different = different
        what = f"Got {plural(given, 'normal picture')}"
        if different < given:
            what += f", but only {different} different {'one' if different == 1 else 'ones'}"
        super().__init__(
            f"{what}. A detector learns from them how normal pictures differ, so its threshold"
            " means little. Give at least 20 different pictures."
        )


@dataclass(frozen=True)
class LearnedKind:
    """The channels and the sizes of the pictures that a detector learned from.

    Parameters
    ----------
    signals
        whether they are signals, which may have any length
    least, most
        geometric means of the sides of the smallest and of the largest picture, in pixels
    """

    channels: int
    signals: bool
    least: float
    most: float

    @classmethod
    def of(cls, pictures: Iterable[Tensor]) -> "LearnedKind":
        """Measure pictures [C, H, W]."""
        listed = list(pictures)
        sides = [_side_of(picture) for picture in listed]
        signals = all(picture.shape[1] == 1 for picture in listed)
        return cls(len(listed[0]), signals, min(sides), max(sides))

    def check(self, picture: Tensor, name: str, spec: LikenessSpec = USUAL) -> None:
        """Raise an UnlikeLearned for a picture [C, H, W] of other channels or of a size far from
        those learned."""
        channels = len(picture)
        if channels != self.channels:
            remedy = "Give pictures of the same channels, or fit again."
            if {channels, self.channels} == {1, 3}:
                remedy = "Convert the pictures, or fit to pictures like these."
            raise UnlikeLearned(
                name, f"is {colour(channels)}", f"pictures that are {colour(self.channels)}", remedy
            )
        side = _side_of(picture)
        if self.signals or self.least / spec.scale <= side <= self.most * spec.scale:
            return
        height, width = picture.shape[1:]
        sides = f"about {self.least:.0f} × {self.least:.0f}"
        if self.most > 1.05 * self.least:
            sides += f" to {self.most:.0f} × {self.most:.0f}"
        raise UnlikeLearned(
            name,
            f"has {height} × {width} pixels",
            f"pictures of {sides}",
            "Scale the pictures to that size, or fit to pictures of this size.",
        )


def _side_of(picture: Tensor) -> float:
    """Return the side in pixels of a square as large as a picture [C, H, W]."""
    return float(picture[0].numel() ** 0.5)


def colour(channels: int) -> str:
    return {1: "grey", 3: "in colour"}.get(channels, f"of {plural(channels, 'channel')}")


def are_of_another_kind(scores: np.ndarray, normal: np.ndarray, spec: LikenessSpec = USUAL) -> bool:
    """Tell whether almost all pictures score above every normal one: such a change concerns the
    pictures, not defects."""
    if len(scores) < spec.fewest_judged:
        return False
    return float((scores > normal.max()).mean()) >= spec.other_kind
