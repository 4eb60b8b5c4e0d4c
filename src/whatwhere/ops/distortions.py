"""Small distortions: changes of an image that leave what it shows the same.

An image is turned, sheared, scaled, moved and bent a little, and its brightness and colour change a little. All amounts
are drawn at random for every image, evenly between minus and plus the setting. One resampling does all the moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.spec.checks import check_fields, require, require_count

ELASTIC_GRID = 4  # control points of the elastic part along each side; between them it is a smooth curve


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

    >>> images = ww.data.load("digits")[:5]
    >>> distort(images, Distortions(rotation=20), torch.Generator().manual_seed(0)).shape
    torch.Size([5, 1, 28, 28])
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


def distort(images: Tensor, how: Distortions, generator: torch.Generator) -> Tensor:
    """One distorted copy of each image, [N, C, H, W]; beyond the frame, pixels of the border repeat.

    generator  of the draws, on the CPU, so that every device distorts alike
    """
    count, channels, height, width = images.shape

    def draw(amount: float, *shape: int) -> Tensor:
        """Values between -amount and amount, [N, …]; drawn for a kind that is left out, too, so that others stay."""
        values = torch.rand(count, *shape, generator=generator) * 2 - 1
        return (amount * values).to(images)

    turn = torch.deg2rad(draw(how.rotation))
    shear, scale, shift = draw(how.shear, 2), 1 + draw(how.scale, 2), draw(2 * how.shift, 2)
    moves = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], 1).view(count, 2, 2)
    moves = moves @ (torch.diag_embed(scale) + torch.diag_embed(shear).flip(2))
    frame = torch.tensor([width, height], dtype=images.dtype, device=images.device)
    moves = moves * (frame[None, :] / frame[:, None])  # from pixels to the units of a grid, which is 2 each way
    grid = F.affine_grid(torch.cat([moves, shift[:, :, None]], 2), list(images.shape), align_corners=False)
    bend = draw(2 * how.elastic, 2, ELASTIC_GRID, ELASTIC_GRID)
    if how.elastic:
        smooth = F.interpolate(bend, (height, width), mode="bicubic", align_corners=True)
        grid = grid + smooth.permute(0, 2, 3, 1)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    gain = (1 + draw(how.brightness, 1, 1, 1)) * (1 + draw(how.colour, channels, 1, 1))
    return moved * gain if how.brightness or how.colour else moved
