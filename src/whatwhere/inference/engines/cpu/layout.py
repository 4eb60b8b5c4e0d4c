"""How one image's whole state and the filters lie in memory: flat arrays, and a table that says where things are.

Every map is stored as [row, column, map], with the number of maps rounded up to whole vectors (the image keeps its
channels as they are). The signals at p_k have a border of zeros as wide as the filters of the layer above need.
Row k of the table is layer k of the paper; row 0 is the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from whatwhere.inference.engines.cpu.simd import LANES
from whatwhere.inference.engines.cpu.winograd import LARGEST, POINTS, SMALLEST, TILES, transform_filters
from whatwhere.model import DeconvNet

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in (
            "real_maps",  # maps that the model has
            "maps",  # maps that are stored
            "size",  # side of the filters, K
            "pool",  # side of a pooling region, s
            "height",  # of the unpooled map z
            "width",
            "rows",  # of the pooled map p
            "columns",
            "border",  # zeros around p
            "fit",  # are the pooling variables known at the start, or how are they fitted? (see `start`)
            "moves",  # do the pooling variables move?
            "unpooled",  # regions of one element at the top: z is p, and lies where p lies
            "sparse",  # with fewer non-zero features than this, the way down touches only those
            "winograd",  # is the convolution done in Winograd's way?
            # where things begin in the state of one image
            "features",  # p̂, the reconstruction on its way down
            "error",  # the residual on its way up; at the top, the gradient g
            "gain",  # R g on its way down, for the line search
            "z",  # the unpooled map on the way down
            "z_error",  # the error at the unpooled map
            "weights",  # [row, column, axis, element, map]
            "mu",  # [row, column, axis, map]
            "gamma",
            "work",  # room for Winograd's transforms
            "patches",
            "products",
            # where things begin in the filters
            "direct",  # [row, column, map below, map]
            "up",  # the same with points for rows and columns, in Winograd's way alone
            "down",  # [row, column, map, map below], turned by half a circle; with few maps below, those first
            "scatter",  # [map, row, column, map below], with zeros around as wide as a region less one
            "line",  # length of one row of it
        )
    ]
)


def stored(maps: int) -> int:
    return -(-maps // LANES) * LANES


def plan_state(model: DeconvNet, height: int, width: int, top: int, moving: Sequence[int]) -> tuple[np.ndarray, int]:
    """The table of layers 0 … top for images of this size, and how many numbers the state of one image takes."""
    table = np.zeros(top + 1, LAYER)
    layers = model.spec.layers[:top]
    channels = model.spec.channels
    table[0]["real_maps"], table[0]["maps"] = channels, channels
    table[0]["rows"], table[0]["columns"] = height, width
    for k, (layer, regions) in enumerate(zip(layers, model.regions(height, width), strict=False), start=1):
        row = table[k]
        row["real_maps"], row["maps"], row["size"], row["pool"] = (
            layer.maps, stored(layer.maps), layer.filter_size, layer.pool_size,
        )  # fmt: skip
        _, row["height"], row["width"] = regions.shape
        _, row["rows"], row["columns"] = regions.grid
        row["moves"] = k in moving
        row["winograd"] = table[k - 1]["maps"] % LANES == 0 and SMALLEST <= layer.filter_size <= LARGEST
        row["sparse"] = few_enough(table[k - 1], row)
        table[k - 1]["border"] = layer.filter_size - 1
    table[top]["unpooled"] = table[top]["pool"] == 1 and not table[top]["moves"]
    return table, _place_state(table)


def few_enough(below: np.void, row: np.void) -> int:
    """With how many non-zero features touching only those is as slow as the dense way down (by measurement)."""
    taps = (POINTS / (POINTS + 1 - row["size"])) ** 2 if row["winograd"] else row["size"] ** 2
    products = below["rows"] * below["columns"] * taps * row["maps"] / LANES
    if below["maps"] % LANES == 0:
        return int(products * below["maps"] / 120)
    return int(products * below["maps"] / (50 * -(-below["maps"] * row["size"] // LANES)))


def _place_state(table: np.ndarray) -> int:
    """Give everything its place, each on a cache line of its own; return the end."""
    end = 0

    def place(row: np.void, names: Sequence[str], length: int) -> None:
        nonlocal end
        for name in names:
            row[name] = end
            end += stored(length)

    for k, row in enumerate(table):
        framed = (row["rows"] + 2 * row["border"]) * (row["columns"] + 2 * row["border"]) * row["maps"]
        place(row, ("features", "error", "gain"), int(framed))
        if k > 0:
            regions, s = int(row["rows"] * row["columns"] * row["maps"]), int(row["pool"])
            if row["unpooled"]:
                row["z_error"] = row["error"]
            else:
                place(row, ("z", "z_error"), regions * s * s)
                place(row, ("weights",), regions * 2 * s)
            place(row, ("mu", "gamma"), regions * 2)
        if row["winograd"]:
            place(row, ("work",), 2 * POINTS**2 * LANES)
            place(row, ("patches", "products"), POINTS**2 * TILES * int(max(row["maps"], table[k - 1]["maps"])))
    return end


def pack_filters(model: DeconvNet, table: np.ndarray) -> np.ndarray:
    """All filters, each in the order in which a pass reads them; the table learns where they begin."""
    pieces: list[Tensor] = []
    for k, row in enumerate(table[1:], start=1):
        f = model.filters[k - 1].detach()  # [C, B, K, K]
        wide = f.new_zeros(int(table[k - 1]["maps"]), int(row["maps"]), *f.shape[2:])
        wide[: f.shape[0], : f.shape[1]] = f
        turned = wide.flip(2, 3)
        few = table[k - 1]["maps"] % LANES != 0
        direct = wide.permute(2, 3, 0, 1)
        if row["winograd"]:
            up, down = transform_filters(wide), transform_filters(turned.transpose(0, 1))
        else:
            up, down = direct[:0], turned.permute(0, 2, 3, 1) if few else turned.permute(2, 3, 1, 0)
        scatter = pad(wide, [int(row["pool"]) - 1] * 4).permute(1, 2, 3, 0).flatten(2)
        if few:  # a vector must not reach into the next row
            scatter = pad(scatter, (0, stored(scatter.shape[2]) + LANES - scatter.shape[2]))
        row["line"] = scatter.shape[2]
        for name, piece in (("direct", direct), ("up", up), ("down", down), ("scatter", scatter)):
            row[name] = sum(p.numel() for p in pieces)
            pieces.append(piece.reshape(-1))
    return torch.cat(pieces).numpy()
