"""Masks: a weight for every pixel of a set of images."""

from dataclasses import replace

import numpy as np

from whatwhere.data.images import Images
from whatwhere.errors import ImageError


def match_mask(mask: Images, images: Images) -> Images:
    """One mask for each of the images, [N, 1 or C, H, W]; a single mask is used for all of them."""
    (C, H, W), (channels, height, width) = images.shape, mask.shape
    if len(mask) not in (1, len(images)) or channels not in (1, C) or (height, width) != (H, W):
        raise ImageError(
            f"{mask.name}: {len(mask):,} masks of {channels} × {height} × {width} were given for {len(images):,} "
            f"images of {C} × {H} × {W} ({images.name}); expected 1 or {len(images):,} masks of 1 or {C} × {H} × {W}"
        )
    if len(mask) == len(images):
        return mask
    return replace(mask, pixels=np.broadcast_to(mask.pixels[:], (len(images), *mask.shape)), labels=None)
