"""Training on pictures of any sizes: square crops of one size, drawn at random places."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from whatwhere.data.images import Images, Pixels, scale
from whatwhere.errors import ImageError

USUAL_SIZE = 64
MOST_BY_DEFAULT = 10_000
Group = tuple[Images, Images | None]
"""Images of one size and kind, and their masks if there are any."""


def crop_groups(groups: Sequence[Group], size: int | None = None, count: int | None = None, seed: int = 0) -> Group:
    """Crops of size × size pixels from pictures of any sizes and kinds, in random order, with their masks.

    Every picture gives a share in proportion to its area, at places drawn uniformly; pictures smaller than a crop give
    none. Grey pictures become colour if others are, and pixels of several types become float32 as `Images` scales them.

    size    side of a crop; None: 64, or the smallest side of all pictures if that is less
    count   None: as many as have the area of all pictures together, at most 10,000
    """
    size = size or min(USUAL_SIZE, *(min(images.shape[1:]) for images, _ in groups))
    whole = [group for group in groups if min(group[0].shape[1:]) >= size]
    left_out = sum(len(images) for images, _ in groups) - sum(len(images) for images, _ in whole)
    if not whole:
        largest = max(min(images.shape[1:]) for images, _ in groups)
        raise ImageError(f"crops of {size} × {size} were asked for; no picture is that large: at most {largest}")
    if left_out:
        warnings.warn(f"{left_out:,} pictures are smaller than {size} × {size} and are left out", stacklevel=3)
    areas = np.concatenate([np.full(len(images), images.shape[1] * images.shape[2]) for images, _ in whole])
    if count is None:
        count = min(MOST_BY_DEFAULT, max(len(areas), int(areas.sum()) // size**2))
    rng = np.random.default_rng(seed)
    shares = np.diff(np.rint(np.cumsum(areas) / areas.sum() * count).astype(int), prepend=0)
    corners = [
        rng.integers(0, (H - size + 1, W - size + 1), (int(shares[number]), 2))
        for number, (H, W) in enumerate(images.shape[1:] for images, _ in whole for _ in range(len(images)))
    ]
    order = rng.permutation(count)
    name = f"{count:,} crops of {size} × {size} from {len(areas):,} pictures"
    images = cut([images for images, _ in whole], corners, size, order, name)
    if whole[0][1] is None:
        return images, None
    masks = [mask for _, mask in whole if mask is not None]
    return images, cut(masks, corners, size, order, f"masks of {name}")


def cut(groups: Sequence[Images], corners: Sequence[np.ndarray], size: int, order: np.ndarray, name: str) -> Images:
    """The crops at these corners [n, 2] of each picture of all groups, in this order."""
    channels = {images.shape[0] for images in groups}
    if len(channels - {1}) > 1:
        raise ImageError(
            f"pictures with {' and '.join(map(str, sorted(channels)))} channels; expected one kind, or grey"
        )
    one_type = len({images.pixels.dtype for images in groups}) == 1
    pieces, labels, pictures = [], [], iter(corners)
    for images in groups:
        for row in range(len(images)):
            places = next(pictures)
            if not len(places):
                continue
            raw = images.pixels[np.array([row])][0]
            raw = raw if one_type else scale(raw, images.name, images.allow_nan, images.white)
            raw = np.broadcast_to(raw, (max(channels), *raw.shape[1:]))
            pieces += [raw[:, y : y + size, x : x + size].copy() for y, x in places]
            labels += [] if images.labels is None else [images.labels[row]] * len(places)
    pixels: Pixels = np.stack(pieces)[order]
    labelled = np.array(labels, np.int64)[order] if len(labels) == len(pieces) else None
    classes = groups[0].classes if labelled is not None else None
    return Images(pixels, labelled, name, classes, any(images.allow_nan for images in groups))
