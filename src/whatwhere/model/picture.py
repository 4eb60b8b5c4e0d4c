"""Small pictures for notebooks: tensors as PNG in an HTML tag, with zlib alone; the filters of a model."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from whatwhere.model.deconvnet import DeconvNet

GAP = 1  # pixels between tiles
GAP_GREY = 128


def png(pixels: Tensor) -> bytes:
    """Bytes [H, W] or [H, W, 3] as a PNG file, in grey or RGB."""
    height, width = pixels.shape[:2]
    colour_type = 2 if pixels.ndim == 3 else 0
    lines = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), pixels.reshape(height, -1).cpu()], 1)  # filter 0

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    data = zlib.compress(bytes(lines.flatten().tolist()))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def tiles(images: Tensor, columns: int, low: float, high: float) -> Tensor:
    """Images [n, C, h, w] side by side, values from low to high as grey (C = 1) or RGB (C = 3), as bytes."""
    n, channels, h, w = images.shape
    scaled = (images.detach().float().cpu() - low) / max(high - low, 1e-30)
    shades = (255 * scaled.clamp(0, 1)).round().to(torch.uint8)
    rows = -(-n // columns)
    sheet = torch.full((channels, rows * (h + GAP) + GAP, columns * (w + GAP) + GAP), GAP_GREY, dtype=torch.uint8)
    for i, image in enumerate(shades):
        top, left = GAP + i // columns * (h + GAP), GAP + i % columns * (w + GAP)
        sheet[:, top : top + h, left : left + w] = image
    return sheet[0] if channels == 1 else sheet.permute(1, 2, 0)


def figure(pixels: Tensor, caption: str, zoom: int) -> str:
    """An HTML figure of a picture, every pixel `zoom` pixels wide."""
    source = base64.b64encode(png(pixels)).decode()
    style = f"width:{zoom * pixels.shape[1]}px;max-width:100%;image-rendering:pixelated"
    image = f'<img src="data:image/png;base64,{source}" style="{style}" alt="{escape(caption)}">'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{image}</figure>"


MOST = 64  # maps of a layer that are shown


def model_html(model: DeconvNet) -> str:
    """The model's summary and, for every layer, its filters: those of layer 1 over grey or RGB images as they look,
    others plane by plane, a column for each map and a row for each map below.
    """
    parts = [f"<p><code>{escape(repr(model))}</code></p>"]
    for k, f in enumerate(model.filters, start=1):
        shown = f[:MOST, :MOST]
        below, maps, size, _ = shown.shape
        as_images = k == 1 and below in (1, 3)
        planes = shown.transpose(0, 1) if as_images else shown.reshape(below * maps, 1, size, size)
        largest = float(shown.abs().max())
        lowest = 0.0 if model.spec.nonnegative else -largest
        sheet = tiles(planes, min(maps, 16) if as_images else maps, lowest, largest)
        rest = f", the first {maps} maps over {below}" if shown.shape != f.shape else ""
        parts.append(figure(sheet, f"Filters of layer {k}: {list(f.shape)}{rest}", zoom=6 if as_images else 2))
    return "".join(parts)
