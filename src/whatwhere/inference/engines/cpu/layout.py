"""How the state of one image and the filters are stored: flat arrays, and a table of offsets.

Every map is stored as [row, column, map], with the number of maps rounded up to a multiple of LANES (except the
channels of the image). The signals at p_k have a border of zeros as wide as the filters of the layer above need.
Row k of the table is layer k of the paper; row 0 is the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from whatwhere.inference.engines.cpu.winograd import LARGEST, POINTS, SMALLEST, TILES, transform_filters
from whatwhere.jit.simd import LANES
from whatwhere.model import DeconvNet

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in (
            "real_maps",  # maps of the model
            "maps",  # maps in memory
            "size",  # side of the filters, K
            "pool",  # side of a pooling region, s
            "height",  # of the unpooled map z
            "width",
            "rows",  # of the pooled map p
            "columns",
            "border",  # zeros around p
            "fit",  # where the pooling variables come from at the start (see `start`)
            "updates_pooling",  # whether the pooling variables are updated
            "unpooled",  # regions of one element at the top: z is p, at the same offset
            "sparse",  # with fewer non-zero features than this, the pass down visits only those
            "winograd",  # whether the convolution uses Winograd's method
            # offsets in the state of one image
            "features",  # p̂, the reconstruction
            "error",  # the residual propagated up; at the top, the gradient g
            "gain",  # R g, for the line search
            "z",  # the unpooled map of the pass down
            "z_error",  # the error at the unpooled map
            "weights",  # [row, column, axis, element, map]
            "mu",  # [row, column, axis, map]
            "gamma",
            "work",  # memory for Winograd's transforms
            "patches",
            "products",
            # offsets in the filters
            "direct",  # [row, column, map below, map]
            "up",  # the same with points for rows and columns, for Winograd's method only
            "down",  # [row, column, map, map below], rotated by 180°; for an image [channel, row, column, map]
            "scatter",  # [map, row, column, map below], with a border of zeros, pool - 1 wide
            "line",  # length of one row of it
        )
    ]
)


OVERHEAD = 6  # time to find a non-zero feature, in rows of its filter


def round_up(maps: int) -> int:
    """The next multiple of LANES."""
    return -(-maps // LANES) * LANES


def plan_state(model: DeconvNet, height: int, width: int, top: int, moving: Sequence[int]) -> tuple[np.ndarray, int]:
    """The table of layers 0 … top for images of this size, and the number of numbers in the state of one image."""
    table = np.zeros(top + 1, LAYER)
    layers = model.spec.layers[:top]
    channels = model.spec.signal_channels
    table[0]["real_maps"], table[0]["maps"] = channels, channels
    table[0]["rows"], table[0]["columns"] = height, width
    for k, (layer, regions) in enumerate(zip(layers, model.at(height, width).regions, strict=False), start=1):
        row = table[k]
        row["real_maps"], row["maps"], row["size"], row["pool"] = (
            layer.maps, round_up(layer.maps), layer.filter_size, layer.pool_size,
        )  # fmt: skip
        _, row["height"], row["width"] = regions.shape
        _, row["rows"], row["columns"] = regions.grid
        row["updates_pooling"] = k in moving
        row["winograd"] = table[k - 1]["maps"] % LANES == 0 and SMALLEST <= layer.filter_size <= LARGEST
        row["sparse"] = sparse_threshold(table[k - 1], row)
        table[k - 1]["border"] = layer.filter_size - 1
    table[top]["unpooled"] = table[top]["pool"] == 1  # whatever its Gaussian, the weight of the one element is 1
    return table, _place_state(table)


def sparse_threshold(below: np.void, row: np.void) -> int:
    """The number of non-zero features from which the dense pass down is faster (by measurement)."""
    s, size = int(row["pool"]), int(row["size"])
    visit = (OVERHEAD + (4 * (size + 1) if s == 2 else s * s * size)) / (OVERHEAD + 24)  # 1 for the paper's 5×5 and 2×2
    taps = (POINTS / (POINTS + 1 - row["size"])) ** 2 if row["winograd"] else row["size"] ** 2
    products = below["rows"] * below["columns"] * taps * row["maps"] / LANES
    if below["maps"] % LANES == 0:
        return int(products * below["maps"] / (120 * visit))
    return int(products * below["maps"] / (50 * visit * -(-below["maps"] * row["size"] // LANES)))


def _place_state(table: np.ndarray) -> int:
    """Assign all offsets, each at the start of a cache line; return the total length."""
    end = 0

    def reserve(row: np.void, names: Sequence[str], length: int) -> None:
        nonlocal end
        for name in names:
            row[name] = end
            end += round_up(length)

    for k, row in enumerate(table):
        framed = (row["rows"] + 2 * row["border"]) * (row["columns"] + 2 * row["border"]) * row["maps"]
        reserve(row, ("features", "error", "gain"), int(framed))
        if k > 0:
            regions, s = int(row["rows"] * row["columns"] * row["maps"]), int(row["pool"])
            if row["unpooled"]:
                row["z_error"] = row["error"]
            else:
                reserve(row, ("z", "z_error"), regions * s * s)
                reserve(row, ("weights",), regions * 2 * s)
            reserve(row, ("mu", "gamma"), regions * 2)
        if row["winograd"]:
            reserve(row, ("work",), 2 * POINTS**2 * LANES)
            reserve(row, ("patches", "products"), POINTS**2 * TILES * int(max(row["maps"], table[k - 1]["maps"])))
    return end


def pack_filters(model: DeconvNet, table: np.ndarray) -> np.ndarray:
    """All filters, in the orders in which the passes read them. Writes their offsets to the table."""
    pieces: list[Tensor] = []
    for k, row in enumerate(table[1:], start=1):
        f = model.filters[k - 1].detach()  # [C, B, K, K]
        wide = f.new_zeros(int(table[k - 1]["maps"]), int(row["maps"]), *f.shape[2:])
        wide[: f.shape[0], : f.shape[1]] = f
        rotated = wide.flip(2, 3)
        few = table[k - 1]["maps"] % LANES != 0
        direct = wide.permute(2, 3, 0, 1)
        if row["winograd"]:
            up, down = transform_filters(wide), transform_filters(rotated.transpose(0, 1))
        else:
            up, down = direct[:0], rotated.permute(0, 2, 3, 1) if few else rotated.permute(2, 3, 1, 0)
        scatter = pad(wide, [int(row["pool"]) - 1] * 4).permute(1, 2, 3, 0).flatten(2)
        if few:  # a vector must not reach into the next row
            scatter = pad(scatter, (0, round_up(scatter.shape[2]) + LANES - scatter.shape[2]))
        row["line"] = scatter.shape[2]
        for name, piece in (("direct", direct), ("up", up), ("down", down), ("scatter", scatter)):
            row[name] = sum(p.numel() for p in pieces)
            pieces.append(piece.reshape(-1))
    return torch.cat(pieces).numpy()
