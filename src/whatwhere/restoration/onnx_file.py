"""The denoiser as an ONNX file, which `onnxruntime` runs, and `onnxruntime-web` in a browser.

The graph has convolutions of 2 × 2 blocks of 8 × 8 pixels, soft thresholds, and sums; the picture
may have any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from whatwhere.errors import MissingExtra
from whatwhere.files import claim, write_atomic
from whatwhere.restoration.denoiser import BLOCK, GREY, MARGIN, Denoiser, grid_places
from whatwhere.restoration.settings import RestorationSpec

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike
    from onnx import NodeProto, TensorProto

_OPSET = 17  # of ONNX, the first with all operators in browsers, too


class _Graph:
    """Nodes and constants of a graph, as they are added."""

    def __init__(self, helper: ModuleType, numpy_helper: ModuleType) -> None:
        self._helper = helper
        self._numpy_helper = numpy_helper
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, values: ArrayLike, dtype: type = np.float32) -> str:
        """Add numbers; return their name."""
        name = f"c{len(self.constants)}"
        array: np.ndarray = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(self._numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Add a node; return the name of its output."""
        output = name or f"n{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [output], **attributes))
        return output


def save_onnx(
    denoiser: Denoiser,
    path: str | PathLike[str],
    spec: RestorationSpec | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a denoiser as an ONNX file.

    Its inputs are `picture`, [H, W] of float32 with values from 0 to 1 and at least 2 × 2 pixels,
    and `sigma`, [1], the standard deviation of its white noise from 2 to 75 of 255. Its output
    `clean` is [H, W], and equals `Denoiser.denoise` to 1e-3.

    Parameters
    ----------
    denoiser
        such as `load_denoiser()`
    path
        the file to write
    spec
        settings; only `quality` counts, the number of shifts of the grid
    overwrite
        replace a file that exists

    Examples
    --------
    >>> import pathlib
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "denoiser.onnx"
    >>> ww.restoration.save_onnx(ww.restoration.load_denoiser(), path)
    >>> path.stat().st_size < 6e6
    True
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingExtra("onnx", "writing an ONNX file") from None
    denoiser = denoiser.to("cpu")
    graph = _Graph(helper, numpy_helper)
    shifts = (spec or RestorationSpec()).quality
    t, g = _thresholds_and_gains(graph, denoiser)
    filters = _filters(graph, denoiser)
    padded, height, width = _padded(graph)
    total = ""
    for place in grid_places(shifts):
        blocks, ends = _blocks_at(graph, padded, place)
        clean = _steps(graph, filters, blocks, t, g)
        pixels = _pixels_at(graph, clean, place, ends, padded)
        total = graph.add("Add", total, pixels) if total else pixels
    mean = graph.add("Div", total, graph.constant(float(shifts)))
    starts = graph.constant([MARGIN, MARGIN], np.int64)
    ends = graph.add("Concat", height, width, axis=0)
    ends = graph.add("Add", ends, starts)
    inner = graph.add("Slice", mean, starts, ends, graph.constant([2, 3], np.int64))
    flat = graph.add("Squeeze", inner, graph.constant([0, 1], np.int64))
    graph.add("Add", flat, graph.constant(GREY), name="clean")
    kind = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("picture", kind, ["H", "W"]),
        helper.make_tensor_value_info("sigma", kind, [1]),
    ]
    outputs = [helper.make_tensor_value_info("clean", kind, ["H", "W"])]
    made = helper.make_graph(graph.nodes, "denoiser", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    claim([Path(path)], overwrite=overwrite)
    write_atomic(Path(path), model.SerializeToString())


def _thresholds_and_gains(graph: _Graph, denoiser: Denoiser) -> tuple[list[str], str]:
    """Add the interpolation in log σ; return a threshold [1, M, 1, 1] for every step, and the gain.

    A weight of each level is a hat function of log σ.
    """
    knots = denoiser.levels.double().log().numpy()
    low, high = float(denoiser.levels[0]), float(denoiser.levels[-1])
    level = graph.add("Clip", "sigma", graph.constant(low), graph.constant(high))
    x = graph.add("Log", level)
    weights = []
    for i, knot in enumerate(knots):
        sides = []
        if i > 0:
            slope = 1 / (knot - knots[i - 1])
            sides.append(_line(graph, x, slope, 1 - slope * knot))
        if i + 1 < len(knots):
            slope = -1 / (knots[i + 1] - knot)
            sides.append(_line(graph, x, slope, 1 - slope * knot))
        hat = graph.add("Min", *sides) if len(sides) > 1 else sides[0]
        weights.append(graph.add("Max", hat, graph.constant([0.0])))
    row = graph.add("Concat", *weights, axis=0)
    row = graph.add("Unsqueeze", row, graph.constant([0], np.int64))

    def at_level(values: Tensor) -> str:
        product = graph.add("MatMul", row, graph.constant(values.numpy()))
        shaped = graph.add("Reshape", product, graph.constant([1, -1, 1, 1], np.int64))
        return graph.add("Exp", shaped)

    thresholds = [
        graph.add("Mul", at_level(denoiser.threshold[:, k]), "sigma")
        for k in range(denoiser.threshold.shape[1])
    ]
    return thresholds, at_level(denoiser.gain)


def _line(graph: _Graph, x: str, slope: float, level: float) -> str:
    scaled = graph.add("Mul", x, graph.constant([slope]))
    return graph.add("Add", scaled, graph.constant([level]))


def _padded(graph: _Graph) -> tuple[str, str, str]:
    """Add the continuation of the picture beyond its border; return it as [1, 1, H', W'], with the
    height and the width before, [1] each."""
    shape = graph.add("Shape", "picture")
    axis = graph.constant([0], np.int64)
    height, width = (
        graph.add("Slice", shape, graph.constant([k], np.int64), graph.constant([k + 1], np.int64))
        for k in (0, 1)
    )
    result = graph.add("Sub", "picture", graph.constant(GREY))
    for k, size in enumerate((height, width)):
        # place i of a line that is reflected again and again
        last = graph.add("Sub", size, graph.constant([1], np.int64))
        period = graph.add("Mul", last, graph.constant([2], np.int64))
        end = graph.add("Add", size, graph.constant([MARGIN + BLOCK], np.int64))
        line = graph.add(
            "Range",
            graph.constant(-MARGIN, np.int64),
            graph.add("Squeeze", end, axis),
            graph.constant(1, np.int64),
        )
        inside = graph.add("Mod", line, period)
        back = graph.add("Sub", period, inside)
        places = graph.add("Min", inside, back)
        result = graph.add("Gather", result, places, axis=k)
    return graph.add("Unsqueeze", result, graph.constant([0, 1], np.int64)), height, width


def _blocks_at(graph: _Graph, padded: str, place: tuple[int, int]) -> tuple[str, str]:
    """Add the blocks [1, 64, h, w] of the grid at a place; return them and where it ends, [2]."""
    shape = graph.add(
        "Slice",
        graph.add("Shape", padded),
        graph.constant([2], np.int64),
        graph.constant([4], np.int64),
    )
    block = graph.constant([BLOCK, BLOCK], np.int64)
    room = graph.add("Sub", shape, graph.constant([BLOCK - 1, BLOCK - 1], np.int64))
    size = graph.add("Mul", graph.add("Div", room, block), block)
    start = graph.constant(place, np.int64)
    ends = graph.add("Add", size, start)
    window = graph.add("Slice", padded, start, ends, graph.constant([2, 3], np.int64))
    return graph.add("SpaceToDepth", window, blocksize=BLOCK), ends


@dataclass(frozen=True)
class _Filters:
    """Names of the filters: of every group of steps, of every group, of the result."""

    analysis: list[str]
    residual: list[str]
    synthesis: str


def _filters(graph: _Graph, denoiser: Denoiser) -> _Filters:
    """Add the filters [4 s², M] as those of a convolution, [M, s², 2, 2]."""

    def add(values: Tensor) -> str:
        shaped = values.unflatten(0, (2, 2, -1)).permute(3, 2, 0, 1)
        return graph.constant(shaped.numpy())

    return _Filters(
        [add(values) for values in denoiser.analysis],
        [add(values.mT) for values in denoiser.residual],
        add(denoiser.synthesis.mT),
    )


def _steps(graph: _Graph, filters: _Filters, y: str, t: list[str], g: str) -> str:
    """Add the steps on blocks [1, s², h, w]."""
    groups, steps = len(filters.analysis), len(t)
    z = ""
    for k in range(steps):
        rest = y
        if z:
            explained = graph.add("ConvTranspose", z, filters.residual[k * groups // steps])
            rest = graph.add("Sub", y, explained)
        u = graph.add("Conv", rest, filters.analysis[k * groups // steps])
        z = graph.add("Add", z, u) if z else u
        inside = graph.add("Min", graph.add("Max", z, graph.add("Neg", t[k])), t[k])
        z = graph.add("Sub", z, inside)
    return graph.add("ConvTranspose", graph.add("Mul", z, g), filters.synthesis)


def _pixels_at(graph: _Graph, blocks: str, place: tuple[int, int], ends: str, padded: str) -> str:
    """Add the picture of blocks, at its place in the padded one."""
    pixels = graph.add("DepthToSpace", blocks, blocksize=BLOCK)
    shape = graph.add(
        "Slice",
        graph.add("Shape", padded),
        graph.constant([2], np.int64),
        graph.constant([4], np.int64),
    )
    after = graph.add("Sub", shape, ends)
    zeros = graph.constant([0, 0], np.int64)
    pads = graph.add("Concat", zeros, graph.constant(place, np.int64), zeros, after, axis=0)
    return graph.add("Pad", pixels, pads)
