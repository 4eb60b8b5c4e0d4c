"""The pictures of a labelling session as its page shows them: sheets of small ones, and originals.

Sheets are made when they are first asked for, so that a page of many pictures opens at once.
"""

import math
import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data import Images
from whatwhere.data.images import brightest_of
from whatwhere.data.pictures import Pictures, decode
from whatwhere.html import png, sheet, thumbnail

SIDE = 48  # pixels of a small picture
COLUMNS = 16  # small pictures in a row of a sheet
PER_SHEET = 256
READ_VALUES = 1 << 24  # of pictures that are read at the same time
LARGEST_SIDE = 2048  # pixels of the longer side of an original, as it is sent
SMALLEST_SIDE = 256  # smaller originals are enlarged without smoothing, so that pixels stay squares


class SessionPictures:
    """The pictures of a set as PNG files."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.sheet_count = -(-len(images) // PER_SHEET)
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
        first = number * PER_SHEET
        last = min(first + PER_SHEET, len(self.images))
        together = max(1, READ_VALUES // math.prod(self.images.shape))
        small: list[Tensor] = []
        for start in range(first, last, together):
            rows = slice(start, min(start + together, last))
            small += small_pictures(self.images[rows], SIDE)
        return png(sheet(small, SIDE, COLUMNS))

    def original(self, row: int) -> bytes:
        """Return a picture as it is in its file, with sides of at most `LARGEST_SIDE` pixels."""
        picture = self._original_pixels(row)
        factor = SMALLEST_SIDE // max(picture.shape[1:])
        if factor > 1:
            picture = picture.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        return png(thumbnail(picture, LARGEST_SIDE))

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of every picture in its file, not yet scaled or cut for the model."""
        pixels = self.images.pixels
        if not isinstance(pixels, Pictures):
            _, height, width = self.images.shape
            return [(width, height)] * len(self.images)
        shapes = (picture.shape for picture in pixels.pictures)
        return [(width, height) for _, height, width in shapes]

    def _original_pixels(self, row: int) -> Tensor:
        """Return the picture [C, H, W] from its file, not yet scaled or cut for the model."""
        pixels = self.images.pixels
        if not isinstance(pixels, Pictures):
            return self.images[row] / self.images.white
        raw = decode(pixels.pictures[row])
        if raw.dtype.kind == "f":
            return torch.from_numpy(np.array(raw, np.float32))
        # The white of deep pixels belongs to the set; bytes have their own.
        deep = raw.dtype == np.uint16 and self.images.deep_white is not None
        white = self.images.deep_white if deep else brightest_of(raw.dtype)
        return torch.from_numpy(raw.astype(np.float32) / np.float32(white))


def small_pictures(images: Tensor, side: int) -> list[Tensor]:
    """Return images [N, C, H, W] as thumbnails whose longer side is `side`."""
    largest = max(images.shape[2:])
    if largest != side:
        size = [max(1, round(extent * side / largest)) for extent in images.shape[2:]]
        mode = "area" if largest > side else "nearest"
        images = F.interpolate(images, size, mode=mode)
    return [thumbnail(image, side) for image in images]
