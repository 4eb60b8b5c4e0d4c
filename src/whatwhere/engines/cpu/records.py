"""The values that the kernels get: a table of layers, settings, and the data of one image or one
step."""

from typing import Any, NamedTuple

import numpy as np

from whatwhere.engines.jit import Array
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LineSearch

LAYER = np.dtype(
    [
        (name, np.int64)
        for name in (
            "real_maps",  # of the model
            "maps",  # in memory
            "size_y",  # of the filters, K rows and L columns
            "size_x",
            "pool_y",  # of a pooling region
            "pool_x",
            "stride_y",  # from one region to the next
            "stride_x",
            "height",  # of the unpooled map z
            "width",
            "z_rows",  # of z together with what the regions reach beyond it
            "z_columns",
            "rows",  # of the pooled map p
            "columns",
            "border_y",  # zeros above and below p
            "border_x",  # to the left and to the right
            "region_down",  # numbers of z from a region to the one below
            "region_right",  # to the one on the right
            "region_weights",  # numbers of a region's weights
            "fit",  # where the pooling variables come from at the start (see `start`)
            "updates_pooling",  # whether the pooling variables are updated
            "unpooled",  # regions of one element at the top: z is p, at the same offset
            "sparse",  # with fewer non-zero features than this, the pass down visits only those
            "winograd",  # whether the convolution uses Winograd's method
            "few",  # few maps of a signal: they are convolved without those that fill a vector
            # offsets in the state of one image
            "features",  # p̂, the reconstruction
            "error",  # the residual propagated up; at the top, the gradient g
            "gain",  # R g, for the line search
            "z",  # the unpooled map of the pass down
            "z_error",  # the error at the unpooled map
            # [row, column, axis and element, map]: those along rows, those along columns
            "weights",
            "mu",  # [row, column, axis, map], the axes in the same order
            "gamma",
            "work",  # memory for Winograd's transforms
            "patches",
            "products",
            "few_z",  # z without the maps that fill a vector, where maps are few
            # offsets in the filters
            "direct",  # [row, column, map below, map]
            "up",  # the same with points for rows and columns, for Winograd's method only
            # [row, column, map, map below], rotated by 180°; for an image [channel, row, column,
            # map]
            "down",
            # [map, row, column, map below], with a border of zeros: pool - 1 rows and columns
            "scatter",
            "line",  # length of one row of it
            # where maps are few, one filter after the other, each up to a whole vector
            "few_up",  # [map, column, channel]
            "few_down",  # [channel, column, map], rotated by 180°
        )
    ]
)
Layer = Any  # one row of such a table

SETTINGS = np.dtype(
    [
        ("lam", np.float64),
        ("penalty_kind", np.int64),  # the penalty's `code`
        ("penalty_parameter", np.float64),
        ("pooling_step", np.float64),
        ("gamma_min", np.float64),
        ("gamma_max", np.float64),
        ("moment_power", np.int64),
        ("momentum", np.bool_),
        ("nonnegative", np.bool_),
        ("line_search", np.bool_),  # measure ‖M ⊙ R g‖² too
        ("own_step", np.bool_),  # and use it for the step size of the image
        # no latents are known: the fit of the start is the first pass up, too
        ("from_zero", np.bool_),
        ("fast_fit", np.bool_),  # by the fastest convolution
    ]
)
Settings = Any  # one such record


def pack_settings(model: DeconvNet, spec: InferenceSpec) -> np.ndarray:
    """Return the settings that the kernels read, one record; the caller fills in the others."""
    record = np.zeros(1, SETTINGS)
    record["lam"] = spec.lam
    record["penalty_kind"], record["penalty_parameter"] = spec.penalty.code
    record["pooling_step"] = spec.pooling_step
    record["gamma_min"] = spec.moments.gamma_min
    record["gamma_max"] = spec.moments.gamma_max
    record["moment_power"] = spec.moments.power
    record["momentum"] = spec.momentum or spec.schedule is not None
    record["nonnegative"] = model.spec.nonnegative
    own_step = isinstance(spec.step, LineSearch) and not spec.per_batch
    record["line_search"] = own_step
    record["own_step"] = own_step
    return record


class Network(NamedTuple):
    """The table of layers, and the filters in the orders in which the passes read them
    (`layout`)."""

    layers: Array
    filters: Array


class Target(NamedTuple):
    """One image: its signal [H W C], and the mask, which has a weight for each number or is
    empty."""

    image: Array
    mask: Array


class Codes(NamedTuple):
    """Where the new features are written, and the old ones are: offsets in an array. Without
    momentum both are y."""

    memory: Array
    new: int
    old: int


class Step(NamedTuple):
    """One step: its number from 1 on, its size β, and the `schedule` of all, or no rows.

    A row [2 + layers] has the threshold, the extrapolation and β_U of every layer, which `rate` is
    multiplied by.
    """

    number: int
    size: float
    schedule: Array
    rate: float


class Feature(NamedTuple):
    """One feature that is not zero: p, and where the weights of its region begin in the state."""

    p: float
    weights: int


class Map(NamedTuple):
    """A map in the state: where it begins, from row to row, its maps, its rows and columns."""

    at: int
    pitch: int
    maps: int
    rows: int
    columns: int
