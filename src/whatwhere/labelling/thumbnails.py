"""The pictures of a labelling session as its page shows them: sheets of small ones, and originals.

Sheets are made when they are first asked for, so that a page of many pictures opens at once.
"""

import io
import math
import threading
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images
from whatwhere.data.images import brightest_of
from whatwhere.data.pictures import Pictures, decode
from whatwhere.html import png, sheet, thumbnail


@dataclass(frozen=True)
class PictureSizes:
    """How large the pictures of the page are.

    Parameters
    ----------
    side
        pixels of a small picture
    columns
        small pictures in a row of a sheet
    sheet
        small pictures on a sheet
    values
        of pictures that are read at the same time
    largest
        pixels of the longer side of an original, as it is sent
    smallest
        smaller originals are enlarged without smoothing, so that pixels stay squares
    """

    side: int = 48
    columns: int = 16
    sheet: int = 256
    values: int = 1 << 24
    largest: int = 2048
    smallest: int = 256


class SessionPictures:
    """The pictures of a set as PNG files."""

    def __init__(self, images: Images, sizes: PictureSizes | None = None) -> None:
        self.images = images
        self.extents = sizes or PictureSizes()
        self.sheet_count = -(-len(images) // self.extents.sheet)
        self._sheets: dict[int, bytes] = {}
        self._making = threading.Lock()

    def sheet(self, number: int) -> bytes:
        """Return a sheet of small pictures; it is kept."""
        # One at a time: the pictures come from one disk, and the program labels meanwhile.
        with self._making:
            if number not in self._sheets:
                self._sheets[number] = self._make_sheet(number)
            return self._sheets[number]

    def _make_sheet(self, number: int) -> bytes:
        sizes = self.extents
        first = number * sizes.sheet
        last = min(first + sizes.sheet, len(self.images))
        together = max(1, sizes.values // math.prod(self.images.shape))
        small: list[Tensor] = []
        for start in range(first, last, together):
            rows = slice(start, min(start + together, last))
            small += small_pictures(self.images[rows], sizes.side)
        return png(sheet(small, sizes.side, sizes.columns))

    def original(self, row: int) -> bytes:
        """Return a picture as it is in its file, with sides of bounded length: a PNG file, or a
        JPEG file for large JPEG files, which is ten times smaller and faster."""
        picture = self._original_pixels(row)
        if self._is_large_jpeg(row):
            return _jpeg(thumbnail(picture, self.extents.largest))
        factor = self.extents.smallest // max(picture.shape[1:])
        if factor > 1:
            picture = picture.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        return png(thumbnail(picture, self.extents.largest))

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of every picture in its file, not yet scaled or cut for the model."""
        pixels = self.images.pixels
        if not isinstance(pixels, Pictures):
            _, height, width = self.images.shape
            return [(width, height)] * len(self.images)
        shapes = (picture.shape for picture in pixels.pictures)
        return [(width, height) for _, height, width in shapes]

    def _is_large_jpeg(self, row: int) -> bool:
        pixels = self.images.pixels
        if not isinstance(pixels, Pictures):
            return False
        picture = pixels.pictures[row]
        is_large = max(picture.shape[1:]) > self.extents.largest
        return is_large and picture.file.suffix.lower() in (".jpg", ".jpeg")

    def _original_pixels(self, row: int) -> Tensor:
        """Return the picture [C, H, W] from its file, not yet scaled or cut for the model."""
        pixels = self.images.pixels
        if not isinstance(pixels, Pictures):
            return self.images[row] / self.images.white
        raw = decode(pixels.pictures[row], enough=self.extents.largest // 2)
        if raw.dtype.kind == "f":
            return torch.from_numpy(np.array(raw, np.float32))
        # The white of deep pixels belongs to the set; bytes have their own.
        deep = raw.dtype == np.uint16 and self.images.deep_white is not None
        white = self.images.deep_white if deep else brightest_of(raw.dtype)
        return torch.from_numpy(raw.astype(np.float32) / np.float32(white))


def _jpeg(pixels: Tensor, quality: int = 90) -> bytes:
    """Return bytes [H, W] or [H, W, 3] as a JPEG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "JPEG", quality=quality)
    return file.getvalue()


def small_pictures(images: Tensor, side: int) -> list[Tensor]:
    """Return images [N, C, H, W] as thumbnails whose longer side is `side`."""
    largest = max(images.shape[2:])
    if largest != side:
        size = [max(1, round(extent * side / largest)) for extent in images.shape[2:]]
        mode = "area" if largest > side else "nearest"
        images = F.interpolate(images, size, mode=mode)
    return [thumbnail(image, side) for image in images]
