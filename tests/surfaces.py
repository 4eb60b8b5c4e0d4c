"""Pictures of a surface with vertical lines, and defects that are known because they are made
here."""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor


def surface(count: int, seed: int = 0, height: int = 40, width: int = 44) -> Tensor:
    """Grey pictures [N, 1, H, W] of vertical lines of several exposures, with grain."""
    generator = torch.Generator().manual_seed(seed)
    lines = torch.rand(count, 1, 1, width, generator=generator)
    grain = torch.rand(count, 1, height, width, generator=generator)
    exposure = 0.3 + 0.4 * torch.rand(count, 1, 1, 1, generator=generator)
    return exposure * (0.6 + 0.3 * lines + 0.1 * grain)


def scratched(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """The pictures with a dark diagonal scratch each, and where it is, [N, H, W]."""
    damaged, mask = (
        pictures.clone(),
        torch.zeros(len(pictures), *pictures.shape[2:], dtype=torch.bool),
    )
    for n in range(len(pictures)):
        for step in range(14):
            mask[n, 12 + n % 8 + step, 14 + n % 8 + step : 17 + n % 8 + step] = True
    damaged[mask[:, None]] *= 0.4
    return damaged, mask


def save_pictures(folder: Path, pictures: Tensor, prefix: str) -> None:
    """Write grey pictures as PNG files: `prefix` and a number."""
    folder.mkdir(exist_ok=True)
    for n, picture in enumerate((255 * pictures[:, 0]).round().to(torch.uint8).numpy()):
        Image.fromarray(picture).save(folder / f"{prefix}{n}.png")
