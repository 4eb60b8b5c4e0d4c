"""Small distortions: changes of an image that leave what it shows the same.

An image is turned, sheared, scaled, moved and bent a little, and its brightness and colour change a little. All amounts
are drawn at random for every image, evenly between minus and plus the setting. One resampling does all the moves.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.spec.tasks import Distortions

ELASTIC_GRID = 4  # control points of the elastic part along each side; between them it is a smooth curve


def distort(images: Tensor, how: Distortions, generator: torch.Generator) -> Tensor:
    """One distorted copy of each image, [N, C, H, W]; beyond the frame, pixels of the border repeat.

    generator  of the draws, on the CPU, so that every device distorts alike

    >>> images = ww.data.load("digits")[:5]
    >>> distort(images, ww.Distortions(rotation=20), torch.Generator().manual_seed(0)).shape
    torch.Size([5, 1, 28, 28])
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
