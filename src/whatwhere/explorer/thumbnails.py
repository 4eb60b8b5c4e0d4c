"""Images as small pictures for a page: PNG files without another library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def png(pixels: Tensor) -> bytes:
    """Bytes [H, W] or [H, W, 3] as a PNG file, in grey or RGB."""
    height, width = pixels.shape[:2]
    rows = pixels.cpu().contiguous().numpy().reshape(height, -1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows), 3)  # 0: a row without a filter
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def thumbnail(image: Tensor, side: int) -> Tensor:
    """An image [C, H, W] as bytes [h, w] or [h, w, 3], its sides at most `side`; other channels become their mean."""
    largest = max(image.shape[1:])
    if largest > side:
        size = [max(1, round(extent * side / largest)) for extent in image.shape[1:]]
        image = F.interpolate(image[None], size, mode="area")[0]
    if image.shape[0] not in (1, 3):
        image = image.mean(0, keepdim=True)
    shades = (255 * image.nan_to_num(0).clamp(0, 1)).round().to(torch.uint8)
    return shades.permute(1, 2, 0) if len(shades) == 3 else shades[0]


def sheet(images: Sequence[Tensor], side: int, columns: int) -> Tensor:
    """Thumbnails [h, w] or [h, w, 3] in a grid of squares of `side`, row by row, each in the middle of its own."""
    rows = -(-len(images) // columns)
    result = torch.zeros(rows * side, columns * side, *images[0].shape[2:], dtype=torch.uint8)
    for number, image in enumerate(images):
        height, width = image.shape[:2]
        top = number // columns * side + (side - height) // 2
        left = number % columns * side + (side - width) // 2
        result[top : top + height, left : left + width] = image
    return result
