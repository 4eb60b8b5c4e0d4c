"""How the state of one image and the filters are stored: flat arrays, and a table of offsets.

Every map is stored as [row, column, map], with the number of maps rounded up to a multiple of LANES
(except the channels of the image). The signals at p_k have a border of zeros as wide as the filters
of the layer above need. Row k of the table is layer k of the paper; row 0 is the image.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from whatwhere.engines.cpu.records import LAYER
from whatwhere.engines.cpu.winograd import LARGEST, POINTS, SMALLEST, TILES, transform_filters
from whatwhere.engines.jit.simd import LANES
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class PackedModel:
    """A model as the kernels read it: the table of layers, the numbers in the state of one image,
    the filters.

    `sources` are the filters that were packed, of both passes, and how often they had been written
    to. `kept_memory` is at most one `Memory`, which the last solve of a single image has left for
    the next.
    """

    table: np.ndarray
    state_size: int
    filters: np.ndarray
    sources: list[tuple[Tensor, int]]
    kept_memory: list[Any] = field(default_factory=list)

    def holds(self, model: DeconvNet) -> bool:
        top = len(self.sources) // 2
        filters = model.filters[:top] + model.upward[:top]
        return all(
            f is g and f._version == count
            for f, (g, count) in zip(filters, self.sources, strict=True)
        )


_packed: OrderedDict[tuple[object, ...], PackedModel] = OrderedDict()


def pack_model(
    model: DeconvNet, height: int, width: int, top: int, moving: Sequence[int]
) -> PackedModel:
    """Return the model packed for images of this size. The last few are cached: packing takes as
    long as several steps."""
    key = (model.spec, model.dtype, model.tied, height, width, top, tuple(moving))
    packed = _packed.pop(key, None)
    if packed is None or not packed.holds(model):
        table, state_size = plan_state(model, height, width, top, moving)
        filters = pack_filters(model, table)
        sources = [(f, f._version) for f in model.filters[:top] + model.upward[:top]]
        packed = PackedModel(table, state_size, filters, sources)
    _packed[key] = packed
    while len(_packed) > 4:  # cached for the next calls
        _packed.popitem(last=False)
    return replace(packed, table=packed.table.copy())


def round_up(maps: int) -> int:
    """Return the next multiple of LANES."""
    return -(-maps // LANES) * LANES


def plan_state(
    model: DeconvNet, height: int, width: int, top: int, moving: Sequence[int]
) -> tuple[np.ndarray, int]:
    """Return the table of layers 0 … top for images of this size, and the number of numbers in the
    state of one image."""
    table = np.zeros(top + 1, LAYER)
    layers = model.spec.layers[:top]
    channels = model.spec.target_channels
    table[0]["real_maps"], table[0]["maps"] = channels, channels
    table[0]["rows"], table[0]["columns"] = height, width
    for k, (layer, regions) in enumerate(
        zip(layers, model.at(height, width).regions, strict=False), start=1
    ):
        row = table[k]
        row["real_maps"], row["maps"] = layer.maps, round_up(layer.maps)
        (row["size_y"], row["size_x"]), (row["pool_y"], row["pool_x"]) = (
            layer.filter_shape,
            layer.pool_shape,
        )
        row["stride_y"], row["stride_x"] = layer.strides
        _, row["height"], row["width"] = regions.shape
        _, row["rows"], row["columns"] = regions.grid
        _, row["z_rows"], row["z_columns"] = regions.extent
        row["region_down"] = row["stride_y"] * row["z_columns"] * row["maps"]
        row["region_right"] = row["stride_x"] * row["maps"]
        row["region_weights"] = (row["pool_y"] + row["pool_x"]) * row["maps"]
        row["updates_pooling"] = k in moving
        small = all(SMALLEST <= side <= LARGEST for side in layer.filter_shape)
        row["winograd"] = table[k - 1]["maps"] % LANES == 0 and small
        row["few"] = _has_few_maps(table[k - 1], row)
        row["sparse"] = sparse_threshold(table[k - 1], row)
        table[k - 1]["border_y"], table[k - 1]["border_x"] = row["size_y"] - 1, row["size_x"] - 1
    # whatever its Gaussian, the weight of the one element is 1
    table[top]["unpooled"] = table[top]["pool_y"] * table[top]["pool_x"] == 1
    return table, _place_state(table)


def _has_few_maps(below: np.void, row: np.void) -> bool:
    """Tell whether a layer has maps of signals that fill at most half of the vectors that hold
    them, as the waveforms of a recording."""
    of_signals = below["rows"] == 1 and row["size_y"] == 1 and row["z_rows"] == 1
    return bool(of_signals and below["maps"] % LANES and 2 * row["real_maps"] <= row["maps"])


def sparse_threshold(below: np.void, row: np.void) -> int:
    """Return the number of non-zero features from which the dense pass down is faster (by
    measurement)."""
    region, K, L = (int(row["pool_y"]), int(row["pool_x"])), int(row["size_y"]), int(row["size_x"])
    rows = 4 * (K + 1) if region == (2, 2) else math.prod(region) * K
    overhead = 6  # time to find a non-zero feature, in rows of its filter
    visit = (overhead + rows) / (overhead + 24)  # 1 for the paper's 5×5 and 2×2
    taps = POINTS**2 / ((POINTS + 1 - K) * (POINTS + 1 - L)) if row["winograd"] else K * L
    maps = row["real_maps"] if row["few"] else row["maps"]
    products = below["rows"] * below["columns"] * taps * maps * below["maps"]
    if below["maps"] % LANES == 0:
        return int(products / (1920 * visit * L / K))
    return int(products / (50 * LANES * visit * -(-below["maps"] * L // LANES)))


def _place_state(table: np.ndarray) -> int:
    """Assign all offsets, each at the start of a cache line; return the total length."""
    end = 0

    def reserve(row: np.void, names: Sequence[str], length: int) -> None:
        nonlocal end
        for name in names:
            row[name] = end
            end += round_up(length)

    # first what back-propagation needs of every step (`adjoint`), then scratch
    for k, row in enumerate(table):
        reserve(row, ("features", "error"), _framed(row))
        if k > 0:
            if row["unpooled"]:
                row["z_error"] = row["error"]
            else:
                reserve(row, ("z_error",), _unpooled(row))
            reserve(row, ("mu", "gamma"), 2 * int(row["rows"] * row["columns"] * row["maps"]))
    for k, row in enumerate(table):
        reserve(row, ("gain",), _framed(row))
        if k > 0 and not row["unpooled"]:
            reserve(row, ("z",), _unpooled(row))
            reserve(row, ("weights",), int(row["rows"] * row["columns"] * row["region_weights"]))
        if row["few"]:  # a whole vector is read at its end
            reserve(row, ("few_z",), int(row["width"] * row["real_maps"]) + LANES)
        if row["winograd"]:
            reserve(row, ("work",), 2 * POINTS**2 * LANES)
            reserve(
                row,
                ("patches", "products"),
                POINTS**2 * TILES * int(max(row["maps"], table[k - 1]["maps"])),
            )
    return end


def _framed(row: np.void) -> int:
    """Return the numbers of a signal at p_k with its border."""
    rows = row["rows"] + 2 * row["border_y"]
    return int(rows * (row["columns"] + 2 * row["border_x"]) * row["maps"])


def _unpooled(row: np.void) -> int:
    """Return the numbers of a map at z_k."""
    return int(row["z_rows"] * row["z_columns"] * row["maps"])


def _wide_filters(f: Tensor, table: np.ndarray, k: int) -> Tensor:
    """Return filters of layer k [C, B, K, L] with as many maps as there are in memory, 0 where the
    model has none."""
    wide = f.new_zeros(int(table[k - 1]["maps"]), int(table[k]["maps"]), *f.shape[2:])
    wide[: f.shape[0], : f.shape[1]] = f.detach()
    return wide


def whole_vectors(rows: Tensor) -> Tensor:
    """Rows [n, length] with zeros up to a multiple of LANES."""
    return pad(rows, (0, round_up(rows.shape[1]) - rows.shape[1]))


def pack_filters(model: DeconvNet, table: np.ndarray) -> np.ndarray:
    """Return all filters, in the orders in which the passes read them. Writes their offsets to the
    table."""
    pieces: list[Tensor] = []
    for k, row in enumerate(table[1:], start=1):
        wide, upward = (_wide_filters(f[k - 1], table, k) for f in (model.filters, model.upward))
        rotated = wide.flip(2, 3)
        few = table[k - 1]["maps"] % LANES != 0
        direct = upward.permute(2, 3, 0, 1)
        if row["winograd"]:
            up, down = transform_filters(upward), transform_filters(rotated.transpose(0, 1))
        else:
            up, down = (
                direct[:0],
                rotated.permute(0, 2, 3, 1) if few else rotated.permute(2, 3, 1, 0),
            )
        margin_y, margin_x = int(row["pool_y"]) - 1, int(row["pool_x"]) - 1
        scatter = pad(wide, (margin_x, margin_x, margin_y, margin_y)).permute(1, 2, 3, 0).flatten(2)
        if few:  # a vector must not reach into the next row
            scatter = pad(scatter, (0, round_up(scatter.shape[2]) + LANES - scatter.shape[2]))
        row["line"] = scatter.shape[2]
        pieces_of_row = {"direct": direct, "up": up, "down": down, "scatter": scatter}
        if row["few"]:
            real = slice(0, int(row["real_maps"]))
            pieces_of_row["few_up"] = whole_vectors(upward[:, real, 0].permute(1, 2, 0).flatten(1))
            pieces_of_row["few_down"] = whole_vectors(
                rotated[:, real, 0].transpose(1, 2).flatten(1)
            )
        for name, piece in pieces_of_row.items():
            row[name] = sum(p.numel() for p in pieces)
            pieces.append(piece.reshape(-1))
    return torch.cat(pieces).numpy()
