"""A large picture, read tile by tile, and what the model explains of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import ImageError, one_or
from whatwhere.inference.target import Target, make_target
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.model import DeconvNet


class Picture(Protocol):
    """One picture [C, H, W] that is read in windows: a tensor, an array, or anything that reads from a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, window: tuple[slice, slice, slice], /) -> Any: ...


@dataclass(frozen=True)
class TileImages:
    """The tiles of a picture as images, [n, C, h, w] for a slice."""

    picture: Picture
    grid: TileGrid

    def __len__(self) -> int:
        return len(self.grid)

    def __getitem__(self, tiles: slice, /) -> Tensor:
        return torch.cat([read_window(self.picture, self.grid.window(tile)) for tile in list(self.grid)[tiles]])


def check_picture(model: DeconvNet, picture: Picture, mask: Picture | None) -> tuple[int, int, int]:
    """Channels, height and width of the picture; raises an ImageError for what is not one picture of the model."""
    C, shape = model.spec.channels, tuple(picture.shape)
    if len(shape) != 3 or shape[0] != C or 0 in shape:
        raise ImageError(
            f"a picture of shape {list(shape)} was given; expected [{C}, H, W], one picture of {C} channels"
        )
    if mask is not None and (len(mask.shape) != 3 or mask.shape[0] not in (1, C) or mask.shape[1:] != shape[1:]):
        raise ImageError(
            f"a mask of shape {list(mask.shape)} was given for a picture of shape {list(shape)}; "
            f"expected [{one_or(C)}, {shape[1]}, {shape[2]}]"
        )
    return C, shape[1], shape[2]


def read_tile(model: DeconvNet, picture: Picture, mask: Picture | None, rows: slice, columns: slice) -> Target:
    """What the model explains of these pixels, [1, C, h, w]: the input stage sees as far beyond them as it reaches."""
    reach = model.input_stage.reach
    seen = tuple(slice(max(0, side.start - reach), side.stop + reach) for side in (rows, columns))
    inside = tuple(
        slice(side.start - wide.start, side.stop - wide.start) for side, wide in zip((rows, columns), seen, strict=True)
    )
    images, weight = read_window(picture, seen), None if mask is None else read_window(mask, seen)
    target = make_target(model, images, weight, allow_unknown=True)

    def crop(part: Tensor) -> Tensor:
        return part[:, :, *inside]

    return Target(crop(target.v), None if target.mask is None else crop(target.mask), target.background.map(crop))


def read_window(picture: Picture, window: tuple[slice, ...]) -> Tensor:
    """Some pixels of a picture, [1, C, h, w]."""
    pixels = picture[:, window[0], window[1]]
    return (pixels if isinstance(pixels, Tensor) else torch.from_numpy(np.array(pixels)))[None]


def join_masks(targets: Sequence[Target]) -> Tensor | None:
    """The masks of several tiles, 1 for those that have none; None if none has one."""
    if all(target.mask is None for target in targets):
        return None
    ones = (torch.ones_like(target.v) if target.mask is None else target.mask.expand_as(target.v) for target in targets)
    return torch.cat(list(ones))
