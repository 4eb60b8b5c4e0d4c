"""Changes that a camera or a line makes, such as rotations, shifts and blur: how many false alarms
each raises, and how a detector learns to tolerate them.

A detector that tolerates a change learns from changed copies of the normal pictures, next to the
pictures themselves. What rotates into a picture from outside is unknown, so it has no influence.
What a shift brings in was never seen, so a detector that tolerates shifts looks at windows without
the margin that may move in or out (`Tolerance.window`), in all pictures alike.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, SpecError, listed
from whatwhere.spec.checks import Checked, Count, Within

_LARGEST_ROTATION = 45.0


@dataclass(frozen=True, kw_only=True)
class Tolerance(Checked):
    """How far pictures may be changed without an alarm.

    Parameters
    ----------
    rotation
        degrees, in both directions
    shift
        pixels, in every direction
    blur
        pixels: deviation of a Gaussian
    copies
        changed copies of each normal picture that the detector learns from. With more, it tolerates
        amounts between those it has seen better, and `fit` takes longer
    """

    rotation: Annotated[float, Within(0, _LARGEST_ROTATION)] = 0.0
    shift: Annotated[float, Within(0)] = 0.0
    blur: Annotated[float, Within(0)] = 0.0
    copies: Count = 2

    @property
    def margin(self) -> int:
        """The pixels at every border that a shift may move out of a picture or into it."""
        return math.ceil(self.shift)

    def window(self, picture: Tensor) -> Tensor:
        """Return a picture [C, H, W] without its margin; signals have none above and below."""
        rows = 0 if picture.shape[1] == 1 else self.margin
        columns = self.margin
        height, width = picture.shape[1:]
        if min(height - 2 * rows, width - 2 * columns) < 1:
            raise ImageError(
                f"A picture has {height} × {width} pixels, which is too small for shifts by"
                f" {self.shift:g} pixels. Give a smaller shift to --tolerate."
            )
        return picture[:, rows : height - rows, columns : width - columns]

    def at_border(self, values: Tensor, size: Sequence[int]) -> Tensor:
        """Return values [h, w] of a window at the size of its picture [H, W], with NaN in the
        margin."""
        rows, columns = (size[0] - values.shape[0]) // 2, (size[1] - values.shape[1]) // 2
        return F.pad(values, [columns, columns, rows, rows], value=torch.nan)

    @classmethod
    def parse(cls, text: str) -> "Tolerance":
        """Read 'rotation=2,shift=4,blur=1'.

        >>> Tolerance.parse("shift=4, blur=0.5")
        Tolerance(rotation=0.0, shift=4.0, blur=0.5, copies=2)
        """
        names = ("rotation", "shift", "blur")
        amounts = dict.fromkeys(names, 0.0)
        for part in text.split(","):
            name, equals, number = (word.strip() for word in part.partition("="))
            if name not in names or not equals:
                raise SpecError(
                    f"Got {part.strip()[:40]!r} in --tolerate; expected {listed(names)} with an"
                    " amount, such as rotation=2,shift=4,blur=1."
                )
            try:
                amounts[name] = float(number)
            except ValueError:
                raise SpecError(
                    f"Got {name}={number[:40]!r} in --tolerate; expected a number."
                ) from None
        rotation, shift, blur = amounts.values()
        return cls(rotation=rotation, shift=shift, blur=blur)

    def copies_of(self, picture: Tensor, seed: int) -> list[Tensor]:
        """Return windows of copies of a picture [C, H, W], changed by random amounts, the last one
        by the largest amounts: what is no alarm there should be none with smaller ones."""
        generator = torch.Generator().manual_seed(seed)
        found = []
        for number in range(self.copies):
            amounts = 2 * torch.rand(4, generator=generator, dtype=torch.float64) - 1
            if number == self.copies - 1:
                amounts = amounts.sign()
            turn, down, across, blur = amounts.tolist()
            change = Change(
                rotation=self.rotation * turn,
                down=round(self.shift * down),
                across=round(self.shift * across),
                blur=self.blur * abs(blur),
            )
            found.append(self.window(change(picture)))
        return found


@dataclass(frozen=True)
class Change:
    """A change of a picture: first it is blurred, then rotated about its middle, then shifted.

    Parameters
    ----------
    rotation
        degrees
    down, across
        pixels
    blur
        pixels: deviation of a Gaussian
    """

    rotation: float = 0.0
    down: int = 0
    across: int = 0
    blur: float = 0.0

    def __call__(self, picture: Tensor) -> Tensor:
        """Return a picture [C, H, W] after the change; NaN where nothing is known."""
        changed = blurred(picture, self.blur) if self.blur else picture
        changed = _rotated(changed, self.rotation) if self.rotation else changed
        return _shifted(changed, self.down, self.across)

    def __str__(self) -> str:
        parts = []
        if self.rotation:
            parts.append(f"rotated by {self.rotation:g}°")
        if self.down or self.across:
            parts.append(f"shifted by {max(abs(self.down), abs(self.across))} pixels")
        if self.blur:
            parts.append(f"blurred by {self.blur:g} pixel{'' if self.blur == 1 else 's'}")
        return " and ".join(parts) or "unchanged"


TRIED = (
    Change(),
    *(Change(rotation=degrees) for degrees in (1.0, 2.0, 4.0)),
    *(Change(down=pixels, across=pixels) for pixels in (2, 4)),
    *(Change(blur=pixels) for pixels in (0.5, 1.0)),
)
"""The changes whose false alarms are counted."""


@dataclass(frozen=True)
class AlarmsAfter:
    """The false alarms among `of` normal pictures after a change."""

    change: Change
    alarms: int
    of: int


def table_of(found: Iterable[AlarmsAfter]) -> str:
    """Make lines that say how many false alarms each change raises."""
    rows = list(found)
    width = max(len(str(row.change)) for row in rows)
    lines = [f"  {row.change!s:<{width}}  {row.alarms} of {row.of}" for row in rows]
    return "\n".join(["False alarms among normal pictures that it did not learn from:", *lines])


def blurred(picture: Tensor, deviation: float) -> Tensor:
    """Return a picture [C, H, W] blurred by a Gaussian; what is at the border continues beyond
    it."""
    reach = max(1, math.ceil(3 * deviation))
    steps = torch.arange(-reach, reach + 1.0)
    weights = torch.exp(-(steps**2) / (2 * deviation**2))
    weights = weights / weights.sum()
    padded = F.pad(picture[None], [reach] * 4, mode="replicate").transpose(0, 1)
    across = F.conv2d(padded, weights[None, None, None])
    return F.conv2d(across, weights[None, None, :, None])[:, 0]


def _rotated(picture: Tensor, degrees: float) -> Tensor:
    """Return a picture [C, H, W] rotated about its middle; NaN where it shows what was outside."""
    height, width = picture.shape[1:]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # in coordinates that go from -1 to 1 over the height and over the width
    turn = torch.tensor([[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]])
    grid = F.affine_grid(turn[None], [1, 1, height, width], align_corners=False)
    turned = F.grid_sample(
        picture[None], grid, mode="bicubic", padding_mode="border", align_corners=False
    )[0]
    least, most = picture.nan_to_num().amin(), picture.nan_to_num().amax()
    inside = (grid[0].abs() <= 1).all(-1)
    return torch.where(inside, turned.clamp(least, most), torch.nan)


def _shifted(picture: Tensor, down: int, across: int) -> Tensor:
    """Return a picture [C, H, W] shifted by whole pixels; NaN where it shows what was outside."""
    moved = torch.full_like(picture, torch.nan)
    height, width = picture.shape[1:]
    rows, columns = height - abs(down), width - abs(across)
    if rows <= 0 or columns <= 0:
        return moved
    top, left = max(down, 0), max(across, 0)
    up, right = max(-down, 0), max(-across, 0)
    moved[:, top : top + rows, left : left + columns] = picture[
        :, up : up + rows, right : right + columns
    ]
    return moved
