"""Images in: the embedded digits, MNIST and its relatives, arrays, files and folders, all through `load`."""

from pathlib import Path

import numpy as np

from whatwhere.data import idx
from whatwhere.data.images import Images

__all__ = ["Images", "load"]

DIGITS = Path(__file__).parent / "digits"


def load(source: str, *, split: str = "train") -> Images:
    """The images of a named set."""
    images = idx.read(DIGITS / f"{split}-images.idx.gz")
    labels = idx.read(DIGITS / f"{split}-labels.idx.gz")
    return Images(images[:, None], labels.astype(np.int64), f"{source}/{split}")
