"""TIFF files of pixels that Pillow has no kind for: any number of channels, and channels of more than 8 bits."""

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from whatwhere.errors import MissingExtra

DTYPES = ("uint8", "uint16", "float32")
MOST_VALUES = 1 << 27
"""Of one page, in all its channels."""
SAMPLES, BITS = 277, 258  # tags: channels of a pixel, bits of each


def is_reduced(picture: Any) -> bool:
    """Whether Pillow drops channels or bits of an open picture."""
    if picture.format != "TIFF":
        return False
    samples, bits = picture.tag_v2.get(SAMPLES, 1), picture.tag_v2.get(BITS, (1,))
    return bool(
        samples != len(picture.getbands()) or picture.mode == "RGBX" or (picture.mode == "RGB" and max(bits) > 8)
    )


class ChannelTiff:
    """The pages of an open file, one at a time, with the names of Pillow's pictures."""

    has_transparency_data = False

    def __init__(self, stream: BinaryIO) -> None:
        self._pages: Any = _tifffile("reading").TiffFile(stream, name="TIFF").pages
        self.n_frames = len(self._pages)
        self.seek(0)

    def seek(self, page: int) -> None:
        """Go to a page."""
        self._page = self._pages[page]
        self.width, self.height = int(self._page.imagewidth), int(self._page.imagelength)

    def pixels(self) -> np.ndarray:
        """The pixels of the page, [H, W, C]."""
        page = self._page
        axes = page.axes.replace("S", "") == "YX" and page.photometric.name in ("MINISBLACK", "RGB")
        if not axes or page.dtype is None or page.dtype.name not in DTYPES:
            raise ValueError(
                f"a TIFF of kind {page.photometric.name} with pixels of {page.dtype}; expected grey values or RGB, and "
                f"any channels, of {', '.join(DTYPES)}"
            )
        if page.compression.name != "NONE" or any(int(kind) for kind in page.extrasamples):
            raise ValueError(
                f"{page.samplesperpixel} channels of {page.dtype} with compression or transparency; save the file "
                "without, or as .npy"
            )
        if page.size > MOST_VALUES:
            raise ValueError(f"a page of {page.size:,} values; expected at most {MOST_VALUES:,}; make it smaller")
        values: np.ndarray = page.asarray().astype(page.dtype.newbyteorder("="), copy=False)
        return np.atleast_3d(np.moveaxis(values, 0, -1) if page.axes == "SYX" else values)


def write_tiff(file: BinaryIO, pages: Sequence[np.ndarray]) -> None:
    """Write pages [C, H, W]."""
    with _tifffile("writing").TiffWriter(file) as writer:
        for page in pages:
            kind = "rgb" if len(page) == 3 else "minisblack"
            writer.write(page, photometric=kind, planarconfig="separate", metadata=None)


def _tifffile(what: str) -> Any:
    try:
        import tifffile
    except ImportError:
        raise MissingExtra("tifffile", "data", f"{what} a TIFF file of such channels") from None
    return tifffile
